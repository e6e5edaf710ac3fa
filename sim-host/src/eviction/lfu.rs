//! LFU: the block that the fewest kernels have used so far (a kernel counts once), hits included.

use super::EvictionPolicy;
use crate::pmm::ChunkId;
use crate::policy::View;

/// By number of uses; among equals, the driver's order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lfu;

impl EvictionPolicy for Lfu {
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId> {
        view.driver_order().min_by_key(|chunk| {
            view.owner(*chunk)
                .map_or(0, |block| view.plan().uses_so_far(block, view.now()))
        })
    }

    fn needs_plan(&self) -> bool {
        true
    }
}
