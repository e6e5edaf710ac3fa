//! `[host.cost]`: what each step costs the host's CPU.

use sim_core::Time;
use sim_core::units::Bytes;

use crate::config::schema::section;
use crate::config::value::Kind;

/// No step of the driver takes a tenth of a second.
const COST: Kind = Kind::Time {
    min: Time::ZERO,
    max: Time::from_us(100_000),
};

section! {
    /// Costs of the host: `[host.cost]`. The fields are those of [`sim_host::HostCost`], and the cost
    /// of a launch.
    HostCostSection {
        /// Top half of the interrupt.
        interrupt ("host.cost.interrupt"): Time = COST;
        /// From the top half to the bottom half's first instruction.
        bottom_half_wakeup ("host.cost.bottom_half_wakeup"): Time = COST;
        /// MMIO read of PUT.
        put_read ("host.cost.put_read"): Time = COST;
        /// Fetching and parsing one raw entry.
        fetch_per_entry ("host.cost.fetch_per_entry"): Time = COST;
        /// Sorting and translating one coalesced entry.
        sort_per_entry ("host.cost.sort_per_entry"): Time = COST;
        /// Per batch, whatever is in it.
        batch_fixed ("host.cost.batch_fixed"): Time = COST;
        /// Per VA block and service.
        block_fixed ("host.cost.block_fixed"): Time = COST;
        /// First service of a block by the GPU: block state, DMA mappings.
        block_first_touch ("host.cost.block_first_touch"): Time = COST;
        /// Per faulted page of a service.
        fault_page ("host.cost.fault_page"): Time = COST;
        /// Per page that the service migrates or populates.
        migrate_page ("host.cost.migrate_page"): Time = COST;
        /// One `unmap_mapping_range` call (a run of CPU-mapped pages).
        cpu_unmap_call ("host.cost.cpu_unmap_call"): Time = COST;
        /// Per page of it.
        cpu_unmap_page ("host.cost.cpu_unmap_page"): Time = COST;
        /// Taking a chunk from the free list.
        chunk_alloc ("host.cost.chunk_alloc"): Time = COST;
        /// One call of RM's page allocator.
        pma_call ("host.cost.pma_call"): Time = COST;
        /// Beginning and ending one push.
        push ("host.cost.push"): Time = COST;
        /// Encoding one copy into a push.
        copy_method ("host.cost.copy_method"): Time = COST;
        /// Encoding one page-table entry run into a push.
        pte_method ("host.cost.pte_method"): Time = COST;
        /// Picking a victim, its lock, the retry of the service.
        eviction ("host.cost.eviction"): Time = COST;
        /// CPU memory for a block that is evicted the first time.
        page_population ("host.cost.page_population"): Time = COST;
        /// Discarding one entry in a flush.
        flush_per_entry ("host.cost.flush_per_entry"): Time = COST;
        /// Pushing a replay.
        replay_push ("host.cost.replay_push"): Time = COST;
        /// Noticing that the replay push has completed.
        completion_poll ("host.cost.completion_poll"): Time = COST;
        /// One `cudaMallocManaged`.
        managed_alloc_call ("host.cost.managed_alloc_call"): Time = COST;
        /// One `cudaFree` of managed memory, after the device is idle.
        managed_free_call ("host.cost.managed_free_call"): Time = COST;
        /// Per VA block of it.
        managed_free_block ("host.cost.managed_free_block"): Time = COST;
        /// CPU first touch of one page.
        cpu_touch_page ("host.cost.cpu_touch_page"): Time = COST;
        /// One fault of the CPU on a page that is elsewhere or not mapped.
        cpu_fault ("host.cost.cpu_fault"): Time = COST;
        /// Mapping one page on the CPU in such a fault.
        cpu_map_page ("host.cost.cpu_map_page"): Time = COST;
        /// Each further thread of the process, for one unmapping call: its core is interrupted.
        cpu_unmap_thread ("host.cost.cpu_unmap_thread"): Time = COST;
        /// CPU time of one kernel launch.
        launch_call ("host.cost.launch_call"): Time = COST;
    }
}

section! {
    /// The host: `[host]`.
    HostSection {
        /// Threads of the process; pages unmapped on the CPU cost more with many.
        threads ("host.threads"): u32 = Kind::Int { min: 1, max: 4096 };
        /// Host memory for managed data; a run that needs more fails.
        memory ("host.memory", "none"): Option<Bytes> = Kind::Bytes { min: 2 << 20, max: 1 << 46, power_of_two: false };
    }
}
