//! `uvmsim inspect`.

use std::path::PathBuf;

use clap::Args;
use workloads::inspect::{Inspection, inspect};

use super::{CliError, print};
use crate::report::plot::{Chart, Series, Style};
use crate::report::table::{bytes, count, digits, key_value, table, time};

/// Arguments of `uvmsim inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// A program: .uvmprog, plain or compressed.
    file: PathBuf,
    /// Iterations to look through; default: those that it has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: Option<u32>,
    /// Draw the footprint over time: FILE.svg or FILE.png; the reuse distances go to FILE-reuse beside it.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// Says what is in a program.
pub(super) fn run(args: &InspectArgs) -> Result<bool, CliError> {
    let ending = args
        .plot
        .as_ref()
        .map(|path| path.extension().and_then(|e| e.to_str()).map(str::to_owned));
    if let Some(ending) = &ending
        && !matches!(ending.as_deref(), Some("svg" | "png"))
    {
        return Err(CliError::input(
            "--plot: the file's name has to end in .svg or .png",
        ));
    }
    let wrong = |error: workloads::ProgramError| CliError::input(error.to_string());
    let recording = workloads::program::open(&args.file).map_err(wrong)?;
    let iterations = args.iterations.unwrap_or_else(|| recording.iterations());
    let found = inspect(&recording, iterations).map_err(wrong)?;
    if args.json {
        let text =
            serde_json::to_string_pretty(&json(&found)).map_err(|e| CliError::Failed(e.to_string()))?;
        print(&(text + "\n"))?;
    } else {
        print(&tables(&found))?;
    }
    if let Some(path) = &args.plot {
        let stem = path
            .file_stem()
            .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let extension = path
            .extension()
            .map_or_else(String::new, |e| e.to_string_lossy().into_owned());
        let reuse = path.with_file_name(format!("{stem}-reuse.{extension}"));
        for (file, chart) in [(path, footprint_chart(&found)), (&reuse, reuse_chart(&found))] {
            let content = if extension == "png" {
                chart.png().map_err(CliError::Failed)?
            } else {
                chart.svg().into_bytes()
            };
            std::fs::write(file, content)
                .map_err(|error| CliError::Failed(format!("cannot write {}: {error}", file.display())))?;
            eprintln!("drawn: {}", file.display());
        }
    }
    Ok(true)
}

fn tables(found: &Inspection) -> String {
    let launches: u64 = found.classes.iter().map(|(_, totals)| totals.launches).sum();
    let mut rows = vec![
        ("operations".to_owned(), count(found.operations)),
        ("iterations".to_owned(), count(found.iterations)),
        ("kernels".to_owned(), count(launches)),
        ("tensors".to_owned(), count(found.tensors)),
        ("bytes of tensors".to_owned(), bytes(found.tensor_bytes)),
        (
            "most live at once".to_owned(),
            format!("{}, at operation {}", bytes(found.peak.0), count(found.peak.1)),
        ),
    ];
    rows.extend(
        found
            .others
            .iter()
            .map(|(name, number)| ((*name).to_owned(), count(*number))),
    );
    let mut out = key_value("program", &rows);

    let recorded = found.classes.iter().any(|(_, totals)| totals.recorded_ns > 0);
    let mut head = vec!["kernels by class", "launches", "read", "written", "GFLOP"];
    if recorded {
        head.push("recorded time");
    }
    let mut classes = table(&head);
    for (class, totals) in &found.classes {
        let mut row = vec![
            class.name().to_owned(),
            count(totals.launches),
            bytes(totals.read_bytes),
            bytes(totals.write_bytes),
            digits(totals.flops as f64 / 1e9),
        ];
        if recorded {
            row.push(time(totals.recorded_ns as f64));
        }
        classes.add_row(row);
    }
    out.extend([classes.to_string(), "\n".to_owned()]);

    let mut largest = table(&["largest tensors", "bytes", "kernels", "from operation", "to"]);
    for tensor in &found.largest {
        largest.add_row([
            tensor.id.to_string(),
            bytes(tensor.bytes),
            count(tensor.uses),
            count(tensor.lifetime.0),
            tensor.lifetime.1.map_or("the end".to_owned(), count),
        ]);
    }
    out.extend([largest.to_string(), "\n".to_owned()]);

    let mut reuse = table(&["reuse distance below", "accesses", "of tensors of"]);
    reuse.add_row([
        "first access".to_owned(),
        count(found.first_accesses),
        String::new(),
    ]);
    for (exponent, bin) in &found.reuse {
        let below = if *exponent == 0 {
            "1 B".to_owned()
        } else {
            limit(*exponent)
        };
        reuse.add_row([below, count(bin.accesses), bytes(bin.bytes)]);
    }
    out.extend([reuse.to_string(), "\n".to_owned()]);
    out
}

/// 2^exponent bytes, as text.
fn limit(exponent: u32) -> String {
    1_u64.checked_shl(exponent).map_or("any".to_owned(), bytes)
}

fn json(found: &Inspection) -> serde_json::Value {
    serde_json::json!({
        "schema": "uvmsim-inspect/1",
        "operations": found.operations,
        "iterations": found.iterations,
        "tensors": found.tensors,
        "tensor_bytes": found.tensor_bytes,
        "peak_bytes": found.peak.0,
        "peak_operation": found.peak.1,
        "classes": found.classes.iter().map(|(class, t)| serde_json::json!({
            "class": class.name(),
            "launches": t.launches,
            "read_bytes": t.read_bytes,
            "write_bytes": t.write_bytes,
            "flops": t.flops,
            "recorded_ns": t.recorded_ns,
        })).collect::<Vec<_>>(),
        "largest": found.largest.iter().map(|t| serde_json::json!({
            "tensor": t.id,
            "bytes": t.bytes,
            "kernels": t.uses,
            "from_operation": t.lifetime.0,
            "to_operation": t.lifetime.1,
        })).collect::<Vec<_>>(),
        "footprint_bytes": found.footprint,
        "first_accesses": found.first_accesses,
        "reuse": found.reuse.iter().map(|(exponent, bin)| serde_json::json!({
            "distance_below_bytes": 1_u64.checked_shl(*exponent),
            "accesses": bin.accesses,
            "tensor_bytes": bin.bytes,
        })).collect::<Vec<_>>(),
    })
}

fn footprint_chart(found: &Inspection) -> Chart {
    Chart {
        title: "Live bytes of tensors".to_owned(),
        x_label: "operation".to_owned(),
        y_label: "GiB".to_owned(),
        series: vec![Series {
            name: "live".to_owned(),
            points: found
                .footprint
                .iter()
                .map(|(at, bytes)| (*at as f64, *bytes as f64 / f64::from(1 << 30)))
                .collect(),
            style: Style::Line,
            color: 0,
        }],
        ..Chart::default()
    }
}

/// Share of the repeated accesses whose distance is below x: what a memory of that size would hold under LRU.
fn reuse_chart(found: &Inspection) -> Chart {
    let all: f64 = found.reuse.values().map(|bin| bin.bytes as f64).sum();
    let mut below = 0.0;
    let points = found.reuse.iter().map(|(exponent, bin)| {
        below += bin.bytes as f64;
        let distance = 2_f64.powi((*exponent).try_into().unwrap_or(63));
        (distance / f64::from(1 << 20), 100.0 * below / all.max(1.0))
    });
    Chart {
        title: "Reuse distance of tensors".to_owned(),
        x_label: "distance below, MiB".to_owned(),
        y_label: "% of bytes accessed again".to_owned(),
        log_x: true,
        series: vec![Series {
            name: "bytes accessed again".to_owned(),
            points: points.collect(),
            style: Style::Line,
            color: 0,
        }],
        ..Chart::default()
    }
}
