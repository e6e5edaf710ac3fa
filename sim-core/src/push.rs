//! What the driver hands to the GPU: pushes of methods on in-order channels (uvm-driver.md 4.8).

use crate::Time;
use crate::pages::{Page, PageMask, VaBlock};
use crate::tools::MapRemoteCause;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Host memory to device memory: reads made by the device.
    HostToDevice,
    /// Device memory to host memory: posted writes made by the device.
    DeviceToHost,
}

/// Why bytes move: the driver's migration causes (uvm-driver.md 13.2), the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Cause {
    /// An explicit call of the program: copies, `cudaMemPrefetchAsync`.
    User = 1,
    /// Demand: pages that faulted.
    Coherence = 2,
    /// Pages that the driver's prefetcher added.
    Prefetch = 3,
    /// Pages that left because their root chunk was evicted.
    Eviction = 4,
    /// Access-counter migrations.
    AccessCounters = 5,
}

/// The driver's channel types; each is one in-order FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ChannelKind {
    /// Copies from host memory, on copy engine 0.
    HostToDevice = 0,
    /// Copies to host memory, on copy engine 1.
    DeviceToHost = 1,
    /// Memsets and copies inside device memory.
    GpuInternal = 2,
    /// PTE writes, TLB invalidates, replays.
    MemOps = 3,
}

/// Number of [`ChannelKind`]s.
pub const CHANNELS: usize = 4;

/// Names one push; complete once the push's closing semaphore is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// The channel it was pushed to.
    pub channel: ChannelKind,
    /// Its number in that channel, from 1. Channels complete in order.
    pub value: u64,
}

/// How the device reaches pages that it does not own alone (uvm-driver.md 4.2, 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The pages are in host memory, for this reason: every access goes over the link.
    Remote(MapRemoteCause),
    /// The pages are a copy of host memory: reads hit, writes fault.
    ReadOnly,
}

/// One method of a push. Methods of a push run in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// One copy-engine transfer over the link of consecutive pages of one cause.
    Copy {
        /// Which way.
        direction: Direction,
        /// Why.
        cause: Cause,
        /// First page.
        first: Page,
        /// Pages.
        pages: u32,
    },
    /// Fill device memory with zeros.
    Memset {
        /// Bytes to fill.
        bytes: u64,
    },
    /// Write valid PTEs: from its completion on, accesses to `pages` hit.
    MapPtes {
        /// Block of the pages.
        block: VaBlock,
        /// Pages that become mapped.
        pages: PageMask,
        /// Page-table entries written (one for a 2 MiB or 64 KiB page).
        entries: u32,
    },
    /// Write PTEs of pages that the device does not own alone: from its completion on, accesses that
    /// `sharing` allows hit.
    MapShared {
        /// Block of the pages.
        block: VaBlock,
        /// Pages that become mapped.
        pages: PageMask,
        /// Page-table entries written.
        entries: u32,
        /// What the mapping allows.
        sharing: Sharing,
    },
    /// Write invalid PTEs: from its start on, accesses to `pages` fault.
    UnmapPtes {
        /// Block of the pages.
        block: VaBlock,
        /// Pages that become unmapped.
        pages: PageMask,
        /// Page-table entries written.
        entries: u32,
    },
    /// Invalidate TLB entries.
    TlbInvalidate {
        /// `Some(n)`: n targeted invalidates; `None`: the whole address space.
        targeted: Option<u32>,
    },
    /// Retry every parked request of the GPU.
    Replay,
}

/// One push: methods on a channel, after the acquired pushes, closed by a semaphore release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Where it goes.
    pub channel: ChannelKind,
    /// CPU time at which its GPFIFO entry is written; it cannot start earlier.
    pub submit: Time,
    /// Pushes that must have completed before it starts.
    pub acquire: Vec<Ticket>,
    /// What it does.
    pub methods: Vec<Method>,
    /// Tell the host when it has completed.
    pub notify: bool,
}
