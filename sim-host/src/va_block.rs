//! State of one VA block: fixed bitmaps of 512 pages.

use sim_core::pages::{PAGES_PER_BIG_PAGE, PAGES_PER_BLOCK, PageMask};

use crate::pmm::ChunkId;
use crate::tracker::Tracker;

/// The managed pages inside one 2 MiB slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct VaBlockState {
    /// Pages that belong to a range.
    pub valid: PageMask,
    /// Pages resident on the GPU.
    pub resident: PageMask,
    /// Pages resident on the CPU.
    pub cpu_resident: PageMask,
    /// Pages with a CPU mapping.
    pub cpu_mapped: PageMask,
    /// Pages with a GPU mapping.
    pub mapped: PageMask,
    /// Of the GPU's mappings, those to host memory.
    pub remote: PageMask,
    /// Of the GPU's mappings, those that allow no writes: a copy of host memory.
    pub read_only: PageMask,
    /// Pages of a range that is read mostly: a read makes a copy (uvm-driver 4.2, rows 2 and 3).
    pub read_mostly: PageMask,
    /// Pages whose contents do not matter (uvm-driver 9.3).
    pub discarded: PageMask,
    /// Pages that the service in progress maps for a write.
    pub written_now: PageMask,
    /// The program has given advice about some page.
    pub advised: bool,
    /// CPU memory has been allocated (and DMA-mapped) for the block.
    pub cpu_allocated: bool,
    /// The GPU has been served here before.
    pub touched: bool,
    /// Faults served since the prefetcher's destination last changed.
    pub prefetch_faults: u32,
    /// Its root chunk.
    pub chunk: Option<ChunkId>,
    /// Work on this block.
    pub tracker: Tracker,
}

impl VaBlockState {
    /// Page-table entries to write so that `pages` become mapped beside the pages mapped already:
    /// one 2 MiB entry if the block becomes complete, else one per complete 64 KiB page, else 4 KiB
    /// entries (uvm-driver 4.7).
    pub fn entries_to_map(&self, pages: &PageMask) -> u32 {
        let after = self.mapped | *pages;
        if after.is_full() {
            return 1;
        }
        let mut entries = 0;
        for big in 0..PAGES_PER_BLOCK / PAGES_PER_BIG_PAGE {
            let changed = pages.big_page(big).count_ones();
            if changed > 0 {
                let complete = after.big_page(big) == u16::MAX;
                entries += if complete { 1 } else { changed };
            }
        }
        entries
    }

    /// Page-table entries to write so that every mapped page becomes unmapped.
    pub fn entries_to_unmap(&self) -> u32 {
        VaBlockState {
            mapped: PageMask::EMPTY,
            ..*self
        }
        .entries_to_map(&self.mapped)
    }
}
