//! Opening recordings: compression, size limits, and what format a file has.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::ImportError;

/// Bounds on what a file may make us hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes after decompression.
    pub max_bytes: u64,
    /// Events, nodes, rows or operations.
    pub max_events: u64,
}

impl Default for Limits {
    /// 16 GiB of text, 50 million events: more than any recording seen, less than a bomb.
    fn default() -> Self {
        Limits {
            max_bytes: 16 << 30,
            max_events: 50_000_000,
        }
    }
}

/// A format of recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// PyTorch profiler.
    Kineto,
    /// PyTorch execution trace.
    ExecutionTrace,
    /// PyTorch memory snapshot.
    Snapshot,
    /// Nsight Systems.
    Nsys,
    /// Accel-Sim.
    AccelSim,
    /// G10.
    G10,
    /// Ours.
    TrainTrace,
}

impl Format {
    /// All formats for a message.
    pub(super) fn list() -> &'static str {
        "PyTorch profiler (Kineto) JSON, PyTorch execution trace (Chakra) JSON, torch.cuda.memory._snapshot() pickle, \
         Nsight Systems SQLite export, Accel-Sim .traceg or kernelslist.g, G10 workload JSON, uvm-train-trace; JSON and \
         text plain, .gz, .xz or .zst"
    }
}

/// Bytes that decoding xz may take: `xz -9` needs 65 MiB.
const MOST_DICTIONARY: u64 = 256 << 20;

/// The end of the reader's budget is an error, not the end of the file.
struct Bounded<R> {
    inner: R,
    left: u64,
}

/// Marks the error of [`Bounded`].
const BOUND: &str = "more data than allowed";

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(n as u64)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, BOUND))?;
        Ok(n)
    }
}

/// Some tools put it before text; it is no part of it.
const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// Opens a file, plain, gzip, xz or zstd by its first bytes.
pub(super) fn open(file: &Path, limits: &Limits) -> Result<Box<dyn BufRead>, ImportError> {
    let io = |source| ImportError::Io {
        file: file.to_path_buf(),
        source,
    };
    if file.is_dir() {
        return Err(io(io::Error::other("it is a folder")));
    }
    let mut reader = BufReader::with_capacity(1 << 18, File::open(file).map_err(io)?);
    let magic = reader.fill_buf().map_err(io)?;
    let bounded = |inner: Box<dyn Read>| {
        let left = limits.max_bytes;
        Box::new(BufReader::with_capacity(1 << 18, Bounded { inner, left }))
    };
    let mut reader = if magic.starts_with(&[0x1f, 0x8b]) {
        bounded(Box::new(flate2::bufread::MultiGzDecoder::new(reader)))
    } else if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        bounded(Box::new(
            zstd::stream::read::Decoder::with_buffer(reader).map_err(io)?,
        ))
    } else if magic.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
        let flags = liblzma::stream::CONCATENATED;
        let decoder = liblzma::stream::Stream::new_stream_decoder(MOST_DICTIONARY, flags);
        let decoder = decoder.map_err(|error| io(error.into()))?;
        bounded(Box::new(liblzma::bufread::XzDecoder::new_stream(reader, decoder)))
    } else {
        bounded(Box::new(reader))
    };
    let head = reader
        .fill_buf()
        .map_err(|error| read_error(file, "a recording", &error, limits))?;
    if head.starts_with(BYTE_ORDER_MARK) {
        reader.consume(BYTE_ORDER_MARK.len());
    }
    Ok(reader)
}

/// The error of a reader, as one of an import.
pub(super) fn read_error(
    file: &Path,
    format: &'static str,
    error: &io::Error,
    limits: &Limits,
) -> ImportError {
    if error.to_string().contains(BOUND) {
        return too_large(file, limits);
    }
    ImportError::Malformed {
        file: file.to_path_buf(),
        format,
        place: "while reading".to_owned(),
        what: format!("{error}; is the file complete?"),
    }
}

fn too_large(file: &Path, limits: &Limits) -> ImportError {
    ImportError::TooLarge {
        file: file.to_path_buf(),
        what: format!(
            "more than {} bytes after decompression; --max-size raises the limit",
            limits.max_bytes
        ),
    }
}

/// Too many events.
pub(super) fn too_many(file: &Path, limits: &Limits, what: &str) -> ImportError {
    ImportError::TooLarge {
        file: file.to_path_buf(),
        what: format!(
            "more than {} {what}; --max-events raises the limit",
            limits.max_events
        ),
    }
}

/// The error of a JSON parser, as one of an import.
pub(super) fn json_error(
    file: &Path,
    format: &'static str,
    error: &serde_json::Error,
    limits: &Limits,
) -> ImportError {
    let text = error.to_string();
    if text.contains(BOUND) {
        return too_large(file, limits);
    }
    if let Some(what) = text.split(TOO_MANY).nth(1) {
        let what = what.split(" at line").next().unwrap_or(what);
        return too_many(file, limits, what);
    }
    let hint = if error.is_eof() {
        "; the file is truncated"
    } else if error.is_syntax() {
        "; the file is damaged or not what it looks like"
    } else {
        ""
    };
    // serde_json ends its message with the place.
    let message = text.split(" at line ").next().unwrap_or(&text).to_owned();
    ImportError::Malformed {
        file: file.to_path_buf(),
        format,
        place: format!("line {}, column {}", error.line(), error.column()),
        what: format!("{message}{hint}"),
    }
}

/// Marks an error of a visitor: too many of what follows.
pub(super) const TOO_MANY: &str = "too many: ";

/// How much of a file is looked at to tell its format.
const HEAD: usize = 1 << 16;

/// What a file of a kind that is often at hand is, and what to take instead.
fn other_tool(file: &Path, head: &[u8]) -> Option<&'static str> {
    let name = file.file_name()?.to_string_lossy().to_lowercase();
    let is = |ending: &str| name.ends_with(ending);
    if head.starts_with(b"PK\x03\x04") {
        // `torch.save` writes archives too.
        Some(
            "a ZIP archive; unpack it, or, if torch.save wrote it, write the snapshot with \
             torch.cuda.memory._dump_snapshot()",
        )
    } else if head.get(257..262) == Some(b"ustar") {
        Some("a TAR archive; unpack it first")
    } else if is(".nsys-rep") || is(".qdrep") {
        Some("a report of Nsight Systems; `nsys export --type sqlite` makes what can be read")
    } else if is(".ncu-rep") {
        Some("a report of Nsight Compute, which has no order of kernels; record with Nsight Systems")
    } else if head.starts_with(b"(dp")
        || head.starts_with(b"(lp")
        || head.starts_with(b"}q")
        || head.starts_with(b"]q")
    {
        Some("a pickle of protocol 0 or 1; write it with protocol 2 or later")
    } else if is(".et") && head.contains(&0) {
        Some(
            "a Chakra graph of a device, which has no tensor sizes; record the host trace (ExecutionTraceObserver)",
        )
    } else {
        None
    }
}

/// The format of a file.
pub(super) fn detect(file: &Path, limits: &Limits) -> Result<Format, ImportError> {
    let mut head = vec![0; HEAD];
    let mut filled = 0;
    let mut reader = open(file, limits)?;
    while filled < HEAD {
        match reader.read(&mut head[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            // A truncated archive can still tell what it is.
            Err(_) if filled > 0 => break,
            Err(error) => return Err(read_error(file, "a recording", &error, limits)),
        }
    }
    head.truncate(filled);
    let unknown = |what: &str| ImportError::Unknown {
        file: file.to_path_buf(),
        what: what.to_owned(),
    };
    if head.is_empty() {
        return Err(unknown("the file is empty"));
    }
    if head.starts_with(b"SQLite format 3\0") {
        return Ok(Format::Nsys);
    }
    if head[0] == 0x80 && head.get(1).is_some_and(|protocol| *protocol <= 5) {
        return Ok(Format::Snapshot);
    }
    if let Some(what) = other_tool(file, &head) {
        return Err(unknown(what));
    }
    let text = String::from_utf8_lossy(&head);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let has = |key: &str| text.contains(key);
    match text.chars().next() {
        Some('{') => {
            let line = text.lines().next().unwrap_or_default();
            if line.contains("uvm-train-trace/") {
                Ok(Format::TrainTrace)
            } else if line.contains("\"uvmprog/") {
                Err(ImportError::Unsupported {
                    file: file.to_path_buf(),
                    what: "it is a program already; `uvmsim run` or `uvmsim inspect` it".to_owned(),
                })
            } else if has("g10-workload-v") {
                Ok(Format::G10)
            } else if has("\"workload_graph\"") || (has("\"NodeType\"") && has("\"data_deps\"")) {
                Err(ImportError::Unsupported {
                    file: file.to_path_buf(),
                    what: "a device-level Chakra graph has no tensor sizes; record the host trace \
                           (ExecutionTraceObserver) instead"
                        .to_owned(),
                })
            } else if has("\"traceEvents\"") {
                Ok(Format::Kineto)
            } else if has("\"nodes\"") && (has("\"schema\"") || has("\"ctrl_deps\"")) {
                Ok(Format::ExecutionTrace)
            } else if has("\"schemaVersion\"") || has("\"deviceProperties\"") {
                // The events may come late in the file.
                Ok(Format::Kineto)
            } else {
                Err(unknown("JSON with none of their keys"))
            }
        }
        Some('[') if has("\"ph\"") => Ok(Format::Kineto),
        Some('[') => Err(unknown("a JSON list without trace events")),
        _ if text.lines().take(200).any(|line| {
            let line = line.trim();
            line.starts_with("-kernel name")
                || line.starts_with("MemcpyHtoD,")
                || (line.starts_with("kernel-") && line.contains(".trace"))
        }) =>
        {
            Ok(Format::AccelSim)
        }
        _ if head.contains(&0) => Err(unknown("binary data")),
        _ => Err(unknown("text")),
    }
}
