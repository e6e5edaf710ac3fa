//! Pages that bounce between CPU and GPU, end to end: programs through the whole machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Kernels that write 64 KiB while a thread of the host writes them, too: `rounds` of both.
fn ping_pong(rounds: usize) -> String {
    let mut lines = vec![
        r#"{"format":"uvmprog/1","name":"ping-pong","iterations":1}"#,
        r#"{"op":"alloc","t":1,"n":2097152}"#,
        r#"{"op":"cpu","w":[[1,0,2097152]],"write":true}"#,
        r#"{"op":"iter","i":0}"#,
    ];
    let kernel = r#"{"op":"kernel","name":"add","r":[],"w":[[1,0,65536]],"rb":0,"wb":65536}"#;
    let host = r#"{"op":"cpu","w":[[1,0,65536]],"write":true,"concurrent":true}"#;
    for _ in 0..rounds {
        lines.extend([kernel, host]);
    }
    lines.push(r#"{"op":"sync"}"#);
    lines.join("\n") + "\n"
}

fn run(dir: &Path, rounds: usize, extra: &[&str]) -> Value {
    std::fs::write(dir.join("p.uvmprog"), ping_pong(rounds)).unwrap();
    let config = "[workload]\nprogram = \"p.uvmprog\"\nallocator = \"per-tensor\"\niterations = 1\n[engine]\ncheck = true\n";
    std::fs::write(dir.join("a.toml"), config).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_uvmsim"))
        .args(["run", "a.toml", "--no-baseline", "--out", "out", "--events"])
        .args(extra)
        .current_dir(dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = std::fs::read(dir.join("out/summary.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn count(summary: &Value, name: &str) -> u64 {
    summary["driver"][name].as_u64().unwrap()
}

fn rows(dir: &Path, table: &str) -> u64 {
    let path = dir.join("out/events").join(format!("{table}.csv"));
    csv::Reader::from_path(path).map_or(0, |mut reader| reader.records().count() as u64)
}

#[test]
fn pages_that_bounce_are_throttled_then_pinned_to_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let on = run(dir, 5000, &[]);
    assert!(count(&on, "thrashing_detections") > 0);
    assert_eq!(
        rows(dir, "throttling_start"),
        count(&on, "throttles_gpu") + count(&on, "throttles_cpu")
    );
    assert!(rows(dir, "thrashing_detected") > 0);
    assert!(count(&on, "pins_cpu") > 0, "{}", on["driver"]);
    assert!(count(&on, "remote_pages") > 0, "the GPU maps pinned pages");
    let mut mapped = 0;
    let path = dir.join("out/events/map_remote.csv");
    for row in csv::Reader::from_path(path).unwrap().deserialize() {
        let row: BTreeMap<String, String> = row.unwrap();
        assert_eq!(row["mapRemoteCause"], "Thrashing");
        mapped += row["size"].parse::<u64>().unwrap();
    }
    assert_eq!(mapped, count(&on, "remote_pages") * 4096);

    let off = run(dir, 5000, &["--set", "driver.thrashing.enable=false"]);
    for counter in [
        "thrashing_detections",
        "throttles_gpu",
        "throttles_cpu",
        "pins_cpu",
        "remote_pages",
    ] {
        assert_eq!(count(&off, counter), 0, "{counter}");
    }
    assert_eq!(rows(dir, "throttling_start"), 0);
    assert_eq!(rows(dir, "map_remote"), 0);
    assert!(
        count(&off, "cpu_migrated_pages") > count(&on, "cpu_migrated_pages"),
        "pinned pages stay"
    );
}

#[test]
fn a_gpu_alone_never_thrashes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let scan = "[study]\nname = \"scan\"\n[workload]\nkernel = \"cyclic-scan\"\narray_size = \"4 MiB\"\narrays = 6\niterations = 3\n[memory]\noversubscription = 2.0\n";
    std::fs::write(dir.join("a.toml"), scan).unwrap();
    let mut summaries = Vec::new();
    for enable in ["true", "false"] {
        let set = format!("driver.thrashing.enable={enable}");
        let output = Command::new(env!("CARGO_BIN_EXE_uvmsim"))
            .args(["run", "a.toml", "--no-baseline", "--out", enable, "--set", &set])
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(output.status.success());
        summaries.push(std::fs::read_to_string(dir.join(enable).join("summary.json")).unwrap());
    }
    assert!(summaries[0].contains("\"evictions\""));
    assert_eq!(summaries[0], summaries[1]);
}
