//! Hints and accesses of the CPU, end to end: programs through the whole machine, fast and stepped.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const MIB: u64 = 1 << 20;

/// Two tensors of 8 MiB written by the host, hints, three kernels, a hint in the stream, and the host
/// reads the result.
fn program(hints: &[&str], late: &[&str]) -> String {
    let mut lines = vec![
        r#"{"format":"uvmprog/1","name":"hints","iterations":1}"#,
        r#"{"op":"alloc","t":1,"n":8388608}"#,
        r#"{"op":"alloc","t":2,"n":8388608}"#,
        r#"{"op":"cpu","w":[[1,0,8388608]],"write":true}"#,
    ];
    lines.extend(hints);
    lines.push(r#"{"op":"iter","i":0}"#);
    let kernel =
        r#"{"op":"kernel","name":"add","r":[[1,0,8388608]],"w":[[2,0,8388608]],"rb":8388608,"wb":8388608}"#;
    lines.extend([kernel, kernel]);
    lines.extend(late);
    lines.extend([kernel, r#"{"op":"cpu","w":[[2,0,8388608]]}"#]);
    lines.join("\n") + "\n"
}

fn run(program: &str, extra: &[&str]) -> Value {
    let mut fast = None;
    for exact in ["fast", "stepped"] {
        let dir = tempfile::tempdir().unwrap();
        let summary = run_in(
            dir.path(),
            program,
            &[extra, &["--set", &format!("engine.exact={exact}")]].concat(),
        );
        let summary = summary.unwrap_or_else(|said| panic!("{said}"));
        let comparable = |summary: &Value| {
            let mut map = summary.as_object().unwrap().clone();
            // Skipping ahead saves events; it changes nothing else.
            map.remove("events");
            map.remove("ties");
            map
        };
        let first = fast.get_or_insert_with(|| summary.clone());
        assert_eq!(
            comparable(first),
            comparable(&summary),
            "fast differs from stepped"
        );
    }
    fast.unwrap()
}

fn run_in(dir: &Path, program: &str, extra: &[&str]) -> Result<Value, String> {
    std::fs::write(dir.join("p.uvmprog"), program).unwrap();
    let config = "[workload]\nprogram = \"p.uvmprog\"\nallocator = \"per-tensor\"\niterations = 1\n[engine]\ncheck = true\n";
    std::fs::write(dir.join("a.toml"), config).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_uvmsim"))
        .args(["run", "a.toml", "--no-baseline", "--out", "out"])
        .args(extra)
        .current_dir(dir)
        .output()
        .unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = std::fs::read(dir.join("out").join("summary.json")).unwrap();
    Ok(serde_json::from_slice(&text).unwrap())
}

fn moved(summary: &Value, direction: &str, cause: &str) -> u64 {
    let all = summary["traffic"].as_array().unwrap();
    let of = |entry: &&Value| entry["direction"] == direction && entry["cause"] == cause;
    all.iter()
        .filter(of)
        .map(|entry| entry["bytes"].as_u64().unwrap())
        .sum()
}

fn count(summary: &Value, name: &str) -> u64 {
    summary["driver"][name].as_u64().unwrap()
}

fn directions(summary: &Value) -> [String; 2] {
    let all = summary["traffic"].as_array().unwrap();
    let name = |index: usize| all[index]["direction"].as_str().unwrap().to_owned();
    [name(0), name(all.len() - 1)]
}

#[test]
fn the_host_reads_the_result_back() {
    let plain = run(&program(&[], &[]), &[]);
    let [_, out] = directions(&plain);
    // Four blocks come back by faults of the CPU, six a block.
    assert_eq!(count(&plain, "cpu_faults"), 24);
    assert_eq!(count(&plain, "cpu_migrated_pages"), 2048);
    let causes: Vec<&str> = plain["traffic"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["direction"] == out.as_str() && e["bytes"].as_u64() > Some(0))
        .map(|e| e["cause"].as_str().unwrap())
        .collect();
    assert_eq!(causes.len(), 2, "faulted and prefetched pages: {causes:?}");
}

#[test]
fn a_migration_before_the_kernels_saves_their_faults() {
    let hint = r#"{"op":"prefetch","w":[[1,0,8388608],[2,0,8388608]]}"#;
    let hinted = run(&program(&[hint], &[]), &[]);
    let plain = run(&program(&[], &[]), &[]);
    assert_eq!(
        count(&hinted, "batches"),
        0,
        "kernels wait for the migration in their stream"
    );
    assert!(hinted["simulated_ns"].as_f64() < plain["simulated_ns"].as_f64());
    let [towards, _] = directions(&hinted);
    assert_eq!(moved(&hinted, &towards, "user"), 8 * MIB);
    // To the host, in the middle of the kernels: the last one faults again.
    let away = r#"{"op":"prefetch","w":[[1,0,8388608]],"to":"cpu"}"#;
    let late = run(&program(&[hint], &[away]), &[]);
    assert!(count(&late, "batches") > 0);
}

#[test]
fn memory_preferred_on_the_host_is_accessed_over_the_link() {
    let hint =
        r#"{"op":"advise","w":[[1,0,8388608]],"advice":"cudaMemAdviseSetPreferredLocation","device":"cpu"}"#;
    let remote = run(&program(&[hint], &[]), &[]);
    assert_eq!(count(&remote, "remote_pages"), 2048);
    let accessed = r#"{"op":"advise","w":[[1,0,8388608]],"advice":"cudaMemAdviseSetAccessedBy"}"#;
    let direct = run(&program(&[accessed], &[]), &[]);
    assert_eq!(count(&direct, "remote_pages"), 2048);
    assert!(
        count(&direct, "batches") < count(&remote, "batches"),
        "mapped without faults"
    );
    let [towards, _] = directions(&remote);
    assert_eq!(
        moved(&remote, &towards, "coherence") + moved(&remote, &towards, "prefetch"),
        0
    );
    // Three kernels read 8 MiB each over the link.
    let busy = remote["link_busy_host_to_device_ns"].as_f64().unwrap();
    assert!(busy > 3.0 * 8e6 / 32.0, "{busy} ns");
}

#[test]
fn read_mostly_memory_is_read_by_both() {
    let hint = r#"{"op":"advise","w":[[1,0,8388608]],"advice":"cudaMemAdviseSetReadMostly"}"#;
    let read = r#"{"op":"cpu","w":[[1,0,8388608]]}"#;
    let shared = run(&program(&[hint], &[read]), &[]);
    let bounced = run(&program(&[], &[read]), &[]);
    assert_eq!(count(&shared, "cpu_faults"), 24, "only the result comes back");
    assert_eq!(count(&bounced, "cpu_faults"), 48);
}

#[test]
fn a_host_that_is_too_small_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let said = run_in(dir.path(), &program(&[], &[]), &["--set", "host.memory=4 MiB"]).unwrap_err();
    assert!(said.contains("host.memory"), "{said}");
}

#[test]
fn hints_on_memory_that_is_gone_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let bad = [
        (r#"{"op":"prefetch","w":[[9,0,4096]]}"#, "never allocated"),
        (r#"{"op":"prefetch","w":[[1,0,4096]],"to":"disk"}"#, "disk"),
        (r#"{"op":"advise","w":[[1,0,4096]]}"#, "advice"),
        (
            r#"{"op":"advise","w":[[1,0,4096]],"advice":"SetReadMost"}"#,
            "SetReadMostly",
        ),
        (
            r#"{"op":"free","t":1}
{"op":"discard","w":[[1,0,4096]]}"#,
            "freed",
        ),
    ];
    for (line, word) in bad {
        let said = run_in(dir.path(), &program(&[line], &[]), &[]).unwrap_err();
        assert!(said.contains(word), "{line}: {said}");
    }
}
