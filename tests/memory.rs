//! Memory that managed data cannot have, end to end.

use std::process::Command;

use serde_json::Value;

const CONFIG: &str = "[workload]\nkernel = \"cyclic-scan\"\narrays = 4\narray_size = \"16 MiB\"\niterations = 2\n\
    [gpu]\nmemory = \"96 MiB\"\n[memory]\nreserved = \"16 MiB\"\n[engine]\ncheck = true\n";

fn run(extra: &[&str]) -> Result<Value, String> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.toml"), CONFIG).unwrap();
    let sets = extra.iter().flat_map(|set| ["--set", *set]);
    let output = Command::new(env!("CARGO_BIN_EXE_uvmsim"))
        .args(["run", "a.toml", "--out", "out"])
        .args(sets)
        .current_dir(dir.path())
        .output()
        .unwrap();
    if !output.status.success() {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = std::fs::read(dir.path().join("out").join("summary.json")).unwrap();
    Ok(serde_json::from_slice(&text).unwrap())
}

fn figures(summary: &Value) -> Vec<&Value> {
    let names = [
        "capacity_bytes",
        "simulated_ns",
        "slowdown",
        "traffic",
        "driver",
        "sm_stalled_ns",
    ];
    let all: Vec<&Value> = names.iter().filter_map(|name| summary.get(name)).collect();
    assert_eq!(all.len(), names.len(), "{summary}");
    all
}

#[test]
fn pinned_memory_is_a_smaller_gpu() {
    let whole = run(&[]).unwrap();
    assert_eq!(whole["driver"]["evictions"], 0);
    let pinned = run(&["memory.pinned=32 MiB"]).unwrap();
    assert!(pinned["driver"]["evictions"].as_u64().unwrap() > 0, "{pinned}");
    let smaller = run(&["memory.capacity=48 MiB"]).unwrap();
    assert_eq!(figures(&pinned), figures(&smaller));
    // One MiB in pieces of 64 KiB spoils sixteen root chunks.
    let scattered = run(&["memory.pinned=1 MiB", "memory.pinned_piece=64 KiB"]).unwrap();
    assert_eq!(figures(&scattered), figures(&smaller));
}

#[test]
fn pinned_memory_that_does_not_fit_is_refused() {
    let said = run(&["memory.pinned=80 MiB"]).unwrap_err();
    assert!(said.contains("memory.pinned = 80 MiB"), "{said}");
    assert!(said.contains("leaves nothing"), "{said}");
    let said = run(&["memory.pinned=4 MiB", "memory.pinned_piece=4 KiB"]).unwrap_err();
    assert!(said.contains("takes 2 GiB"), "{said}");
    // One root chunk is enough.
    let one = run(&["memory.pinned=78 MiB"]).unwrap();
    assert_eq!(one["capacity_bytes"], 2 << 20);
    for set in ["memory.capacity=48 MiB", "memory.oversubscription=1.5"] {
        let said = run(&["memory.pinned=4 MiB", set]).unwrap_err();
        assert!(said.contains("has no effect"), "{said}");
    }
}
