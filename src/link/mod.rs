//! The link on its own: what it carries, by size of the transfer, without the rest of the simulation.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`profile`] | which link: a profile, a file, or an NVLink by name |
//! | [`bandwidth`] | bandwidth against transfer size, each way and both at once |
//! | [`packets`] | a transfer by the protocol model: every packet, bit errors |
//! | [`trace`] | every packet with its times, like a protocol analyser |
//! | [`latency`] | latencies of single requests: a histogram |
//! | [`platforms`] | what is known of machines: packet sizes by device and host |
//! | [`measured`] | a row of measurements, and the link that answers it |
//! | [`compare`] | measured copies against the link |

pub mod bandwidth;
pub mod compare;
pub mod latency;
mod measured;
pub mod packets;
pub mod platforms;
pub mod profile;
pub mod trace;
