//! The link between host and device.

pub mod check;
pub mod closed_form;
pub mod config;
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
mod tags;
mod transfers;
mod wire;

pub use config::{LinkConfig, LinkConfigError};
pub use link::{Completion, Exactness, Link, Transfer, TransferId};
pub use ratio::Ratio;
pub use stats::{DirectionStats, LinkStats};
