//! A chunk drawn at random, from a stream of its own so that nothing else shifts it.

use sim_core::rng::Stream;

use super::EvictionPolicy;
use crate::pmm::ChunkId;
use crate::policy::View;

/// Any chunk on a list, each as likely as the other.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    /// Seed of the stream.
    pub seed: u64,
}

impl EvictionPolicy for Random {
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId> {
        let evictable = view.evictable().count() as u64;
        if evictable == 0 {
            return None;
        }
        // The n-th eviction's own stream: a service that is tried again draws the same chunk.
        let drawn = Stream::new(self.seed.wrapping_add(view.evictions()), "eviction").below(evictable);
        view.evictable().nth(drawn as usize).map(|(chunk, _)| chunk)
    }
}
