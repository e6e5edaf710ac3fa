//! Reserve-LRU: LRU by service that spares a share of chunks at the old end, so that a cyclic access
//! order keeps part of its data (reserving the top of the LRU list, Ganguly et al., ISCA'19).

use super::EvictionPolicy;
use crate::pmm::ChunkId;
use crate::policy::View;

/// The driver's order without its first `percent`.
#[derive(Clone, Copy, Debug)]
pub struct ReserveLru {
    /// Share that is spared, percent of the chunks on lists.
    pub percent: u32,
}

impl EvictionPolicy for ReserveLru {
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId> {
        let spared = view.evictable().count() * self.percent as usize / 100;
        view.driver_order().nth(spared)
    }
}
