//! What every part of the simulator shares: time, the event queue, units, addresses, and the plain
//! types that the device, the host, the link and the workloads exchange.
//!
//! This crate knows nothing of how a GPU, a driver or a link behaves.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`time`] | [`Time`], one tick = 2^-10 ns, and [`Clock`](time::Clock) |
//! | [`units`] | [`Bytes`](units::Bytes), [`Bandwidth`](units::Bandwidth), parsing and printing with units |
//! | [`pages`] | pages, VA blocks, [`PageMask`](pages::PageMask) |
//! | [`access`] | access kinds and the [`AccessPattern`](access::AccessPattern) of a kernel |
//! | [`fault`] | the entry of a fault buffer |
//! | [`rng`] | named random streams |
//! | [`stats`] | state clocks, histograms, means over replicates, goodness of fit |
//! | [`push`] | what the driver pushes to the GPU's channels |
//! | [`tools`] | the driver's tools events, what profilers see |
//! | [`scheduler`] | [`Scheduler`], the event queue |

pub mod access;
pub mod fault;
pub mod pages;
pub mod push;
pub mod rng;
pub mod scheduler;
pub mod stats;
pub mod time;
pub mod tools;
pub mod units;

pub use scheduler::Scheduler;
pub use time::Time;
pub use units::{Bandwidth, Bytes, Hertz};
