//! The command line. Results go to stdout, everything else to stderr.
//!
//! Exit status: 0 success; 1 something failed or mismatched; 2 the input is unusable.

mod check;
mod explain;
mod import;
mod inspect;
mod link;
mod progress;
mod run;
mod sweep;
mod validate;
mod workload;

use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::diagnostic::{ConfigErrors, Diagnostic};
use crate::simulate::SimulateError;

/// What happens to a GPU program when its memory does not fit.
#[derive(Parser, Debug)]
#[command(name = "uvmsim", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Simulate a config and what it would take with everything resident.
    Run(run::RunArgs),
    /// Simulate every combination of the values of [sweep].
    Sweep(sweep::SweepArgs),
    /// Replay published curves and print ours beside theirs.
    Validate(validate::ValidateArgs),
    /// Say what a key means: unit, range, value, source; without a key, list all of them.
    Explain(explain::ExplainArgs),
    /// Look at configs.
    #[command(subcommand)]
    Config(explain::ConfigCommand),
    /// List the built-in programs, describe one, write it to a file.
    Workload(workload::WorkloadArgs),
    /// List the hardware profiles in the binary.
    Profiles,
    /// Say what is in a program: tensors, kernels, footprint over time, reuse distances.
    Inspect(inspect::InspectArgs),
    /// Turn a recording of another tool into a program.
    Import(import::ImportArgs),
    /// Bandwidth of a link by transfer size, or measured copies beside it.
    Link(link::LinkArgs),
    /// Compare a component with recorded decisions of the real thing.
    #[command(subcommand)]
    Check(check::CheckCommand),
}

/// Overrides shared by all commands that read a config.
#[derive(Args, Debug, Default)]
struct Overrides {
    /// Override a key, for example --set gpu.memory=16GiB; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Why a command ends early.
#[derive(Debug)]
enum CliError {
    /// Unusable input: exit status 2.
    Input(ConfigErrors),
    /// Anything else: exit status 1.
    Failed(String),
}

impl CliError {
    /// Unusable input in plain words.
    fn input(message: impl Into<String>) -> CliError {
        CliError::Input(ConfigErrors::one(Diagnostic::new(message)))
    }
}

impl From<ConfigErrors> for CliError {
    fn from(errors: ConfigErrors) -> Self {
        CliError::Input(errors)
    }
}

impl From<SimulateError> for CliError {
    fn from(error: SimulateError) -> Self {
        match error {
            SimulateError::Input(message) => CliError::input(message),
            SimulateError::Internal(message) => CliError::Failed(message),
        }
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        CliError::Failed(error.to_string())
    }
}

/// Prints to stdout; a closed pipe ends the output, not the program.
fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// The folder of a command's output: `--out`, else `runs/NAME`.
fn output_folder(out: Option<&PathBuf>, name: &str) -> Result<PathBuf, CliError> {
    use crate::report::folder::{Folder, folder_name};
    let path = if let Some(out) = out {
        out.clone()
    } else {
        let runs = PathBuf::from("runs");
        std::fs::create_dir_all(&runs)?;
        runs.join(folder_name(name))
    };
    if path.file_name().is_none() {
        return Err(CliError::input(format!(
            "--out {}: not the name of a folder",
            path.display()
        )));
    }
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
        return Err(CliError::input(format!(
            "--out {}: there is no folder {}",
            path.display(),
            parent.display()
        )));
    }
    Folder::check(&path).map_err(CliError::input)?;
    Ok(path)
}

/// Runs the program; its exit status.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Config(command) => explain::config(&command),
        Command::Workload(args) => workload::run(&args),
        Command::Profiles => explain::profiles(),
        Command::Inspect(args) => inspect::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Link(args) => link::run(&args),
        Command::Check(command) => check::run(&command),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(CliError::Input(errors)) => {
            eprint!("{}", errors.render(std::io::stderr().is_terminal()));
            ExitCode::from(2)
        }
        Err(CliError::Failed(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(1)
        }
    }
}
