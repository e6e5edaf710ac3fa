//! Prefetch policies: which pages a service adds to the faulted ones, and which blocks are fetched
//! ahead of any fault. One file each.
//!
//! | name | adds to a service | fetches ahead |
//! | --- | --- | --- |
//! | `tree` | the driver's tree, `prefetch.threshold` | |
//! | `none` | nothing | |
//! | `64k`, `2m` | the big pages of the faults; the whole block | |
//! | `sequential-local` | the next `prefetch.degree` pages | |
//! | `stride` | the next pages at a steady distance | those in other blocks |
//! | `correlation` | the whole block | the blocks that followed last time (`DeepUM`) |
//! | `planned` | the whole block | blocks of the next `prefetch.window` kernels (G10) |
//! | `oracle` | the whole block | blocks by next use, as far as the memory reaches |
//!
//! How to add one: [`crate::policy`].

mod big_page;
mod correlation;
mod none;
mod planned;
mod sequential;
mod stride;
mod tree;
mod whole_block;

use std::fmt::Debug;

use sim_core::pages::{PageMask, VaBlock};

pub use big_page::BigPage;
pub use correlation::Correlation;
pub use none::Nothing;
pub use planned::Planned;
pub use sequential::Sequential;
pub use stride::Stride;
pub use tree::{Service, Tree, prefetch as tree_prefetch};
pub use whole_block::WholeBlock;

use crate::policy::{View, registry};

/// Which pages to fetch that nothing has faulted on.
pub trait PrefetchPolicy: Debug + Send {
    /// Pages to add to a service of `block`, numbered as in `service`. Those that are resident, faulted
    /// or not managed are dropped.
    fn pages(&mut self, block: VaBlock, service: &Service<'_>, view: &View<'_>) -> PageMask;

    /// A block and its pages to fetch ahead of any fault, asked when a kernel starts, at the end of a
    /// batch, and when the last such fetch has arrived. The fetch is not made where it would need the
    /// chunk of a block that the present batch has served.
    fn ahead(&mut self, view: &View<'_>) -> Option<(VaBlock, PageMask)> {
        let _ = view;
        None
    }

    /// Does it need the plan of the program?
    fn needs_plan(&self) -> bool {
        false
    }
}

registry! {
    "prefetch.policy", PrefetchPolicy,
    "tree" => |p| Box::new(Tree { threshold: p.threshold }),
    "none" => |_| Box::new(Nothing),
    "64k" => |_| Box::new(BigPage),
    "2m" => |_| Box::new(WholeBlock),
    "sequential-local" => |p| Box::new(Sequential { degree: p.degree }),
    "stride" => |p| Box::new(Stride::new(p.degree)),
    "correlation" => |p| Box::new(Correlation::new(p.window)),
    "planned" => |p| Box::new(Planned::kernels(p.window)),
    "oracle" => |_| Box::new(Planned::oracle()),
}
