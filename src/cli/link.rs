//! `uvmsim link`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{CliError, Overrides, print};
use crate::config::document::describe_io;
use crate::config::value::{Kind, Literal, Value};
use crate::link::profile::LinkModel;
use crate::link::{bandwidth, compare, platforms::Platforms};
use crate::report::plot::Chart;

/// Arguments of `uvmsim link`.
#[derive(Args, Debug)]
pub struct LinkArgs {
    /// Link profile, NVLink by name, or a TOML file with [link].
    #[arg(default_value = "pcie4-x16", conflicts_with = "compare")]
    link: String,
    #[command(flatten)]
    overrides: Overrides,
    /// Transfer sizes, as 4KiB,64KiB; default: powers of two from 512 B to 1 GiB.
    #[arg(long, value_delimiter = ',', value_name = "SIZES")]
    sizes: Vec<String>,
    /// Fixed cost of every transfer beside the link, as 2.6us.
    #[arg(long, value_name = "TIME", default_value = "0 ns")]
    fixed: String,
    /// Only transfers this way, or both at once; default: each alone, and both at once.
    #[arg(long, value_enum, value_name = "WAY")]
    direction: Option<bandwidth::Traffic>,
    /// Compare measured copies, a CSV table, with the link instead.
    #[arg(long, value_name = "FILE.csv", conflicts_with_all = ["set", "sizes", "fixed", "direction", "csv", "plot"])]
    compare: Option<PathBuf>,
    /// Also write the table as CSV.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also draw it: a .svg or .png file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

const SIZE: Kind = Kind::Bytes {
    min: 1,
    max: 1 << 40,
    power_of_two: false,
};
const FIXED: Kind = Kind::Time {
    min: sim_core::Time::ZERO,
    max: sim_core::Time::from_us(1_000_000),
};

fn parse(option: &str, kind: &Kind, text: &str) -> Result<Value, CliError> {
    kind.parse(Literal::Free(text.trim()), &[])
        .map_err(|e| CliError::input(format!("--{option} {text}: {} ({})", e.message, e.help)))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    std::fs::write(path, bytes)
        .map_err(|e| CliError::input(format!("cannot write {}: {}", path.display(), describe_io(&e))))
}

fn draw(path: &Path, chart: &Chart) -> Result<(), CliError> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("svg") => write(path, chart.svg().as_bytes()),
        Some("png") => write(path, &chart.png().map_err(CliError::Failed)?),
        _ => Err(CliError::input(format!(
            "--plot {}: the name ends in .svg or .png",
            path.display()
        ))),
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|e| CliError::Failed(e.to_string()))?;
    Ok(text + "\n")
}

/// Prints what a link carries, or how it compares with measurements.
pub(super) fn run(args: &LinkArgs) -> Result<bool, CliError> {
    if let Some(path) = &args.compare {
        let platforms = Platforms::embedded().map_err(CliError::Failed)?;
        let report = compare::compare(super::check::open(path)?, &platforms)
            .map_err(|e| CliError::input(format!("{}: {e}", path.display())))?;
        if report.sets.is_empty() {
            return Err(CliError::input(format!(
                "{}: no row of a copy that a link here carries",
                path.display()
            )));
        }
        print(&if args.json {
            json(&report)?
        } else {
            compare::terminal(&report)
        })?;
        return Ok(true);
    }
    let link = LinkModel::load(&args.link, &args.overrides.set)?;
    let mut sizes = Vec::new();
    for text in &args.sizes {
        if let Value::Bytes(bytes) = parse("sizes", &SIZE, text)? {
            sizes.push(bytes.0);
        }
    }
    if sizes.is_empty() {
        sizes = bandwidth::default_sizes();
    }
    let fixed = match parse("fixed", &FIXED, &args.fixed)? {
        Value::Time(time) => time.as_ns_f64(),
        _ => 0.0,
    };
    let curves = args
        .direction
        .map_or(&bandwidth::Curve::ALL[..], bandwidth::Traffic::curves);
    let points =
        bandwidth::sweep(&link, &sizes, fixed, curves).map_err(|e| CliError::input(e.to_string()))?;
    if let Some(path) = &args.plot {
        draw(path, &bandwidth::chart(&args.link, &points))?;
    }
    if let Some(path) = &args.csv {
        write(path, bandwidth::csv(&points).as_bytes())?;
    }
    print(&if args.json {
        json(&points)?
    } else {
        bandwidth::terminal(&points)
    })?;
    Ok(true)
}
