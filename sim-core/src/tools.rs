//! The tools events of the UVM driver: what profilers see (uvm-driver.md 13), with the driver's names,
//! fields and numbers.
//!
//! Components report them to a sink that is chosen when a simulation starts; with none, nothing is
//! built. Two kinds are the simulator's own and are marked so: the driver declares them but never
//! emits them.

use crate::Time;
use crate::access::AccessKind;
use crate::push::Cause;

/// A processor, by the index that the driver gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Processor {
    /// The host.
    Cpu = 0,
    /// The GPU.
    Gpu = 1,
}

/// Why a GPU access faulted (`UvmFaultType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FaultType {
    /// No page directory entry.
    InvalidPde = 1,
    /// No page table entry.
    InvalidPte = 2,
    /// A write without permission.
    Write = 3,
    /// An atomic without permission.
    Atomic = 4,
    /// An address that no range covers: fatal.
    Limit = 6,
}

/// Why a fault is fatal (`UvmEventFatalReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FatalReason {
    /// No managed range covers the address.
    InvalidAddress = 1,
    /// The permissions of the range do not allow the access.
    InvalidPermissions = 2,
    /// A fault that cannot be serviced.
    InvalidFaultType = 3,
    /// Neither device nor host memory is left.
    OutOfMemory = 4,
}

/// Why a page was mapped without being moved (`UvmEventMapRemoteCause`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MapRemoteCause {
    /// Native atomics.
    Coherence = 1,
    /// Pinned because it thrashed.
    Thrashing = 2,
    /// Advice of the program.
    Policy = 3,
    /// No device memory.
    OutOfMemory = 4,
    /// Evicted while the GPU is to keep access.
    Eviction = 5,
}

/// `UvmEventFaultClientType` of SMs.
pub const CLIENT_GPC: u8 = 1;

/// The access type that profilers see (`UvmEventMemoryAccessType`).
pub fn access_type(kind: AccessKind) -> u8 {
    match kind {
        AccessKind::Read => 1,
        AccessKind::Write => 2,
        AccessKind::AtomicWeak | AccessKind::AtomicStrong => 3,
        AccessKind::Prefetch => 4,
    }
}

/// One event. Times are simulated; a field named `*_gpu` is stamped by the device, the others by the
/// host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ToolsEvent {
    /// The CPU touched a page that it had not mapped.
    CpuFault {
        /// Strength.
        access: AccessKind,
        /// Byte address of the page.
        address: u64,
        /// When.
        time: Time,
    },
    /// Consecutive pages of one cause have moved.
    Migration {
        /// Why.
        cause: Cause,
        /// From.
        src: Processor,
        /// To.
        dst: Processor,
        /// Byte address of the first page.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// The host pushed the copy.
        begin: Time,
        /// The host could know that it was done.
        end: Time,
        /// The copy engine began.
        begin_gpu: Time,
        /// The last byte had arrived.
        end_gpu: Time,
    },
    /// An entry of the fault buffer was fetched; merged ones are reported too.
    GpuFault {
        /// Why it faulted.
        fault: FaultType,
        /// Strength.
        access: AccessKind,
        /// The uTLB, as client id.
        client: u16,
        /// Address space.
        instance: u32,
        /// Byte address of the page.
        address: u64,
        /// The host began with its batch.
        time: Time,
        /// The GPU wrote the entry.
        time_gpu: Time,
        /// Its batch, from 1.
        batch: u64,
    },
    /// Parked requests were replayed.
    GpuFaultReplay {
        /// After this batch.
        batch: u64,
        /// The host pushed the replay.
        time: Time,
        /// The replays were in flight.
        time_gpu: Time,
    },
    /// An access that cannot be serviced.
    FatalFault {
        /// Whose access.
        processor: Processor,
        /// Why it faulted.
        fault: FaultType,
        /// Strength.
        access: AccessKind,
        /// Why it is fatal.
        reason: FatalReason,
        /// Byte address of the page.
        address: u64,
        /// When.
        time: Time,
    },
    /// Pages exist on both processors.
    ReadDuplicate {
        /// Byte address of the first page.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// When.
        time: Time,
    },
    /// Of duplicated pages one copy is left.
    ReadDuplicateInvalidate {
        /// Where it is.
        resident: Processor,
        /// Byte address of the first page.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// When.
        time: Time,
    },
    /// Pages bounce between processors.
    ThrashingDetected {
        /// Byte address of the first page.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// When.
        time: Time,
    },
    /// A processor is made to wait for a page.
    ThrottlingStart {
        /// Which.
        processor: Processor,
        /// Byte address of the page.
        address: u64,
        /// When.
        time: Time,
    },
    /// It need not wait any longer.
    ThrottlingEnd {
        /// Which.
        processor: Processor,
        /// Byte address of the page.
        address: u64,
        /// When.
        time: Time,
    },
    /// Pages were mapped where they are, for a processor elsewhere.
    MapRemote {
        /// Why.
        cause: MapRemoteCause,
        /// Whose mapping.
        src: Processor,
        /// Where the pages are.
        dst: Processor,
        /// Byte address of the first page.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// When, on the host.
        time: Time,
        /// When, on the device.
        time_gpu: Time,
    },
    /// The simulator's own: faults found the buffer full during a batch.
    FaultBufferOverflow {
        /// Faults dropped.
        dropped: u64,
        /// At the end of the batch.
        time: Time,
    },
    /// The simulator's own: a root chunk changed hands.
    Eviction {
        /// Byte address of the block that lost it.
        address_out: u64,
        /// Byte address of the block that got it.
        address_in: u64,
        /// Bytes that were resident.
        bytes: u64,
        /// When.
        time: Time,
    },
}
