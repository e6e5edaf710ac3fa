//! Every program that can be asked for by name: micro-benchmarks and kernels of the benchmark suites.
//!
//! Generators of other kinds (models) join here: a name, a line that says what it is, and a program.

use crate::classic::{self, Entry, Options};
use crate::micro::{self, Micro, MicroKind};
use crate::program::{Program, ProgramError};

/// A built-in program.
#[derive(Clone, Copy, Debug)]
pub enum Builtin {
    /// A micro-benchmark.
    Micro(MicroKind),
    /// A kernel of a suite.
    Kernel(&'static Entry),
}

impl Builtin {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Builtin> {
        let micro = MicroKind::NAMES.iter().map(|(_, kind)| Builtin::Micro(*kind));
        micro.chain(classic::entries().map(Builtin::Kernel))
    }

    /// The one of this name.
    pub fn find(name: &str) -> Option<Builtin> {
        Builtin::all().find(|builtin| builtin.name() == name)
    }

    /// Its name: `workload.kernel`.
    pub fn name(&self) -> &'static str {
        match self {
            Builtin::Micro(kind) => kind.name(),
            Builtin::Kernel(entry) => entry.name,
        }
    }

    /// What it does, in one line.
    pub fn summary(&self) -> &'static str {
        match self {
            Builtin::Micro(kind) => kind.summary(),
            Builtin::Kernel(entry) => entry.summary,
        }
    }

    /// Is `workload.array_size` the size of its arrays?
    pub fn is_sized(&self) -> bool {
        match self {
            Builtin::Micro(_) => true,
            Builtin::Kernel(entry) => entry.sized,
        }
    }

    /// Its program.
    ///
    /// # Errors
    /// A parameter that it has not or that is out of range.
    pub fn program(&self, options: &Options, arrays: u32) -> Result<Program, ProgramError> {
        match self {
            Builtin::Micro(kind) => {
                if let Some(name) = options.params.keys().next() {
                    return Err(ProgramError::Builtin(format!(
                        "workload.param.{name}: {} has no parameters but workload.array_size",
                        kind.name()
                    )));
                }
                if options.graph.is_some() {
                    return Err(ProgramError::Builtin(format!(
                        "workload.graph: {} runs on no graph; bfs, sssp and pagerank do",
                        kind.name()
                    )));
                }
                micro::program(&Micro {
                    kind: *kind,
                    array_bytes: options.array_bytes,
                    arrays,
                    cpu_init: options.cpu_init,
                    kernel_time: options.kernel_time,
                    seed: options.seed,
                })
            }
            Builtin::Kernel(entry) => classic::program(entry, options),
        }
    }
}
