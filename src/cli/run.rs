//! `uvmsim run`.

use std::path::PathBuf;

use clap::Args;

use super::progress::Bar;
use super::{CliError, Overrides, output_folder, print};
use crate::config::Config;
use crate::config::show::resolved_toml;
use crate::report::folder::Folder;
use crate::report::{Wall, records, table};
use crate::simulate::{Simulate, Simulator};

/// Arguments of `uvmsim run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Config, a TOML file.
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Folder for summary.json, wall.json and config.toml; default: runs/NAME.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do not run the baseline; no slowdown is printed.
    #[arg(long)]
    no_baseline: bool,
    /// Also write every batch and every copy as CSV.
    #[arg(long)]
    records: bool,
}

/// Runs one config.
pub(super) fn run(args: &RunArgs) -> Result<bool, CliError> {
    let config = Config::load(&args.file, &args.overrides.set)?;
    if !config.axes.is_empty() {
        eprintln!("note: [sweep] is left aside; `uvmsim sweep` runs it");
    }
    let config = config.resolve()?;
    let out = output_folder(args.out.as_ref(), &config.study.name)?;
    let simulator = Simulator::default();
    let mut bar = Bar::new(&config.study.name);
    let mut result = simulator.simulate(&config, args.records, &mut bar)?;
    let mut wall = Wall {
        wall_s: bar.finish(),
        events: result.summary.events,
        ties: result.summary.ties,
        ..Wall::default()
    };
    wall.events_per_s = result.summary.events as f64 / wall.wall_s.max(1e-9);
    if !args.no_baseline {
        let mut bar = Bar::new("everything resident");
        let baseline = simulator.simulate(&config.baseline()?, false, &mut bar)?;
        wall.baseline_wall_s = Some(bar.finish());
        result.summary.set_baseline(&baseline.summary);
    }
    let json = |e: serde_json::Error| CliError::Failed(e.to_string());
    let mut folder = Folder::default();
    folder.add("summary.json", result.summary.to_json().map_err(json)?);
    folder.add(
        "wall.json",
        serde_json::to_string_pretty(&wall).map_err(json)? + "\n",
    );
    folder.add("config.toml", resolved_toml(&config, false));
    if args.records {
        folder.add("batches.csv", records::batches_csv(&result));
        folder.add("copies.csv", records::copies_csv(&result.copies));
    }
    folder.write(&out)?;
    print(&table::run(&result.summary, &wall))?;
    print(&format!("written to {}\n", out.display()))?;
    Ok(true)
}
