//! True LRU: the block used longest ago, hits included, as no real driver can know it. "Used" is to
//! the resolution of the plan: a step of a wave of thread blocks.

use super::EvictionPolicy;
use crate::pmm::ChunkId;
use crate::policy::View;

/// By last use; among equals, the driver's order.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrueLru;

impl EvictionPolicy for TrueLru {
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId> {
        view.driver_order()
            .min_by_key(|chunk| view.owner(*chunk).and_then(|block| view.last_use(block)))
    }

    fn needs_plan(&self) -> bool {
        true
    }
}
