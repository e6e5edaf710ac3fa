//! Kernels of the benchmark suites and of deep learning, as programs: what the host allocates and
//! initialises, which kernels it launches, and which pages their blocks touch in which order.
//!
//! Sizes are those of the suites unless parameters say otherwise. What every kernel here leaves out:
//! copies of single flags to pinned memory, and reading the results at the end.
//!
//! To add one: a function in the file of its family, an entry in that file's `CATALOG`.

// Sizes and arrays have the names that the suites give them.
#![allow(clippy::many_single_char_names)]
// Parameters are far below 2^63.
#![allow(clippy::cast_possible_wrap)]

mod attention;
mod backprop;
mod bench;
mod convolution;
mod fdtd;
mod fft;
mod graphs;
mod linear;
mod lookups;
mod multigrid;
mod norms;
mod rodinia;
mod stencils;
mod streams;
mod tensors;
mod wavefront;

use std::collections::BTreeMap;

use sim_core::Time;

pub use bench::Bench;

use crate::program::{Program, ProgramError};

/// A number that a kernel can be given.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name: `workload.param.NAME` in a config.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// Without it.
    pub default: u64,
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

/// A parameter in one line.
const fn param(name: &'static str, what: &'static str, default: u64, min: u64, max: u64) -> Param {
    Param {
        name,
        what,
        default,
        min,
        max,
    }
}

/// A kernel that can be asked for by name.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name: `workload.kernel` in a config.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    /// `workload.array_size` is the size of its arrays.
    pub sized: bool,
    /// Records one iteration.
    build: fn(&mut Bench) -> Result<(), ProgramError>,
}

/// All kernels of this folder, by family.
pub const CATALOG: [&[Entry]; 15] = [
    &streams::CATALOG,
    &lookups::CATALOG,
    &linear::CATALOG,
    &fft::CATALOG,
    &stencils::CATALOG,
    &multigrid::CATALOG,
    &fdtd::CATALOG,
    &rodinia::CATALOG,
    &backprop::CATALOG,
    &wavefront::CATALOG,
    &graphs::CATALOG,
    &tensors::CATALOG,
    &norms::CATALOG,
    &attention::CATALOG,
    &convolution::CATALOG,
];

/// All kernels of this folder.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    CATALOG.iter().flat_map(|family| family.iter())
}

/// The kernel of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    entries().find(|entry| entry.name == name)
}

/// What a kernel is built from, its parameters aside.
#[derive(Clone, Debug)]
pub struct Options {
    /// Parameters by name; those left out have their defaults.
    pub params: BTreeMap<String, u64>,
    /// Edge list of a graph kernel.
    pub graph: Option<String>,
    /// Bytes of each array, for kernels that are sized by it.
    pub array_bytes: u64,
    /// The CPU writes the inputs first.
    pub cpu_init: bool,
    /// Duration of each launch with everything resident, if it is known.
    pub kernel_time: Option<Time>,
    /// Chooses whatever is random.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            params: BTreeMap::new(),
            graph: None,
            array_bytes: 64 << 20,
            cpu_init: true,
            kernel_time: None,
            seed: 1,
        }
    }
}

/// The program of a kernel: arrays in the setup, one iteration with its launches.
///
/// # Errors
/// A parameter that it has not or that is out of range; a graph that cannot be read.
pub fn program(entry: &'static Entry, options: &Options) -> Result<Program, ProgramError> {
    for (name, value) in &options.params {
        let Some(param) = entry.params.iter().find(|param| param.name == name) else {
            let names: Vec<_> = entry.params.iter().map(|param| param.name).collect();
            return Err(ProgramError::Builtin(format!(
                "workload.param.{name}: {} has no such parameter; it has: {}",
                entry.name,
                if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                }
            )));
        };
        if !(param.min..=param.max).contains(value) {
            return Err(ProgramError::Builtin(format!(
                "workload.param.{name} = {value}: {} ({}); accepted: {} to {}",
                param.what, entry.name, param.min, param.max
            )));
        }
    }
    if options.graph.is_some() && !graphs::CATALOG.iter().any(|graph| graph.name == entry.name) {
        return Err(ProgramError::Builtin(format!(
            "workload.graph: {} runs on no graph; bfs, sssp and pagerank do",
            entry.name
        )));
    }
    let mut bench = Bench::new(entry, options);
    (entry.build)(&mut bench)?;
    Ok(bench.finish())
}
