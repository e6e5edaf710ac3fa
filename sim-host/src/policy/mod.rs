//! What policies are given: a narrow, read-only view, and the plan of the program where they ask for it.
//!
//! An eviction policy ([`crate::eviction::EvictionPolicy`]) names root chunks; a prefetch policy
//! ([`crate::prefetch::PrefetchPolicy`]) names pages and blocks. The driver checks each answer: a chunk
//! must be on a list, pages must be managed and not resident, and nothing that the present batch has
//! served may be evicted ahead of need. What fails the check is replaced by the driver's own choice or
//! dropped, and counted. So a policy can be bad, but cannot break an invariant.
//!
//! # Adding a policy
//!
//! 1. A file in `eviction/` or `prefetch/` with a type that implements the trait.
//! 2. Its line in the `registry!` of that folder: the name in configs, and the constructor.
//!
//! The name then works in `[driver]`, in sweeps, and in error messages. `tests/own_policy.rs` has a
//! complete policy written outside this crate and put into [`crate::UvmDriver::with_policies`].

pub mod plan;
pub(crate) mod state;

use sim_core::pages::{PageMask, VaBlock};

pub use plan::{Moment, Use, UsePlan};

use crate::pmm::{ChunkId, List, Pmm};
use crate::va_space::VaSpace;

/// Parameters that constructors of policies take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyParams {
    /// Seed of policies that draw.
    pub seed: u64,
    /// Chunks at the head of the LRU order that reserve-LRU spares, percent of those on lists.
    pub reserve: u32,
    /// Device memory that watermark pre-eviction keeps free, percent.
    pub watermark: u32,
    /// Occupancy in percent that a subtree must exceed (driver tree).
    pub threshold: u32,
    /// Pages that sequential and stride prefetchers fetch per fault.
    pub degree: u32,
    /// Kernels that planned prefetching looks ahead, or links of a chain that correlation follows.
    pub window: u32,
}

impl Default for PolicyParams {
    /// Sources: `defaults.toml`.
    fn default() -> Self {
        PolicyParams {
            seed: 1,
            reserve: 10,
            watermark: 5,
            threshold: 51,
            degree: 15,
            window: 4,
        }
    }
}

/// The driver's state as policies see it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) pmm: &'a Pmm,
    pub(crate) space: &'a VaSpace,
    pub(crate) plan: &'a UsePlan,
    pub(crate) now: Moment,
    pub(crate) passed: Moment,
    pub(crate) evictions: u64,
}

impl View<'_> {
    /// Chunks that can be evicted and their owners, by number of the chunk.
    pub fn evictable(&self) -> impl Iterator<Item = (ChunkId, VaBlock)> + '_ {
        let pmm = self.pmm;
        pmm.evictable().filter_map(move |id| Some((id, pmm.owner(id)?)))
    }

    /// Can the chunk be evicted?
    pub fn is_evictable(&self, chunk: ChunkId) -> bool {
        u64::from(chunk) < self.pmm.chunks() && self.pmm.is_evictable(chunk)
    }

    /// Chunks on a list, served longest ago first.
    pub fn list(&self, list: List) -> impl Iterator<Item = ChunkId> + '_ {
        self.pmm.list_iter(list)
    }

    /// The driver's own order of victims: UNUSED, DISCARDED, USED, each by last service.
    pub fn driver_order(&self) -> impl Iterator<Item = ChunkId> + '_ {
        [List::Unused, List::Discarded, List::Used]
            .into_iter()
            .flat_map(|list| self.pmm.list_iter(list))
    }

    /// The block that owns a chunk.
    pub fn owner(&self, chunk: ChunkId) -> Option<VaBlock> {
        (u64::from(chunk) < self.pmm.chunks())
            .then(|| self.pmm.owner(chunk))
            .flatten()
    }

    /// The chunk of a block.
    pub fn chunk(&self, block: VaBlock) -> Option<ChunkId> {
        self.space.block(block)?.chunk
    }

    /// When a chunk got its owner, as a count of assignments.
    pub fn assigned(&self, chunk: ChunkId) -> u64 {
        self.pmm.assigned(chunk)
    }

    /// Chunks that can be had without eviction.
    pub fn free_chunks(&self) -> u64 {
        self.pmm.available()
    }

    /// All chunks of managed data.
    pub fn capacity(&self) -> u64 {
        self.pmm.capacity()
    }

    /// Managed pages of a block.
    pub fn valid(&self, block: VaBlock) -> PageMask {
        self.space.block(block).map_or(PageMask::EMPTY, |s| s.valid)
    }

    /// Pages of a block that are resident on the GPU.
    pub fn resident(&self, block: VaBlock) -> PageMask {
        self.space.block(block).map_or(PageMask::EMPTY, |s| s.resident)
    }

    /// The plan of the program; empty unless a policy in use asks for it.
    pub fn plan(&self) -> &UsePlan {
        self.plan
    }

    /// The present moment, as far as the driver knows: the kernel started last, and the furthest step
    /// of it whose faults have been served.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// What is over for all thread blocks, as far as the driver can tell; not after [`View::now`].
    pub fn passed(&self) -> Moment {
        self.passed
    }

    /// When a block is used next, the present included; `None`: never again, or no plan.
    pub fn next_use(&self, block: VaBlock) -> Option<Moment> {
        self.plan.next_use(block, self.passed)
    }

    /// When a block was used last, the present included; `None`: never so far, or no plan.
    pub fn last_use(&self, block: VaBlock) -> Option<Moment> {
        self.plan.last_use(block, self.now)
    }

    /// Evictions so far.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }
}

/// Declares the names of a folder's policies: `Policy` (a name that can be copied and compared), its
/// constructor, and what error messages list.
macro_rules! registry {
    ($key:literal, $dyn:ident, $first:literal => $first_make:expr $(, $name:literal => $make:expr)* $(,)?) => {
        /// Names in configurations; the first is the default.
        pub const NAMES: &[&str] = &[$first $(, $name)*];

        type Make = fn(&$crate::policy::PolicyParams) -> Box<dyn $dyn>;
        const MAKE: &[Make] = &[$first_make $(, $make)*];

        /// A policy by its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct Policy(usize);

        impl Policy {
            /// Its name.
            pub fn name(self) -> &'static str {
                NAMES[self.0]
            }

            /// A policy of this name.
            pub fn make(self, params: &$crate::policy::PolicyParams) -> Box<dyn $dyn> {
                MAKE[self.0](params)
            }
        }

        impl std::str::FromStr for Policy {
            type Err = $crate::params::ParamError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                NAMES.iter().position(|name| *name == text).map(Policy).ok_or_else(|| {
                    $crate::params::ParamError {
                        name: $key,
                        value: text.to_owned(),
                        accepted: concat!($first $(, ", ", $name)*),
                    }
                })
            }
        }
    };
}
pub(crate) use registry;
