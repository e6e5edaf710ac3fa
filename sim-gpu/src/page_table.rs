//! Which pages the GPU can reach: one valid bit per 4 KiB page, kept per VA block.
//!
//! PTE sizes (4 KiB, 64 KiB, 2 MiB) change what a write costs, which the driver states in the push;
//! what hits is the same.
//!
//! Pages that the device does not own alone (in host memory, or read-only copies) are kept apart. To
//! [`MappedPages`] they are holes, so that nothing skips over them: each of their accesses is looked at.

use std::collections::BTreeMap;

use sim_core::access::{AccessKind, MappedPages};
use sim_core::pages::{PAGES_PER_BLOCK, Page, PageMask, VaBlock};
use sim_core::push::Sharing;

/// Valid bits of a dense window of the address space, grown on demand.
#[derive(Clone, Debug, Default)]
pub struct PageTable {
    first: u64,
    blocks: Vec<PageMask>,
    mapped: u64,
    shared: BTreeMap<VaBlock, Shared>,
    new: NewPtes,
}

/// Where PTEs have become valid since the last replay.
#[derive(Clone, Debug, Default)]
struct NewPtes {
    blocks: Vec<(VaBlock, PageMask)>,
    /// There were too many blocks to keep.
    anywhere: bool,
}

impl NewPtes {
    /// More blocks than a batch of 256 faults usually has.
    const MOST: usize = 64;

    fn insert(&mut self, block: VaBlock, pages: PageMask) {
        if self.anywhere {
            return;
        }
        // The newest is the likeliest to grow.
        if let Some((_, known)) = self.blocks.iter_mut().rev().find(|(other, _)| *other == block) {
            *known |= pages;
        } else if self.blocks.len() == NewPtes::MOST {
            self.anywhere = true;
            self.blocks.clear();
        } else {
            self.blocks.push((block, pages));
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    remote: PageMask,
    read_only: PageMask,
}

impl PageTable {
    /// No page is mapped.
    pub fn new() -> PageTable {
        PageTable::default()
    }

    /// Pages with a valid PTE.
    pub fn mapped_pages(&self) -> u64 {
        self.mapped
    }

    /// The mapped pages of `block`.
    #[inline]
    pub fn block(&self, block: VaBlock) -> PageMask {
        self.slot(block).map_or(PageMask::EMPTY, |slot| self.blocks[slot])
    }

    /// Does `page` have a valid PTE?
    #[inline]
    pub fn is_mapped(&self, page: Page) -> bool {
        self.slot(page.block())
            .is_some_and(|slot| self.blocks[slot].contains(page.index()))
    }

    /// Is any page shared?
    #[inline]
    pub fn has_shared(&self) -> bool {
        !self.shared.is_empty()
    }

    /// Is the page mapped to host memory?
    #[inline]
    pub fn is_remote(&self, page: Page) -> bool {
        self.has_shared()
            && self
                .shared
                .get(&page.block())
                .is_some_and(|shared| shared.remote.contains(page.index()))
    }

    /// Does an access of this strength hit?
    #[inline]
    pub fn hits(&self, page: Page, kind: AccessKind) -> bool {
        self.is_mapped(page) || (self.has_shared() && self.shared_hits(page, kind))
    }

    fn shared_hits(&self, page: Page, kind: AccessKind) -> bool {
        self.shared.get(&page.block()).is_some_and(|shared| {
            shared.remote.contains(page.index())
                || (kind <= AccessKind::Read && shared.read_only.contains(page.index()))
        })
    }

    /// The PTEs that have become valid since this was last called, by block, in no order; `None` if
    /// the blocks are too many to name.
    pub fn take_new(&mut self) -> Option<Vec<(VaBlock, PageMask)>> {
        let new = std::mem::take(&mut self.new);
        (!new.anywhere).then_some(new.blocks)
    }

    /// Makes the PTEs of shared pages valid.
    pub fn map_shared(&mut self, block: VaBlock, pages: PageMask, sharing: Sharing) {
        self.new.insert(block, pages);
        let shared = self.shared.entry(block).or_default();
        match sharing {
            Sharing::Remote(_) => shared.remote |= pages,
            Sharing::ReadOnly => shared.read_only |= pages,
        }
    }

    fn forget_shared(&mut self, block: VaBlock, pages: &PageMask) {
        if let Some(shared) = self.shared.get_mut(&block) {
            shared.remote = shared.remote.without(pages);
            shared.read_only = shared.read_only.without(pages);
            if shared.remote.is_empty() && shared.read_only.is_empty() {
                self.shared.remove(&block);
            }
        }
    }

    /// Makes the PTEs of `pages` valid.
    pub fn map(&mut self, block: VaBlock, pages: PageMask) {
        self.new.insert(block, pages);
        self.forget_shared(block, &pages);
        let slot = self.grow_to(block);
        let before = self.blocks[slot];
        self.blocks[slot] = before | pages;
        self.mapped += u64::from(pages.without(&before).count());
    }

    /// Makes the PTEs of `pages` invalid.
    pub fn unmap(&mut self, block: VaBlock, pages: PageMask) {
        self.forget_shared(block, &pages);
        if let Some(slot) = self.slot(block) {
            let before = self.blocks[slot];
            self.blocks[slot] = before.without(&pages);
            self.mapped -= u64::from((before & pages).count());
        }
    }

    #[inline]
    fn slot(&self, block: VaBlock) -> Option<usize> {
        let slot = block.0.wrapping_sub(self.first) as usize;
        (slot < self.blocks.len()).then_some(slot)
    }

    fn grow_to(&mut self, block: VaBlock) -> usize {
        if self.blocks.is_empty() {
            self.first = block.0;
        }
        if block.0 < self.first {
            let missing = (self.first - block.0) as usize;
            self.blocks
                .splice(0..0, std::iter::repeat_n(PageMask::EMPTY, missing));
            self.first = block.0;
        }
        let slot = (block.0 - self.first) as usize;
        if slot >= self.blocks.len() {
            self.blocks.resize(slot + 1, PageMask::EMPTY);
        }
        slot
    }
}

impl MappedPages for PageTable {
    #[inline]
    fn first_unmapped(&self, from: Page, end: Page) -> Option<Page> {
        let mut page = from;
        while page < end {
            let block = page.block();
            let Some(slot) = self.slot(block) else {
                return Some(page);
            };
            let mask = &self.blocks[slot];
            if !mask.is_full()
                && let Some(index) = mask.next_clear(page.index())
            {
                let found = block.page(index);
                return (found < end).then_some(found);
            }
            page = Page((block.0 + 1) * PAGES_PER_BLOCK as u64);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_unmaps_and_finds_holes() {
        let mut table = PageTable::new();
        let page = |block: u64, index: usize| VaBlock(block).page(index);
        assert_eq!(table.first_unmapped(page(10, 3), page(10, 4)), Some(page(10, 3)));
        table.map(VaBlock(10), PageMask::FULL);
        table.map(VaBlock(12), PageMask::range(0, 100));
        table.map(VaBlock(8), PageMask::single(511));
        assert_eq!(table.mapped_pages(), 613);
        assert!(table.is_mapped(page(8, 511)) && !table.is_mapped(page(9, 0)));
        assert_eq!(table.first_unmapped(page(10, 0), page(11, 0)), None);
        assert_eq!(table.first_unmapped(page(10, 0), page(12, 0)), Some(page(11, 0)));
        assert_eq!(table.first_unmapped(page(12, 5), page(12, 100)), None);
        assert_eq!(
            table.first_unmapped(page(12, 5), page(13, 0)),
            Some(page(12, 100))
        );
        table.unmap(VaBlock(12), PageMask::range(50, 512));
        assert_eq!(table.mapped_pages(), 563);
    }
}
