//! `[driver]`: parameters of the UVM driver under its own names, without the prefix `uvm_perf_`.

use sim_core::Time;

use crate::config::schema::section;
use crate::config::value::Kind;

section! {
    /// The driver's parameters: `[driver]`.
    DriverSection {
        /// Most raw entries of a batch (`uvm_perf_fault_batch_count`).
        fault_batch_count ("driver.fault_batch_count"): u32 = Kind::Int { min: 1, max: 1 << 20 };
        /// When faults are replayed (`uvm_perf_fault_replay_policy`).
        fault_replay_policy ("driver.fault_replay_policy"): String =
            Kind::Choice(&["block", "batch", "batch_flush", "once"]);
        /// Share of duplicates in a batch, in percent, above which a flush reads PUT anew
        /// (`uvm_perf_fault_replay_update_put_ratio`).
        fault_replay_update_put_ratio ("driver.fault_replay_update_put_ratio"): u32 = Kind::Int { min: 0, max: 100 };
        /// Batches that one run of the bottom half services (`uvm_perf_fault_max_batches_per_service`).
        fault_max_batches_per_service ("driver.fault_max_batches_per_service"): u32 = Kind::Int { min: 1, max: 1 << 20 };
        /// Batches with throttled pages that one run of the bottom half services
        /// (`uvm_perf_fault_max_throttle_per_service`).
        fault_max_throttle_per_service ("driver.fault_max_throttle_per_service"): u32 = Kind::Int { min: 1, max: 1 << 20 };
        /// Are pages that bounce between CPU and GPU throttled and pinned (`uvm_perf_thrashing_enable`)?
        thrashing_enable ("driver.thrashing.enable"): bool = Kind::Bool;
        /// Close moves of a page after which it thrashes (`uvm_perf_thrashing_threshold`).
        thrashing_threshold ("driver.thrashing.threshold"): u32 = Kind::Int { min: 1, max: 7 };
        /// Throttlings of a page after which it is pinned (`uvm_perf_thrashing_pin_threshold`).
        thrashing_pin_threshold ("driver.thrashing.pin_threshold"): u32 = Kind::Int { min: 1, max: 255 };
        /// Moves of a page within this time of each other are close (`uvm_perf_thrashing_lapse_usec`).
        thrashing_lapse ("driver.thrashing.lapse"): Time = Kind::Time { min: Time::from_us(1), max: Time::from_us(1_000_000) };
        /// How long a processor is throttled, in lapses (`uvm_perf_thrashing_nap`).
        thrashing_nap ("driver.thrashing.nap"): u32 = Kind::Int { min: 1, max: 100 };
        /// Quiet time after which a block is forgiven, in lapses (`uvm_perf_thrashing_epoch`).
        thrashing_epoch ("driver.thrashing.epoch"): u32 = Kind::Int { min: 1, max: 1_000_000 };
        /// How long a page stays pinned, in lapses; 0: for ever (`uvm_perf_thrashing_pin`).
        thrashing_pin ("driver.thrashing.pin"): u32 = Kind::Int { min: 0, max: 1_000_000 };
        /// How often a block is forgiven (`uvm_perf_thrashing_max_resets`).
        thrashing_max_resets ("driver.thrashing.max_resets"): u32 = Kind::Int { min: 0, max: 1_000_000 };
        /// Votes that change the lapse (`uvm_perf_lapse_vote_threshold`).
        thrashing_lapse_vote_threshold ("driver.thrashing.lapse_vote_threshold"): u32 = Kind::Int { min: 1, max: 1_000_000 };
        /// How the lapse of 500 us adapts: driver, which grows it with every vote of fast ping-pong, as a
        /// comparison goes wrong; intended, which shrinks it then; off. Another lapse never adapts.
        thrashing_adaptive_lapse ("driver.thrashing.adaptive_lapse"): String =
            Kind::Choice(sim_host::thrashing::AdaptiveLapse::NAMES);
        /// Are entries of one page merged while they are fetched (`uvm_perf_fault_coalesce`)?
        fault_coalesce ("driver.fault_coalesce"): bool = Kind::Bool;
        /// Does the driver prefetch (`uvm_perf_prefetch_enable`)?
        prefetch_enable ("driver.prefetch.enable"): bool = Kind::Bool;
        /// Share of a region, in percent, above which all of it is fetched (`uvm_perf_prefetch_threshold`).
        prefetch_threshold ("driver.prefetch.threshold"): u32 = Kind::Int { min: 0, max: 100 };
        /// Faults in a block from which on it prefetches (`uvm_perf_prefetch_min_faults`).
        prefetch_min_faults ("driver.prefetch.min_faults"): u32 = Kind::Int { min: 1, max: 20 };
        /// Which prefetcher: the driver's tree, none, the 64 KiB big pages of the faults, whole blocks, the
        /// next pages, a steady stride, blocks that followed last time (correlation), blocks of the next
        /// kernels (planned), or blocks by next use (oracle). The last two know the program.
        prefetch_policy ("driver.prefetch.policy"): String = Kind::Choice(sim_host::prefetch::NAMES);
        /// Pages that sequential-local and stride fetch for a fault.
        prefetch_degree ("driver.prefetch.degree"): u32 = Kind::Int { min: 1, max: 511 };
        /// Kernels that planned looks ahead; links of the chain that correlation follows.
        prefetch_window ("driver.prefetch.window"): u32 = Kind::Int { min: 1, max: 1024 };
        /// Which root chunk is evicted: as the driver does (by last service), random, fifo, true-lru and lfu
        /// (by all uses so far), reserve-lru, tree-pre-evict and watermark (ahead of need), or belady (used
        /// again last; knows the program).
        eviction_policy ("driver.eviction.policy"): String = Kind::Choice(sim_host::eviction::NAMES);
        /// Share of the chunks, in percent, that reserve-lru spares at the old end.
        eviction_reserve ("driver.eviction.reserve"): u32 = Kind::Int { min: 0, max: 99 };
        /// Share of the memory, in percent, that watermark keeps free.
        eviction_watermark ("driver.eviction.watermark"): u32 = Kind::Int { min: 0, max: 50 };
        /// Do pages that nothing has written leave without a copy, where the host's still holds? The driver
        /// does not track this. Stores are known per VA block and kernel, faults of stores per page.
        dirty_tracking ("driver.dirty_tracking"): bool = Kind::Bool;
        /// Where the time of the driver goes: full, the costs of host.cost; fixed-latency,
        /// driver.fixed_latency for each batch and nothing else, as older simulators have it.
        model ("driver.model"): String = Kind::Choice(&["full", "fixed-latency"]);
        /// Time of a batch in the fixed-latency model: 20 us (ETC, Kim et al.) or 45 us (Ganguly et al., G10).
        fixed_latency ("driver.fixed_latency"): Time = Kind::TIME;
        /// Root chunks asked for in one call of the physical allocator, as a power of two
        /// (`uvm_perf_pma_batch_nonpinned_order`).
        pma_batch_nonpinned_order ("driver.pma_batch_nonpinned_order"): u32 = Kind::Int { min: 0, max: 10 };
        /// How copies of a service are cut: one per run of pages of one cause (host memory of a block is
        /// one 2 MiB chunk), or one per page.
        copy_split ("driver.copy_split"): String = Kind::Choice(&["runs", "pages"]);
    }
}
