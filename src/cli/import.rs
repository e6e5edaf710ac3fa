//! `uvmsim import`.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use workloads::import::{Limits, Report, import};

use super::{CliError, print};
use crate::report::table::{bytes, count, key_value, time};

/// Arguments of `uvmsim import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// Recording: PyTorch profiler (Kineto) JSON, execution trace (Chakra) JSON, memory snapshot pickle, Nsight
    /// Systems export, Accel-Sim .traceg or kernelslist.g, G10 workload JSON. An execution trace and the
    /// Kineto trace of the same run can be given together.
    #[arg(required = true, num_args = 1..=2, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Program to write; compressed if its name ends in .zst or .gz. Without it, only the report is printed.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Bytes that a recording may have after decompression, for example 64GiB.
    #[arg(long, value_name = "SIZE")]
    max_size: Option<sim_core::units::Bytes>,
    /// Events, nodes or rows that it may have.
    #[arg(long, value_name = "N")]
    max_events: Option<u64>,
}

/// Imports a recording and says what became of it.
pub(super) fn run(args: &ImportArgs) -> Result<bool, CliError> {
    if let Some(output) = &args.output {
        check_output(output)?;
    }
    let mut limits = Limits::default();
    if let Some(size) = args.max_size {
        limits.max_bytes = size.0;
    }
    if let Some(events) = args.max_events {
        limits.max_events = events;
    }
    let imported = import(&args.files, &limits).map_err(|error| CliError::input(error.to_string()))?;
    print(&report(&imported.report))?;
    if let Some(output) = &args.output {
        write_program(&imported.program, output)?;
        print(&format!("written to {}\n", output.display()))?;
    }
    Ok(true)
}

/// Can the program be written there?
pub(super) fn check_output(output: &Path) -> Result<(), CliError> {
    let refuse = |what: &str| Err(CliError::input(format!("{}: {what}", output.display())));
    if output.is_dir() {
        return refuse("it is a folder");
    }
    if output
        .parent()
        .is_some_and(|parent| !parent.as_os_str().is_empty() && !parent.is_dir())
    {
        return refuse("there is no such folder");
    }
    Ok(())
}

/// Writes a program, compressed as its name says; nothing incomplete stays.
pub(super) fn write_program(program: &workloads::Program, output: &Path) -> Result<(), CliError> {
    let name = output.to_string_lossy();
    let partial = PathBuf::from(format!("{name}.partial-{}", std::process::id()));
    let attempt = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(&partial)?);
        if name.ends_with(".zst") {
            // Level 19 halves a program against the default; programs are written once and read often.
            let mut encoder = zstd::Encoder::new(&mut file, 12)?;
            workloads::program::write(program, &mut encoder)?;
            encoder.finish()?;
        } else if name.ends_with(".gz") {
            let mut encoder = flate2::write::GzEncoder::new(&mut file, flate2::Compression::default());
            workloads::program::write(program, &mut encoder)?;
            encoder.finish()?;
        } else {
            workloads::program::write(program, &mut file)?;
        }
        file.flush()?;
        std::fs::rename(&partial, output)
    };
    attempt().map_err(|error| {
        // What is there is of no use.
        let _ = std::fs::remove_file(&partial);
        CliError::Failed(format!("cannot write {name}: {error}"))
    })
}

fn report(report: &Report) -> String {
    let mut rows = vec![
        ("iterations".to_owned(), count(report.iterations)),
        ("kernels".to_owned(), count(report.kernels)),
        ("streams with kernels".to_owned(), count(report.streams)),
        ("tensors".to_owned(), count(report.tensors)),
        ("bytes of tensors".to_owned(), bytes(report.tensor_bytes)),
        ("most live at once".to_owned(), bytes(report.peak_bytes)),
        (
            "bytes read and written by kernels".to_owned(),
            bytes(report.kernel_bytes),
        ),
    ];
    if report.kernel_ns > 0 {
        rows.push((
            "recorded time in kernels".to_owned(),
            time(report.kernel_ns as f64),
        ));
    }
    let mut out = key_value(&format!("understood as {}", report.format), &rows);
    if !report.facts.is_empty() {
        out.push_str(&key_value("in the recording", &report.facts));
    }
    for (title, list) in [("assumed", &report.assumed), ("missing", &report.missing)] {
        for line in list {
            out.extend([title, ": ", line, "\n"]);
        }
    }
    out
}
