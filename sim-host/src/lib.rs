//! The host: a model of NVIDIA's open UVM driver (release 595), single GPU, demand paging.
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
//! | [`prefetch`], [`eviction`] | policies, one file each |
//! | [`policy`] | what policies see; how to add one |
//! | `ahead` | pre-evictions and fetches ahead of need |
//! | [`pmm`] | root chunks and their lists |
//! | [`va_space`], [`va_block`] | managed ranges, per-block bitmaps |
//! | [`tracker`] | pushes that later work waits for |
//! | [`cost`], [`params`], [`stats`] | costs, the driver's own parameters, counts |
//! | [`check`] | comparison with recorded decisions of the real driver |
//!
//! Everything asynchronous is a push with acquires, handed to a [`Device`]; the driver never knows how
//! long a copy takes. Thrashing, advice, explicit migration, access counters and CPU faults on
//! GPU-resident pages are not modelled; calls that would need them return typed errors.

mod ahead;
pub mod check;
pub mod cost;
pub mod device;
pub mod driver;
pub mod eviction;
pub mod fetch;
pub mod invariants;
pub mod params;
pub mod pmm;
pub mod policy;
pub mod prefetch;
mod service;
pub mod stats;
pub mod tracker;
pub mod va_block;
pub mod va_space;

pub use cost::HostCost;
pub use device::Device;
pub use driver::UvmDriver;
pub use invariants::InvariantViolation;
pub use params::{DriverParams, ParamError};
pub use stats::{BatchRecord, DriverStats, ThreadState};
pub use va_space::HostError;
