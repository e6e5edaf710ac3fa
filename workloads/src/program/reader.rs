//! Reading and checking programs.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use super::{FORMAT, Op, Piece, Program, ProgramError};

/// A line longer than this is refused: no honest operation needs it.
const MAX_LINE: u64 = 64 << 20;
/// Bytes of a tensor, at most: 1 PiB.
const MAX_TENSOR: u64 = 1 << 50;
/// Duration of a kernel, at most, nanoseconds: 11 days.
const MAX_NS: u64 = 1_000_000_000_000_000;
/// Ranges of one operation, at most.
const MAX_PIECES: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    name: String,
    #[serde(default)]
    iterations: Option<u32>,
}

/// Reads a program from a file, plain or compressed (by its first bytes).
///
/// # Errors
/// What is wrong, with file and line.
pub fn read(path: &Path) -> Result<Program, ProgramError> {
    let file = path.display().to_string();
    let io = |source| ProgramError::Io {
        file: file.clone(),
        source,
    };
    let mut reader = BufReader::new(File::open(path).map_err(io)?);
    let magic = reader.fill_buf().map_err(io)?;
    let (gzip, zstd) = (
        magic.starts_with(&[0x1f, 0x8b]),
        magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]),
    );
    if gzip {
        parse(
            BufReader::new(flate2::bufread::MultiGzDecoder::new(reader)),
            &file,
        )
    } else if zstd {
        parse(
            BufReader::new(zstd::stream::read::Decoder::with_buffer(reader).map_err(io)?),
            &file,
        )
    } else {
        parse(reader, &file)
    }
}

/// Parses a program; `file` is for messages.
///
/// # Errors
/// What is wrong, with file and line.
pub fn parse(mut reader: impl BufRead, file: &str) -> Result<Program, ProgramError> {
    let mut line = 0;
    let mut buffer = Vec::new();
    let mut program: Option<Program> = None;
    let mut announced = None;
    let mut checker = Checker::default();
    loop {
        buffer.clear();
        line += 1;
        let wrong = |what: String| ProgramError::Line {
            file: file.to_owned(),
            line,
            what,
        };
        let read = (&mut reader)
            .take(MAX_LINE)
            .read_until(b'\n', &mut buffer)
            .map_err(|error| {
                wrong(format!(
                    "cannot be read: {error}; is the file truncated or not what its name says?"
                ))
            })?;
        if read == 0 {
            break;
        }
        if read as u64 == MAX_LINE {
            return Err(wrong(format!("the line has more than {MAX_LINE} bytes")));
        }
        let text = std::str::from_utf8(&buffer)
            .map_err(|error| {
                wrong(format!(
                    "not UTF-8 at byte {} of the line",
                    error.valid_up_to() + 1
                ))
            })?
            .trim_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
        if text.is_empty() {
            continue;
        }
        let Some(program) = &mut program else {
            let header: Header = serde_json::from_str(text).map_err(|error| {
                wrong(format!(
                    "{error}; the first line has to be {{\"format\":\"{FORMAT}\",\"name\":\"...\"}}"
                ))
            })?;
            if header.format != FORMAT {
                return Err(wrong(format!(
                    "format {:?} is not known; accepted: {FORMAT:?}",
                    header.format
                )));
            }
            announced = header.iterations;
            program = Some(Program {
                name: header.name,
                setup: Vec::new(),
                iterations: Vec::new(),
            });
            continue;
        };
        let op: Op = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        checker.check(&op).map_err(wrong)?;
        if let Op::Iter { i } = op {
            let next = program.iterations.len();
            if i as usize != next {
                let wrong_number = format!("iteration {i} begins, but the next one is {next}");
                return Err(ProgramError::Line {
                    file: file.to_owned(),
                    line,
                    what: wrong_number,
                });
            }
            program.iterations.push(Vec::new());
        } else {
            program
                .iterations
                .last_mut()
                .unwrap_or(&mut program.setup)
                .push(op);
        }
    }
    let wrong = |what: String| ProgramError::Line {
        file: file.to_owned(),
        line,
        what,
    };
    let program = program.ok_or_else(|| wrong("the file is empty; expected a program".to_owned()))?;
    if let Some(announced) = announced
        && announced as usize != program.iterations.len()
    {
        let found = program.iterations.len();
        return Err(wrong(format!(
            "the file ends after {found} of {announced} iterations: it is truncated"
        )));
    }
    if program.iterations.is_empty() {
        return Err(wrong(
            "the program has no iteration: a line {\"op\":\"iter\",\"i\":0} is missing".to_owned(),
        ));
    }
    Ok(program)
}

/// Which tensors are live: every access has to lie in one.
#[derive(Default)]
struct Checker {
    live: HashMap<u32, u64>,
    freed: std::collections::HashSet<u32>,
}

impl Checker {
    fn check(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Alloc { t, n } => {
                if *n == 0 || *n > MAX_TENSOR {
                    return Err(format!("tensor {t} has {n} bytes; accepted: 1 to {MAX_TENSOR}"));
                }
                if self.live.insert(*t, *n).is_some() {
                    return Err(format!("tensor {t} is allocated, but it is live already"));
                }
                self.freed.remove(t);
            }
            Op::Free { t } => {
                if self.live.remove(t).is_none() {
                    let why = if self.freed.contains(t) {
                        "freed already"
                    } else {
                        "never allocated"
                    };
                    return Err(format!("tensor {t} is freed, but it was {why}"));
                }
                self.freed.insert(*t);
            }
            Op::Kernel {
                name,
                r,
                w,
                ns,
                pattern,
                ..
            } => {
                if ns.is_some_and(|ns| ns > MAX_NS) {
                    return Err(format!(
                        "kernel {name:?} has ns = {}; accepted: up to {MAX_NS}",
                        ns.unwrap_or_default()
                    ));
                }
                for pieces in [r, w] {
                    self.check_pieces(pieces, &format!("kernel {name:?}"))?;
                }
                if let Some(pattern) = pattern {
                    let checked = pattern.check(r.len(), w.len());
                    checked.map_err(|what| format!("pattern of kernel {name:?}: {what}"))?;
                }
            }
            Op::H2d { w } => self.check_pieces(w, "a host copy")?,
            Op::Cpu { w, .. } => self.check_pieces(w, "a CPU access")?,
            Op::Prefetch { w } => self.check_pieces(w, "a prefetch")?,
            Op::Advise { w } => self.check_pieces(w, "an advice")?,
            Op::Discard { w } => self.check_pieces(w, "a discard")?,
            Op::Sync {} | Op::Iter { .. } => {}
        }
        Ok(())
    }

    fn check_pieces(&self, pieces: &[Piece], who: &str) -> Result<(), String> {
        if pieces.len() > MAX_PIECES {
            return Err(format!(
                "{who} has {} ranges; accepted: up to {MAX_PIECES}",
                pieces.len()
            ));
        }
        for Piece(t, offset, bytes) in pieces {
            let Some(size) = self.live.get(t) else {
                let why = if self.freed.contains(t) {
                    "was freed before"
                } else {
                    "was never allocated"
                };
                return Err(format!("{who} touches tensor {t}, which {why}"));
            };
            if offset.checked_add(*bytes).is_none_or(|end| end > *size) {
                return Err(format!(
                    "{who} touches bytes {offset} + {bytes} of tensor {t}, which has {size} bytes"
                ));
            }
        }
        Ok(())
    }
}
