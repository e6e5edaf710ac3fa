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
        (&["--compare", "wrong.csv"], "\"set\""),
        (&["--compare", "none.csv"], "none.csv"),
    ] {
        let output = link(dir.path(), arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
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
