//! Tree-based pre-eviction (Ganguly et al., ISCA'19): the prefetcher's tree upside down. When evictions
//! leave less than half of a subtree, the rest of it goes too, and that counts for the subtree above.
//!
//! There the leaves are 64 KiB and the root 2 MiB. The driver's unit of eviction is the 2 MiB root
//! chunk, so the tree stands one storey higher here: leaves of 2 MiB, 32 of them under a root of
//! 64 MiB. Leaves that are not managed do not count.

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
    evicted: VecDeque<VaBlock>,
    neighbours: VecDeque<VaBlock>,
}

/// Blocks with a chunk in the largest subtree around `block` that is less than half full.
fn remnants(block: VaBlock, view: &View<'_>) -> VecDeque<VaBlock> {
    let mut best = VecDeque::new();
    let mut size = 2;
    while size <= LEAVES {
        let first = block.0 / size * size;
        let leaves = (first..first + size).map(VaBlock);
        let managed = leaves.clone().filter(|b| !view.valid(*b).is_empty()).count();
        let held: VecDeque<VaBlock> = leaves.filter(|b| view.chunk(*b).is_some()).collect();
        if 2 * held.len() < managed {
            best = held;
        }
        size *= 2;
    }
    best
}

impl EvictionPolicy for Tree {
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId> {
        view.driver_order().next()
    }

    fn evicted(&mut self, block: VaBlock, _view: &View<'_>) {
        self.evicted.push_back(block);
    }

    fn pre_evict(&mut self, view: &View<'_>) -> Option<ChunkId> {
        loop {
            while let Some(block) = self.neighbours.pop_front() {
                if let Some(chunk) = view.chunk(block).filter(|chunk| view.is_evictable(*chunk)) {
                    return Some(chunk);
                }
            }
            let block = self.evicted.pop_front()?;
            self.neighbours = remnants(block, view);
        }
    }
}
