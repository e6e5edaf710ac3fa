//! The program's thread on the host: allocates, launches, copies, waits.
//!
//! Launches are asynchronous: the thread runs ahead of the device by at most
//! [`LAUNCH_QUEUE`] kernels, as the CUDA runtime lets it. Calls of the driver take the thread's time.

use std::collections::BTreeMap;

use sim_core::Time;
use sim_core::pages::ByteRange;
use sim_core::push::Ticket;
use sim_core::tools::Processor;
use sim_host::CpuAccess;
use workloads::HostOp;

/// Kernels that may be queued before a launch waits. Assumed: the runtime's queue of pending
/// launches is commonly reported as 1024 entries.
pub const LAUNCH_QUEUE: u64 = 1024;

/// What the thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nothing: an event is pending for it.
    Running,
    /// All kernels to be finished.
    DeviceIdle,
    /// A push that a fault of the CPU needs.
    Push(Ticket),
    /// Room in the launch queue.
    LaunchQueue,
    /// It has ended.
    Ended,
}

/// State of the program's thread.
#[derive(Debug)]
pub struct ProgramThread {
    /// What it waits for.
    pub wait: Wait,
    /// Kernels launched and not finished.
    pub queued: u64,
    /// Migrations handed to streams and not finished.
    pub migrations: BTreeMap<u64, (ByteRange, Processor)>,
    /// Those under way or waiting.
    pub gates: u64,
    /// An access of the CPU in progress.
    pub access: Option<CpuAccess>,
    /// The operation that it waits to carry out.
    pub postponed: Option<HostOp>,
    /// When it ended.
    pub ended: Option<Time>,
}

impl Default for ProgramThread {
    fn default() -> Self {
        ProgramThread {
            wait: Wait::Running,
            queued: 0,
            migrations: BTreeMap::new(),
            gates: 0,
            access: None,
            postponed: None,
            ended: None,
        }
    }
}
