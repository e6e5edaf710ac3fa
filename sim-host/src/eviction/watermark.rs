//! Watermark pre-eviction: at the end of a batch, chunks go in the driver's order until a share of the
//! memory is free, so that the next services need not wait for a copy out.

use super::EvictionPolicy;
use crate::pmm::ChunkId;
use crate::policy::View;

/// The driver's victim, ahead of need.
#[derive(Clone, Copy, Debug)]
pub struct Watermark {
    /// Share of the memory to keep free, percent.
    pub percent: u32,
}

impl EvictionPolicy for Watermark {
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId> {
        view.driver_order().next()
    }

    fn pre_evict(&mut self, view: &View<'_>) -> Option<ChunkId> {
        let wanted = (view.capacity() * u64::from(self.percent)).div_ceil(100);
        (view.free_chunks() < wanted)
            .then(|| view.driver_order().next())
            .flatten()
    }
}
