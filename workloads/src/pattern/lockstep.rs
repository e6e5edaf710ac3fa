//! All ranges swept together: block k works on the k-th slice of every range.
//!
//! Element-wise kernels, reductions, copies, fills, and whatever is not known better. A slice of a
//! range may be less than a page; then neighbouring blocks share the page, as they do in hardware.

use sim_core::access::{Access, AccessKind, AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::{ByteRange, PAGE_BYTES, Page};

/// A sweep of several ranges at the same relative position.
#[derive(Clone, Debug)]
pub struct Lockstep {
    /// Ranges that are read, in program order.
    pub reads: Vec<ByteRange>,
    /// Ranges that are written, in program order.
    pub writes: Vec<ByteRange>,
    /// Thread blocks.
    pub blocks: u64,
    /// Steps of each block.
    pub steps: u32,
    /// Warps of a block.
    pub warps: u16,
    /// Step s of block b works on slice s x blocks + b (a grid-stride loop) instead of
    /// b x steps + s (a block's own contiguous piece).
    pub grid_stride: bool,
}

impl Lockstep {
    fn slices(&self) -> u64 {
        self.blocks * u64::from(self.steps)
    }

    fn access(&self, range: &ByteRange, slice: u64, kind: AccessKind) -> Option<Access> {
        if range.bytes == 0 {
            return None;
        }
        let position =
            |slice: u64| (u128::from(range.bytes) * u128::from(slice) / u128::from(self.slices())) as u64;
        let start = position(slice);
        // A range of fewer bytes than slices: several blocks read the same byte.
        let end = position(slice + 1).max(start + 1);
        let first = Page::containing(range.start + start);
        let pages = (range.start + end).div_ceil(PAGE_BYTES) - first.0;
        let warps = u64::from(self.warps).div_ceil(pages).max(1) as u16;
        Some(Access {
            first,
            pages: pages.min(u64::from(u32::MAX)) as u32,
            warps,
            kind,
        })
    }

    fn ranges(&self) -> impl Iterator<Item = &ByteRange> {
        self.reads
            .iter()
            .chain(&self.writes)
            .filter(|range| range.bytes > 0)
    }
}

impl AccessPattern for Lockstep {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn steps(&self) -> u32 {
        self.steps
    }

    fn step(&self, block: u64, step: u32, out: &mut StepAccesses) {
        let slice = if self.grid_stride {
            u64::from(step) * self.blocks + block
        } else {
            block * u64::from(self.steps) + u64::from(step)
        };
        out.loads.extend(
            self.reads
                .iter()
                .filter_map(|r| self.access(r, slice, AccessKind::Read)),
        );
        out.stores.extend(
            self.writes
                .iter()
                .filter_map(|r| self.access(r, slice, AccessKind::Write)),
        );
    }

    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        if from >= self.blocks() {
            return None;
        }
        if self.grid_stride && self.steps > 1 {
            let hole = self
                .ranges()
                .any(|r| mapped.first_unmapped(r.first_page(), r.end_page()).is_some());
            return hole.then_some(from);
        }
        let slices = u128::from(self.slices());
        let from_slice = u128::from(from) * u128::from(self.steps);
        self.ranges()
            .filter_map(|range| {
                let bytes = u128::from(range.bytes);
                let start = (bytes * from_slice / slices) as u64;
                let page = mapped.first_unmapped(Page::containing(range.start + start), range.end_page())?;
                let offset = page.address().saturating_sub(range.start).max(start);
                // The first slice that reaches into this page: slice s ends at bytes (s+1) / slices,
                // or one byte after its start.
                let slice = (u128::from(offset) * slices / bytes).saturating_sub(1);
                Some((slice as u64 / u64::from(self.steps)).max(from))
            })
            .min()
    }

    /// Its share of the longest range, in whole sectors of 32 bytes.
    fn bytes_per_warp(&self) -> u64 {
        let longest = self.ranges().map(|range| range.bytes).max().unwrap_or(0);
        let accesses = self.blocks * u64::from(self.steps) * u64::from(self.warps.max(1));
        longest.div_ceil(accesses.max(1)).next_multiple_of(32).min(4096)
    }

    fn may_touch(&self, first: Page, end: Page) -> bool {
        self.ranges()
            .any(|range| range.first_page() < end && first < range.end_page())
    }
}
