//! Tree-based pre-eviction (Ganguly et al., ISCA'19): the prefetcher's tree upside down. When evictions
//! leave half of a subtree or less, the rest of it goes too.
//!
//! There the leaves are 64 KiB and the root 2 MiB. The driver's unit of eviction is the 2 MiB root
//! chunk, so the tree stands one storey higher here: leaves of 2 MiB, 32 of them under a root of
//! 64 MiB, the same 32 leaves.

use std::collections::VecDeque;

use sim_core::pages::VaBlock;

use super::EvictionPolicy;
use crate::pmm::ChunkId;
use crate::policy::View;

/// Leaves of one tree.
const LEAVES: u64 = 32;

/// The driver's victim, then its neighbours.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    neighbours: VecDeque<VaBlock>,
}

impl EvictionPolicy for Tree {
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId> {
        view.driver_order().next()
    }

    fn evicted(&mut self, block: VaBlock, view: &View<'_>) {
        let held = |first: u64, end: u64| {
            (first..end)
                .map(VaBlock)
                .filter(|b| view.chunk(*b).is_some_and(|chunk| view.is_evictable(chunk)))
        };
        let mut best = 0..0;
        let mut size = 2;
        while size <= LEAVES {
            let first = block.0 / size * size;
            if 2 * (held(first, first + size).count() as u64) < size {
                best = first..first + size;
            }
            size *= 2;
        }
        self.neighbours = held(best.start, best.end).collect();
    }

    fn pre_evict(&mut self, view: &View<'_>) -> Option<ChunkId> {
        loop {
            let block = self.neighbours.pop_front()?;
            if let Some(chunk) = view.chunk(block).filter(|chunk| view.is_evictable(*chunk)) {
                return Some(chunk);
            }
        }
    }
}
