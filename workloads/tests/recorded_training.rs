//! The caching allocator and the conversion against recorded training runs.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use flate2::bufread::MultiGzDecoder;
use workloads::allocator::{AllocatorKind, Backing, CachingAllocator};
use workloads::import::train_trace::convert;
use workloads::program::{self, Schedule, Scheduled};

fn traces() -> Vec<PathBuf> {
    let root = std::env::var_os("UVMSIM_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")),
        PathBuf::from,
    );
    let Ok(folder) = std::fs::read_dir(root.join("data/models/train")) else {
        println!("skipped: no recorded training runs here");
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

fn open(path: &PathBuf) -> BufReader<MultiGzDecoder<BufReader<File>>> {
    BufReader::new(MultiGzDecoder::new(BufReader::new(
        File::open(path).expect("readable"),
    )))
}

#[test]
fn every_address_and_segment_is_the_recorded_one() {
    for path in traces() {
        let mut allocator = CachingAllocator::default();
        let mut backing = Vec::new();
        let (mut allocs, mut segments) = (0, 0);
        for line in open(&path).lines().skip(1) {
            let line: serde_json::Value = serde_json::from_str(&line.expect("text")).expect("JSON");
            let field = |name: &str| line[name].as_u64().expect("a number");
            match line["k"].as_str() {
                Some("alloc") => {
                    let address = allocator.malloc(field("n"), 0).expect("room");
                    assert_eq!(address, field("a"), "{} allocation {allocs}", path.display());
                    allocator.drain_backing(&mut backing);
                    allocs += 1;
                }
                Some("free") => allocator.free(field("a")),
                Some("seg") => {
                    segments += 1;
                    // The recording has the segment before the allocation that needs it.
                    let recorded = (field("a"), field("n"));
                    backing.push(Backing::Free(sim_core::pages::ByteRange {
                        start: recorded.0,
                        bytes: recorded.1,
                    }));
                }
                Some("segfree") => panic!("segments are not returned in these runs"),
                _ => {}
            }
        }
        let ranges = |want_recorded: bool| -> Vec<_> {
            backing
                .iter()
                .filter_map(|event| match event {
                    Backing::Free(range) if want_recorded => Some(*range),
                    Backing::Allocate(range) if !want_recorded => Some(*range),
                    _ => None,
                })
                .collect()
        };
        assert_eq!(ranges(true), ranges(false), "{}", path.display());
        println!("{}: {allocs} addresses, {segments} segments", path.display());
    }
}

#[test]
fn the_programs_in_the_repository_are_the_conversions() {
    for path in traces() {
        let name = path
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .replace(".train.jsonl.gz", "");
        let (converted, _) = convert(open(&path), &name).expect("well-formed");
        let stored = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../programs"))
            .join(format!("{name}.uvmprog.zst"));
        let stored = program::read(&stored).expect("stored and valid");
        assert!(stored == converted, "{name} differs from its recording");
    }
}

#[test]
fn repeated_iterations_do_not_drift() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../programs"));
    for name in [
        "seed_gpt2_b8",
        "seed_resnet50_b32",
        "seed_alexnet_b128",
        "seed_bert_b16",
    ] {
        let program = program::read(&folder.join(format!("{name}.uvmprog.zst"))).expect("stored and valid");
        let recorded = program.iterations.len() as u32;
        let mut live: HashMap<u32, u64> = HashMap::new();
        let mut at_start = Vec::new();
        for op in Schedule::new(&program, 4 * recorded) {
            match op.expect("in memory") {
                Scheduled::Alloc(id, bytes) => assert!(live.insert(id, bytes).is_none()),
                Scheduled::Free(id) => assert!(live.remove(&id).is_some()),
                Scheduled::Iteration(_) => at_start.push(live.values().sum::<u64>()),
                Scheduled::Other(_) => {}
            }
        }
        // The same recording, one round later, starts from as many live bytes, up to the carried
        // inputs, whose sizes differ between recordings.
        let period = (recorded - 1) as usize;
        for (i, bytes) in at_start.iter().enumerate().skip(recorded as usize + 1) {
            let before = at_start[i - period];
            assert!(
                bytes.abs_diff(before) * 1000 < before,
                "{name}: iteration {i} starts with {bytes}, not {before}"
            );
        }
        let footprint = |iterations| {
            workloads::footprint(&program, &AllocatorKind::PytorchCaching.into(), iterations)
                .expect("room")
                .peak_bytes
        };
        println!(
            "{name}: reserved {} MiB, after 4 rounds {} MiB",
            footprint(recorded) >> 20,
            footprint(4 * recorded) >> 20
        );
    }
}
