//! The device: thread-block dispatch, translation and parked faults, the replayable fault buffer,
//! page tables, channels and copy engines.
//!
//! ```text
//!  Launch ──> kernel ── page without PTE ──> uTLB (parks) ──> fault buffer ──> driver (elsewhere)
//!               ^                                |                                  |
//!               └──────── hits wake ── replay <──┴──────── channels <── Push ───────┘
//!                                                            └─> copy engines ──> link (elsewhere)
//! ```
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`params`] | every hardware parameter of the device |
//! | [`page_table`] | which pages have a valid PTE |
//! | [`kernel`] | one running kernel: its resident blocks, served in turn by the kernel's roofline |
//! | [`utlb`] | requests parked in the uTLBs, the bounded number outstanding, the order of retries |
//! | [`walkers`] | the bounded pool of page walkers |
//! | [`fault_buffer`] | GET, PUT, entries, overflow |
//! | [`channel`] | in-order channels, copy engines, memsets, PTE writes |
//! | [`accounting`] | where the time of the SMs and of the engines went |
//! | [`gpu`] | [`Gpu`]: puts them together; the only one that talks to the outside |
//!
//! The device asks its surroundings (trait [`Port`]) for events and link transfers, and tells it what
//! has completed. It never looks at the driver.

pub mod accounting;
pub mod channel;
pub mod fault_buffer;
pub mod gpu;
pub mod kernel;
pub mod page_table;
pub mod params;
pub mod utlb;
pub mod walkers;

pub use gpu::{Gpu, GpuEvent, KernelId, Launch, Port};
pub use params::GpuParams;
