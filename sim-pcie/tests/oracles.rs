//! Tables of expected behaviour, where they are beside the checkout.

use sim_pcie::check::link_csv;
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
        let report = link_csv(file).unwrap();
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
