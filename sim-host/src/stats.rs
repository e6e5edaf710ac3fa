//! What the driver counts, and where its thread's time goes.

use sim_core::Time;

use crate::thrashing::ThrashingStats;

/// What the bottom half is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum ThreadState {
    /// No bottom half is queued.
    #[default]
    Idle = 0,
    /// Top half, and waking the thread up.
    WakeUp = 1,
    /// Reading PUT, fetching and sorting a batch.
    Fetch = 2,
    /// Servicing VA blocks.
    Service = 3,
    /// Servicing VA blocks with an eviction.
    Evict = 4,
    /// Discarding entries and pushing the replay.
    Flush = 5,
    /// Waiting for the batch's work on the GPU, and its replay.
    WaitForReplay = 6,
}

/// Number of [`ThreadState`]s.
pub const THREAD_STATES: usize = 7;

impl ThreadState {
    /// All states.
    pub const ALL: [ThreadState; THREAD_STATES] = [
        ThreadState::Idle,
        ThreadState::WakeUp,
        ThreadState::Fetch,
        ThreadState::Service,
        ThreadState::Evict,
        ThreadState::Flush,
        ThreadState::WaitForReplay,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            ThreadState::Idle => "idle",
            ThreadState::WakeUp => "interrupt and wake-up",
            ThreadState::Fetch => "fetch and sort",
            ThreadState::Service => "service blocks",
            ThreadState::Evict => "service with eviction",
            ThreadState::Flush => "flush and replay push",
            ThreadState::WaitForReplay => "wait for copies, maps and replay",
        }
    }
}

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverStats {
    /// Bottom halves run.
    pub bottom_halves: u64,
    /// Batches fetched and serviced.
    pub batches: u64,
    /// Entries fetched.
    pub raw_faults: u64,
    /// Entries after merging.
    pub coalesced_faults: u64,
    /// Instances merged away or met again after sorting.
    pub duplicate_faults: u64,
    /// Faults whose page was mapped already when they were serviced.
    pub already_mapped_faults: u64,
    /// Read faults and write faults (coalesced) that were serviced.
    pub serviced_reads: u64,
    /// See [`DriverStats::serviced_reads`].
    pub serviced_writes: u64,
    /// Chunks evicted ahead of need, also counted as evictions.
    pub pre_evictions: u64,
    /// Blocks fetched ahead of any fault.
    pub ahead_blocks: u64,
    /// Time of the thread that works ahead of need.
    pub ahead_time: Time,
    /// Answers of policies that the driver could not use.
    pub policy_refusals: u64,
    /// Pages that left without a copy, as the host's still held (dirty tracking).
    pub clean_pages_dropped: u64,
    /// Block services that made at least one page resident: fault groups.
    pub block_services: u64,
    /// Pages made resident because they faulted.
    pub demand_pages: u64,
    /// Pages made resident because the prefetcher named them.
    pub prefetched_pages: u64,
    /// Pages populated with zeros, no copy.
    pub populated_pages: u64,
    /// Root chunks evicted.
    pub evictions: u64,
    /// Pages that evictions copied to the host.
    pub evicted_pages: u64,
    /// Entries discarded by flushes.
    pub discarded_entries: u64,
    /// Replays pushed.
    pub replays: u64,
    /// Flushes that read PUT anew because of duplicates.
    pub put_updates: u64,
    /// Managed ranges allocated.
    pub managed_allocs: u64,
    /// Managed ranges freed.
    pub managed_frees: u64,
    /// CPU time of the program's thread in these calls.
    pub call_time: Time,
    /// Faults of the CPU on managed pages that it had not mapped (first touches excluded).
    pub cpu_faults: u64,
    /// Pages copied to the host for the CPU: faults and explicit migrations.
    pub cpu_migrated_pages: u64,
    /// Pages that the GPU was given mappings to in host memory.
    pub remote_pages: u64,
    /// Pages that bounce between processors.
    pub thrashing: ThrashingStats,
    /// Pages discarded.
    pub discarded_pages: u64,
    /// Faults on pages whose range has been freed since they were raised: entries that outlived the
    /// flush. They are ignored.
    pub stale_faults: u64,
}

/// One batch, for histograms and comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchRecord {
    /// When its fetch began.
    pub start: Time,
    /// When its replay was seen to be complete.
    pub end: Time,
    /// Entries fetched.
    pub raw: u32,
    /// Distinct pages that faulted.
    pub unique_pages: u32,
    /// VA blocks serviced.
    pub blocks: u32,
    /// Pages made resident.
    pub pages: u32,
    /// Of these, pages that had to be copied.
    pub copied_pages: u32,
    /// Root chunks evicted.
    pub evictions: u32,
    /// CPU pages unmapped.
    pub cpu_unmapped_pages: u32,
    /// Some page was left alone because it thrashes.
    pub throttled: bool,
}
