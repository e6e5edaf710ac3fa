//! Memory snapshots of PyTorch (`torch.cuda.memory._snapshot()`): what the allocator handed out and
//! took back.
//!
//! A snapshot knows no kernels. Accesses are approximated: a block is written where it is allocated and
//! read where it is freed, by one kernel each. The pickle is read as data: nothing in it is executed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use super::builder::{Builder, NewKernel, Tensor};
use super::source::{self, Limits};
use super::{ImportError, Imported};

const FORMAT: &str = "a torch.cuda.memory._snapshot() pickle";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Snapshot {
    segments: Vec<Segment>,
    device_traces: Vec<Vec<Entry>>,
}

/// A snapshot, or only its segments, as `torch.cuda.memory_snapshot()` returns them.
struct Either(Snapshot);

impl<'de> Deserialize<'de> for Either {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pickle;
        impl<'de> Visitor<'de> for Pickle {
            type Value = Either;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dict with segments and device_traces, or a list of segments")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Either, A::Error> {
                Snapshot::deserialize(MapAccessDeserializer::new(map)).map(Either)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Either, A::Error> {
                let segments = Vec::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(Either(Snapshot {
                    segments,
                    device_traces: Vec::new(),
                }))
            }
        }
        deserializer.deserialize_any(Pickle)
    }
}

#[derive(Deserialize)]
struct Segment {
    #[serde(default)]
    device: usize,
    #[serde(default)]
    address: u64,
    total_size: u64,
    #[serde(default)]
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    size: u64,
    #[serde(default)]
    requested_size: Option<u64>,
    state: String,
    #[serde(default)]
    address: Option<u64>,
}

#[derive(Deserialize)]
struct Entry {
    action: String,
    #[serde(default)]
    addr: Option<u64>,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    stream: u64,
}

/// Imports a snapshot.
///
/// # Errors
/// Where the file breaks, and what to try.
pub fn import(file: &Path, limits: &Limits) -> Result<Imported, ImportError> {
    let malformed = |place: String, what: String| ImportError::Malformed {
        file: file.to_path_buf(),
        format: FORMAT,
        place,
        what,
    };
    // A pickle shares objects by reference and so can stand for far more than its own bytes: the
    // decoded size is bounded by what is read at all.
    let length = std::fs::metadata(file)
        .map_err(|source| ImportError::Io {
            file: file.to_path_buf(),
            source,
        })?
        .len();
    let most = limits.max_bytes.min(MOST_PICKLE);
    if length > most {
        return Err(ImportError::TooLarge {
            file: file.to_path_buf(),
            what: format!("a pickle of {length} bytes; accepted: up to {most}"),
        });
    }
    let mut bytes = Vec::with_capacity(length as usize);
    std::io::Read::read_to_end(&mut source::open(file, limits)?, &mut bytes)
        .map_err(|error| source::read_error(file, FORMAT, &error, limits))?;
    let bytes =
        super::pickle::plain(&bytes, MOST_PLAIN).map_err(|error| malformed(error.place, error.what))?;
    let Either(snapshot) = serde_pickle::from_slice(&bytes, serde_pickle::DeOptions::new())
        .map_err(|error| malformed("the pickle".to_owned(), format!("{error}; is it a snapshot?")))?;
    // The device with the longest history, or else with the most memory; the first of equals.
    let mut reserved: BTreeMap<usize, u64> = BTreeMap::new();
    for segment in &snapshot.segments {
        let bytes = reserved.entry(segment.device).or_default();
        *bytes = bytes.saturating_add(segment.total_size);
    }
    let traces = &snapshot.device_traces;
    let size = |device: usize| {
        let bytes = reserved.get(&device).copied().unwrap_or(0);
        (traces.get(device).map_or(0, Vec::len), bytes)
    };
    let devices: BTreeSet<usize> = (0..traces.len()).chain(reserved.keys().copied()).collect();
    let used = devices.iter().filter(|device| size(**device) > (0, 0)).count();
    let device = devices
        .into_iter()
        .max_by_key(|device| (size(*device), Reverse(*device)))
        .unwrap_or(0);
    let entries = traces.get(device).map_or(&[][..], Vec::as_slice);
    let segments: Vec<&Segment> = snapshot
        .segments
        .iter()
        .filter(|segment| segment.device == device)
        .collect();
    if entries.len() as u64 > limits.max_events {
        return Err(source::too_many(file, limits, "entries"));
    }
    if entries.is_empty() && segments.is_empty() {
        return Err(malformed(
            "device_traces".to_owned(),
            "there are neither segments nor a history; call torch.cuda.memory._record_memory_history() first"
                .to_owned(),
        ));
    }
    build(file, entries, &segments, used)
}

/// Bytes of a pickle without stack frames: three million entries of 80.
const MOST_PLAIN: u64 = 256 << 20;
/// Pickles larger than this are refused: they are decoded in memory.
const MOST_PICKLE: u64 = 1 << 30;

fn build(
    file: &Path,
    entries: &[Entry],
    segments: &[&Segment],
    devices: usize,
) -> Result<Imported, ImportError> {
    let mut builder = Builder::new(&super::builder_name(file), FORMAT);
    // Live at the end and never allocated in the history, or freed without an allocation: older.
    let mut older: Vec<(u64, u64)> = Vec::new();
    let mut seen = HashMap::new();
    for entry in entries {
        match (entry.action.as_str(), entry.addr) {
            ("alloc", Some(address)) => {
                seen.insert(address, true);
            }
            ("free_requested", Some(address)) if seen.insert(address, false).is_none() => {
                older.push((address, entry.size));
            }
            _ => {}
        }
    }
    let mut live_at_end = 0_u64;
    for segment in segments {
        let mut at = segment.address;
        for block in &segment.blocks {
            let address = block.address.unwrap_or(at);
            at = address.saturating_add(block.size);
            if block.state == "active_allocated" {
                live_at_end += 1;
                if !seen.contains_key(&address) {
                    older.push((address, block.requested_size.unwrap_or(block.size)));
                }
            }
        }
    }
    let mut live: HashMap<u64, Tensor> = HashMap::new();
    let older_count = older.len();
    let older_bytes = older
        .iter()
        .fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    for (address, bytes) in older {
        live.insert(address, builder.alloc_before(bytes));
    }
    builder.iteration();
    let (mut ooms, mut odd, mut reserved, mut peak_reserved) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut streams: HashMap<u64, u32> = HashMap::new();
    for entry in entries {
        let next = streams.len() as u32;
        let stream = *streams.entry(entry.stream).or_insert(next);
        match (entry.action.as_str(), entry.addr) {
            ("alloc", Some(address)) => {
                if let Some(lost) = live.remove(&address) {
                    // Its free fell out of the ring buffer.
                    odd += 1;
                    builder.free(lost);
                }
                let tensor = builder.alloc(entry.size);
                live.insert(address, tensor);
                let writes = builder.whole(tensor).into_iter().collect();
                builder.kernel(NewKernel {
                    name: "fill",
                    writes,
                    stream,
                    launches: 1,
                    ..NewKernel::default()
                });
            }
            ("free_requested", Some(address)) => {
                let Some(tensor) = live.remove(&address) else {
                    odd += 1;
                    continue;
                };
                let reads = builder.whole(tensor).into_iter().collect();
                builder.kernel(NewKernel {
                    name: "sum",
                    reads,
                    stream,
                    launches: 1,
                    ..NewKernel::default()
                });
                builder.free(tensor);
            }
            ("segment_alloc" | "segment_map", _) => {
                reserved = reserved.saturating_add(entry.size);
                peak_reserved = peak_reserved.max(reserved);
            }
            ("segment_free" | "segment_unmap", _) => reserved = reserved.saturating_sub(entry.size),
            ("oom", _) => ooms += 1,
            _ => {}
        }
    }
    let report = builder.report();
    let mut fact = |name: &str, value: String| report.facts.push((name.to_owned(), value));
    fact("history entries", entries.len().to_string());
    fact("segments at the end", segments.len().to_string());
    fact(
        "bytes of segments at the end",
        segments
            .iter()
            .fold(0_u64, |sum, s| sum.saturating_add(s.total_size))
            .to_string(),
    );
    fact("peak of segment bytes in the history", peak_reserved.to_string());
    fact("blocks live at the end", live_at_end.to_string());
    if ooms > 0 {
        fact("out of memory", ooms.to_string());
    }
    report.assumed.push(
        "a block is written by one kernel where it is allocated and read by one where it is freed".to_owned(),
    );
    report.assumed.push("all of it is one iteration".to_owned());
    if older_count > 0 {
        report.assumed.push(format!(
            "{older_count} blocks of {older_bytes} bytes existed before the history begins"
        ));
    }
    if odd > 0 {
        report.assumed.push(format!(
            "{odd} entries contradict others (the history is a ring buffer)"
        ));
    }
    if devices > 1 {
        report.assumed.push(format!(
            "of {devices} devices the one with the longest history, or else the most memory, is taken"
        ));
    }
    report
        .missing
        .push("kernels and their durations: a Kineto trace or an execution trace has them".to_owned());
    builder.finish(file)
}
