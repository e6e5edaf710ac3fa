//! The `uvmsim` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Quiet unless RUST_LOG says otherwise, for example RUST_LOG=sim_host=debug: one line a batch.
    env_logger::init();
    uvmsim::cli::main()
}
