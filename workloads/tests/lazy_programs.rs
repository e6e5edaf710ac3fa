//! A program whose operations stay in their file runs as one that is in memory.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use workloads::Program;
use workloads::allocator::AllocatorKind;
use workloads::program::{self, Op, Piece, Recording, Schedule, Scheduled, open_keeping};

/// Saves `program` plain (0), with gzip (1) or with Zstandard (2).
fn save(program: &Program, folder: &Path, packing: u8) -> PathBuf {
    let mut text = Vec::new();
    program::write(program, &mut text).unwrap();
    // Blank lines are nothing.
    text.extend_from_slice(b"\n  \n");
    let bytes = match packing {
        0 => text,
        1 => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(&text).unwrap();
            out.finish().unwrap()
        }
        _ => zstd::encode_all(&text[..], 1).unwrap(),
    };
    let path = folder.join("random.uvmprog");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A program from random numbers: tensors live from one to several iterations, ids are used again.
fn build(iterations: &[Vec<(u8, u8, u32)>]) -> Program {
    let mut live = std::collections::BTreeMap::<u32, u64>::new();
    let mut make = |choices: &[(u8, u8, u32)]| -> Vec<Op> {
        choices
            .iter()
            .map(|(what, tensor, bytes)| {
                let t = u32::from(*tensor % 12);
                match (live.get(&t).copied(), what % 3) {
                    (None, _) => {
                        let n = u64::from(*bytes) + 1;
                        live.insert(t, n);
                        Op::Alloc { t, n }
                    }
                    (Some(_), 0) => {
                        live.remove(&t);
                        Op::Free { t }
                    }
                    (Some(n), 1) => Op::Kernel {
                        name: Arc::from(if *what < 99 { "add" } else { "mm" }),
                        r: vec![Piece(t, n / 2, n - n / 2)],
                        w: vec![Piece(t, 0, n)],
                        flops: 0,
                        math: workloads::math::Math::Fp32,
                        rb: n,
                        wb: n,
                        nk: 1,
                        sparse: false,
                        stream: 0,
                        ns: None,
                        pattern: None,
                    },
                    (Some(n), _) => Op::H2d {
                        w: vec![Piece(t, 0, n)],
                    },
                }
            })
            .collect()
    };
    Program {
        name: "random".to_owned(),
        setup: make(&iterations[0]),
        iterations: iterations[1..].iter().map(|choices| make(choices)).collect(),
    }
}

fn steps<'a>(source: impl Into<program::Source<'a>>, iterations: u32) -> Vec<Scheduled<'a>> {
    Schedule::new(source, iterations).map(Result::unwrap).collect()
}

fn stored(path: &Path) -> Recording {
    let recording = open_keeping(path, 0).unwrap();
    assert!(matches!(recording, Recording::Stored(_)));
    recording
}

proptest! {
    #[test]
    fn a_stored_program_runs_as_one_in_memory(
        choices in prop::collection::vec(prop::collection::vec((0_u8..102, any::<u8>(), 0_u32..5000), 1..40), 2..6),
        packing in 0_u8..3,
        wanted in 0_u32..14,
    ) {
        let program = build(&choices);
        let folder = tempfile::tempdir().unwrap();
        let path = save(&program, folder.path(), packing);
        prop_assert_eq!(&program::read(&path).unwrap(), &program);
        match program::open(&path).unwrap() {
            Recording::Memory(kept) => prop_assert_eq!(&kept, &program),
            Recording::Stored(_) => prop_assert!(false, "a small program is kept"),
        }
        let stored = stored(&path);
        prop_assert_eq!(steps(&stored, wanted), steps(&program, wanted));
        for kind in [AllocatorKind::PytorchCaching, AllocatorKind::PerTensor] {
            prop_assert_eq!(
                workloads::footprint(&stored, &kind.into(), wanted).unwrap(),
                workloads::footprint(&program, &kind.into(), wanted).unwrap()
            );
        }
        if let Recording::Stored(stored) = &stored {
            prop_assert_eq!(stored.operations() as usize, choices.iter().map(Vec::len).sum::<usize>());
            prop_assert_eq!(stored.name(), "random");
        }
    }
}

#[test]
fn a_file_that_changes_is_noticed() {
    let line = |choices: usize| vec![(1, 7, 100); choices];
    let program = build(&[line(3), line(50), line(50)]);
    let folder = tempfile::tempdir().unwrap();
    let path = save(&program, folder.path(), 0);
    let stored = stored(&path);
    assert_eq!(steps(&stored, 5).len(), 3 + 5 * 51);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let last = Schedule::new(&stored, 5).last().unwrap();
    assert!(last.unwrap_err().to_string().contains("changed while"));
    std::fs::remove_file(&path).unwrap();
    let mut schedule = Schedule::new(&stored, 5);
    assert!(schedule.next().unwrap().is_err());
    assert!(schedule.next().is_none(), "nothing follows an error");
}

#[test]
fn errors_are_those_of_reading_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.uvmprog");
    let header = "{\"format\":\"uvmprog/1\",\"name\":\"x\",\"iterations\":1}\n";
    let iteration = "{\"op\":\"iter\",\"i\":0}\n";
    for (body, line, says) in [
        (String::new(), 2, "truncated"),
        (format!("{iteration}{iteration}"), 3, "the next one is 1"),
        (
            format!("{iteration}\n{{\"op\":\"free\",\"t\":3}}\n"),
            4,
            "never allocated",
        ),
        (
            format!(
                "{{\"op\":\"alloc\",\"t\":3,\"n\":8}}\n{iteration}{{\"op\":\"free\",\"t\":3}}\n{{\"op\":\"free\",\"t\":3}}\n"
            ),
            5,
            "freed already",
        ),
    ] {
        std::fs::write(&path, format!("{header}{body}")).unwrap();
        let at_once = program::read(&path).unwrap_err().to_string();
        let lazy = open_keeping(&path, 0).unwrap_err().to_string();
        assert_eq!(at_once, lazy);
        assert!(
            lazy.contains(says) && lazy.contains(&format!(":{line}:")),
            "{lazy}"
        );
    }
}

/// Resident memory of this process at its peak, KiB; `None` where the system does not tell.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Run by itself, in release: `cargo test --release -p workloads --test lazy_programs -- --ignored --nocapture`.
#[test]
#[ignore = "ten million operations: a minute"]
fn ten_million_operations() {
    const STEPS: u32 = 833_333;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.uvmprog");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    out.write_all(b"{\"format\":\"uvmprog/1\",\"name\":\"long\",\"iterations\":4}\n")
        .unwrap();
    let (mut id, mut line) = (0, String::new());
    for i in 0..4 {
        writeln!(out, "{{\"op\":\"iter\",\"i\":{i}}}").unwrap();
        for step in 0..STEPS {
            line.clear();
            let n = 1000 + step % 997 * 4096;
            writeln!(line, "{{\"op\":\"alloc\",\"t\":{id},\"n\":{n}}}").unwrap();
            writeln!(
                line,
                "{{\"op\":\"kernel\",\"name\":\"add\",\"r\":[],\"w\":[[{id},0,{n}]],\"rb\":0,\"wb\":{n}}}"
            )
            .unwrap();
            // A tensor lives for 100 steps, some beyond the end of their iteration.
            if id >= 100 {
                writeln!(line, "{{\"op\":\"free\",\"t\":{}}}", id - 100).unwrap();
            }
            out.write_all(line.as_bytes()).unwrap();
            id += 1;
        }
    }
    drop(out);
    let clock = std::time::Instant::now();
    let recording = program::open(&path).unwrap();
    let opened = clock.elapsed();
    let Recording::Stored(stored) = &recording else {
        panic!("too large to be kept");
    };
    let operations = stored.operations();
    assert_eq!(operations, u64::from(4 * STEPS) * 3 - 100);
    let clock = std::time::Instant::now();
    let totals = workloads::footprint(&recording, &AllocatorKind::PytorchCaching.into(), 4).unwrap();
    assert_eq!(totals.kernels, u64::from(4 * STEPS));
    let peak = peak_kib().map_or("unknown".to_owned(), |kib| format!("{} MiB", kib >> 10));
    println!(
        "{operations} operations, {} MiB: checked in {:.1} s, footprint in {:.1} s, peak resident {peak}",
        std::fs::metadata(&path).unwrap().len() >> 20,
        opened.as_secs_f64(),
        clock.elapsed().as_secs_f64()
    );
    if let Some(kib) = peak_kib() {
        assert!(kib < 600 << 10, "{kib} KiB");
    }
}
