//! The driver's own victim: the head of UNUSED, else of DISCARDED, else of USED (uvm-driver 7.2).

use crate::pmm::{ChunkId, List, Pmm};

pub(super) fn victim(pmm: &Pmm) -> Option<ChunkId> {
    [List::Unused, List::Discarded, List::Used]
        .into_iter()
        .find_map(|list| pmm.head(list))
}
