//! The driver's tree prefetcher (`uvm_perf_prefetch.c`, uvm-driver 5.2).
//!
//! Faulted pages are grown to whole 64 KiB big pages; then, for each faulted page, the largest
//! aligned subtree whose occupancy exceeds the threshold is fetched. Only residency at the
//! destination fills the tree, and it is not updated by regions chosen for earlier pages.

use sim_core::pages::{PAGES_PER_BIG_PAGE, PageMask, VaBlock, words_of};

use super::PrefetchPolicy;
use crate::policy::View;

/// The driver's own prefetcher.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    /// Occupancy in percent that a subtree has to exceed.
    pub threshold: u32,
}

impl PrefetchPolicy for Tree {
    fn pages(&mut self, _block: VaBlock, service: &Service<'_>, _view: &View<'_>) -> PageMask {
        prefetch(service, self.threshold)
    }
}

/// One service of one VA block, as the prefetcher sees it.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// Where the block starts inside its 2 MiB slot, in pages.
    pub first_page: usize,
    /// Pages of the block.
    pub pages: usize,
    /// Faulted pages, numbered from the start of the block.
    pub faulted: &'a PageMask,
    /// Pages resident at the destination.
    pub resident: &'a PageMask,
    /// Pages that thrash: excluded from growth and from the result.
    pub thrashing: &'a PageMask,
}

/// A bitmap of up to 512 + 15 leaves.
#[derive(Clone, Copy)]
struct Leaves([u64; 9]);

impl Leaves {
    fn fill(&mut self, first: usize, end: usize) {
        for (word, bits) in words_of(first, end) {
            self.0[word] |= bits;
        }
    }

    fn count(&self, first: usize, end: usize) -> usize {
        words_of(first, end)
            .map(|(word, bits)| (self.0[word] & bits).count_ones() as usize)
            .sum()
    }
}

/// The pages that the driver adds to a service, at `threshold` percent.
///
/// The result can name pages that are already resident; the service ignores those.
pub fn prefetch(service: &Service<'_>, threshold: u32) -> PageMask {
    let Service {
        pages: n,
        faulted,
        resident,
        thrashing,
        ..
    } = *service;
    let big = PAGES_PER_BIG_PAGE;
    let phase = service.first_page % big;
    let first_big = ((big - phase) % big).min(n);
    let end_big = ((phase + n) / big * big).saturating_sub(phase);
    let has_big = end_big > first_big;
    let offset = if has_big && first_big > 0 {
        big - first_big
    } else {
        0
    };
    let leaves = n + offset;

    let mut tree = Leaves([0; 9]);
    for (first, end) in (*faulted | *resident).runs().take_while(|run| run.0 < n) {
        tree.fill(first + offset, end.min(n) + offset);
    }
    let mut grow = |first: usize, end: usize| {
        if first < end && faulted.count_range(first, end) > 0 && thrashing.count_range(first, end) == 0 {
            tree.fill(first + offset, end + offset);
        }
    };
    if has_big {
        grow(0, first_big);
        for start in (first_big..end_big).step_by(big) {
            grow(start, start + big);
        }
        grow(end_big, n);
    } else {
        grow(0, n);
    }

    let mut out = PageMask::EMPTY;
    let levels = usize::BITS - (leaves.max(1) - 1).leading_zeros() + 1;
    for page in faulted.without(thrashing).iter() {
        let mut best = None;
        for level in 0..levels {
            let size = 1_usize << level;
            let start = (page + offset) / size * size;
            let end = (start + size).min(leaves);
            if 100 * tree.count(start, end) > threshold as usize * (end - start) {
                best = Some((start, end));
            }
        }
        let Some((start, end)) = best else { continue };
        // The clamp to `offset`, rather than to 0, is the driver's: it loses the first pages of
        // blocks with an unaligned start.
        let first = if start < offset { offset } else { start - offset };
        let last = if end < offset {
            offset
        } else {
            (end - offset).min(n)
        };
        if first < last {
            out |= PageMask::range(first, last);
        }
        if last == n {
            break;
        }
    }
    out.without(faulted).without(thrashing)
}
