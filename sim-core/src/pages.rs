//! The geometry of managed memory: 4 KiB pages, 64 KiB big pages, 2 MiB VA blocks.
//!
//! Names and sizes are the UVM driver's (`UVM_VA_BLOCK_BITS` = 21, `UVM_BIG_PAGE_SIZE` = 64 KiB).

use std::fmt;
use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a VA block and of a root chunk.
pub const BLOCK_BYTES: u64 = 2 << 20;
/// Pages of a full VA block.
pub const PAGES_PER_BLOCK: usize = 512;
/// Pages of a big page.
pub const PAGES_PER_BIG_PAGE: usize = 16;

/// A 4 KiB page of the virtual address space: address / 4096.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u64);

impl Page {
    /// The page that contains byte `address`.
    pub const fn containing(address: u64) -> Page {
        Page(address / PAGE_BYTES)
    }
    /// Its first byte.
    pub const fn address(self) -> u64 {
        self.0 * PAGE_BYTES
    }
    /// The VA block it lies in.
    pub const fn block(self) -> VaBlock {
        VaBlock(self.0 / PAGES_PER_BLOCK as u64)
    }
    /// Its index inside its VA block, 0..512.
    pub const fn index(self) -> usize {
        (self.0 % PAGES_PER_BLOCK as u64) as usize
    }
}

/// A 2 MiB-aligned slot of the virtual address space: address / 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VaBlock(pub u64);

impl VaBlock {
    /// The block that contains byte `address`.
    pub const fn containing(address: u64) -> VaBlock {
        VaBlock(address / BLOCK_BYTES)
    }
    /// Its first byte.
    pub const fn address(self) -> u64 {
        self.0 * BLOCK_BYTES
    }
    /// Page `index` of it.
    pub const fn page(self, index: usize) -> Page {
        Page(self.0 * PAGES_PER_BLOCK as u64 + index as u64)
    }
}

/// A set of pages of one VA block: 512 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PageMask(pub [u64; 8]);

/// The words of a bitmap that `first..end` reaches into, and its bits in each.
#[inline]
pub fn words_of(first: usize, end: usize) -> impl Iterator<Item = (usize, u64)> {
    (first / 64..end.div_ceil(64)).map(move |word| {
        let low = first.max(word * 64) - word * 64;
        let high = end.min(word * 64 + 64) - word * 64;
        // An empty range can lie in one word.
        let bits = if low < high {
            (u64::MAX >> (64 - (high - low))) << low
        } else {
            0
        };
        (word, bits)
    })
}

impl PageMask {
    /// No page.
    pub const EMPTY: PageMask = PageMask([0; 8]);
    /// All 512 pages.
    pub const FULL: PageMask = PageMask([u64::MAX; 8]);

    /// The pages `first..end` (`first <= end <= 512`).
    pub fn range(first: usize, end: usize) -> PageMask {
        debug_assert!(first <= end && end <= PAGES_PER_BLOCK);
        let mut mask = PageMask::EMPTY;
        for (word, bits) in words_of(first, end) {
            mask.0[word] = bits;
        }
        mask
    }

    /// One page.
    pub fn single(index: usize) -> PageMask {
        let mut mask = PageMask::EMPTY;
        mask.insert(index);
        mask
    }

    /// Is page `index` in the set?
    #[inline]
    pub const fn contains(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    /// Adds page `index`.
    #[inline]
    pub const fn insert(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    /// Takes page `index` out.
    #[inline]
    pub const fn remove(&mut self, index: usize) {
        self.0[index / 64] &= !(1 << (index % 64));
    }

    /// Number of pages.
    #[inline]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }

    /// Number of pages in `first..end`.
    pub fn count_range(&self, first: usize, end: usize) -> u32 {
        words_of(first, end)
            .map(|(word, bits)| (self.0[word] & bits).count_ones())
            .sum()
    }

    /// The pages of 64 KiB big page `index` (0..32), one bit each.
    #[inline]
    pub const fn big_page(&self, index: usize) -> u16 {
        (self.0[index / 4] >> (index % 4 * PAGES_PER_BIG_PAGE)) as u16
    }

    /// The last page in the set.
    pub fn last(&self) -> Option<usize> {
        let word = self.0.iter().rposition(|bits| *bits != 0)?;
        Some(word * 64 + 63 - self.0[word].leading_zeros() as usize)
    }

    /// No page at all?
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Not an array comparison: that is a call of memcmp.
        self.0.iter().fold(0, |any, word| any | word) == 0
    }

    /// All 512 pages?
    #[inline]
    pub fn is_full(&self) -> bool {
        self.0.iter().fold(u64::MAX, |all, word| all & word) == u64::MAX
    }

    /// The pages of `self` that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &PageMask) -> PageMask {
        PageMask(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Do the sets share a page?
    pub fn intersects(&self, other: &PageMask) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    /// Is every page of `self` in `other`?
    pub fn is_subset_of(&self, other: &PageMask) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & !b == 0)
    }

    /// The first page at or after `from` that is in the set.
    pub fn next_set(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        if word >= 8 {
            return None;
        }
        let mut bits = self.0[word] & (u64::MAX << (from % 64));
        loop {
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            word += 1;
            if word == 8 {
                return None;
            }
            bits = self.0[word];
        }
    }

    /// The first page at or after `from` that is not in the set.
    pub fn next_clear(&self, from: usize) -> Option<usize> {
        (!*self).next_set(from)
    }

    /// The pages, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let page = self.next_set(at)?;
            at = page + 1;
            Some(page)
        })
    }

    /// The maximal runs of consecutive pages `(first, end)`, ascending.
    pub fn runs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = self.next_set(at)?;
            let end = self.next_clear(first).unwrap_or(PAGES_PER_BLOCK);
            at = end;
            Some((first, end))
        })
    }
}

impl BitAnd for PageMask {
    type Output = PageMask;
    fn bitand(self, other: PageMask) -> PageMask {
        PageMask(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

impl BitAndAssign for PageMask {
    fn bitand_assign(&mut self, other: PageMask) {
        *self = *self & other;
    }
}

impl BitOr for PageMask {
    type Output = PageMask;
    fn bitor(self, other: PageMask) -> PageMask {
        PageMask(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

impl BitOrAssign for PageMask {
    fn bitor_assign(&mut self, other: PageMask) {
        *self = *self | other;
    }
}

impl Not for PageMask {
    type Output = PageMask;
    fn not(self) -> PageMask {
        PageMask(self.0.map(|w| !w))
    }
}

impl fmt::Debug for PageMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{")?;
        for (i, (first, end)) in self.runs().enumerate() {
            let comma = if i > 0 { " " } else { "" };
            write!(f, "{comma}[{first},{end})")?;
        }
        write!(f, "}}")
    }
}

/// A half-open range of bytes of the virtual address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl ByteRange {
    /// One past the last byte.
    pub const fn end(self) -> u64 {
        self.start + self.bytes
    }
    /// First page touched (meaningful when not empty).
    pub const fn first_page(self) -> Page {
        Page::containing(self.start)
    }
    /// One past the last page touched.
    pub const fn end_page(self) -> Page {
        Page(self.end().div_ceil(PAGE_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_and_runs_agree() {
        for (first, end) in [
            (0, 0),
            (0, 1),
            (3, 64),
            (63, 65),
            (64, 128),
            (1, 512),
            (0, 512),
            (511, 512),
        ] {
            let mask = PageMask::range(first, end);
            assert_eq!(mask.count() as usize, end - first);
            let expected: Vec<_> = if first < end { vec![(first, end)] } else { vec![] };
            assert_eq!(mask.runs().collect::<Vec<_>>(), expected);
            assert_eq!(mask.iter().collect::<Vec<_>>(), (first..end).collect::<Vec<_>>());
        }
        assert!(PageMask::range(0, 512).is_full());
        let mask = PageMask::range(7, 130) | PageMask::single(500);
        for first in 0..=512 {
            for end in [first, first + 1, first + 16, first + 64, 512] {
                if end <= 512 && first <= end {
                    let slow = (first..end).filter(|page| mask.contains(*page)).count();
                    assert_eq!(mask.count_range(first, end) as usize, slow);
                }
            }
        }
        for big in 0..32 {
            let bits = mask.big_page(big);
            assert!((0..16).all(|bit| mask.contains(16 * big + bit) == (bits >> bit & 1 == 1)));
        }
        assert_eq!(mask.last(), Some(500));
        assert_eq!(PageMask::EMPTY.last(), None);
        assert_eq!(PageMask::FULL.next_clear(0), None);
    }

    #[test]
    fn pages_and_blocks() {
        let page = Page::containing(BLOCK_BYTES * 3 + PAGE_BYTES * 7 + 5);
        assert_eq!(page.block(), VaBlock(3));
        assert_eq!(page.index(), 7);
        assert_eq!(VaBlock(3).page(7), page);
    }
}
