//! First in, first out: the chunk whose owner got it first, however often it was served since.

use crate::pmm::{ChunkId, Pmm};

pub(super) fn victim(pmm: &Pmm) -> Option<ChunkId> {
    pmm.evictable().min_by_key(|id| pmm.assigned(*id))
}
