//! The `uvmsim` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    uvmsim::cli::main()
}
