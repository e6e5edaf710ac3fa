//! Recorded sets of allocator operations against our allocator: every address, statistic and log entry.
//!
//! A set is `NAME.ops.csv` (one row per operation with the state after it), `NAME.events.csv` (the
//! allocator's log) and `NAME.meta.json` (options, capacity, streams, final segments). `examples.json`
//! holds sets in one file, with all segments after each step. The order in which frees that wait for
//! different streams complete is open, so neighbouring `free_completed` entries are compared as a set.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::AllocError;
use super::caching::device::DeviceMemory;
use super::caching::snapshot::SegmentView;
use super::caching::{Action, CachingAllocator, LogEntry, OptionError, Options};

/// Files of sets that cannot be read.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The folder or a file of it.
    #[error("{file}: {source}")]
    Io {
        /// File.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A table.
    #[error("{file}: {source}")]
    Csv {
        /// File.
        file: PathBuf,
        /// Where and why.
        source: csv::Error,
    },
    /// A description of a set.
    #[error("{file}: {source}")]
    Json {
        /// File.
        file: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A value that makes no sense.
    #[error("{file}:{line}: {what}")]
    Value {
        /// File.
        file: PathBuf,
        /// Line, from 1.
        line: u64,
        /// What is wrong and what would be right.
        what: String,
    },
    /// Options that we do not take.
    #[error("{file}: conf: {source}")]
    Options {
        /// File.
        file: PathBuf,
        /// Which.
        source: OptionError,
    },
    /// Nothing to compare.
    #[error("{0}: no *.ops.csv with its *.meta.json, and no examples.json")]
    Empty(PathBuf),
}

/// One set, compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its name.
    pub name: String,
    /// Operations carried out.
    pub operations: u64,
    /// The first difference.
    pub difference: Option<String>,
}

#[derive(Deserialize)]
struct Meta {
    conf: String,
    capacity_mib: u64,
    fraction: Option<f64>,
    streams: BTreeMap<String, u64>,
    #[serde(default)]
    final_segments: Option<Vec<Segment>>,
}

#[derive(Debug, Deserialize)]
struct Segment {
    addr: u64,
    size: u64,
    pool: String,
    stream: u64,
    blocks: Vec<(u64, u64, u64, String)>,
}

#[derive(Deserialize)]
struct Row {
    op: String,
    name: String,
    arg: String,
    stream: String,
    addr: String,
    oom: u8,
    allocated: u64,
    reserved: u64,
    active: u64,
    inactive_split: u64,
    segments: u64,
    num_alloc_retries: u64,
    num_ooms: u64,
}

#[derive(Deserialize)]
struct EventRow {
    action: String,
    addr: String,
    size: u64,
    stream: u64,
}

#[derive(Deserialize)]
struct Example {
    #[serde(flatten)]
    meta: Meta,
    steps: Vec<Step>,
    device_trace: Vec<TraceRow>,
}

#[derive(Deserialize)]
struct TraceRow {
    action: String,
    #[serde(alias = "device_free")]
    addr: u64,
    size: u64,
    stream: u64,
}

#[derive(Deserialize)]
struct Step {
    op: Vec<serde_json::Value>,
    addr: Option<u64>,
    oom: bool,
    stats: BTreeMap<String, u64>,
    segments: Vec<Segment>,
}

/// Carries operations out, by the names of tensors.
struct Replay {
    allocator: CachingAllocator,
    streams: BTreeMap<String, u64>,
    /// Tensors, and where they are; none for one that found no memory.
    tensors: BTreeMap<String, Option<u64>>,
}

impl Replay {
    fn new(file: &Path, meta: &Meta) -> Result<Replay, CheckError> {
        let mut options = Options::parse(&meta.conf).map_err(|source| CheckError::Options {
            file: file.to_path_buf(),
            source,
        })?;
        options.memory_fraction = meta.fraction.or(options.memory_fraction);
        let capacity = meta.capacity_mib.saturating_mul(1 << 20);
        let mut allocator = CachingAllocator::new(options, DeviceMemory::device(capacity));
        allocator.keep_log();
        Ok(Replay {
            allocator,
            streams: meta.streams.clone(),
            tensors: BTreeMap::new(),
        })
    }

    fn stream(&self, index: &str) -> Result<u64, String> {
        let index = if index.is_empty() { "0" } else { index };
        self.streams
            .get(index)
            .copied()
            .ok_or_else(|| format!("stream {index:?} is not in the set's \"streams\""))
    }

    /// One operation: the address of an allocation, and whether memory was full.
    fn step(&mut self, op: &str, name: &str, arg: &str, stream: &str) -> Result<(Option<u64>, bool), String> {
        match op {
            "malloc" => {
                let bytes = arg
                    .parse()
                    .map_err(|_| format!("arg = {arg:?}: bytes are needed"))?;
                let stream = self.stream(stream)?;
                let address = match self.allocator.malloc(bytes, stream) {
                    Ok(address) => Some(address),
                    Err(AllocError::OutOfMemory { .. }) => None,
                    Err(error) => return Err(error.to_string()),
                };
                self.tensors.insert(name.to_owned(), address);
                return Ok((address, address.is_none()));
            }
            "free" => {
                let tensor = self.tensors.remove(name);
                let address = tensor.ok_or_else(|| format!("name = {name:?} is not allocated"))?;
                if let Some(address) = address {
                    self.allocator.free(address);
                }
            }
            "record_stream" => {
                let stream = self.stream(stream)?;
                if let Some(Some(address)) = self.tensors.get(name) {
                    self.allocator.record_stream(*address, stream);
                }
            }
            "events" => self.allocator.set_events_pending(match arg {
                "pending" => true,
                "done" => false,
                _ => return Err(format!("arg = {arg:?}: pending or done")),
            }),
            "empty_cache" => self.allocator.empty_cache(),
            _ => {
                return Err(format!(
                    "op = {op:?}: malloc, free, record_stream, events or empty_cache"
                ));
            }
        }
        Ok((None, false))
    }

    /// Statistics under the names of the recordings.
    fn stat(&self, name: &str) -> Option<u64> {
        let stats = self.allocator.stats();
        Some(match name {
            "allocated" => stats.allocated_bytes.all.current,
            "reserved" => stats.reserved_bytes.all.current,
            "active" => stats.active_bytes.all.current,
            "inactive_split" => stats.inactive_split_bytes.all.current,
            "inactive_split_count" => stats.inactive_split.all.current,
            "requested" => stats.requested_bytes.all.current,
            "segments" => stats.segment.all.current,
            "num_alloc_retries" => stats.num_alloc_retries,
            "num_ooms" => stats.num_ooms,
            "num_device_alloc" => stats.num_device_alloc,
            "num_device_free" => stats.num_device_free,
            "peak_allocated" => stats.allocated_bytes.all.peak,
            "peak_reserved" => stats.reserved_bytes.all.peak,
            "reserved_small" => stats.reserved_bytes.small_pool.current,
            "reserved_large" => stats.reserved_bytes.large_pool.current,
            _ => return None,
        })
    }
}

/// Compares every set in a folder, by name.
///
/// # Errors
/// A file that cannot be read, or a folder without sets.
pub fn check_folder(folder: &Path) -> Result<Vec<Verdict>, CheckError> {
    let io = |source| CheckError::Io {
        file: folder.to_path_buf(),
        source,
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".ops.csv")) {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    let mut verdicts = Vec::new();
    let examples = folder.join("examples.json");
    if examples.is_file() {
        let text = read(&examples)?;
        let json = |source| CheckError::Json {
            file: examples.clone(),
            source,
        };
        let all: BTreeMap<String, Example> = serde_json::from_str(&text).map_err(json)?;
        for (name, example) in &all {
            verdicts.push(check_example(&examples, name, example)?);
        }
    }
    for name in &names {
        verdicts.push(check_set(folder, name)?);
    }
    if verdicts.is_empty() {
        return Err(CheckError::Empty(folder.to_path_buf()));
    }
    Ok(verdicts)
}

fn read(file: &Path) -> Result<String, CheckError> {
    std::fs::read_to_string(file).map_err(|source| CheckError::Io {
        file: file.to_path_buf(),
        source,
    })
}

fn rows<T: for<'a> Deserialize<'a>>(file: &Path) -> Result<Vec<T>, CheckError> {
    let error = |source| CheckError::Csv {
        file: file.to_path_buf(),
        source,
    };
    let mut reader = csv::Reader::from_path(file).map_err(error)?;
    reader.deserialize().map(|row| row.map_err(error)).collect()
}

fn hexadecimal(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn check_set(folder: &Path, name: &str) -> Result<Verdict, CheckError> {
    let file = |ending: &str| folder.join(format!("{name}.{ending}"));
    let (meta_file, ops, events) = (file("meta.json"), file("ops.csv"), file("events.csv"));
    let meta: Meta = serde_json::from_str(&read(&meta_file)?).map_err(|source| CheckError::Json {
        file: meta_file.clone(),
        source,
    })?;
    let mut replay = Replay::new(&meta_file, &meta)?;
    let mut verdict = Verdict {
        name: name.to_owned(),
        operations: 0,
        difference: None,
    };
    for (line, row) in (2..).zip(rows::<Row>(&ops)?) {
        let wrong = |what| CheckError::Value {
            file: ops.clone(),
            line,
            what,
        };
        let (address, oom) = replay
            .step(&row.op, &row.name, &row.arg, &row.stream)
            .map_err(wrong)?;
        verdict.operations += 1;
        let expected = if row.addr.is_empty() {
            None
        } else {
            let address = hexadecimal(&row.addr);
            Some(address.ok_or_else(|| wrong(format!("addr = {:?}: not an address", row.addr)))?)
        };
        let mut differs = None;
        if address != expected {
            differs = Some(format!("addr is {address:#x?}, recorded {expected:#x?}"));
        } else if oom != (row.oom != 0) {
            differs = Some(format!("oom is {oom}, recorded {}", row.oom));
        }
        for (stat, recorded) in [
            ("allocated", row.allocated),
            ("reserved", row.reserved),
            ("active", row.active),
            ("inactive_split", row.inactive_split),
            ("segments", row.segments),
            ("num_alloc_retries", row.num_alloc_retries),
            ("num_ooms", row.num_ooms),
        ] {
            let ours = replay.stat(stat).unwrap_or_default();
            if differs.is_none() && ours != recorded {
                differs = Some(format!("{stat} is {ours}, recorded {recorded}"));
            }
        }
        if let Some(what) = differs {
            verdict.difference = Some(format!("{name}.ops.csv:{line}: {} {}: {what}", row.op, row.name));
            return Ok(verdict);
        }
    }
    let mut recorded = Vec::new();
    for (line, row) in (2..).zip(rows::<EventRow>(&events)?) {
        let address = hexadecimal(&row.addr).ok_or_else(|| CheckError::Value {
            file: events.clone(),
            line,
            what: format!("addr = {:?}: not an address", row.addr),
        })?;
        recorded.push((row.action, address, row.size, row.stream));
    }
    verdict.difference = log_difference(replay.allocator.log(), recorded)
        .map(|(at, what)| format!("{name}.events.csv:{}: {what}", at + 2))
        .or_else(|| {
            let recorded = meta.final_segments.as_ref()?;
            segment_difference(&replay.allocator.snapshot(), recorded)
                .map(|what| format!("{name}.meta.json: final_segments: {what}"))
        });
    Ok(verdict)
}

fn check_example(file: &Path, name: &str, example: &Example) -> Result<Verdict, CheckError> {
    let mut replay = Replay::new(file, &example.meta)?;
    let mut verdict = Verdict {
        name: name.to_owned(),
        operations: 0,
        difference: None,
    };
    for (number, step) in example.steps.iter().enumerate() {
        let text = |at: usize| match step.op.get(at) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        let op = text(0);
        // [malloc, name, bytes, stream], [record_stream, name, stream], [events, state].
        let (tensor, arg, stream) = match op.as_str() {
            "record_stream" => (text(1), String::new(), text(2)),
            "events" => (String::new(), text(1), String::new()),
            _ => (text(1), text(2), text(3)),
        };
        let (address, oom) = replay
            .step(&op, &tensor, &arg, &stream)
            .map_err(|what| CheckError::Value {
                file: file.to_path_buf(),
                line: 1,
                what: format!("{name}, step {number}: {what}"),
            })?;
        verdict.operations += 1;
        let mut differs = None;
        if address != step.addr {
            differs = Some(format!("addr is {address:#x?}, recorded {:#x?}", step.addr));
        } else if oom != step.oom {
            differs = Some(format!("oom is {oom}, recorded {}", step.oom));
        }
        for (stat, recorded) in &step.stats {
            // Statistics that we do not know would be a difference, not something to pass over.
            let ours = replay.stat(stat);
            if differs.is_none() && ours != Some(*recorded) {
                differs = Some(format!("{stat} is {ours:?}, recorded {recorded}"));
            }
        }
        differs = differs.or_else(|| segment_difference(&replay.allocator.snapshot(), &step.segments));
        if let Some(what) = differs {
            verdict.difference = Some(format!("{name}, step {number}, {op} {tensor}: {what}"));
            return Ok(verdict);
        }
    }
    let recorded = example
        .device_trace
        .iter()
        .map(|row| (row.action.clone(), row.addr, row.size, row.stream))
        .collect();
    verdict.difference = log_difference(replay.allocator.log(), recorded)
        .map(|(at, what)| format!("{name}, device_trace[{at}]: {what}"));
    Ok(verdict)
}

type Named = (String, u64, u64, u64);

/// The first place where two logs differ.
fn log_difference(ours: &[LogEntry], mut recorded: Vec<Named>) -> Option<(usize, String)> {
    let mut ours: Vec<Named> = ours
        .iter()
        .map(|e| (e.action.name().to_owned(), e.address, e.size, e.stream))
        .collect();
    for log in [&mut ours, &mut recorded] {
        let completed = Action::FreeCompleted.name();
        for run in log.chunk_by_mut(|a, b| a.0 == completed && b.0 == completed) {
            run.sort_unstable();
        }
    }
    let print = |entry: Option<&Named>| {
        entry.map_or("nothing".to_owned(), |(action, address, size, stream)| {
            format!("{action} {address:#x} {size} on stream {stream}")
        })
    };
    (0..ours.len().max(recorded.len()))
        .find(|at| ours.get(*at) != recorded.get(*at))
        .map(|at| {
            let (ours, recorded) = (print(ours.get(at)), print(recorded.get(at)));
            (at, format!("logged {ours}, recorded {recorded}"))
        })
}

/// The first segment or block that differs.
fn segment_difference(ours: &[SegmentView], recorded: &[Segment]) -> Option<String> {
    for at in 0..ours.len().max(recorded.len()) {
        let (Some(our), Some(their)) = (ours.get(at), recorded.get(at)) else {
            return Some(format!("{} segments, recorded {}", ours.len(), recorded.len()));
        };
        let pool = if our.large { "large" } else { "small" };
        let blocks = our
            .blocks
            .iter()
            .map(|b| (b.address, b.size, b.requested, b.state.name()));
        let theirs = their
            .blocks
            .iter()
            .map(|(address, size, requested, state)| (*address, *size, *requested, state.as_str()));
        let same = (our.address, our.size, pool, our.stream)
            == (their.addr, their.size, their.pool.as_str(), their.stream);
        if !same || !blocks.clone().eq(theirs.clone()) {
            let (blocks, theirs): (Vec<_>, Vec<_>) = (blocks.collect(), theirs.collect());
            let differing = (0..blocks.len().max(theirs.len())).find(|i| blocks.get(*i) != theirs.get(*i));
            return Some(format!(
                "segment {at} at {:#x} of {} bytes, recorded {:#x} of {}; first block that differs: {:?}, recorded {:?}",
                our.address,
                our.size,
                their.addr,
                their.size,
                differing.and_then(|i| blocks.get(i)),
                differing.and_then(|i| theirs.get(i))
            ));
        }
    }
    None
}
