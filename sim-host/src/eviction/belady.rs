//! Belady: the block whose next use is furthest away, from the plan of the program. The bound for
//! misses of whole blocks, to the resolution of the plan; not for bytes, as blocks are not equally full.

use std::cmp::Reverse;

use super::EvictionPolicy;
use crate::pmm::ChunkId;
use crate::policy::{Moment, View};

/// A block never used again goes first; among equals, the one with the highest address, as sweeps
/// ascend and come to it last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Belady;

impl EvictionPolicy for Belady {
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId> {
        let never = Moment {
            kernel: u32::MAX,
            step: u32::MAX,
        };
        view.evictable()
            .min_by_key(|(_, block)| Reverse((view.next_use(*block).unwrap_or(never), *block)))
            .map(|(chunk, _)| chunk)
    }

    fn needs_plan(&self) -> bool {
        true
    }
}
