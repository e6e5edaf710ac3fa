//! `uvmsim link`.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{CliError, Overrides, print};
use crate::config::document::describe_io;
use crate::config::value::{Kind, Literal, Value};
use crate::link::latency::{self, Latencies};
use crate::link::packets::{self, PacketError, Scene};
use crate::link::profile::LinkModel;
use crate::link::trace::{Format, Tracer};
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
    /// Transfer sizes, as 4KiB,64KiB; default: powers of two from 512 B to 1 GiB, with --trace 4 KiB,
    /// with --latency 1 MiB.
    #[arg(long, value_delimiter = ',', value_name = "SIZES")]
    sizes: Vec<String>,
    /// Fixed cost of every transfer beside the link, as 2.6us.
    #[arg(long, value_name = "TIME", default_value = "0 ns")]
    fixed: String,
    /// Only transfers this way, or both at once; default: each alone, and both at once.
    #[arg(long, value_enum, value_name = "WAY")]
    direction: Option<bandwidth::Traffic>,
    /// Print every packet of one transfer each way, by the protocol model, with its times in ns.
    #[arg(long, conflicts_with_all = ["compare", "fixed", "plot"])]
    trace: bool,
    /// Print latencies of the single reads and writes of one transfer each way, by the protocol model.
    #[arg(long, conflicts_with_all = ["compare", "fixed", "trace"])]
    latency: bool,
    /// Bit error rate of the wires, 0 to 1e-4, with --trace or --latency.
    #[arg(long, value_name = "RATE")]
    bit_errors: Option<f64>,
    /// Seed of the bit errors.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "bit_errors")]
    seed: u64,
    /// Compare measured copies, a CSV table, with the link instead.
    #[arg(long, value_name = "FILE.csv", conflicts_with_all = ["set", "sizes", "fixed", "direction", "bit_errors", "csv", "plot"])]
    compare: Option<PathBuf>,
    /// Also write the table as CSV.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also draw it: a .svg or .png file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON instead of a table; with --trace an object a line.
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

impl From<PacketError> for CliError {
    fn from(error: PacketError) -> Self {
        match error {
            PacketError::NoPackets(_) | PacketError::Input(_) => CliError::input(error.to_string()),
            PacketError::Deadlock(message) => CliError::Failed(message),
        }
    }
}

/// What --trace and --latency look at, with `size` bytes unless told.
fn scene(args: &LinkArgs, sizes: &[u64], size: u64) -> Result<Scene, CliError> {
    let bytes = match sizes {
        [] => size,
        [bytes] => *bytes,
        _ => {
            return Err(CliError::input(format!(
                "--sizes {}: one size with --trace and --latency",
                args.sizes.join(",")
            )));
        }
    };
    Ok(Scene {
        traffic: args.direction.unwrap_or(bandwidth::Traffic::Both),
        bytes,
        bit_errors: args.bit_errors.map(|rate| (rate, args.seed)),
    })
}

/// `--trace`: packets as they leave.
fn trace(args: &LinkArgs, link: &LinkModel, sizes: &[u64]) -> Result<bool, CliError> {
    let config = packets::config(&args.link, link)?;
    let scene = scene(args, sizes, 4096)?;
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    let mut file = args
        .csv
        .as_ref()
        .map(|path| {
            std::fs::File::create(path)
                .map_err(|e| CliError::input(format!("cannot write {}: {}", path.display(), describe_io(&e))))
        })
        .transpose()?;
    let format = if args.json { Format::Json } else { Format::Lines };
    let mut tracer = Tracer::new(config);
    tracer.text(format, &mut stdout);
    if let Some(file) = &mut file {
        tracer.csv(file);
    }
    let played = packets::play(config, scene, &mut tracer);
    let totals = played.as_ref().map(packets::totals).unwrap_or_default();
    let error = played.err();
    // What led to a deadlock is shown before it.
    let written = tracer.finish().and_then(|()| {
        if format == Format::Lines && error.is_none() {
            write!(stdout, "\n{totals}")?;
        }
        stdout.flush()
    });
    match (error, written) {
        (Some(error), _) => Err(error.into()),
        (None, Err(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(true),
    }
}

/// `--latency`: a histogram.
fn latencies(args: &LinkArgs, link: &LinkModel, sizes: &[u64]) -> Result<bool, CliError> {
    let config = packets::config(&args.link, link)?;
    let mut sink = Latencies::new(config.tags)?;
    packets::play(config, scene(args, sizes, 1 << 20)?, &mut sink)?;
    let summaries = sink.summaries();
    if let Some(path) = &args.plot {
        draw(path, &latency::chart(&args.link, &summaries))?;
    }
    if let Some(path) = &args.csv {
        write(path, latency::csv(&summaries).as_bytes())?;
    }
    print(&if args.json {
        json(&summaries)?
    } else {
        latency::terminal(&summaries)
    })?;
    Ok(true)
}

/// Prints what a link carries, or how it compares with measurements.
pub(super) fn run(args: &LinkArgs) -> Result<bool, CliError> {
    if let Some(path) = &args.compare {
        let platforms = Platforms::embedded().map_err(CliError::Failed)?;
        let report = compare::compare(super::check::open(path)?, &platforms)
            .map_err(|e| CliError::input(format!("{}: {e}", path.display())))?;
        if report.sets.is_empty() {
            let reasons: BTreeSet<&str> = report.passed_over.iter().map(|p| p.reason.as_str()).collect();
            let reasons = Vec::from_iter(reasons).join("; ");
            return Err(CliError::input(format!(
                "{}: no row of a copy that a link here carries; passed over: {}",
                path.display(),
                if reasons.is_empty() {
                    "nothing, it has no rows"
                } else {
                    &reasons
                },
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
    if args.latency {
        return latencies(args, &link, &sizes);
    }
    if args.bit_errors.is_some() && !args.trace {
        return Err(CliError::input(
            "--bit-errors: only with --trace or --latency, which send every packet",
        ));
    }
    if args.trace {
        return trace(args, &link, &sizes);
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
