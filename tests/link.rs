//! `uvmsim link` from the outside.

use std::path::Path;
use std::process::{Command, Output};

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
