//! The `uvmsim` binary.
fn main() {}
