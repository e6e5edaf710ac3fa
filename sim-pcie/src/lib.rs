//! The link between host and device.

pub mod config;
mod host;
mod link;
pub mod packet;
mod stats;
mod tags;
mod transfers;
mod wire;

pub use config::{LinkConfig, LinkConfigError};
pub use link::{Completion, Exactness, Link, Transfer, TransferId};
pub use stats::{DirectionStats, LinkStats};
