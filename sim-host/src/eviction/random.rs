//! A chunk drawn at random, from a stream of its own so that nothing else shifts it.

use sim_core::rng::Stream;

use crate::pmm::{ChunkId, Pmm};

pub(super) fn victim(pmm: &Pmm, seed: u64, n: u64) -> Option<ChunkId> {
    let evictable = pmm.evictable().count() as u64;
    // The n-th eviction's own stream: a service that is tried again draws the same chunk.
    let drawn = Stream::new(seed.wrapping_add(n), "eviction").below(evictable);
    pmm.evictable().nth(drawn as usize)
}
