//! Embedding lookups and their gradients: rows scattered over a table, the other ranges swept.

use sim_core::access::{Access, AccessKind, AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::{ByteRange, Page};

use super::Lockstep;

/// Scattered accesses to one table beside a sweep of other ranges.
#[derive(Clone, Debug)]
pub struct Gather {
    /// The swept ranges, and the grid.
    pub swept: Lockstep,
    /// The table.
    pub table: ByteRange,
    /// Rows of the table that each block touches.
    pub rows_per_block: u32,
    /// The table is written (a scatter) instead of read.
    pub scatter: bool,
    /// Chooses the rows.
    pub seed: u64,
}

impl Gather {
    fn page(&self, block: u64, row: u32) -> Page {
        let mut z = self.seed
            ^ (block << 20)
                .wrapping_add(u64::from(row))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let offset = ((u128::from(z) * u128::from(self.table.bytes)) >> 64) as u64;
        Page::containing(self.table.start + offset)
    }
}

impl AccessPattern for Gather {
    fn blocks(&self) -> u64 {
        self.swept.blocks
    }

    fn steps(&self) -> u32 {
        self.swept.steps
    }

    fn step(&self, block: u64, step: u32, out: &mut StepAccesses) {
        self.swept.step(block, step, out);
        if step > 0 || self.table.bytes == 0 {
            return;
        }
        let kind = if self.scatter {
            AccessKind::Write
        } else {
            AccessKind::Read
        };
        let rows = (0..self.rows_per_block).map(|row| Access {
            first: self.page(block, row),
            pages: 1,
            warps: 1,
            kind,
        });
        if self.scatter {
            out.stores.extend(rows);
        } else {
            out.loads.extend(rows);
        }
    }

    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        if self.table.bytes > 0
            && mapped
                .first_unmapped(self.table.first_page(), self.table.end_page())
                .is_some()
        {
            return (from < self.swept.blocks).then_some(from);
        }
        self.swept.first_unmapped_block(from, mapped)
    }

    fn may_touch(&self, first: Page, end: Page) -> bool {
        (self.table.first_page() < end && first < self.table.end_page()) || self.swept.may_touch(first, end)
    }
}
