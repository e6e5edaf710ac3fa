//! Recordings of other tools as programs.
//!
//! | module | format |
//! | --- | --- |
//! | [`kineto`] | PyTorch profiler (Kineto) Chrome trace, JSON |
//! | [`execution_trace`] | PyTorch execution trace (Chakra host trace) 1.0.1 to 1.1.1, JSON; with a Kineto trace of the same run: its durations |
//! | [`snapshot`] | `torch.cuda.memory._snapshot()`, pickle |
//! | [`nsys`] | Nsight Systems export, `SQLite` |
//! | [`accelsim`] | Accel-Sim instruction traces, `.traceg` and `kernelslist.g` |
//! | [`g10`] | kernel and tensor lists of the G10 artifact, JSON |
//! | [`train_trace`] | this project's training traces, JSON lines |
//!
//! A format is told by its content, not by its name. What a format does not hold is assumed, and every
//! assumption is counted in the [`Report`]. Nothing in a file is executed, and memory is bounded by
//! [`Limits`].

pub mod accelsim;
mod builder;
pub mod execution_trace;
pub mod g10;
pub mod kineto;
mod lenient;
pub mod nsys;
mod operands;
mod pickle;
pub mod snapshot;
mod source;
pub mod train_trace;

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::program::{Program, ProgramError};
pub use source::{Format, Limits};

/// What an import has understood, assumed and missed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The format, as a user knows it.
    pub format: &'static str,
    /// Kernels.
    pub kernels: u64,
    /// Tensors, those included that existed before the recording.
    pub tensors: u64,
    /// Bytes of all tensors.
    pub tensor_bytes: u64,
    /// Most bytes of tensors that were live at once.
    pub peak_bytes: u64,
    /// Bytes that kernels read and write.
    pub kernel_bytes: u64,
    /// Recorded time in kernels, nanoseconds; 0 where there is none.
    pub kernel_ns: u64,
    /// Iterations.
    pub iterations: u64,
    /// Streams with kernels.
    pub streams: u64,
    /// Further figures of this format: name and value.
    pub facts: Vec<(String, String)>,
    /// What had to be assumed.
    pub assumed: Vec<String>,
    /// What the recording does not say.
    pub missing: Vec<String>,
}

/// A recording as a program.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The program.
    pub program: Program,
    /// How it came about.
    pub report: Report,
}

/// A recording that cannot be imported.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The file cannot be opened or read.
    #[error("{}: {source}", file.display())]
    Io {
        /// File.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No format that is known.
    #[error("{}: not a recording that is known ({what}); accepted: {}", file.display(), Format::list())]
    Unknown {
        /// File.
        file: PathBuf,
        /// What it looks like.
        what: String,
    },
    /// A format that is known but not of use here.
    #[error("{}: {what}", file.display())]
    Unsupported {
        /// File.
        file: PathBuf,
        /// What it is, and what to take instead.
        what: String,
    },
    /// Something in the file is wrong.
    #[error("{}: expected {format}; {place}: {what}", file.display())]
    Malformed {
        /// File.
        file: PathBuf,
        /// The format.
        format: &'static str,
        /// Line, table, or event.
        place: String,
        /// What is wrong, and what to try.
        what: String,
    },
    /// The file exceeds a limit.
    #[error("{}: {what}", file.display())]
    TooLarge {
        /// File.
        file: PathBuf,
        /// Which limit, and how to raise it.
        what: String,
    },
    /// Files that do not belong together.
    #[error("{0}")]
    Together(String),
    /// A training trace.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// Imports one recording, or an execution trace and a Kineto trace of the same run in either order.
///
/// # Errors
/// Which file, which format was expected, where it broke and what to try.
pub fn import(files: &[PathBuf], limits: &Limits) -> Result<Imported, ImportError> {
    match files {
        [file] => import_one(file, limits),
        [a, b] => {
            let pair = match (source::detect(a, limits)?, source::detect(b, limits)?) {
                (Format::ExecutionTrace, Format::Kineto) => Some((a, b)),
                (Format::Kineto, Format::ExecutionTrace) => Some((b, a)),
                _ => None,
            };
            let (trace, kineto) = pair.ok_or_else(|| {
                ImportError::Together(format!(
                    "{} and {}: two files have to be an execution trace and a Kineto trace of the same run",
                    a.display(),
                    b.display()
                ))
            })?;
            execution_trace::import(trace, Some(kineto), limits)
        }
        _ => Err(ImportError::Together(
            "one recording is imported at a time, or an execution trace with a Kineto trace".to_owned(),
        )),
    }
}

fn import_one(file: &Path, limits: &Limits) -> Result<Imported, ImportError> {
    match source::detect(file, limits)? {
        Format::Kineto => kineto::import(file, limits),
        Format::ExecutionTrace => execution_trace::import(file, None, limits),
        Format::Snapshot => snapshot::import(file, limits),
        Format::Nsys => nsys::import(file),
        Format::AccelSim => accelsim::import(file, limits),
        Format::G10 => g10::import(file, limits),
        Format::TrainTrace => train_trace::import(file, limits),
    }
}

/// A program's name from the name of its file.
fn builder_name(file: &Path) -> String {
    let name = file
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let stem = name.split('.').next().unwrap_or_default();
    if stem.is_empty() {
        "imported".to_owned()
    } else {
        stem.chars().take(100).collect()
    }
}
