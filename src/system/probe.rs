//! What a simulation tells while it runs: records, to a probe that is chosen at the start.
//!
//! With no probe nothing is put together. A probe cannot change a result: it only hears.

use std::sync::Arc;

use sim_core::Time;
use sim_core::tools::ToolsEvent;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// An event of the driver's tools interface.
    Tools(ToolsEvent),
    /// A kernel ran.
    Kernel {
        /// Name of its op.
        name: Arc<str>,
        /// In-order queue.
        stream: u32,
        /// Thread blocks.
        blocks: u64,
        /// The device began with it.
        start: Time,
        /// Its last block had finished.
        end: Time,
        /// The call that launched it.
        correlation: u64,
    },
    /// The program's thread made a call.
    Call {
        /// As the runtime names it.
        name: &'static str,
        /// The thread called, or first waited to.
        start: Time,
        /// It went on.
        end: Time,
        /// Number of the call, from 1.
        correlation: u64,
    },
    /// A managed range was allocated or freed.
    ManagedRange {
        /// Allocated; else freed.
        allocated: bool,
        /// Byte address.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// When the call began.
        time: Time,
        /// The call.
        correlation: u64,
    },
}

/// Hears what happens, in the order in which it is known.
pub trait Probe {
    /// Something has happened.
    fn record(&mut self, record: &Record);
}
