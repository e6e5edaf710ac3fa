//! What each step of the driver costs in CPU time. Values and their sources are in the host profiles.

use sim_core::Time;

/// CPU time of the driver's steps (`[host.cost]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCost {
    /// Top half of the interrupt.
    pub interrupt: Time,
    /// From the top half to the bottom half's first instruction.
    pub bottom_half_wakeup: Time,
    /// MMIO read of PUT.
    pub put_read: Time,
    /// Fetching and parsing one raw entry.
    pub fetch_per_entry: Time,
    /// Sorting and translating one coalesced entry.
    pub sort_per_entry: Time,
    /// Per batch, whatever is in it.
    pub batch_fixed: Time,
    /// Per VA block and service.
    pub block_fixed: Time,
    /// First service of a block by the GPU: block state, DMA mappings.
    pub block_first_touch: Time,
    /// Per faulted page of a service.
    pub fault_page: Time,
    /// Per page that the service migrates or populates.
    pub migrate_page: Time,
    /// One `unmap_mapping_range` call (a run of CPU-mapped pages).
    pub cpu_unmap_call: Time,
    /// Per page of it.
    pub cpu_unmap_page: Time,
    /// Taking a chunk from the free list.
    pub chunk_alloc: Time,
    /// One call of RM's page allocator.
    pub pma_call: Time,
    /// Beginning and ending one push.
    pub push: Time,
    /// Encoding one copy into a push.
    pub copy_method: Time,
    /// Encoding one page-table entry run into a push.
    pub pte_method: Time,
    /// Picking a victim, its lock, the retry of the service.
    pub eviction: Time,
    /// CPU memory for a block that is evicted the first time.
    pub page_population: Time,
    /// Discarding one entry in a flush.
    pub flush_per_entry: Time,
    /// Pushing a replay.
    pub replay_push: Time,
    /// Noticing that the replay push has completed.
    pub completion_poll: Time,
    /// One `cudaMallocManaged`.
    pub managed_alloc_call: Time,
    /// One `cudaFree` of managed memory, after the device is idle.
    pub managed_free_call: Time,
    /// Per VA block of it.
    pub managed_free_block: Time,
    /// CPU first touch of one page.
    pub cpu_touch_page: Time,
    /// One fault of the CPU on a page that is elsewhere or not mapped: trap, locks, residency.
    pub cpu_fault: Time,
    /// Mapping one page on the CPU in such a fault.
    pub cpu_map_page: Time,
    /// Each further thread of the process, for one `unmap_mapping_range` call: its core is interrupted.
    pub cpu_unmap_thread: Time,
}

impl HostCost {
    /// Every step is free: for tests of behaviour, not of time.
    pub fn zero() -> HostCost {
        HostCost {
            interrupt: Time::ZERO,
            bottom_half_wakeup: Time::ZERO,
            put_read: Time::ZERO,
            fetch_per_entry: Time::ZERO,
            sort_per_entry: Time::ZERO,
            batch_fixed: Time::ZERO,
            block_fixed: Time::ZERO,
            block_first_touch: Time::ZERO,
            fault_page: Time::ZERO,
            migrate_page: Time::ZERO,
            cpu_unmap_call: Time::ZERO,
            cpu_unmap_page: Time::ZERO,
            chunk_alloc: Time::ZERO,
            pma_call: Time::ZERO,
            push: Time::ZERO,
            copy_method: Time::ZERO,
            pte_method: Time::ZERO,
            eviction: Time::ZERO,
            page_population: Time::ZERO,
            flush_per_entry: Time::ZERO,
            replay_push: Time::ZERO,
            completion_poll: Time::ZERO,
            managed_alloc_call: Time::ZERO,
            managed_free_call: Time::ZERO,
            managed_free_block: Time::ZERO,
            cpu_touch_page: Time::ZERO,
            cpu_fault: Time::ZERO,
            cpu_map_page: Time::ZERO,
            cpu_unmap_thread: Time::ZERO,
        }
    }
}
