//! `uvmsim workload`: the built-in programs, listed, described, written to files.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use workloads::builtin::Builtin;
use workloads::{Program, model, program};

use super::{CliError, Overrides, print};
use crate::config::diagnostic::Source;
use crate::config::document::Extra;
use crate::config::value::nearest;
use crate::config::{Config, ResolvedConfig, schema};
use crate::report::table::{bytes, count, digits, key_value};
use crate::simulate::{kernel_options, model_spec};

/// Arguments of `uvmsim workload`.
#[derive(Args, Debug)]
pub struct WorkloadArgs {
    /// A built-in program; without it, all are listed.
    name: Option<String>,
    #[command(flatten)]
    overrides: Overrides,
    /// Write the program: FILE.uvmprog, or compressed, FILE.uvmprog.zst.
    #[arg(short, long, value_name = "FILE", requires = "name")]
    output: Option<PathBuf>,
}

/// Lists, describes or writes a built-in program.
pub(super) fn run(args: &WorkloadArgs) -> Result<bool, CliError> {
    let Some(name) = &args.name else {
        return list();
    };
    if let Some(entry) = model::entry(name) {
        return run_model(entry, args);
    }
    let builtin = Builtin::find(name).ok_or_else(|| {
        let names = Builtin::all().map(|b| b.name());
        let near = nearest(name, names.chain(model::CATALOG.iter().map(|entry| entry.name)));
        let near = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
        CliError::input(format!(
            "no built-in program {name:?}{near} `uvmsim workload` lists all"
        ))
    })?;
    let config = config_of(&format!("workload.kernel={name}"), args)?;
    let made = builtin
        .program(&kernel_options(&config), config.workload.arrays)
        .map_err(|error| CliError::input(error.to_string()))?;
    let Some(path) = &args.output else {
        return describe(&builtin, &made);
    };
    program::save(&made, path).map_err(|error| CliError::input(error.to_string()))?;
    print(&format!(
        "written to {}: {}\nrun it with workload.program = {:?} and workload.allocator = \"per-tensor\"\n",
        path.display(),
        totals(&made),
        path.display().to_string(),
    ))?;
    Ok(true)
}

/// The defaults with `first` and the overrides.
fn config_of(first: &str, args: &WorkloadArgs) -> Result<ResolvedConfig, CliError> {
    let mut sets = vec![first.to_owned()];
    sets.extend(args.overrides.set.iter().map(|set| full_key(set)));
    let source = Arc::new(Source {
        name: "defaults".into(),
        text: String::new(),
    });
    Ok(Config::from_source(&source, None, &sets, Extra::Config)?.resolve()?)
}

/// Describes or writes a built-in model.
fn run_model(entry: &model::Entry, args: &WorkloadArgs) -> Result<bool, CliError> {
    let config = config_of(&format!("workload.model={}", entry.name), args)?;
    let refused = |error: model::ModelError| CliError::input(error.to_string());
    let spec = model_spec(&config)
        .ok_or_else(|| CliError::input("workload.model is taken away by another override".to_owned()))?
        .map_err(refused)?;
    let made = model::generate(&spec).map_err(refused)?;
    if let Some(path) = &args.output {
        program::save(&made, path).map_err(|error| CliError::input(error.to_string()))?;
        return print(&format!(
            "written to {}: {}\n",
            path.display(),
            model_totals(&made)
        ))
        .map(|()| true);
    }
    let tape = model::forward(&spec).map_err(refused)?;
    let mut rows = vec![
        ("parameters".to_owned(), count(tape.parameters())),
        ("forward FLOPs".to_owned(), count(tape.flops())),
        (
            "forward ops".to_owned(),
            count(tape.nodes.iter().filter(|node| node.op.is_some()).count() as u64),
        ),
        ("in the last iteration".to_owned(), model_totals(&made)),
    ];
    let mut key = |name: &str, value: String| rows.push((format!("workload.{name}"), value));
    key("batch_size", spec.batch.to_string());
    if let Some((default, most)) = entry.sequence {
        key("sequence", format!("default {default}, at most {most}"));
    }
    if let Some((default, least)) = entry.image {
        key("image", format!("default {default}, at least {least}"));
    }
    key(
        "precision, optimizer, optimizer_kernels, accumulation, zero_grad",
        "see `uvmsim explain`".to_owned(),
    );
    if entry.checkpoints {
        key("checkpointing", spec.checkpointing.to_string());
    }
    if entry.generates {
        key(
            "task, tokens",
            "training, or inference of so many tokens".to_owned(),
        );
    }
    print(&key_value(&format!("{}: {}", entry.name, entry.what), &rows))?;
    Ok(true)
}

/// Kernels and work of the last iteration.
fn model_totals(made: &Program) -> String {
    let (mut launches, mut moved, mut flops) = (0, 0.0, 0.0);
    for op in made.iterations.last().into_iter().flatten() {
        if let program::Op::Kernel {
            flops: f, rb, wb, nk, ..
        } = op
        {
            launches += u64::from(*nk);
            flops += *f as f64;
            moved += *rb as f64 + *wb as f64;
        }
    }
    format!(
        "{} kernels, {} GB moved, {} GFLOP",
        count(launches),
        digits(moved / 1e9),
        digits(flops / 1e9)
    )
}

/// `n=4096` for `workload.param.n=4096`, `array_size=1GiB` for `workload.array_size=1GiB`.
fn full_key(set: &str) -> String {
    let key = set.split_once('=').map_or(set, |(key, _)| key);
    if key.contains('.') {
        return set.to_owned();
    }
    ["workload.param.", "workload."]
        .into_iter()
        .find(|table| schema::key(&format!("{table}{key}")).is_some())
        .map_or_else(
            || format!("workload.param.{set}"),
            |table| format!("{table}{set}"),
        )
}

fn list() -> Result<bool, CliError> {
    let width = Builtin::all().map(|b| b.name().len()).max().unwrap_or(0);
    let mut out = String::new();
    for builtin in Builtin::all() {
        let _ = writeln!(out, "{:width$}  {}", builtin.name(), builtin.summary());
    }
    for entry in model::CATALOG {
        let _ = writeln!(out, "{:width$}  {}", entry.name, entry.what);
    }
    print(&out)?;
    Ok(true)
}

/// Arrays, launches and work of one iteration.
fn totals(made: &Program) -> String {
    let (mut arrays, mut footprint, mut launches, mut moved, mut flops) = (0, 0, 0, 0.0, 0.0);
    for op in made.setup.iter().chain(made.iterations.iter().flatten()) {
        match op {
            program::Op::Alloc { n, .. } => {
                arrays += 1;
                footprint += n.next_multiple_of(2 << 20);
            }
            program::Op::Kernel { flops: f, rb, wb, .. } => {
                launches += 1;
                flops += *f as f64;
                moved += *rb as f64 + *wb as f64;
            }
            _ => {}
        }
    }
    format!(
        "{} arrays of {} in all, {} launches, {} GB moved, {} GFLOP",
        count(arrays),
        bytes(footprint),
        count(launches),
        digits(moved / 1e9),
        digits(flops / 1e9),
    )
}

fn describe(builtin: &Builtin, made: &Program) -> Result<bool, CliError> {
    let mut out = format!("{}: {}\n", builtin.name(), builtin.summary());
    let mut row = |key: &str, about: String| {
        let _ = writeln!(out, "  {key:26}{about}");
    };
    if let Builtin::Kernel(entry) = builtin {
        for param in entry.params {
            row(
                &format!("workload.param.{}", param.name),
                format!(
                    "{}; default {}, accepted {} to {}",
                    param.what, param.default, param.min, param.max
                ),
            );
        }
    }
    if builtin.is_sized() {
        row("workload.array_size", "bytes of each array".to_owned());
    }
    let _ = writeln!(out, "one iteration: {}", totals(made));
    print(&out)?;
    Ok(true)
}
