//! The program's thread on the host: allocates, launches, copies, waits.
//!
//! Launches are asynchronous: the thread runs ahead of the device by at most
//! [`LAUNCH_QUEUE`] kernels, as the CUDA runtime lets it. Calls of the driver take the thread's time.

use sim_core::Time;
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
            postponed: None,
            ended: None,
        }
    }
}
