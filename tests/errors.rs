//! Bad input: exit status 2, a message that names file, line, key, value and what is accepted; never a
//! panic, never an output folder.

use std::path::Path;
use std::process::{Command, Output};

fn uvmsim(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uvmsim"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Runs `config` in a folder of its own; stderr.
fn refused(files: &[(&str, &[u8])], arguments: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    let output = uvmsim(dir.path(), arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| files.iter().any(|f| *f.0 == **name) || name == "runs"),
        "{left:?}"
    );
    if let Ok(runs) = std::fs::read_dir(dir.path().join("runs")) {
        assert_eq!(runs.count(), 0);
    }
    stderr
}

fn config(text: &str) -> String {
    refused(&[("bad.toml", text.as_bytes())], &["run", "bad.toml"])
}

fn program(content: &[u8]) -> String {
    let config = b"[workload]\nprogram = \"bad.uvmprog\"\n";
    refused(
        &[("run.toml", config), ("bad.uvmprog", content)],
        &["run", "run.toml"],
    )
}

const KERNEL: &str = "[workload]\nkernel = \"vector-add\"\narray_size = \"4 MiB\"\n";

#[test]
fn unknown_keys() {
    insta::assert_snapshot!("unknown_key", config("[gpu]\nsmss = 108\n"));
    insta::assert_snapshot!("unknown_table", config("[drivr]\nfault_batch_count = 256\n"));
    insta::assert_snapshot!("key_of_another_table", config("[gpu]\nmrrs = \"512 B\"\n"));
    insta::assert_snapshot!(
        "unknown_override",
        refused(
            &[("a.toml", KERNEL.as_bytes())],
            &["run", "a.toml", "--set", "gpu.memry=1GiB"]
        )
    );
    insta::assert_snapshot!(
        "override_without_value",
        refused(
            &[("a.toml", KERNEL.as_bytes())],
            &["run", "a.toml", "--set", "gpu.memory"]
        )
    );
    insta::assert_snapshot!("unknown_key_explained", refused(&[], &["explain", "gpu.smss"]));
}

#[test]
fn wrong_units() {
    insta::assert_snapshot!("wrong_unit", config("[gpu]\nmemory = \"16 GHz\"\n"));
    insta::assert_snapshot!("bare_number", config("[gpu]\nmemory = 16\n"));
    insta::assert_snapshot!(
        "bare_number_in_quotes",
        config("[host.cost]\ninterrupt = \"2\"\n")
    );
    insta::assert_snapshot!("misspelt_unit", config("[host.cost]\ninterrupt = \"2 usec\"\n"));
    insta::assert_snapshot!("negative_time", config("[host.cost]\ninterrupt = \"-2 us\"\n"));
    insta::assert_snapshot!("text_for_number", config("[gpu]\nsms = \"108\"\n"));
    insta::assert_snapshot!(
        "bare_override",
        refused(
            &[("a.toml", KERNEL.as_bytes())],
            &["run", "a.toml", "--set", "gpu.memory=16"]
        )
    );
}

#[test]
fn impossible_values() {
    insta::assert_snapshot!("no_sms", config("[gpu]\nsms = 0\n"));
    insta::assert_snapshot!("mrrs_100", config("[link]\nmrrs = \"100 B\"\n"));
    insta::assert_snapshot!(
        "negative_oversubscription",
        config("[memory]\noversubscription = -1.25\n")
    );
    insta::assert_snapshot!(
        "zero_oversubscription",
        config("[memory]\noversubscription = 0\n")
    );
    insta::assert_snapshot!("no_iterations", config("[workload]\niterations = 0\n"));
    insta::assert_snapshot!("unknown_kernel", config("[workload]\nkernel = \"vector-ad\"\n"));
    insta::assert_snapshot!(
        "unknown_profile",
        config("[workload]\nkernel = \"vector-add\"\n[hardware]\ngpu = \"a100-80gb\"\n")
    );
    insta::assert_snapshot!("nothing_to_run", config(""));
    insta::assert_snapshot!(
        "both_ways_to_give_memory",
        config(&format!(
            "{KERNEL}[memory]\ncapacity = \"1 GiB\"\noversubscription = 2.0\n"
        ))
    );
    insta::assert_snapshot!(
        "write_longer_than_payload",
        config(&format!(
            "{KERNEL}[link]\nmps = \"128 B\"\nwrite_tlp = \"256 B\"\n"
        ))
    );
    insta::assert_snapshot!(
        "everything_at_once",
        config(
            "[gpu]\nsms = 0\nclock = 1.41\n\n[link]\nmrrs = \"100 B\"\nlanes = 3\n\n[memory]\noversubscription = nan\n"
        )
    );
}

/// Values that no run could finish with, or that a result would be wrong with.
#[test]
fn beyond_what_can_be_simulated() {
    insta::assert_snapshot!("one_fault_entry", config("[gpu]\nfault_buffer_entries = 1\n"));
    insta::assert_snapshot!("slow_memory", config("[gpu]\nhbm_bandwidth = \"10 B/s\"\n"));
    insta::assert_snapshot!("slow_walk", config("[gpu]\npage_walk_latency = \"1000 s\"\n"));
    insta::assert_snapshot!(
        "scan_of_many_launches",
        config("[workload]\nkernel = \"cyclic-scan\"\narrays = 2000\niterations = 1000\n")
    );
    insta::assert_snapshot!(
        "scan_of_many_bytes",
        config("[workload]\nkernel = \"cyclic-scan\"\narrays = 5\narray_size = \"4 TiB\"\n")
    );
    insta::assert_snapshot!(
        "past_the_end_of_time",
        config(&format!("{KERNEL}kernel_time = \"1000 s\"\niterations = 2000\n"))
    );
}

#[test]
fn broken_files() {
    insta::assert_snapshot!("missing_file", refused(&[], &["run", "none.toml"]));
    insta::assert_snapshot!("folder", refused(&[], &["run", "."]));
    insta::assert_snapshot!("syntax", config("[gpu\nsms = 1\n"));
    insta::assert_snapshot!("duplicate_key", config("[gpu]\nsms = 1\nsms = 2\n"));
    insta::assert_snapshot!(
        "not_utf8",
        refused(&[("bad.toml", b"[gpu]\nsms = \xff\n")], &["run", "bad.toml"])
    );
    insta::assert_snapshot!("crlf_keeps_lines", config("[gpu]\r\n# two\r\nsmss = 1\r\n"));
    let long = vec![b'#'; 5 << 20];
    insta::assert_snapshot!("too_long", refused(&[("bad.toml", &long)], &["run", "bad.toml"]));
    insta::assert_snapshot!(
        "missing_program",
        config("[workload]\nprogram = \"none.uvmprog.zst\"\n")
    );
}

#[test]
fn broken_programs() {
    const HEAD: &str =
        "{\"format\":\"uvmprog/1\",\"name\":\"p\",\"iterations\":1}\n{\"op\":\"iter\",\"i\":0}\n";
    insta::assert_snapshot!("program_empty", program(b""));
    insta::assert_snapshot!(
        "program_not_utf8",
        program(b"{\"format\":\"uvmprog/1\",\"name\":\"\xff\"}\n")
    );
    insta::assert_snapshot!(
        "program_truncated",
        program(&[HEAD.as_bytes(), b"{\"op\":\"alloc\",\"t\":1,\"n\":40"].concat())
    );
    insta::assert_snapshot!(
        "program_of_another_format",
        program(b"{\"format\":\"uvmprog/9\",\"name\":\"p\",\"iterations\":1}\n")
    );
    let lines = |lines: &str| program(format!("{HEAD}{lines}").as_bytes());
    insta::assert_snapshot!(
        "kernel_on_freed_memory",
        lines(
            "{\"op\":\"alloc\",\"t\":1,\"n\":4096}\n{\"op\":\"free\",\"t\":1}\n{\"op\":\"kernel\",\"name\":\"add\",\"r\":[[1,0,4096]],\"w\":[],\"flops\":1,\"rb\":4096,\"wb\":0}\n"
        )
    );
    insta::assert_snapshot!(
        "kernel_on_unknown_memory",
        lines(
            "{\"op\":\"kernel\",\"name\":\"add\",\"r\":[[7,0,4096]],\"w\":[],\"flops\":1,\"rb\":4096,\"wb\":0}\n"
        )
    );
    let huge = format!(
        "{{\"op\":\"kernel\",\"name\":\"add\",\"r\":[[1,0,4096]],\"w\":[],\"flops\":{0},\"rb\":{0},\"wb\":{0}}}\n",
        u64::MAX
    );
    insta::assert_snapshot!(
        "kernel_of_endless_work",
        lines(&format!("{{\"op\":\"alloc\",\"t\":1,\"n\":4096}}\n{huge}{huge}"))
    );
    let alloc = |t| format!("{{\"op\":\"alloc\",\"t\":{t},\"n\":{}}}\n", 1_u64 << 50);
    let tensors = (0..1025).map(alloc).collect::<Vec<_>>().concat();
    insta::assert_snapshot!("tensors_beyond_any_memory", lines(&tensors));
    insta::assert_snapshot!(
        "kernel_beyond_its_tensor",
        lines(
            "{\"op\":\"alloc\",\"t\":1,\"n\":4096}\n{\"op\":\"kernel\",\"name\":\"add\",\"r\":[[1,4096,4096]],\"w\":[],\"flops\":1,\"rb\":4096,\"wb\":0}\n"
        )
    );
}

#[test]
fn bad_validation_files() {
    let head = "[validation]\ntitle = \"t\"\ncitation = \"c\"\n[workload]\nkernel = \"vector-add\"\n";
    let file = |text: &str| refused(&[("v.toml", text.as_bytes())], &["validate", "v.toml"]);
    insta::assert_snapshot!("validation_without_head", file(KERNEL));
    insta::assert_snapshot!(
        "validation_metric",
        file(&format!(
            "{head}[[curve]]\nname = \"n\"\nmetric = \"slowdwn\"\nkey = \"gpu.sms\"\nx = [1]\npublished = [1.0]\ntolerance = 0.1\n"
        ))
    );
    insta::assert_snapshot!(
        "validation_lengths",
        file(&format!(
            "{head}[[curve]]\nname = \"n\"\nmetric = \"slowdown\"\nkey = \"gpu.sms\"\nx = [1, 2]\npublished = [1.0]\ntolerance = 0.1\n"
        ))
    );
    insta::assert_snapshot!(
        "validation_value",
        file(&format!(
            "{head}[[curve]]\nname = \"n\"\nmetric = \"slowdown\"\nkey = \"gpu.sms\"\nx = [1, 0]\npublished = [1.0, 2.0]\ntolerance = 0.1\n"
        ))
    );
}

#[test]
fn bad_checks() {
    insta::assert_snapshot!(
        "check_missing",
        refused(&[], &["check", "prefetch", "none.jsonl"])
    );
    insta::assert_snapshot!(
        "check_empty",
        refused(&[("e.jsonl", b"")], &["check", "prefetch", "e.jsonl"])
    );
    let code = |name: &str, content: &[u8], kind: &str| refused(&[(name, content)], &["check", kind, name]);
    code("a.jsonl", b"{", "prefetch");
    code("b.jsonl", b"\xff\xfe", "prefetch");
    code("a.csv", b"no,table\n1,2\n", "link");
    code("b.csv", b"", "link");
}

#[test]
fn output_folders_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.toml"), KERNEL).unwrap();
    std::fs::create_dir(dir.path().join("precious")).unwrap();
    std::fs::write(dir.path().join("precious/thesis.tex"), "x").unwrap();
    for out in ["precious", "a.toml", "no/such/folder", "/"] {
        let output = uvmsim(dir.path(), &["run", "a.toml", "--out", out]);
        assert_eq!(output.status.code(), Some(2), "{out}");
    }
    assert_eq!(
        std::fs::read(dir.path().join("precious/thesis.tex")).unwrap(),
        b"x"
    );
}
