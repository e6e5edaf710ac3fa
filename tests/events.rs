//! Events of a run: complete, equal in every format, and without influence.

#![allow(clippy::cast_possible_wrap)] // counts of a small run

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::RowAccessor as _;

const SCAN: &str = "[study]\nname = \"scan\"\n[workload]\nkernel = \"cyclic-scan\"\narray_size = \"4 MiB\"\narrays = 6\niterations = 2\n[memory]\noversubscription = 1.5\n";

fn run(folder: &Path, arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_uvmsim"))
        .args(["run", "a.toml", "--no-baseline"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

fn csv(path: &Path) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    reader.deserialize().map(Result::unwrap).collect()
}

/// Sum of a column of rows by another.
fn sums(rows: &[BTreeMap<String, String>], by: &str, what: &str) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for row in rows {
        *sums.entry(row[by].clone()).or_default() += row[what].parse::<i64>().unwrap();
    }
    sums
}

#[test]
fn events_agree_with_the_summary_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("a.toml"), SCAN).unwrap();
    run(dir, &["--out", "plain"]);
    run(dir, &["--out", "csv", "--events", "--nsys"]);
    run(dir, &["--out", "parquet", "--events", "parquet"]);
    let summary = std::fs::read_to_string(dir.join("plain/summary.json")).unwrap();
    for out in ["csv", "parquet"] {
        let heard = std::fs::read_to_string(dir.join(out).join("summary.json")).unwrap();
        assert_eq!(summary, heard, "listening changes nothing");
    }
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let count = |key: &str| summary["driver"][key].as_i64().unwrap();

    // CSV against the summary.
    let events = dir.join("csv/events");
    let faults = csv(&events.join("gpu_fault.csv"));
    assert_eq!(faults.len() as i64, count("raw_faults"));
    let last_batch = faults.last().unwrap()["batchId"].parse::<i64>().unwrap();
    assert_eq!(last_batch, count("batches"));
    let replays = csv(&events.join("gpu_fault_replay.csv"));
    assert_eq!(replays.len() as i64, count("replays"));
    let evictions = csv(&events.join("sim_eviction.csv"));
    assert_eq!(evictions.len() as i64, count("evictions"));
    assert!(!evictions.is_empty());
    let migrations = csv(&events.join("migration.csv"));
    let moved = sums(&migrations, "migrationCause", "migratedBytes");
    for entry in summary["traffic"].as_array().unwrap() {
        let cause = match entry["cause"].as_str().unwrap() {
            "user" => "User",
            "coherence" => "Coherence",
            "prefetch" => "Prefetch",
            "eviction" => "Eviction",
            _ => "AccessCounters",
        };
        let to_device = entry["direction"] == "host_to_device";
        let ours: i64 = migrations
            .iter()
            .filter(|m| m["migrationCause"] == cause && (m["dstIndex"] == "1") == to_device)
            .map(|m| m["migratedBytes"].parse::<i64>().unwrap())
            .sum();
        assert_eq!(ours, entry["bytes"].as_i64().unwrap(), "{entry}");
    }
    let kernels = csv(&events.join("sim_kernel.csv"));
    assert_eq!(kernels.len() as i64, summary["kernels"].as_i64().unwrap());
    for kernel in &kernels {
        let (start, end) = (&kernel["start"], &kernel["end"]);
        assert!(start.parse::<i64>().unwrap() < end.parse().unwrap());
    }

    // Parquet against CSV: every value of the largest table, the row counts of all.
    for entry in std::fs::read_dir(&events).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let file = dir.join(format!("parquet/events/{name}.parquet"));
        let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
        let rows = csv(&path);
        assert_eq!(reader.metadata().file_metadata().num_rows(), rows.len() as i64);
        if name == "gpu_fault" {
            for (row, ours) in reader.get_row_iter(None).unwrap().zip(&rows) {
                let row = row.unwrap();
                assert_eq!(row.get_string(1).unwrap(), &ours["accessType"]);
                assert_eq!(row.get_long(5).unwrap().to_string(), ours["address"]);
                assert_eq!(row.get_long(7).unwrap().to_string(), ours["timeStampGpu"]);
            }
        }
    }

    // The export against both, by the queries that scripts for real exports make.
    let db = rusqlite::Connection::open(dir.join("csv/nsys.sqlite")).unwrap();
    let query = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    for (label, cause) in [("Page fault", "Coherence"), ("Eviction", "Eviction")] {
        let bytes = query(&format!(
            "SELECT sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY m JOIN ENUM_CUDA_UNIF_MEM_MIGRATION e \
             ON m.migrationCause = e.id WHERE e.label = '{label}'"
        ));
        assert_eq!(bytes, moved[cause], "{label}");
    }
    let faults = query("SELECT sum(numberOfPageFaults) FROM CUDA_UM_GPU_PAGE_FAULT_EVENTS");
    assert_eq!(faults, count("raw_faults"));
    assert_eq!(
        query("SELECT count(*) FROM CUDA_UM_GPU_PAGE_FAULT_EVENTS WHERE end < start"),
        0
    );
    let named = query(
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON k.demangledName = s.id \
         JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON k.correlationId = r.correlationId \
         JOIN StringIds c ON r.nameId = c.id WHERE c.value = 'cudaLaunchKernel'",
    );
    assert_eq!(named as usize, kernels.len());
    let allocated = query(
        "SELECT sum(bytes) FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE memoryOperationType = 0 AND memKind = 4",
    );
    assert_eq!(allocated, summary["footprint_bytes"].as_i64().unwrap());
    // Like in real exports, a table without rows is not there.
    let cpu = "SELECT count(*) FROM sqlite_master WHERE name = 'CUDA_UM_CPU_PAGE_FAULT_EVENTS'";
    assert_eq!(query(cpu), 0);
}

#[test]
fn pages_that_advice_keeps_on_the_host_are_reported_as_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let program = [
        r#"{"format":"uvmprog/1","name":"advised","iterations":1}"#,
        r#"{"op":"alloc","t":1,"n":2097152}"#,
        r#"{"op":"cpu","w":[[1,0,2097152]],"write":true}"#,
        r#"{"op":"advise","w":[[1,0,1048576]],"advice":"cudaMemAdviseSetAccessedBy"}"#,
        r#"{"op":"iter","i":0}"#,
        r#"{"op":"kernel","name":"add","r":[[1,0,2097152]],"w":[],"rb":2097152,"wb":0}"#,
        r#"{"op":"sync"}"#,
    ];
    std::fs::write(dir.join("p.uvmprog"), program.join("\n") + "\n").unwrap();
    let config = "[workload]\nprogram = \"p.uvmprog\"\nallocator = \"per-tensor\"\niterations = 1\n";
    std::fs::write(dir.join("a.toml"), config).unwrap();
    run(dir, &["--out", "out", "--events"]);
    let mapped = csv(&dir.join("out/events/map_remote.csv"));
    assert_eq!(mapped.len(), 1, "one run of pages, at the advice: {mapped:?}");
    let row = &mapped[0];
    assert_eq!(row["mapRemoteCause"], "Policy");
    assert_eq!((row["srcIndex"].as_str(), row["dstIndex"].as_str()), ("1", "0"));
    assert_eq!(row["size"], "1048576");
    let at = |column: &str| row[column].parse::<i64>().unwrap();
    assert!(
        at("timeStamp") < at("timeStampGpu"),
        "PTEs are written after the push"
    );
}
