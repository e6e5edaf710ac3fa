//! The order in which the thread blocks of a kernel touch pages: one file per kind of kernel.
//!
//! To add one: a file with a type that implements [`AccessPattern`], and a variant here.

mod axis;
mod gather;
mod gemm;
mod graph;
mod lists;
mod lockstep;
mod recorded;
mod spec;
mod sweep;
mod touch;
mod windows;

use sim_core::access::{AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::Page;

pub use axis::Axis;
pub use gather::Gather;
pub use gemm::Gemm;
pub use graph::{GraphWalk, Phase, Prepared};
pub use lists::{Lists, TensorList};
pub use lockstep::Lockstep;
pub use recorded::{MOST_RECORDED, Recorded, RecordedAccess, RecordedSpec};
pub use spec::{PatternSpec, SweepOrder, Walk};
pub use sweep::{Order, Sweep};
pub use touch::{Place, Touch};
pub use windows::{WARP_BYTES, Window, Windows, WindowsSpec};

/// Any kernel's access pattern, statically dispatched.
#[derive(Clone, Debug)]
pub enum KernelPattern {
    /// All ranges swept together, block by block.
    Lockstep(Lockstep),
    /// Lists of tensors, chunk by chunk.
    Lists(Lists),
    /// Tiles of a matrix product.
    Gemm(Gemm),
    /// Some ranges swept, others touched at scattered pages.
    Gather(Gather),
    /// One access per page in a stated order.
    Sweep(Sweep),
    /// Rectangles that move with the block and the step; random lookups.
    Windows(Windows),
    /// A step of a graph algorithm.
    Graph(GraphWalk),
    /// Every block's accesses as recorded.
    Recorded(Recorded),
}

macro_rules! each {
    ($self:ident, $pattern:ident => $call:expr) => {
        match $self {
            KernelPattern::Lockstep($pattern) => $call,
            KernelPattern::Lists($pattern) => $call,
            KernelPattern::Gemm($pattern) => $call,
            KernelPattern::Gather($pattern) => $call,
            KernelPattern::Sweep($pattern) => $call,
            KernelPattern::Windows($pattern) => $call,
            KernelPattern::Graph($pattern) => $call,
            KernelPattern::Recorded($pattern) => $call,
        }
    };
}

impl AccessPattern for KernelPattern {
    fn blocks(&self) -> u64 {
        each!(self, p => p.blocks())
    }
    fn steps(&self) -> u32 {
        each!(self, p => p.steps())
    }
    fn step(&self, block: u64, step: u32, out: &mut StepAccesses) {
        each!(self, p => p.step(block, step, out));
    }
    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        each!(self, p => p.first_unmapped_block(from, mapped))
    }
    fn stores(&self, block: u64, step: u32, out: &mut StepAccesses) {
        each!(self, p => p.stores(block, step, out));
    }
    fn loads_mapped(&self, mapped: &dyn MappedPages) -> bool {
        each!(self, p => p.loads_mapped(mapped))
    }
    fn bytes_per_warp(&self) -> u64 {
        each!(self, p => p.bytes_per_warp())
    }
    fn may_touch(&self, first: Page, end: Page) -> bool {
        each!(self, p => p.may_touch(first, end))
    }
}
