//! Eviction policies: which root chunk gives way, and which go ahead of need. One file each.
//!
//! | name | victim | knows |
//! | --- | --- | --- |
//! | `driver` | UNUSED, DISCARDED, USED, each by last service | services |
//! | `random`, `fifo` | any; the longest allocated | services |
//! | `true-lru`, `lfu` | used longest ago; used by the fewest kernels | all uses so far |
//! | `reserve-lru` | as `driver`, without the oldest `eviction.reserve` percent | services |
//! | `tree-pre-evict` | as `driver`; then the rest of a subtree that is less than half full | services |
//! | `watermark` | as `driver`; keeps `eviction.watermark` percent free | services |
//! | `belady` | used again last | the whole program |
//!
//! "Uses" come from the plan of the program ([`crate::policy::plan`] says how fine it is). How to add
//! one: [`crate::policy`].

mod belady;
mod driver;
mod fifo;
mod lfu;
mod random;
mod reserve_lru;
mod tree;
mod true_lru;
mod watermark;

use std::fmt::Debug;

use sim_core::pages::VaBlock;

pub use belady::Belady;
pub use driver::Driver;
pub use fifo::Fifo;
pub use lfu::Lfu;
pub use random::Random;
pub use reserve_lru::ReserveLru;
pub use tree::Tree;
pub use true_lru::TrueLru;
pub use watermark::Watermark;

use crate::pmm::ChunkId;
use crate::policy::{View, registry};

/// Which root chunk to evict.
pub trait EvictionPolicy: Debug + Send {
    /// The chunk to evict for a service that needs one. Where the answer is none, or not on a list,
    /// the driver takes its own victim.
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId>;

    /// A chunk to evict ahead of need, asked at the end of a batch until the answer is `None` or is
    /// refused: not on a list, or served by this batch.
    fn pre_evict(&mut self, view: &View<'_>) -> Option<ChunkId> {
        let _ = view;
        None
    }

    /// A block has lost its chunk.
    fn evicted(&mut self, block: VaBlock, view: &View<'_>) {
        let _ = (block, view);
    }

    /// Faults of a block have been served, or pages of it fetched ahead.
    fn served(&mut self, block: VaBlock, view: &View<'_>) {
        let _ = (block, view);
    }

    /// Does it need the plan of the program?
    fn needs_plan(&self) -> bool {
        false
    }
}

registry! {
    "eviction.policy", EvictionPolicy,
    "driver" => |_| Box::new(Driver),
    "random" => |p| Box::new(Random { seed: p.seed }),
    "fifo" => |_| Box::new(Fifo),
    "true-lru" => |_| Box::new(TrueLru::default()),
    "lfu" => |_| Box::new(Lfu),
    "reserve-lru" => |p| Box::new(ReserveLru { percent: p.reserve }),
    "tree-pre-evict" => |_| Box::new(Tree::default()),
    "watermark" => |p| Box::new(Watermark { percent: p.watermark }),
    "belady" => |_| Box::new(Belady),
}
