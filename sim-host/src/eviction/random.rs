//! A chunk drawn at random, from a stream of its own so that nothing else shifts it.

use crate::pmm::{ChunkId, Pmm};

/// `SplitMix64` (Steele, Lea, Flood 2014): one well-mixed word per counter value.
fn mix(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(super) fn victim(pmm: &Pmm, seed: u64, n: u64) -> Option<ChunkId> {
    let chunks = pmm.chunks();
    if chunks == 0 || pmm.evictable().next().is_none() {
        return None;
    }
    // Pinned and free chunks are passed over; at least one chunk is on a list.
    (0..)
        .map(|attempt| (mix(seed ^ 0x6576_6963_7469_6f6e, n * 4096 + attempt) % chunks) as ChunkId)
        .find(|id| pmm.is_evictable(*id))
}
