//! From a resolved config to a result: the one door between the program's surface and the simulation.

mod bridge;
mod figures;
mod plan;

pub use bridge::Simulator;
pub(crate) use bridge::kernel_options;

use std::fmt;

use sim_core::Time;
use sim_core::push::{Cause, Direction};

use crate::config::ResolvedConfig;
use crate::report::Summary;

/// Hears how far a simulation has come.
pub trait Progress {
    /// `simulated` time has passed, `kernels` have finished, of `total` if that is known.
    fn update(&mut self, simulated: Time, kernels: u64, total: Option<u64>);
}

/// Nobody listens.
impl Progress for () {
    fn update(&mut self, _simulated: Time, _kernels: u64, _total: Option<u64>) {}
}

/// One copy over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRow {
    /// When the engine began it.
    pub start: Time,
    /// When its last byte arrived.
    pub end: Time,
    /// Which way.
    pub direction: Direction,
    /// Why.
    pub cause: Cause,
    /// First page.
    pub first_page: u64,
    /// Pages.
    pub pages: u32,
}

/// What one simulation gives.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// All figures.
    pub summary: Summary,
    /// Every batch of the driver, if records are kept.
    pub batches: Vec<sim_host::BatchRecord>,
    /// Every copy in order of completion, if records are kept.
    pub copies: Vec<CopyRow>,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimulateError {
    /// The input cannot be simulated: the user can change it.
    Input(String),
    /// A defect of the simulator.
    Internal(String),
}

impl fmt::Display for SimulateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimulateError::Input(message) | SimulateError::Internal(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for SimulateError {}

/// Something that simulates a config; equal configs give equal results.
pub trait Simulate: Sync {
    /// Runs `config` to its end; `records`: keep every batch and every copy.
    ///
    /// # Errors
    /// Input that cannot be simulated, or a defect found by the checks at the end.
    fn simulate(
        &self,
        config: &ResolvedConfig,
        records: bool,
        progress: &mut dyn Progress,
    ) -> Result<RunResult, SimulateError>;
}

/// Simulates; a panic of the simulator becomes an error, so that one case does not take others with it.
///
/// # Errors
/// Those of [`Simulate::simulate`], and defects.
pub fn guarded(
    simulator: &dyn Simulate,
    config: &ResolvedConfig,
    records: bool,
) -> Result<RunResult, SimulateError> {
    // Nothing that a simulation changes outlives it, except programs behind their own lock.
    let attempt = std::panic::AssertUnwindSafe(|| simulator.simulate(config, records, &mut ()));
    std::panic::catch_unwind(attempt).unwrap_or_else(|cause| {
        let text = cause
            .downcast_ref::<String>()
            .map(String::as_str)
            .or(cause.downcast_ref::<&str>().copied());
        Err(SimulateError::Internal(format!(
            "internal error: {}",
            text.unwrap_or("unknown")
        )))
    })
}
