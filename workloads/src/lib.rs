//! What runs: programs, the allocators they run under, and how their kernels touch memory.
//!
//! ```text
//! recording --import--> Program --Schedule--> iterations --Allocator--> addresses --lower--> HostOp
//! builtin -----------------^  (.uvmprog)
//! ```
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`program`] | the `.uvmprog` format, its reader and writer, runs of any length |
//! | [`allocator`] | the caching allocator of PyTorch, one managed range per tensor |
//! | [`pattern`] | the order in which thread blocks touch pages, one file per kind |
//! | [`builtin`] | every program that has a name |
//! | [`class`] | which op is which kind, one table |
//! | [`lower`] | op + GPU -> kernel: pattern, occupancy, roofline duration |
//! | [`run`] | [`HostOp`]: what the host's thread does, with addresses |
//! | [`classic`] | kernels of the benchmark suites as programs |
//! | [`graph`] | graphs for them: generated or read |
//! | [`micro`] | micro-benchmarks whose access order is known exactly |
//! | [`import`] | recordings into programs |

pub mod allocator;
pub mod builtin;
pub mod class;
pub mod classic;
pub mod graph;
pub mod import;
pub mod inspect;
pub mod lower;
pub mod math;
pub mod micro;
pub mod model;
pub mod pattern;
pub mod program;
pub mod run;

pub use lower::{GpuShape, Kernel};
pub use program::{MemAdvise, Program, ProgramError};
pub use run::{Footprint, HostOp, Run, footprint};
