//! Thrashing: pages that bounce between processors are throttled, then pinned (uvm-driver 6).
//!
//! Events are copies between processors because of faults or prefetching; evictions are none. What has
//! been seen is kept by page, for blocks on which two processors have met within the lapse. A fault on a
//! page that thrashes asks for a hint: leave the page alone for now (throttle), keep it in one memory
//! and map it from the others (pin), or nothing.
//!
//! A GPU alone never meets another processor: nothing is detected, however often pages are evicted and
//! fetched again.

mod hooks;
mod lapse;
mod params;
mod state;

use std::collections::BTreeMap;

use sim_core::Time;
use sim_core::pages::{PageMask, VaBlock};

use lapse::Lapse;
pub use params::{AdaptiveLapse, DEFAULT_LAPSE, ThrashingParams};
use state::BlockState;

/// Counts of thrashing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThrashingStats {
    /// Times that a page was found to thrash.
    pub detections: u64,
    /// Times that the GPU, or the CPU, was made to wait for a page.
    pub throttles_gpu: u64,
    /// See [`ThrashingStats::throttles_gpu`].
    pub throttles_cpu: u64,
    /// Times that a page was pinned to the memory of the GPU, or of the CPU.
    pub pins_gpu: u64,
    /// See [`ThrashingStats::pins_gpu`].
    pub pins_cpu: u64,
    /// Pins that have expired.
    pub unpins: u64,
}

/// What the driver remembers of all blocks.
#[derive(Debug)]
pub(crate) struct Thrashing {
    params: ThrashingParams,
    lapse: Lapse,
    blocks: BTreeMap<VaBlock, BlockState>,
    /// Blocks with pins that expire, by the time of expiry.
    expiries: BTreeMap<Time, Vec<VaBlock>>,
}

impl Thrashing {
    pub fn new(params: &ThrashingParams) -> Thrashing {
        Thrashing {
            params: params.clone(),
            lapse: Lapse::new(params),
            blocks: BTreeMap::new(),
            expiries: BTreeMap::new(),
        }
    }

    /// Pages of a block that thrash.
    pub fn pages(&self, block: VaBlock) -> PageMask {
        self.blocks
            .get(&block)
            .map_or(PageMask::EMPTY, |state| state.thrashing)
    }

    /// Forgets pages: freed, or moved by the program.
    pub fn reset(&mut self, block: VaBlock, pages: &PageMask) {
        if let Some(state) = self.blocks.get_mut(&block) {
            state.reset(pages);
        }
    }

    /// Forgets a block that has no page any more.
    pub fn forget(&mut self, block: VaBlock) {
        self.blocks.remove(&block);
    }

    /// What must always hold; the block where it does not.
    pub fn broken(&self) -> Option<VaBlock> {
        let holds = |state: &BlockState| {
            let seen = state.has_pages() || (state.thrashing | state.pinned).is_empty();
            let pinned = |index| state.page(index).is_some_and(|page| page.pin.is_some());
            seen && state.pinned.is_subset_of(&state.thrashing) && state.pinned.iter().all(pinned)
        };
        self.blocks
            .iter()
            .find(|(_, state)| !holds(state))
            .map(|(block, _)| *block)
    }
}
