//! `uvmsim check`: a component against recorded decisions of the real thing.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::{CliError, print};
use crate::config::document::describe_io;

/// `uvmsim check`.
#[derive(Subcommand, Debug)]
pub enum CheckCommand {
    /// The prefetcher against decisions of the driver's own code, JSON lines.
    Prefetch {
        /// Cases, one JSON object a line.
        file: PathBuf,
    },
    /// The caching allocator against recorded runs of PyTorch's: every set in a folder.
    Allocator {
        /// Folder of `NAME.ops.csv`, `NAME.events.csv`, `NAME.meta.json`, and `examples.json`.
        folder: PathBuf,
    },
    /// The link against exact timings: transfers, both directions, data-link timers (CSV), worked examples (JSON).
    Link {
        /// Table or examples; the columns or keys say which.
        file: PathBuf,
    },
}

pub(super) fn open(path: &Path) -> Result<BufReader<File>, CliError> {
    let fail = |what: &str| CliError::input(format!("cannot read {}: {what}", path.display()));
    if path.is_dir() {
        return Err(fail("it is a folder"));
    }
    File::open(path)
        .map(BufReader::new)
        .map_err(|e| fail(&describe_io(&e)))
}

/// Runs a comparison; `false` on any mismatch.
pub(super) fn run(command: &CheckCommand) -> Result<bool, CliError> {
    let (lines, passed, failed) = match command {
        CheckCommand::Prefetch { file } => {
            let report = sim_host::check::prefetch_jsonl(open(file)?)
                .map_err(|e| CliError::input(format!("{}: {e}", file.display())))?;
            let lines: Vec<String> = report
                .mismatches
                .iter()
                .map(|m| {
                    format!(
                        "{}:{}: expected {:?}, got {:?}",
                        file.display(),
                        m.line,
                        m.expected,
                        m.found
                    )
                })
                .collect();
            let failed = lines.len() as u64;
            (lines, report.passed, failed)
        }
        CheckCommand::Allocator { folder } => {
            let verdicts = workloads::allocator::check::check_folder(folder)
                .map_err(|e| CliError::input(e.to_string()))?;
            let total = verdicts.len() as u64;
            let lines: Vec<String> = verdicts.into_iter().filter_map(|v| v.difference).collect();
            let failed = lines.len() as u64;
            (lines, total - failed, failed)
        }
        CheckCommand::Link { file } => {
            let report = sim_pcie::check::link(open(file)?)
                .map_err(|e| CliError::input(format!("{}: {e}", file.display())))?;
            let lines = report
                .mismatches
                .iter()
                .map(|m| {
                    format!(
                        "{}:{}: {}: expected {}, got {}",
                        file.display(),
                        m.line,
                        m.column,
                        m.expected,
                        m.actual
                    )
                })
                .collect();
            (lines, report.passed as u64, report.failed as u64)
        }
    };
    for line in lines {
        print(&format!("{line}\n"))?;
    }
    print(&format!("{passed} passed, {failed} failed\n"))?;
    if passed + failed == 0 {
        return Err(CliError::input("the file holds no case"));
    }
    Ok(failed == 0)
}
