//! The commands on inputs that are right.

use std::path::Path;
use std::process::{Command, Output};

fn uvmsim(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uvmsim"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn ok(folder: &Path, arguments: &[&str]) -> String {
    let output = uvmsim(folder, arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

const SCAN: &str = "[study]\nname = \"scan\"\n[workload]\nkernel = \"cyclic-scan\"\narray_size = \"4 MiB\"\narrays = 6\niterations = 2\n[memory]\noversubscription = 1.5\n";

fn folder_with(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.toml"), text).unwrap();
    dir
}

#[test]
fn a_run_leaves_a_complete_folder_that_runs_again() {
    let dir = folder_with(SCAN);
    let printed = ok(dir.path(), &["run", "a.toml"]);
    assert!(printed.contains("slowdown"));
    let run = dir.path().join("runs/scan");
    let summary: serde_json::Value =
        serde_json::from_slice(&std::fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary["schema"], "uvmsim-summary/1");
    assert!(summary["slowdown"].as_f64().unwrap() > 1.0);
    assert!(!summary.to_string().contains("wall"));
    let wall: serde_json::Value =
        serde_json::from_slice(&std::fs::read(run.join("wall.json")).unwrap()).unwrap();
    assert!(wall["wall_s"].as_f64().unwrap() > 0.0);
    // The resolved config gives the same result, bit for bit; so does stepping.
    for (out, extra) in [
        ("again", "engine.exact=fast"),
        ("stepped", "engine.exact=stepped"),
    ] {
        ok(
            dir.path(),
            &["run", "runs/scan/config.toml", "--out", out, "--set", extra],
        );
        let same = std::fs::read_to_string(dir.path().join(out).join("summary.json")).unwrap();
        let strip = |text: &str| {
            text.lines()
                .filter(|l| !l.contains("\"events\"") && !l.contains("\"ties\""))
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert_eq!(
            strip(&same),
            strip(&std::fs::read_to_string(run.join("summary.json")).unwrap()),
            "{out}"
        );
    }
}

#[test]
fn a_program_runs_without_a_config() {
    let dir = folder_with("[workload]\nprogram = \"vec \\\"1\\\".uvmprog.zst\"\n");
    let program = "vec \"1\".uvmprog.zst";
    ok(
        dir.path(),
        &[
            "workload",
            "vector-add",
            "--set",
            "workload.array_size=4 MiB",
            "-o",
            program,
        ],
    );
    ok(
        dir.path(),
        &[
            "run",
            program,
            "--out",
            "c",
            "--set",
            "memory.oversubscription=1.2",
        ],
    );
    ok(
        dir.path(),
        &[
            "run",
            "a.toml",
            "--out",
            "b",
            "--set",
            "memory.oversubscription=1.2",
        ],
    );
    let summary = |folder: &str| -> serde_json::Value {
        let text = std::fs::read(dir.path().join(folder).join("summary.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let (bare, with_config) = (summary("c"), summary("b"));
    assert_eq!(bare["study"], "vec \"1\"");
    for key in ["simulated_ns", "slowdown", "kernels"] {
        assert_eq!(bare[key], with_config[key], "{key}");
        assert!(bare[key].is_number(), "{key}");
    }
    let broken = uvmsim(dir.path(), &["run", "none.uvmprog"]);
    assert!(String::from_utf8_lossy(&broken.stderr).contains("no such file"));
}

#[test]
fn time_and_bytes_of_a_summary_add_up() {
    let dir = folder_with(SCAN);
    ok(dir.path(), &["run", "a.toml", "--out", "out", "--records"]);
    let out = dir.path().join("out");
    let s: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("summary.json")).unwrap()).unwrap();
    let number = |key: &str| s[key].as_f64().unwrap();
    let stalled: f64 = s["sm_stalled_ns"]
        .as_object()
        .unwrap()
        .values()
        .map(|v| v.as_f64().unwrap())
        .sum();
    let total = number("sm_computing_ns") + number("sm_idle_ns") + stalled;
    let thread: f64 = s["driver_time_ns"]
        .as_object()
        .unwrap()
        .values()
        .map(|v| v.as_f64().unwrap())
        .sum();
    assert!(
        (total / number("sms") - thread).abs() < 1e-6 * thread,
        "{total} {thread}"
    );
    let moved: u64 = s["traffic"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["bytes"].as_u64().unwrap())
        .sum();
    let copies = std::fs::read_to_string(out.join("copies.csv")).unwrap();
    let listed: u64 = copies
        .lines()
        .skip(1)
        .map(|l| l.rsplit(',').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(moved, listed);
    let batches = std::fs::read_to_string(out.join("batches.csv"))
        .unwrap()
        .lines()
        .count()
        - 1;
    assert_eq!(s["driver"]["batches"], batches);
}

#[test]
fn a_sweep_does_not_depend_on_threads() {
    let sweep = format!(
        "{SCAN}[sweep]\n\"driver.prefetch.threshold\" = [51, 100]\n\"workload.iterations\" = {{ from = 1, to = 3, step = 1 }}\n"
    );
    let dir = folder_with(&sweep);
    for (threads, out) in [("1", "one"), ("2", "two"), ("7", "seven")] {
        ok(
            dir.path(),
            &["sweep", "a.toml", "--threads", threads, "--out", out],
        );
    }
    let csv = |out: &str| std::fs::read_to_string(dir.path().join(out).join("sweep.csv")).unwrap();
    assert_eq!(csv("one"), csv("two"));
    assert_eq!(csv("one"), csv("seven"));
    assert_eq!(csv("one").lines().count(), 7);
    let fields: Vec<usize> = csv("one").lines().map(|l| l.split(',').count()).collect();
    assert!(fields.iter().all(|n| *n == fields[0]), "{fields:?}");
    for name in ["slowdown.svg", "slowdown.png", "config.toml"] {
        assert!(dir.path().join("one").join(name).is_file());
    }
    // A point gives what a run of its config gives.
    ok(
        dir.path(),
        &["run", "a.toml", "--out", "run", "--set", "workload.iterations=2"],
    );
    let text = std::fs::read_to_string(dir.path().join("run/summary.json")).unwrap();
    // Parsed by hand: serde_json does not promise the nearest double.
    let slowdown = text
        .lines()
        .find_map(|l| l.trim().strip_prefix("\"slowdown\": "))
        .unwrap();
    let slowdown: f64 = slowdown.trim_end_matches(',').parse().unwrap();
    let csv = csv("one");
    let mut lines = csv.lines();
    let column = lines
        .next()
        .unwrap()
        .split(',')
        .position(|name| name == "slowdown")
        .unwrap();
    let point = lines.find(|l| l.contains(",51,2,")).unwrap();
    assert_eq!(
        point
            .split(',')
            .nth(column)
            .unwrap()
            .parse::<f64>()
            .unwrap()
            .to_bits(),
        slowdown.to_bits()
    );
}

#[test]
fn a_failing_point_is_listed_and_fails_the_sweep() {
    let dir = folder_with(
        "[workload]\nkernel = \"vector-add\"\narray_size = \"4 MiB\"\n[sweep]\nworkload.program = [\"none\", \"missing.uvmprog\"]\n",
    );
    let output = uvmsim(dir.path(), &["sweep", "a.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(1));
    let csv = std::fs::read_to_string(dir.path().join("out/sweep.csv")).unwrap();
    assert_eq!(csv.lines().count(), 3);
    assert!(
        csv.lines().nth(2).unwrap().contains("failed") && csv.contains("missing.uvmprog: no such file"),
        "{csv}"
    );
    let fields: Vec<usize> = csv.lines().map(|l| l.split(',').count()).collect();
    assert!(fields.iter().all(|n| *n == fields[0]), "{fields:?}");
}

#[test]
fn explanations() {
    let dir = tempfile::tempdir().unwrap();
    insta::assert_snapshot!(
        "explain_key",
        ok(dir.path(), &["explain", "gpu.utlb_outstanding_faults"])
    );
    insta::assert_snapshot!(
        "explain_override",
        ok(
            dir.path(),
            &["explain", "gpu.memory", "--set", "gpu.memory=16GiB"]
        )
    );
    assert!(ok(dir.path(), &["explain"]).contains("driver.prefetch.threshold"));
    assert!(ok(dir.path(), &["explain", "driver.prefetch"]).contains("uvm_perf_prefetch_enable"));
    assert!(ok(dir.path(), &["profiles"]).contains("a100-80gb-pcie"));
    std::fs::write(dir.path().join("a.toml"), SCAN).unwrap();
    let shown = ok(dir.path(), &["config", "show", "a.toml", "--set", "gpu.sms=7"]);
    assert!(shown.contains("sms = 7  # override") && shown.contains("oversubscription = 1.5  # a.toml:9"));
}

#[test]
fn a_validation_file_of_the_users_own() {
    let dir = folder_with(
        "[validation]\ntitle = \"mine\"\ncitation = \"none\"\n[workload]\nkernel = \"vector-add-one-block\"\narray_size = \"4 MiB\"\niterations = 1\n\
         [[curve]]\nname = \"copies\"\nmetric = \"h2d_copies\"\npublished = [48]\ntolerance = 0.0\n\
         [[curve]]\nname = \"wrong\"\nmetric = \"h2d_copies\"\nkey = \"workload.array_size\"\nx = [\"2 MiB\", \"4 MiB\"]\npublished = [24, 1]\ntolerance = 0.0\nfitted = \"all of it\"\n\
         [[curve]]\nname = \"copies of a block\"\nmetric = \"block_copy_kib\"\nx = [1, 2, 99]\npublished = [4, 60, 1]\ntolerance = 0.0\n",
    );
    let output = uvmsim(dir.path(), &["validate", "a.toml", "--out", "out"]);
    // The point that has no value is listed, missed, and fails the command.
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!("validation_report", String::from_utf8(output.stdout).unwrap());
    insta::assert_snapshot!(
        "validation_csv",
        std::fs::read_to_string(dir.path().join("out/validation.csv")).unwrap()
    );
}

#[test]
fn shipped_configs_resolve() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(root.join("configs/studies")).unwrap() {
        let path = entry.unwrap().path();
        let config = uvmsim::config::Config::load(&path, &[]).unwrap_or_else(|e| panic!("{e}"));
        let plan = uvmsim::sweep::plan(&config).unwrap_or_else(|e| panic!("{e}"));
        for point in &plan.points {
            if let Some(program) = point.config.program_path() {
                assert!(root.join(&program).is_file(), "{}", program.display());
            }
        }
    }
    for entry in std::fs::read_dir(root.join("configs/validation")).unwrap() {
        let path = entry.unwrap().path();
        uvmsim::validate::file::load(&path, &[]).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// The oracle tables, where they lie beside the repository.
fn shared() -> Option<std::path::PathBuf> {
    let folder = std::env::var_os("UVMSIM_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"),
        std::path::PathBuf::from,
    );
    let folder = folder.join("data");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no shared data beside the repository");
    None
}

#[test]
fn oracles_through_the_command() {
    let Some(data) = shared() else { return };
    let dir = tempfile::tempdir().unwrap();
    let cases = data.join("uvm-driver/prefetch_cases.jsonl");
    assert!(
        ok(dir.path(), &["check", "prefetch", cases.to_str().unwrap()]).ends_with("1200 passed, 0 failed\n")
    );
    let link = data.join("pcie/expected.csv");
    assert!(ok(dir.path(), &["check", "link", link.to_str().unwrap()]).ends_with(" passed, 0 failed\n"));
    // A wrong expectation is found, and named by its line.
    let text = std::fs::read_to_string(cases).unwrap();
    let first = text
        .lines()
        .next()
        .unwrap()
        .replace("\"prefetched\":[[248,262]", "\"prefetched\":[[249,262]");
    std::fs::write(dir.path().join("one.jsonl"), first).unwrap();
    let output = uvmsim(dir.path(), &["check", "prefetch", "one.jsonl"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("one.jsonl:1:"));
}
