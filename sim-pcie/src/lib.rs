//! The link between host and device: PCIe 1 to 6, packet by packet, timed to the 4-byte slot; NVLink and
//! C2C, simplified. Usable without the rest of the simulator.
//!
//! In: [`Transfer`]s with the time at which a copy engine submits them. Out: [`Completion`]s with the time at
//! which the last byte has arrived, and [`LinkStats`]. State: what is on the wires and what waits for them.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`config`] | [`LinkConfig`]: generation, width, packet limits, latencies, limits of the root complex |
//! | [`packet`] | packet sizes, and how transfers are cut into packets |
//! | `wire` | one direction: slots, symbol alignment, SKP ordered sets, flits, bursts in closed form |
//! | `tags`, `host`, `transfers`, `overlap` | the transfer-level model: tags, root complex, arbitration, bulk launches |
//! | `link` | [`Link`], the face of it |
//! | [`naive`] | the same model slot by slot, with timing code of its own: the reference |
//! | [`protocol`] | the data-link protocol: sequence numbers, ACK, NAK, replay, credits, bit errors |
//! | [`nvlink`] | NVLink 2 to 4 and C2C as rates with packet overhead |
//! | [`closed_form`] | throughput formulas as exact fractions |
//! | [`check`], [`measured`] | tables of expected and of measured values against all this |
//!
//! Two levels of fidelity. [`Link`] charges data-link packets at an even rate, which keeps the answer of an
//! idle link in closed form; [`protocol::Protocol`] sends each of them. Both are stepped exactly: each has a
//! reference that looks at every slot, and tests compare them.
//!
//! Simplifications: one virtual channel; no link training, power states, peer-to-peer; no bit errors in
//! flit mode; ACKs and credit updates that answer writes take no downstream time in [`Link`].

pub mod check;
pub mod closed_form;
pub mod config;
pub mod flit;
mod host;
mod link;
pub mod measured;
pub mod naive;
pub mod nvlink;
mod overlap;
pub mod packet;
pub mod protocol;
mod ratio;
mod stats;
pub mod switch;
mod tags;
mod transfers;
mod wire;

pub use config::{LinkConfig, LinkConfigError};
pub use link::{Completion, Exactness, Link, Transfer, TransferId};
pub use ratio::Ratio;
pub use stats::{DirectionStats, LinkStats};
