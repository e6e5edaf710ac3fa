//! `uvmsim link` from the outside.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sim_core::push::Direction;
use sim_pcie::LinkConfig;
use sim_pcie::config::{CompletionPolicy, Generation};
use uvmsim::link::bandwidth::times;
use uvmsim::link::compare::{LARGE, compare};
use uvmsim::link::platforms::Platforms;
use uvmsim::link::profile::LinkModel;

fn link(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uvmsim"))
        .arg("link")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn rates_grow_with_size_and_stay_below_the_wire() {
    let dir = tempfile::tempdir().unwrap();
    let files = ["--csv", "a.csv", "--plot", "a.svg", "--json"];
    for (name, raw) in [
        ("pcie3-x16", 15.754),
        ("pcie5-x16", 63.016),
        ("nvlink4-h100", 450.0),
    ] {
        let output = link(
            dir.path(),
            &[&[name, "--sizes", "4KiB,64KiB,16MiB"], &files[..]].concat(),
        );
        assert!(output.status.success());
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let points = json.as_array().unwrap();
        assert_eq!(points.len(), 3);
        for column in ["h2d_gbps", "d2h_gbps", "both_h2d_gbps", "both_d2h_gbps"] {
            let rates: Vec<f64> = points.iter().map(|p| p[column].as_f64().unwrap()).collect();
            assert!(rates.windows(2).all(|w| w[0] < w[1]), "{name} {column} {rates:?}");
            assert!(
                rates[2] < raw && rates[2] > 0.6 * raw,
                "{name} {column} {rates:?}"
            );
        }
        let csv = std::fs::read_to_string(dir.path().join("a.csv")).unwrap();
        assert_eq!(csv.lines().count(), 4);
        assert!(
            std::fs::read_to_string(dir.path().join("a.svg"))
                .unwrap()
                .contains("<svg")
        );
    }
}

/// Each direction alone, and both at once, are the columns of the whole sweep.
#[test]
fn a_direction_is_part_of_the_whole_sweep() {
    let dir = tempfile::tempdir().unwrap();
    let json = |way: &[&str]| -> Vec<serde_json::Map<String, serde_json::Value>> {
        let sweep = ["pcie3-x16", "--sizes", "4KiB,1MiB", "--json", "--csv", "a.csv"];
        let output = link(dir.path(), &[&sweep, way].concat());
        assert!(output.status.success(), "{way:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let whole = json(&[]);
    assert_eq!(whole[0].len(), 9);
    for (way, keys, head) in [
        ("h2d", &["h2d"][..], "bytes,h2d_ns,h2d_gbps"),
        ("d2h", &["d2h"], "bytes,d2h_ns,d2h_gbps"),
        (
            "both",
            &["both_h2d", "both_d2h"],
            "bytes,both_h2d_ns,both_d2h_ns,both_h2d_gbps,both_d2h_gbps",
        ),
    ] {
        let part = json(&["--direction", way]);
        assert_eq!(part.len(), 2);
        for (part, whole) in part.iter().zip(&whole) {
            assert_eq!(part.len(), 1 + 2 * keys.len(), "{way}");
            assert!(part.iter().all(|(key, value)| whole[key] == *value), "{way}");
        }
        let csv = std::fs::read_to_string(dir.path().join("a.csv")).unwrap();
        assert_eq!(csv.lines().next(), Some(head));
    }
    // Not the same numbers under other names: two transfers at once slow each other down.
    assert!(whole[1]["both_h2d_ns"].as_f64() > whole[1]["h2d_ns"].as_f64());
    assert!(whole[1]["both_d2h_ns"].as_f64() > whole[1]["d2h_ns"].as_f64());
}

#[test]
fn bad_input_names_the_key_and_ends_with_2() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("wrong.csv"), "a,b\n1,2\n").unwrap();
    for (arguments, said) in [
        (&["pcie9"][..], "nvlink3-a100"),
        (&["--set", "link.lanes=12"], "link.lanes"),
        (&["--set", "gpu.sms=3"], "gpu.sms"),
        (&["c2c-gh200", "--set", "link.mps=128B"], "c2c-gh200"),
        (&["--sizes", "0 B"], "--sizes"),
        (&["--fixed", "3"], "--fixed"),
        (&["--direction", "up"], "h2d, d2h, both"),
        (&["--plot", "a.pdf", "--sizes", "4KiB"], ".svg or .png"),
        (&["c2c-gh200", "--trace"], "a PCIe profile"),
        (&["--trace", "--sizes", "1KiB,2KiB"], "one size"),
        (
            &["--trace", "--bit-errors", "0.1"],
            "--bit-errors = 0.1: allowed is 0 to 1e-4",
        ),
        (&["--bit-errors", "1e-9"], "--trace"),
        (
            &["--trace", "--bit-errors", "1e-9", "--set", "link.generation=6"],
            "generations 1 to 5",
        ),
        (&["--trace", "--set", "link.posted_data=2"], "link.posted_data"),
        (&["nvlink4-h100", "--latency"], "a PCIe profile"),
        (&["--latency", "--trace"], "--trace"),
        (&["--compare", "wrong.csv"], "\"set\""),
        (&["--compare", "none.csv"], "none.csv"),
    ] {
        let output = link(dir.path(), arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

/// A record of `--trace --csv`.
#[derive(Debug, serde::Deserialize, PartialEq)]
struct Record {
    start_ns: f64,
    end_ns: f64,
    from: String,
    packet: String,
    sequence: Option<u16>,
    tag: Option<u16>,
    address: Option<u64>,
    bytes: Option<u64>,
    header_credits: Option<u64>,
    data_credits: Option<u64>,
    wire_bytes: u64,
    purpose: Option<String>,
    replay: bool,
    corrupted: bool,
}

fn records(file: &Path) -> Vec<Record> {
    let mut csv = csv::Reader::from_path(file).unwrap();
    csv.deserialize().collect::<Result<_, _>>().unwrap()
}

/// What a protocol analyser would check: wires carry one packet at a time, data come once for each tag, credits are
/// never overdrawn, and a corrupted packet is refused and sent again.
#[test]
fn a_trace_obeys_the_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = [
        "pcie3-x16",
        "--trace",
        "--sizes",
        "64KiB",
        "--csv",
        "a.csv",
        "--bit-errors",
        "1e-5",
        "--seed",
        "3",
        "--set",
        "link.posted_headers=20",
        "--set",
        "link.posted_data=160",
    ];
    let output = link(dir.path(), &arguments);
    assert!(output.status.success());
    let rows = records(&dir.path().join("a.csv"));
    let text = String::from_utf8(output.stdout).unwrap();
    // The head, a blank line, and a line of totals for each end.
    assert_eq!(text.lines().count(), rows.len() + 4);
    for from in ["device", "host"] {
        let mine = rows.iter().filter(|r| r.from == from && r.packet != "SKP");
        let sent: Vec<_> = mine.filter(|r| r.wire_bytes > 0).collect();
        assert!(sent.windows(2).all(|w| w[0].end_ns <= w[1].start_ns), "{from}");
        let first: Vec<_> = sent.iter().filter(|r| r.bytes.is_some() && !r.replay).collect();
        for (n, row) in first.iter().enumerate() {
            assert_eq!(row.sequence, Some((n % 4096) as u16), "{row:?}");
        }
        assert!(text.contains(&format!(
            "{from}: {} TLPs",
            sent.iter().filter(|r| r.bytes.is_some()).count()
        )));
    }

    // Reads and their data.
    let mut open = std::collections::BTreeMap::new();
    let (mut moved, mut written) = (0, 0);
    for row in rows.iter().filter(|r| !r.replay) {
        match row.packet.as_str() {
            "MRd" => assert_eq!(
                open.insert(row.tag.unwrap(), (row.address.unwrap(), row.bytes.unwrap())),
                None
            ),
            "CplD" => {
                let tag = row.tag.unwrap();
                let (address, left) = open.remove(&tag).unwrap();
                let bytes = row.bytes.unwrap();
                assert_eq!(row.address, Some(address));
                moved += bytes;
                if left > bytes {
                    open.insert(tag, (address + bytes, left - bytes));
                }
            }
            "MWr" => {
                assert_eq!(row.address, Some(written));
                written += row.bytes.unwrap();
            }
            _ => {}
        }
    }
    assert!(open.is_empty());
    assert_eq!((moved, written), (64 << 10, 64 << 10));

    // Credits of posted writes.
    let (mut allowed, mut used) = ((20, 160), (0, 0));
    for row in &rows {
        if row.packet == "UpdateFC-P" {
            let now = (row.header_credits.unwrap(), row.data_credits.unwrap());
            assert!(row.from == "host" && now.0 >= allowed.0 && now.1 >= allowed.1);
            // Each write here carries 128 bytes.
            assert_eq!(now.1 - 160, 8 * (now.0 - 20));
            allowed = now;
        } else if row.packet == "MWr" && !row.replay {
            used = (used.0 + 1, used.1 + row.bytes.unwrap() / 16);
            assert!(used.0 <= allowed.0 && used.1 <= allowed.1, "{row:?}");
        }
    }
    assert_eq!(allowed, (20 + used.0, 160 + used.1));

    // Errors: each receiver refuses what is corrupted or out of order, once until the right one comes.
    for (from, to) in [("device", "host"), ("host", "device")] {
        let (mut expected, mut refused, mut naks) = (0, false, Vec::new());
        for row in rows.iter().filter(|r| r.from == from && r.bytes.is_some()) {
            let ahead = (row.sequence.unwrap() + 4096 - expected) % 4096;
            if row.corrupted || (1..2048).contains(&ahead) {
                if !refused {
                    naks.push(Some((expected + 4095) % 4096));
                }
                refused = true;
            } else if ahead == 0 {
                expected = (expected + 1) % 4096;
                refused = false;
            }
        }
        let sent = rows.iter().filter(|r| r.from == to && r.packet == "NAK");
        assert_eq!(sent.map(|r| r.sequence).collect::<Vec<_>>(), naks, "{from}");
        assert!(!naks.is_empty(), "{from}");
        let first = rows
            .iter()
            .filter(|r| r.from == from && r.bytes.is_some() && !r.replay);
        assert_eq!(first.count(), usize::from(expected), "{from}: everything arrived");
    }

    let json = link(dir.path(), &[&arguments[..], &["--json"]].concat());
    let objects = String::from_utf8(json.stdout).unwrap();
    let objects: Vec<Record> = objects
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects, rows);
}

/// One read at a time takes its way over an idle link; replays make the tail of the writes.
#[test]
fn latencies_are_those_of_the_packets() {
    let dir = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| -> serde_json::Value {
        let output = link(
            dir.path(),
            &[&["pcie3-x16", "--latency", "--json"], arguments].concat(),
        );
        assert!(output.status.success(), "{arguments:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let LinkModel::Pcie(config) = LinkModel::load("pcie3-x16", &[]).unwrap() else {
        unreachable!()
    };
    let one_way = config.one_way.as_ns_f64();
    // 16 lanes send 16 bytes in a symbol of 65/64 ns. The completion waits for a symbol to start.
    let wire = |bytes: f64| bytes / 16.0 * 65.0 / 64.0;
    let alone = run(&["--direction", "h2d", "--sizes", "64 B"]);
    assert_eq!(alone[0]["count"], 1);
    let least = wire(24.0) + one_way + config.host_read.as_ns_f64() + wire(84.0) + one_way;
    let took = alone[0]["max_ns"].as_f64().unwrap();
    assert!(
        took > 0.999 * least && took < 1.001 * least + wire(16.0),
        "{took} {least}"
    );

    // A tag: one read at a time, each as long as the first, of 512 bytes.
    let in_turn = run(&["--direction", "h2d", "--sizes", "64KiB", "--set", "link.tags=1"]);
    assert_eq!(in_turn[0]["count"], (64 << 10) / config.mrrs);
    let crowd = run(&["--direction", "h2d", "--sizes", "64KiB"]);
    assert!(in_turn[0]["max_ns"].as_f64().unwrap() < 0.7 * crowd[0]["max_ns"].as_f64().unwrap());

    let write = wire(152.0) + one_way;
    let good = run(&["--direction", "d2h", "--csv", "a.csv", "--plot", "a.svg"]);
    let bad = run(&["--direction", "d2h", "--bit-errors", "1e-6"]);
    for all in [&good, &bad] {
        assert_eq!(
            (&all[0]["request"], &all[0]["count"]),
            (&"write".into(), &(8192.into()))
        );
        let bars = all[0]["histogram"].as_array().unwrap();
        assert_eq!(
            bars.iter().map(|bar| bar["count"].as_u64().unwrap()).sum::<u64>(),
            8192
        );
        assert!(
            (all[0]["p50_ns"].as_f64().unwrap() / write - 1.0).abs() < 0.002,
            "{write} {all}"
        );
    }
    // From the end of the write at the host: a NAK comes back, and the write again.
    let again = write + wire(8.0) + one_way + write;
    assert!(
        good[0]["max_ns"].as_f64().unwrap() < again && bad[0]["max_ns"].as_f64().unwrap() >= 0.999 * again
    );
    assert!(
        std::fs::read_to_string(dir.path().join("a.svg"))
            .unwrap()
            .contains("<svg")
    );
    let csv = std::fs::read_to_string(dir.path().join("a.csv")).unwrap();
    assert!(csv.starts_with("request,from_ns,to_ns,count\nwrite,"));
}

/// Payloads of the engine's writes that are known of a device, smallest and largest.
fn write_sizes(gpu: &str) -> (u32, u32) {
    let any = |names: &[&str]| names.iter().any(|name| gpu.contains(name));
    if any(&["B200", "B300", "MI100", "MI2", "MI3"]) {
        (256, 256) // Blackwell and AMD (measured asymptotes)
    } else if any(&["H100", "H200", "H800", "unnamed", "system"]) {
        (128, 256) // not known: Hopper measures between the two
    } else {
        (128, 128) // NVIDIA up to Ada (measured asymptotes)
    }
}

/// GB/s of a long copy on an otherwise idle link.
fn asymptote(config: LinkConfig, direction: Direction) -> f64 {
    let bytes = 256 << 20;
    let ns = times(&LinkModel::Pcie(Box::new(config)), bytes, &[direction]).unwrap()[0];
    bytes as f64 / ns
}

/// Nothing but generation, lanes and the maker's packet size known: no copy beats the link with the largest
/// packets, and machines that nothing else limits come near the range between smallest and largest.
#[test]
fn no_measured_copy_beats_its_link() {
    let shared = std::env::var_os("UVMSIM_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"),
        PathBuf::from,
    );
    let Ok(text) = std::fs::read_to_string(shared.join("data/pcie/measured.csv")) else {
        println!("skipped: the measurements are absent");
        return;
    };
    let report = compare(text.as_bytes(), &Platforms::embedded().unwrap()).unwrap();
    // No row is dropped in silence.
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    let compared: usize = report.sets.iter().map(|set| set.points.len()).sum();
    let passed_over: usize = report.passed_over.iter().map(|over| over.rows).sum();
    assert_eq!(compared + passed_over, lines - 1);
    let mut near = 0;
    for set in &report.sets {
        let direction = match set.direction.as_str() {
            "h2d" => Direction::HostToDevice,
            "d2h" => Direction::DeviceToHost,
            _ => continue,
        };
        let large = set.points.iter().filter(|point| point.bytes >= LARGE);
        let Some(measured) = large.map(|point| point.measured).max_by(f64::total_cmp) else {
            continue;
        };
        // NVLinks have no packet sizes to choose between.
        let Some(pcie) = set.link.strip_prefix("Gen") else {
            continue;
        };
        let (generation, lanes) = pcie.split_once(" x").unwrap();
        let (small, most) = write_sizes(&set.gpu);
        let link = |write_tlp, completions| LinkConfig {
            generation: Generation::from_number(generation.parse().unwrap()).unwrap(),
            lanes: lanes.parse().unwrap(),
            write_tlp,
            completions,
            ..LinkConfig::default()
        };
        let low = asymptote(link(small, CompletionPolicy::Rcb), direction);
        let high = asymptote(link(most, CompletionPolicy::Max), direction);
        let name = format!(
            "{} {} {}: {measured} GB/s, {low}..{high}",
            set.set, set.gpu, set.direction
        );
        println!("{name}");
        assert!(measured <= 1.01 * high, "{name}");
        if ["M01", "M05"].contains(&set.set.as_str()) {
            assert!(
                low / measured - 1.0 < 0.02 && 1.0 - high / measured < 0.02,
                "{name}"
            );
            near += 1;
        }
    }
    assert!(near >= 4, "{near}");
}

/// A table of nothing but other rows says why each was left aside.
#[test]
fn a_comparison_of_nothing_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let shared = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/pcie/measured.csv");
    let Ok(text) = std::fs::read_to_string(&shared) else {
        println!("skipped: {} is not here", shared.display());
        return;
    };
    let rows = text.lines().filter(|line| !line.starts_with('#')).enumerate();
    let kept: Vec<&str> = rows
        .filter(|(n, line)| *n == 0 || line.contains("zero_copy"))
        .map(|(_, line)| line)
        .collect();
    assert_eq!(kept.len(), 2);
    std::fs::write(dir.path().join("a.csv"), kept.join("\n")).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_uvmsim"))
        .args(["link", "--compare", "a.csv"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).replace(['\n', '│'], " ");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("passed over: accesses of a kernel"), "{said}");
}
