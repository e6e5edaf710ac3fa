//! `uvmsim validate`.

use std::path::PathBuf;

use clap::Args;

use super::{CliError, Overrides, output_folder, print, progress};
use crate::report::folder::Folder;
use crate::simulate::Simulator;
use crate::validate::file::ValidationFile;
use crate::validate::{self, file};

/// Where the validation files of the repository lie.
const FOLDER: &str = "configs/validation";

/// Arguments of `uvmsim validate`.
#[derive(Args, Debug)]
pub struct ValidateArgs {
    /// Validation files; default: all of configs/validation.
    files: Vec<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Folder for validation.csv and a plot of each curve; default: runs/validation.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Replays published curves. Misses are reported, not failures: the exit status is 0 unless a point
/// could not be simulated.
pub(super) fn run(args: &ValidateArgs) -> Result<bool, CliError> {
    let mut paths = args.files.clone();
    if paths.is_empty() {
        let entries = std::fs::read_dir(FOLDER)
            .map_err(|_| CliError::input(format!("no folder {FOLDER} here; name the validation files")))?;
        paths = entries
            .filter_map(|e| e.ok().map(|e| e.path()))
            .filter(|p| p.extension().is_some_and(|e| e == "toml"))
            .collect();
        paths.sort();
    }
    let files: Vec<ValidationFile> = paths
        .iter()
        .map(|path| file::load(path, &args.overrides.set))
        .collect::<Result<_, _>>()?;
    let out = output_folder(args.out.as_ref(), "validation")?;
    let simulator = Simulator::default();
    let bar = progress::over(
        files.iter().flat_map(|f| &f.curves).map(|c| c.points.len()).sum(),
        "validation",
    );
    let mut folder = Folder::default();
    let mut all = Vec::new();
    for file in &files {
        let reports = validate::run(file, &simulator, &|| bar.inc(1));
        bar.suspend(|| print(&format!("{}\n", validate::terminal(file, &reports))))?;
        for (i, report) in reports.iter().enumerate() {
            if let Some(chart) = validate::chart(report) {
                let name = format!("{}-{}", file.name, i + 1);
                folder.add(&format!("{name}.svg"), chart.svg());
                folder.add(&format!("{name}.png"), chart.png().map_err(CliError::Failed)?);
            }
        }
        all.push((file, reports));
    }
    bar.finish_and_clear();
    folder.add("validation.csv", validate::csv(&all));
    folder.write(&out)?;
    let points = || {
        all.iter()
            .flat_map(|(_, reports)| reports)
            .flat_map(|report| &report.points)
    };
    let passed = points().filter(|point| point.pass).count();
    let failed = points().filter(|point| point.ours.is_err()).count();
    print(&format!(
        "{passed} of {} points within tolerance, {failed} could not be simulated\n",
        points().count()
    ))?;
    print(&format!("written to {}\n", out.display()))?;
    Ok(failed == 0)
}
