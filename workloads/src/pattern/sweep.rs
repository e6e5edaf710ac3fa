//! One warp lane per page: kernels that touch pages of one range in a stated order.

use sim_core::access::{Access, AccessKind, AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::{ByteRange, Page};

/// In which order items come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Item i is page i.
    Ascending,
    /// A fixed pseudo-random permutation of the pages.
    Shuffled {
        /// Chooses the permutation.
        seed: u64,
    },
    /// Every thread owns a contiguous piece and walks it page by page: in one step, neighbouring
    /// threads touch pages that are a piece apart.
    Chunked {
        /// Pages of one thread's piece.
        pages_per_thread: u64,
    },
}

/// `threads` x `steps` page touches of one or two ranges of equal size.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Range that is read.
    pub read: Option<ByteRange>,
    /// Range that is written, at the same page.
    pub write: Option<ByteRange>,
    /// Thread blocks.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Steps of a block: pages that each thread touches, one after another.
    pub steps: u32,
    /// Which page each touch goes to.
    pub order: Order,
}

impl Sweep {
    fn pages(&self) -> u64 {
        self.ranges()
            .map(|r| r.end_page().0 - r.first_page().0)
            .min()
            .unwrap_or(0)
    }

    fn ranges(&self) -> impl Iterator<Item = &ByteRange> {
        self.read.iter().chain(&self.write)
    }

    /// The page of `thread` (of the grid) in `step`, from the start of the range; `None` past its end.
    fn page(&self, thread: u64, step: u32, pages: u64) -> Option<u64> {
        let grid = self.blocks * u64::from(self.threads);
        match self.order {
            Order::Ascending => {
                let item = u64::from(step) * grid + thread;
                (item < pages).then_some(item)
            }
            Order::Shuffled { seed } => {
                let item = u64::from(step) * grid + thread;
                (item < pages).then(|| permuted(item, pages, seed))
            }
            Order::Chunked { pages_per_thread } => {
                let page = thread * pages_per_thread + u64::from(step);
                (u64::from(step) < pages_per_thread && page < pages).then_some(page)
            }
        }
    }
}

/// Position `i` of a fixed permutation of `0..n`: a four-round Feistel network on the next even power
/// of two, walked until it falls inside.
fn permuted(i: u64, n: u64, seed: u64) -> u64 {
    let half = (64 - (n.max(2) - 1).leading_zeros()).div_ceil(2);
    let mask = (1_u64 << half) - 1;
    let mut value = i;
    loop {
        let (mut left, mut right) = (value >> half, value & mask);
        for round in 0..4 {
            let mut z = right
                .wrapping_add(seed)
                .wrapping_add(u64::wrapping_mul(round, 0x9e37_79b9_7f4a_7c15));
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (left, right) = (right, left ^ ((z ^ (z >> 31)) & mask));
        }
        value = left << half | right;
        if value < n {
            return value;
        }
    }
}

impl AccessPattern for Sweep {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn steps(&self) -> u32 {
        self.steps
    }

    fn step(&self, block: u64, step: u32, out: &mut StepAccesses) {
        let pages = self.pages();
        for lane in 0..u64::from(self.threads) {
            let Some(page) = self.page(block * u64::from(self.threads) + lane, step, pages) else {
                continue;
            };
            let access = |range: &ByteRange, kind| Access {
                first: Page(range.first_page().0 + page),
                pages: 1,
                warps: 1,
                kind,
            };
            out.loads
                .extend(self.read.iter().map(|r| access(r, AccessKind::Read)));
            out.stores
                .extend(self.write.iter().map(|r| access(r, AccessKind::Write)));
        }
    }

    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        if from >= self.blocks() {
            return None;
        }
        let pages = self.pages();
        self.ranges()
            .filter_map(|range| {
                let first = range.first_page().0;
                let end = Page(first + pages);
                if self.order != Order::Ascending || self.steps > 1 {
                    return mapped.first_unmapped(Page(first), end).map(|_| from);
                }
                let threads = u64::from(self.threads);
                let start = (from * threads).min(pages);
                let end = Page(first + pages.min(self.blocks * threads));
                let page = mapped.first_unmapped(Page(first + start), end)?;
                Some((page.0 - first) / u64::from(self.threads))
            })
            .min()
    }

    fn may_touch(&self, first: Page, end: Page) -> bool {
        self.ranges()
            .any(|range| range.first_page() < end && first < range.end_page())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_permutation_is_one() {
        for n in [1, 2, 3, 100, 4096, 5001] {
            let mut seen = vec![false; n as usize];
            for i in 0..n {
                let place = permuted(i, n, 7) as usize;
                assert!(!std::mem::replace(&mut seen[place], true));
            }
        }
    }
}
