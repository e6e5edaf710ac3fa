//! How a kernel touches memory, at page granularity.
//!
//! A kernel is a grid of thread blocks in launch order; a block makes a sequence of steps; a step is
//! what its warps do between two points where they can wait for memory: some loads, which go out
//! together, some work, then stores that depend on them. The device model pulls steps lazily.

use crate::pages::Page;

/// Access strength, weakest first (the order that the driver's fault merging uses).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AccessKind {
    /// A prefetch instruction.
    Prefetch = 0,
    /// A load.
    Read = 1,
    /// A store.
    Write = 2,
    /// A block-scope or otherwise weak atomic.
    AtomicWeak = 3,
    /// A system-scope atomic.
    AtomicStrong = 4,
}

/// Some warps of one block touching consecutive pages with the same instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// First page.
    pub first: Page,
    /// Consecutive pages, at least 1.
    pub pages: u32,
    /// Warps that touch *each* of these pages; every one raises its own fault entry.
    pub warps: u16,
    /// Strength.
    pub kind: AccessKind,
}

/// The accesses of one step, reused between steps so that none allocates.
#[derive(Clone, Debug, Default)]
pub struct StepAccesses {
    /// Independent accesses that are issued first, in program order.
    pub loads: Vec<Access>,
    /// Accesses that wait for all the loads, in program order.
    pub stores: Vec<Access>,
}

impl StepAccesses {
    /// Forgets all accesses, keeps the memory.
    pub fn clear(&mut self) {
        self.loads.clear();
        self.stores.clear();
    }
}

/// The device's page tables as an access pattern sees them.
pub trait MappedPages {
    /// The first page in `from..end` without a valid PTE.
    fn first_unmapped(&self, from: Page, end: Page) -> Option<Page>;
}

/// The page-level behaviour of one kernel.
///
/// Must be deterministic: the same (block, step) gives the same accesses every time it is asked.
pub trait AccessPattern {
    /// Thread blocks of the grid.
    fn blocks(&self) -> u64;

    /// Steps that each block makes (the same for every block), at least 1.
    fn steps(&self) -> u32;

    /// Writes the accesses of step `step` of block `block` into `out`, which is empty.
    fn step(&self, block: u64, step: u32, out: &mut StepAccesses);

    /// The first block at or after `from` that touches a page without a valid PTE in any of its
    /// steps, or `None` if no block from there on does.
    ///
    /// May answer too early (a block that touches only mapped pages), never too late. Kernels of
    /// contiguous sweeps answer in time proportional to the VA blocks looked at.
    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64>;

    /// Writes only the stores of a step into `out`, which is empty.
    fn stores(&self, block: u64, step: u32, out: &mut StepAccesses) {
        self.step(block, step, out);
        out.loads.clear();
    }

    /// Is every page that any step of any block loads mapped? May say no wrongly, never yes wrongly.
    ///
    /// Worth answering for patterns whose steps are dear: where it says yes, only
    /// [`stores`](AccessPattern::stores) is asked.
    fn loads_mapped(&self, mapped: &dyn MappedPages) -> bool {
        let _ = mapped;
        false
    }

    /// Bytes that one warp moves with one access to one page, for accesses that go over the link. 32 lanes
    /// of 4 bytes, a line of the L2 cache, unless the pattern knows better.
    fn bytes_per_warp(&self) -> u64 {
        128
    }

    /// Could any block touch a page of `first..end`? May say yes wrongly, never no wrongly.
    fn may_touch(&self, first: Page, end: Page) -> bool {
        let _ = (first, end);
        true
    }
}
