//! Eviction policies: which root chunk gives way.
//!
//! A policy sees the lists of root chunks, read-only, and names one that is on a list. To add one: a
//! file here, a variant of [`Policy`], its name in [`Policy::NAMES`], its arm in [`Policy::victim`].

mod driver;
mod fifo;
mod random;

use std::str::FromStr;

use crate::params::ParamError;
use crate::pmm::{ChunkId, Pmm};

/// Which root chunk to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// The driver's own order: UNUSED, DISCARDED, USED, each by last service.
    #[default]
    Driver,
    /// The chunk that has had its present owner for the longest time.
    Fifo,
    /// Any chunk, drawn from a seeded stream.
    Random,
}

impl Policy {
    /// Names in configurations.
    pub const NAMES: [(&'static str, Policy); 3] = [
        ("driver", Policy::Driver),
        ("fifo", Policy::Fifo),
        ("random", Policy::Random),
    ];

    /// The chunk to evict, `draw`n as the `n`-th eviction; `None` if every chunk is pinned.
    pub fn victim(self, pmm: &Pmm, seed: u64, n: u64) -> Option<ChunkId> {
        match self {
            Policy::Driver => driver::victim(pmm),
            Policy::Fifo => fifo::victim(pmm),
            Policy::Random => random::victim(pmm, seed, n),
        }
    }
}

impl FromStr for Policy {
    type Err = ParamError;
    fn from_str(text: &str) -> Result<Self, ParamError> {
        Policy::NAMES
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, policy)| *policy)
            .ok_or_else(|| ParamError {
                name: "eviction.policy",
                value: text.to_owned(),
                accepted: "driver, fifo, random",
            })
    }
}
