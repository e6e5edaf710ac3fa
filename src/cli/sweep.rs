//! `uvmsim sweep`.

use std::path::PathBuf;

use clap::Args;

use super::{CliError, Overrides, output_folder, print, progress};
use crate::config::Config;
use crate::report::folder::Folder;
use crate::simulate::Simulator;
use crate::sweep;

/// Arguments of `uvmsim sweep`.
#[derive(Args, Debug)]
pub struct SweepArgs {
    /// Config with a [sweep] table.
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Threads; 0: one for each core. The result does not depend on it.
    #[arg(long, default_value_t = 0, value_name = "N")]
    threads: usize,
    /// Folder for sweep.csv and the plot; default: runs/NAME.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs a sweep.
pub(super) fn run(args: &SweepArgs) -> Result<bool, CliError> {
    if args.threads > 4096 {
        return Err(CliError::input(format!(
            "--threads {}: at most 4096",
            args.threads
        )));
    }
    let config = Config::load(&args.file, &args.overrides.set)?;
    if config.axes.is_empty() {
        eprintln!("note: no [sweep] in {}: a single point", args.file.display());
    }
    let plan = sweep::plan(&config)?;
    let name = plan
        .points
        .first()
        .map_or("sweep", |point| point.config.study.name.as_str())
        .to_string();
    let out = output_folder(args.out.as_ref(), &name)?;
    let bar = progress::over(plan.points.len() + plan.baselines.len(), &name);
    let outcomes =
        sweep::run(&plan, &Simulator::default(), args.threads, &|| bar.inc(1)).map_err(CliError::Failed)?;
    bar.finish_and_clear();
    let mut folder = Folder::default();
    folder.add("sweep.csv", sweep::csv(&plan, &outcomes));
    if let Some(source) = &config.source {
        folder.add("config.toml", source.text.clone());
    }
    if let Some(chart) = sweep::chart(&name, &plan, &outcomes) {
        folder.add("slowdown.svg", chart.svg());
        folder.add("slowdown.png", chart.png().map_err(CliError::Failed)?);
    }
    folder.write(&out)?;
    print(&format!("{}\n", sweep::terminal(&plan, &outcomes)))?;
    print(&format!("written to {}\n", out.display()))?;
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    if failed > 0 {
        eprintln!("error: {failed} of {} points failed", outcomes.len());
    }
    Ok(failed == 0)
}
