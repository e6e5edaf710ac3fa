//! The link on its own: what it carries, by size of the transfer, without the rest of the simulation.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`profile`] | which link: a profile, a file, or an NVLink by name |
//! | [`bandwidth`] | bandwidth against transfer size, each way and both at once |
//! | [`platforms`] | what is known of machines: packet sizes by device and host |
//! | [`measured`] | a row of measurements, and the link that answers it |
//! | [`compare`] | measured copies against the link |

pub mod bandwidth;
pub mod compare;
mod measured;
pub mod platforms;
pub mod profile;
