//! What the allocator counts, under PyTorch's names.

/// One statistic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: u64,
    /// The most ever.
    pub peak: u64,
    /// All that was ever added.
    pub allocated: u64,
    /// All that was ever taken away.
    pub freed: u64,
}

impl Stat {
    pub(super) fn add(&mut self, amount: u64) {
        self.current += amount;
        self.allocated += amount;
        self.peak = self.peak.max(self.current);
    }

    pub(super) fn sub(&mut self, amount: u64) {
        self.current = self.current.saturating_sub(amount);
        self.freed += amount;
    }
}

/// A statistic for all pools, the small and the large one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerPool {
    /// Both pools.
    pub all: Stat,
    /// Sizes up to 1 MiB.
    pub small_pool: Stat,
    /// The others.
    pub large_pool: Stat,
}

impl PerPool {
    pub(super) fn add(&mut self, large: bool, amount: u64) {
        self.all.add(amount);
        self.of(large).add(amount);
    }

    pub(super) fn sub(&mut self, large: bool, amount: u64) {
        self.all.sub(amount);
        self.of(large).sub(amount);
    }

    fn of(&mut self, large: bool) -> &mut Stat {
        if large {
            &mut self.large_pool
        } else {
            &mut self.small_pool
        }
    }
}

/// All statistics (`torch.cuda.memory_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Live blocks.
    pub allocation: PerPool,
    /// Bytes of live blocks, as large as the blocks are.
    pub allocated_bytes: PerPool,
    /// Bytes that were asked for; leaves when a free is complete.
    pub requested_bytes: PerPool,
    /// Blocks that are live or wait for events.
    pub active: PerPool,
    /// Their bytes.
    pub active_bytes: PerPool,
    /// Device allocations.
    pub segment: PerPool,
    /// Their bytes.
    pub reserved_bytes: PerPool,
    /// Free blocks that are split.
    pub inactive_split: PerPool,
    /// Their bytes.
    pub inactive_split_bytes: PerPool,
    /// Live blocks of at least `max_split_size`.
    pub oversize_allocations: Stat,
    /// Segments of at least `max_split_size`.
    pub oversize_segments: Stat,
    /// Device allocations tried after everything cached had been given back.
    pub num_alloc_retries: u64,
    /// Errors raised.
    pub num_ooms: u64,
    /// Waits for all events.
    pub num_sync_all_streams: u64,
    /// Device allocations made, or ranges mapped.
    pub num_device_alloc: u64,
    /// Device allocations given back, or ranges unmapped.
    pub num_device_free: u64,
}
