//! The host: a model of NVIDIA's open UVM driver (release 595), single GPU, demand paging,
//! explicit migration, advice, discards and accesses of the CPU.
//!
//! ```text
//! interrupt -> bottom half: [ fetch <= 256 raw entries -> merge -> sort -> service each VA block
//!                             -> flush -> push replay -> wait for it ] until nothing is fetched
//! service:    prefetch -> unmap elsewhere -> chunk (evict?) -> zero -> copy -> map
//! ```
//!
//! Comments cite sections of the project's description of the driver as "uvm-driver N".
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`driver`] | [`UvmDriver`]: the bottom half and the calls of the program's thread |
//! | [`fetch`] | one batch: raw entries merged with their neighbours |
//! | `service` | what a service of one VA block does, eviction included |
//! | [`residency`] | where a page goes: the driver's table |
//! | [`cpu_fault`], `migrate` | accesses of the CPU; pages that leave the device |
//! | [`advice`], `discard` | `cudaMemAdvise` and discards |
//! | [`prefetch`], [`eviction`] | policies, one file each |
//! | [`policy`] | what policies see; how to add one |
//! | `ahead` | pre-evictions and fetches ahead of need |
//! | [`thrashing`] | pages that bounce between processors: throttled, then pinned |
//! | [`pmm`] | root chunks and their lists |
//! | [`va_space`], [`va_block`] | managed ranges, per-block bitmaps |
//! | [`tracker`] | pushes that later work waits for |
//! | [`cost`], [`params`], [`stats`] | costs, the driver's own parameters, counts |
//! | [`check`] | comparison with recorded decisions of the real driver |
//!
//! Everything asynchronous is a push with acquires, handed to a [`Device`]; the driver never knows how
//! long a copy takes. Access counters and several address spaces are not modelled.

pub mod advice;
mod ahead;
pub mod check;
pub mod cost;
pub mod cpu_fault;
pub mod device;
mod discard;
pub mod driver;
pub mod eviction;
pub mod fetch;
pub mod invariants;
mod migrate;
pub mod params;
pub mod pmm;
pub mod policy;
pub mod prefetch;
pub mod residency;
mod service;
pub mod stats;
pub mod thrashing;
pub mod tracker;
pub mod va_block;
pub mod va_space;

pub use advice::Advice;
pub use cost::HostCost;
pub use cpu_fault::{CpuAccess, CpuProgress};
pub use device::Device;
pub use driver::UvmDriver;
pub use invariants::InvariantViolation;
pub use params::{DriverParams, ParamError};
pub use stats::{BatchRecord, DriverStats, ThreadState};
pub use thrashing::{ThrashingParams, ThrashingStats};
pub use va_space::HostError;
