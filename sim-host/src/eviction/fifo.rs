//! First in, first out: the chunk whose owner got it first, however often it was served since.

use super::EvictionPolicy;
use crate::pmm::ChunkId;
use crate::policy::View;

/// By the time of allocation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl EvictionPolicy for Fifo {
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId> {
        view.evictable()
            .map(|(chunk, _)| chunk)
            .min_by_key(|chunk| view.assigned(*chunk))
    }
}
