//! What a simulation has found out.

use sim_core::Time;

use super::world::TrafficTable;

/// SM time of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StallShare {
    /// What the driver was doing meanwhile.
    pub reason: &'static str,
    /// SM ticks: ticks times SMs.
    pub sm_ticks: u128,
}

/// Result of one simulated program. Every figure is exact and the same on every machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// From the start of the program to its end.
    pub simulated: Time,
    /// When each iteration began.
    pub iteration_starts: Vec<Time>,
    /// Kernels run.
    pub kernels: u64,
    /// Kernels whose class was not known and which stream all their ranges.
    pub unknown_kernels: u64,
    /// What the kernels would take one after another with everything resident.
    pub kernel_time_resident: Time,
    /// SMs of the GPU.
    pub sms: u32,
    /// SM ticks with a block being served.
    pub computing: u128,
    /// SM ticks with blocks that all wait for pages, by what the driver was doing.
    pub stalled: Vec<StallShare>,
    /// SM ticks without a block.
    pub idle: u128,
    /// Time with a migration copy under way.
    pub migrating: Time,
    /// Share of migration time that SMs with work spent computing, 0..=1; absent without migration.
    pub hidden_share: Option<f64>,
    /// Bytes and copies by direction and cause.
    pub traffic: TrafficTable,
    /// Of it, bytes that did not matter: written back by evictions, and fetched by faults. Absent where
    /// the program does not say what matters.
    pub dead_bytes: Option<(u64, u64)>,
    /// Time the link carried something, host to device and device to host.
    pub link_busy: [Time; 2],
    /// Time of a batch, from its fetch to the end of its replay: the median.
    pub batch_time_median: Time,
    /// The same: what 99 % of the batches do not exceed.
    pub batch_time_p99: Time,
    /// What the driver counted.
    pub driver: sim_host::DriverStats,
    /// Time of the driver's thread in each of its states.
    pub driver_time: Vec<(&'static str, Time)>,
    /// Entries that the GPU wrote into the fault buffer.
    pub fault_entries: u64,
    /// Faults that found the buffer full.
    pub fault_entries_dropped: u64,
    /// Warp accesses to pages without PTE, before any retry.
    pub missed_accesses: u64,
    /// Replays carried out.
    pub replays: u64,
    /// Device memory for managed data.
    pub capacity_bytes: u64,
    /// Events of the simulation.
    pub events: u64,
    /// Events that shared their time with the one before.
    pub ties: u64,
}
