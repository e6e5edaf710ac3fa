//! Tables of expected behaviour, where they are beside the checkout.

use sim_pcie::check::link;
use std::path::PathBuf;

/// The file `name` of the link data, or `None`, saying so, where the data folder is absent.
fn data(name: &str) -> Option<std::io::BufReader<std::fs::File>> {
    let shared = std::env::var_os("UVMSIM_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let path = shared.join("data/pcie").join(name);
    let file = std::fs::File::open(&path).ok();
    if file.is_none() {
        println!("skipped: {} is absent", path.display());
    }
    file.map(std::io::BufReader::new)
}

fn check(name: &str, rows: usize) {
    if let Some(file) = data(name) {
        let report = link(file).unwrap();
        assert_eq!(report.mismatches, []);
        assert_eq!((report.passed, report.failed), (rows, 0));
    }
}

#[test]
fn one_transfer_on_an_idle_link() {
    check("expected.csv", 2808);
}

#[test]
fn both_directions_at_once() {
    check("expected_bidir.csv", 276);
}

#[test]
fn data_link_timers() {
    check("dll_timers.csv", 210);
}

#[test]
fn worked_examples() {
    check("worked_examples.json", 208);
}

#[test]
fn a_wrong_example_is_reported_and_a_strange_one_refused() {
    let good = r#"{"ex1_write": [{"gen": 3, "lanes": 16, "ticks": 18200, "bytes": 280}]}"#;
    let report = link(good.as_bytes()).unwrap();
    assert_eq!((report.passed, report.failed), (2, 0));
    let report = link(good.replace("18200", "18201").as_bytes()).unwrap();
    assert_eq!((report.passed, report.failed), (1, 1));
    assert_eq!(report.mismatches[0].column, "ex1_write[0].ticks");
    assert_eq!(report.mismatches[0].actual, "18200");
    for (from, to, said) in [
        (
            "\"lanes\": 16",
            "\"lanes\": 12",
            "link.lanes = 12: allowed is 1, 2, 4, 8 or 16",
        ),
        ("\"gen\": 3", "\"gen\": 7", "gen = 7: allowed is 1 to 6"),
        (
            "ticks",
            "tocks",
            "ex1_write[0].tocks: not used here; results: bytes, ps",
        ),
        ("ex1_", "ex13_", "known: ex1 to ex12"),
        ("]}", "]", "line 1 column"),
    ] {
        let error = link(good.replace(from, to).as_bytes()).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
