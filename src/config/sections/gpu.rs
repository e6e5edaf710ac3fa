//! `[gpu]`: the device.

use sim_core::Time;
use sim_core::units::{Bandwidth, Bytes, Hertz};

use crate::config::schema::section;
use crate::config::value::Kind;

const MEMORY: Kind = Kind::Bytes {
    min: 2 << 20,
    max: 1 << 44,
    power_of_two: false,
};

/// No step of the device takes a tenth of a second; more is a mistake of unit.
const LATENCY: Kind = Kind::Time {
    min: Time::ZERO,
    max: Time::from_us(100_000),
};

section! {
    /// The device: `[gpu]`.
    GpuConfig {
        /// Streaming multiprocessors.
        sms ("gpu.sms"): u32 = Kind::Int { min: 1, max: 4096 };
        /// SM clock; turns latencies in cycles into time.
        clock ("gpu.clock"): Hertz = Kind::Frequency;
        /// A load that misses every cache, in cycles of the clock; bounds kernels of few blocks.
        load_latency_cycles ("gpu.load_latency_cycles"): u32 = Kind::Int { min: 1, max: 1_000_000 };
        /// Threads that one SM holds at once.
        max_threads_per_sm ("gpu.max_threads_per_sm"): u32 = Kind::Int { min: 32, max: 65536 };
        /// Thread blocks that one SM holds at once.
        max_blocks_per_sm ("gpu.max_blocks_per_sm"): u32 = Kind::Int { min: 1, max: 1024 };
        /// Peak rate of single-precision arithmetic.
        fp32 ("gpu.fp32"): f64 = Kind::Flops;
        /// Peak rate of products in TF32, without sparsity; GPUs that lack it run at `gpu.fp32`.
        tf32 ("gpu.tf32"): f64 = Kind::Flops;
        /// Peak rate of products of bfloat16 values with single-precision sums, without sparsity.
        bf16 ("gpu.bf16"): f64 = Kind::Flops;
        /// Peak rate of products of half-precision values with single-precision sums, without sparsity.
        fp16 ("gpu.fp16"): f64 = Kind::Flops;
        /// Peak bandwidth of device memory.
        hbm_bandwidth ("gpu.hbm_bandwidth"): Bandwidth = Kind::Bandwidth;
        /// Device memory.
        memory ("gpu.memory"): Bytes = MEMORY;
        /// Share of the peak arithmetic rate that kernels reach.
        efficiency_flops ("gpu.efficiency_flops"): f64 = Kind::SHARE;
        /// Share of the peak memory bandwidth that kernels reach.
        efficiency_bytes ("gpu.efficiency_bytes"): f64 = Kind::SHARE;
        /// Shortest possible duration of a kernel.
        min_kernel_time ("gpu.min_kernel_time"): Time = LATENCY;
        /// From the end of one kernel to the start of the next one of its stream.
        launch_gap ("gpu.launch_gap"): Time = LATENCY;
        /// SMs that share one uTLB: 2 up to Turing, 1 from Ampere on.
        utlb_shared_by_sms ("gpu.utlb_shared_by_sms"): u32 = Kind::Int { min: 1, max: 64 };
        /// Requests that one uTLB can have parked; further misses of it wait for a replay.
        utlb_outstanding_faults ("gpu.utlb_outstanding_faults"): u32 = Kind::Int { min: 1, max: 65536 };
        /// Page walks that can be in flight.
        page_walkers ("gpu.page_walkers"): u32 = Kind::Int { min: 1, max: 65536 };
        /// Look-up in the uTLB.
        utlb_latency ("gpu.utlb_latency"): Time = LATENCY;
        /// Look-up in the L2 TLB after a uTLB miss.
        l2_tlb_latency ("gpu.l2_tlb_latency"): Time = LATENCY;
        /// Walk of the page tables after an L2 TLB miss.
        page_walk_latency ("gpu.page_walk_latency"): Time = LATENCY;
        /// Between two fault entries of one uTLB.
        fault_emission_interval ("gpu.fault_emission_interval"): Time = LATENCY;
        /// Between two fault entries of the whole GPU, however many uTLBs fault.
        fault_write_interval ("gpu.fault_write_interval"): Time = LATENCY;
        /// Entries that one uTLB writes before another one has its turn.
        fault_burst ("gpu.fault_burst"): u32 = Kind::Int { min: 1, max: 65536 };
        /// Who writes first after a replay: uTLBs in an order drawn anew each time, or by number.
        fault_order ("gpu.fault_order"): String = Kind::Choice(&["shuffled", "by-number"]);
        /// Entries of the replayable fault buffer; one stays empty, so that a full buffer differs from an
        /// empty one.
        fault_buffer_entries ("gpu.fault_buffer_entries"): u64 = Kind::Int { min: 2, max: 1 << 24 };
        /// Do accesses that hit proceed in a uTLB that has parked requests?
        hit_under_fault ("gpu.hit_under_fault"): bool = Kind::Bool;
        /// From the replay method to the retry of the parked requests.
        replay_latency ("gpu.replay_latency"): Time = LATENCY;
        /// Fixed cost of one host-to-device copy, beside its time on the link.
        h2d_copy_fixed ("gpu.copy_engine.h2d_fixed"): Time = LATENCY;
        /// Fixed cost of one device-to-host copy, beside its time on the link.
        d2h_copy_fixed ("gpu.copy_engine.d2h_fixed"): Time = LATENCY;
        /// Fetching a push from its channel, and its closing semaphore.
        push_overhead ("gpu.push_overhead"): Time = LATENCY;
        /// Fixed cost of one memset.
        memset_fixed ("gpu.memset_fixed"): Time = LATENCY;
        /// Rate at which a copy engine fills device memory.
        memset_bandwidth ("gpu.memset_bandwidth"): Bandwidth = Kind::Bandwidth;
        /// Writing one page-table entry by a copy engine.
        pte_write ("gpu.pte_write"): Time = LATENCY;
        /// One targeted TLB invalidate.
        tlb_invalidate ("gpu.tlb_invalidate"): Time = LATENCY;
        /// One TLB invalidate of a whole address space.
        tlb_invalidate_all ("gpu.tlb_invalidate_all"): Time = LATENCY;
    }
}

impl GpuConfig {
    /// A load that misses every cache.
    pub fn load_latency(&self) -> Time {
        Time::from_secs_f64(f64::from(self.load_latency_cycles) / self.clock.0 as f64)
    }
}
