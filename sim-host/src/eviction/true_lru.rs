//! True LRU: the block used longest ago, hits included, as no real driver can know it. "Used" is to
//! the resolution of the plan: a step of a wave of thread blocks. To be fetched counts as a use, so
//! that what a prefetcher has just brought does not go first.

use std::collections::BTreeMap;

use sim_core::pages::VaBlock;

use super::EvictionPolicy;
use crate::pmm::ChunkId;
use crate::policy::{Moment, View};

/// By last use; among equals, the driver's order.
#[derive(Clone, Debug, Default)]
pub struct TrueLru {
    fetched: BTreeMap<VaBlock, Moment>,
}

impl EvictionPolicy for TrueLru {
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId> {
        view.driver_order().min_by_key(|chunk| {
            let block = view.owner(*chunk)?;
            view.last_use(block).max(self.fetched.get(&block).copied())
        })
    }

    fn served(&mut self, block: VaBlock, view: &View<'_>) {
        self.fetched.insert(block, view.now());
    }

    fn evicted(&mut self, block: VaBlock, _view: &View<'_>) {
        self.fetched.remove(&block);
    }

    fn needs_plan(&self) -> bool {
        true
    }
}
