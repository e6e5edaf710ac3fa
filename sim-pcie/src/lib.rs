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
//! | [`protocol`] | the data-link protocol: sequence numbers, ACK, NAK, replay, credits, bit errors; requesters (copy engines, SMs, host), root complex with IOTLB; periodic jump; trace sinks |
//! | [`flit`] | flits of generation 6 with their retry |
//! | [`switch`] | several devices below a switch |
//! | [`nvlink`] | NVLink 2 to 4 and C2C as rates with packet overhead |
//! | [`closed_form`] | throughput formulas as exact fractions |
//! | [`check`] | tables of expected values against all this |
//!
//! Two levels of fidelity. [`Link`] charges data-link packets at an even rate, which keeps the answer of an
//! idle link in closed form; [`protocol::Protocol`] sends each of them. Both are stepped exactly: each has a
//! reference that looks at every slot, and tests compare them.
//!
//! Both directions at once, with a root port whose writes drain at 24.5 GB/s, so that reads wait behind them:
//!
//! ```
//! use sim_core::Time;
//! use sim_pcie::LinkConfig;
//! use sim_pcie::protocol::{Credit, Errors, HostOptions, NoRecord, PortOptions, Protocol, Side, Stepping};
//!
//! let config = LinkConfig { rc_write: Some(24_500_000_000), ..LinkConfig::default() };
//! let mut ports = [PortOptions::new(&config, true), PortOptions::new(&config, false)];
//! ports[0].credits[0] = Credit { headers: Some(64), data: Some(1024) };
//! let mut link = Protocol::with_sink(&config, ports, HostOptions::default(), Errors::default(), NoRecord)?;
//! link.write(Time::ZERO, 0, 1 << 20);
//! link.read(Time::ZERO, 0, 1 << 20);
//! link.run(Stepping::Periods)?;
//! assert_eq!(link.counters(Side::Up).payload, 1 << 20);
//! assert_eq!(link.counters(Side::Down).payload, 1 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Simplifications: one virtual channel; no link training, power states, peer-to-peer; [`flit`] carries one
//! direction, without credits, [`protocol`] flits without errors; relaxed ordering is a choice of a port, not of a transfer; the root complex of [`Link`] does not
//! make reads wait behind writes, that of [`protocol`] does; ACKs and credit updates that answer writes take no
//! downstream time in [`Link`].

pub mod check;
pub mod closed_form;
pub mod config;
pub mod flit;
mod host;
mod link;
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
