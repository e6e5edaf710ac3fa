//! `uvmsim run`.

use std::path::PathBuf;

use clap::Args;

use super::progress::Bar;
use super::{CliError, Overrides, output_folder, print};
use crate::config::show::resolved_toml;
use crate::config::{Config, ResolvedConfig};
use crate::report::events::{Device, Fan, Format, NsysExport, TableSink};
use crate::report::folder::{Folder, Scratch};
use crate::report::{Wall, records, table};
use crate::simulate::{Simulate, Simulator};
use crate::system::Probe;

/// Arguments of `uvmsim run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Config, a TOML file; or a program, which runs with every key at its default.
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
    /// Also write every event of the driver's tools interface, and kernels and calls, one table per kind
    /// in the folder events/.
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, default_missing_value = "csv")]
    events: Option<Format>,
    /// Also write nsys.sqlite: the run in the schema of an Nsight Systems export.
    #[arg(long)]
    nsys: bool,
}

/// Who hears what happens during a run.
#[derive(Default)]
struct Observers {
    tables: Option<TableSink>,
    nsys: Option<(NsysExport, PathBuf)>,
}

impl Observers {
    fn new(args: &RunArgs, config: &ResolvedConfig, scratch: &Scratch) -> Result<Observers, CliError> {
        let tables = args.events.map(|format| TableSink::new(scratch.path(), format));
        let nsys = if args.nsys {
            let path = scratch.path().join("nsys.sqlite");
            let device = Device {
                name: config.hardware.gpu.clone(),
                memory: config.gpu.memory.0,
                sms: config.gpu.sms,
                bandwidth: config.gpu.hbm_bandwidth.0,
            };
            let export = NsysExport::create(&path, &device).map_err(database)?;
            Some((export, path))
        } else {
            None
        };
        Ok(Observers { tables, nsys })
    }

    fn fan(&mut self) -> Fan<'_> {
        let mut fan = Fan::default();
        if let Some(tables) = &mut self.tables {
            fan.0.push(tables);
        }
        if let Some((nsys, _)) = &mut self.nsys {
            fan.0.push(nsys);
        }
        fan
    }

    fn finish(self, folder: &mut Folder) -> Result<(), CliError> {
        if let Some(tables) = self.tables {
            for path in tables.finish()? {
                if let Some(name) = path.file_name() {
                    let name = format!("events/{}", name.to_string_lossy());
                    folder.add_file(&name, path.clone());
                }
            }
        }
        if let Some((export, path)) = self.nsys {
            export.finish().map_err(database)?;
            folder.add_file("nsys.sqlite", path);
        }
        Ok(())
    }
}

#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` wants
fn database(error: rusqlite::Error) -> CliError {
    CliError::Failed(format!("cannot write nsys.sqlite: {error}"))
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
    let scratch = (args.events.is_some() || args.nsys)
        .then(|| Folder::scratch(&out))
        .transpose()?;
    let mut observers = match &scratch {
        Some(scratch) => Observers::new(args, &config, scratch)?,
        None => Observers::default(),
    };
    let mut bar = Bar::new(&config.study.name);
    let mut result = {
        let mut fan = observers.fan();
        let probe = (!fan.0.is_empty()).then_some(&mut fan as &mut dyn Probe);
        simulator.simulate_probed(&config, args.records, &mut bar, probe)?
    };
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
    observers.finish(&mut folder)?;
    folder.write(&out)?;
    print(&table::run(&result.summary, &wall))?;
    print(&format!("written to {}\n", out.display()))?;
    Ok(true)
}
