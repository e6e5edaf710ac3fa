//! One program under each allocator.

use std::path::Path;
use std::process::{Command, Output};

/// Two tensors live at a time, 12 MiB each, of three sizes so that freed blocks do not fit the next: the
/// caching allocator keeps 44 MiB.
const PROGRAM: &str = r#"{"format":"uvmprog/1","name":"three","iterations":1}
{"op":"iter","i":0}
{"op":"alloc","t":1,"n":12582912}
{"op":"kernel","name":"fill","r":[],"w":[[1,0,12582912]],"rb":0,"wb":12582912}
{"op":"alloc","t":2,"n":14680064}
{"op":"kernel","name":"copy","r":[[1,0,12582912]],"w":[[2,0,14680064]],"rb":12582912,"wb":14680064}
{"op":"free","t":1}
{"op":"alloc","t":3,"n":16777216}
{"op":"kernel","name":"copy","r":[[2,0,14680064]],"w":[[3,0,16777216]],"rb":14680064,"wb":16777216}
{"op":"free","t":2}
{"op":"free","t":3}
"#;

const MIB: u64 = 1 << 20;

fn run(folder: &Path, allocator: &str, extra: &[&str]) -> Output {
    let set = format!("workload.allocator={allocator}");
    Command::new(env!("CARGO_BIN_EXE_uvmsim"))
        .args([
            "run",
            "a.toml",
            "--no-baseline",
            "--out",
            allocator,
            "--set",
            &set,
        ])
        .args(extra)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("three.uvmprog"), PROGRAM).unwrap();
    let config = "[workload]\nprogram = \"three.uvmprog\"\niterations = 1\n[memory]\ncapacity = \"32 MiB\"\n";
    std::fs::write(dir.path().join("a.toml"), config).unwrap();
    dir
}

fn summary(folder: &Path, allocator: &str) -> serde_json::Value {
    let output = run(folder, allocator, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{allocator}: {said}");
    let text = std::fs::read(folder.join(allocator).join("summary.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn allocators_differ_in_what_they_keep() {
    let dir = folder();
    let dir = dir.path();
    let evictions = |s: &serde_json::Value| s["driver"]["evictions"].as_u64().unwrap();
    let dead = |s: &serde_json::Value| s["dead_write_back_bytes"].as_u64().unwrap();

    // 44 MiB of segments, of which 12 are dead when the third tensor comes: the driver writes them back.
    let caching = summary(dir, "pytorch-caching");
    assert_eq!(caching["footprint_bytes"], 42 * MIB);
    assert!(evictions(&caching) >= 5);
    assert!(dead(&caching) > 0);
    // The pool frees the first segment before it takes the third.
    let pool = summary(dir, "pool");
    assert_eq!((evictions(&pool), dead(&pool)), (0, 0));
    assert_eq!(pool["driver"]["managed_frees"], 1);
    // Nothing is kept.
    let per_tensor = summary(dir, "per-tensor");
    assert_eq!(per_tensor["footprint_bytes"], 30 * MIB);
    assert_eq!((evictions(&per_tensor), dead(&per_tensor)), (0, 0));
    // Everything fits; pages are still populated by faults.
    let ideal = summary(dir, "ideal");
    assert_eq!(evictions(&ideal), 0);
    assert!(ideal["driver"]["raw_faults"].as_u64().unwrap() > 0);
    // Device memory: no faults at all. The allocator gives the first segment back like the pool.
    let device = summary(dir, "device");
    assert_eq!(device["driver"]["raw_faults"], 0);
    assert_eq!(device["fault_entries"], 0);
    assert!(device["simulated_ns"].as_f64() < ideal["simulated_ns"].as_f64());
}

#[test]
fn expandable_segments_on_device_memory() {
    let dir = folder();
    let conf = "workload.allocator_conf=expandable_segments:True";
    let output = run(
        dir.path(),
        "device",
        &["--set", conf, "--set", "memory.capacity=64MiB"],
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = std::fs::read(dir.path().join("device/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&text).unwrap();
    // 12 and 14 MiB lie in two granules of 20 MiB; 16 MiB do not fit behind them nor into the freed 12.
    assert_eq!(summary["footprint_bytes"], 60 * MIB);
    assert_eq!(summary["driver"]["raw_faults"], 0);
    let odd = format!("{conf},large_segment_size_mb:25");
    let output = run(dir.path(), "device", &["--set", &odd]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("even"));
}

#[test]
fn device_memory_runs_out_in_the_words_of_pytorch() {
    let dir = folder();
    let output = run(dir.path(), "device", &["--set", "memory.capacity=24MiB"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).replace("\n  │", "");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for fact in [
        "CUDA out of memory. Tried to allocate 14.00 MiB.",
        "total capacity of 24.00 MiB of which 12.00 MiB is free",
        "12.00 MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated",
    ] {
        assert!(said.contains(fact), "{said}");
    }
    assert!(!dir.path().join("device").exists());
}

#[test]
fn options_that_contradict_the_allocator_are_refused() {
    let dir = folder();
    for (allocator, set, says) in [
        (
            "per-tensor",
            "workload.allocator_conf=max_split_size_mb:32",
            "does not use it",
        ),
        (
            "pytorch-caching",
            "workload.allocator_conf=expandable_segments:True",
            "managed memory",
        ),
        ("device", "workload.allocator_conf=max_split_size_mb:2", "20 .."),
        ("device", "workload.memory_fraction=1.5", "memory_fraction"),
        ("devise", "study.seed=1", "device"),
    ] {
        let output = run(dir.path(), allocator, &["--set", set]);
        let said = String::from_utf8_lossy(&output.stderr).to_string();
        assert_eq!(output.status.code(), Some(2), "{allocator} {set}: {said}");
        assert!(said.contains(says), "{allocator} {set}: {said}");
    }
    let fraction = ["--set", "workload.memory_fraction=0.5"];
    let output = run(dir.path(), "device", &fraction);
    assert!(String::from_utf8_lossy(&output.stderr).contains("16.00 MiB allowed"));
}
