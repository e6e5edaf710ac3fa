//! Hardware parameters of the device. Values and their sources are in the hardware profiles.

use sim_core::Time;

/// How the device model advances; both give the same result, bit for bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Exactness {
    /// Runs of resident accesses are jumped over.
    #[default]
    Fast,
    /// Every service of every block is an event of its own: the reference.
    Stepped,
}

/// Parameters of one GPU.
#[derive(Clone, Debug)]
pub struct GpuParams {
    /// Streaming multiprocessors.
    pub sms: u32,
    /// SMs that share one uTLB: 2 up to Turing, 1 from Ampere on.
    pub sms_per_utlb: u32,
    /// Requests that one uTLB can have parked; further misses wait.
    pub utlb_outstanding_faults: u32,
    /// Do accesses that hit proceed in a uTLB that has parked requests?
    pub hit_under_fault: bool,
    /// Looking a page up in the uTLB.
    pub utlb_latency: Time,
    /// Looking a page up in the L2 TLB.
    pub l2_tlb_latency: Time,
    /// Walks that the GMMU does at the same time.
    pub page_walkers: u32,
    /// One page walk.
    pub page_walk_latency: Time,
    /// Between two fault entries of one uTLB.
    pub fault_emission_interval: Time,
    /// Between two fault entries of the whole GPU, however many uTLBs fault.
    pub fault_write_interval: Time,
    /// Entries that one uTLB writes before the next one has its turn.
    pub fault_burst: u32,
    /// uTLBs take their turns in an order drawn from this seed for each replay; `None`: by number.
    pub fault_order_seed: Option<u64>,
    /// Entries of the replayable fault buffer.
    pub fault_buffer_entries: u64,
    /// From the replay method to the retry of the parked requests.
    pub replay_latency: Time,
    /// From the end of one kernel to the start of the next one of its stream.
    pub launch_gap: Time,
    /// Fixed cost of one host-to-device copy, beside its time on the link.
    pub h2d_copy_fixed: Time,
    /// Fixed cost of one device-to-host copy.
    pub d2h_copy_fixed: Time,
    /// Fetching a push from its channel, and its closing semaphore.
    pub push_overhead: Time,
    /// Fixed cost of one memset.
    pub memset_fixed: Time,
    /// Memset bandwidth, bytes per second.
    pub memset_bytes_per_s: u64,
    /// Writing one PTE by a copy engine.
    pub pte_write: Time,
    /// One targeted TLB invalidate.
    pub tlb_invalidate: Time,
    /// One invalidate of a whole address space.
    pub tlb_invalidate_all: Time,
    /// How to advance.
    pub exactness: Exactness,
}

impl GpuParams {
    /// From a miss in the uTLB to the end of an unhindered page walk.
    pub fn miss_latency(&self) -> Time {
        self.utlb_latency + self.l2_tlb_latency + self.page_walk_latency
    }

    /// Number of uTLBs that serve SMs.
    pub fn utlbs(&self) -> usize {
        self.sms.div_ceil(self.sms_per_utlb) as usize
    }
}
