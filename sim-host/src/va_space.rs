//! The managed ranges of the process and the state of their VA blocks.

use sim_core::pages::{BLOCK_BYTES, ByteRange, Page, PageMask, VaBlock};
use thiserror::Error;

use crate::advice::AdviceTable;
use crate::va_block::VaBlockState;

/// A call on managed memory that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// The range is empty or not made of whole pages.
    #[error("range {start:#x} + {bytes} bytes is not a positive number of whole 4 KiB pages")]
    BadRange {
        /// First byte.
        start: u64,
        /// Length.
        bytes: u64,
    },
    /// The range overlaps a managed range.
    #[error("range {start:#x} + {bytes} bytes overlaps managed memory that is allocated already")]
    Overlap {
        /// First byte.
        start: u64,
        /// Length.
        bytes: u64,
    },
    /// Not all of the range is managed.
    #[error("range {start:#x} + {bytes} bytes is not managed memory")]
    NotManaged {
        /// First byte.
        start: u64,
        /// Length.
        bytes: u64,
    },
    /// `cudaMalloc` does not fit.
    #[error("{bytes} bytes of device memory are not free")]
    DeviceMemory {
        /// Length.
        bytes: u64,
    },
    /// A hint on memory of `cudaMalloc`.
    #[error(
        "range {start:#x} + {bytes} bytes is memory of cudaMalloc; hints and CPU accesses are for managed memory"
    )]
    DeviceOnly {
        /// First byte.
        start: u64,
        /// Length.
        bytes: u64,
    },
    /// Host memory is used up.
    #[error(
        "host.memory = {limit} bytes is used up by managed data (VA block {block:#x}): evictions and CPU \
         accesses need {bytes} bytes"
    )]
    HostMemory {
        /// What there is.
        limit: u64,
        /// What is needed.
        bytes: u64,
        /// First byte of the block without memory.
        block: u64,
    },
}

/// Blocks of a dense window of the address space.
#[derive(Clone, Debug, Default)]
pub struct VaSpace {
    first: u64,
    blocks: Vec<VaBlockState>,
    pub(crate) advice: AdviceTable,
    pub(crate) host: HostMemory,
}

/// Host memory behind managed data. What a block has had once it keeps until it is freed
/// (uvm-driver 4.4).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostMemory {
    /// Bytes in use.
    pub bytes: u64,
    /// Bytes there are, if limited.
    pub limit: Option<u64>,
    /// The block for which there was no memory, the first time.
    pub exhausted_at: Option<VaBlock>,
}

/// The pieces of a range, one per VA block.
pub fn pieces(range: ByteRange) -> impl Iterator<Item = (VaBlock, PageMask)> {
    let (first, end) = (range.first_page(), range.end_page());
    let blocks = first.block().0..end.0.div_ceil(sim_core::pages::PAGES_PER_BLOCK as u64);
    blocks.map(move |number| {
        let block = VaBlock(number);
        let start = if first.block() == block { first.index() } else { 0 };
        let stop = (end.0 - block.page(0).0).min(512) as usize;
        (block, PageMask::range(start, stop))
    })
}

impl VaSpace {
    /// The state of a block, if any page of it has ever been managed.
    pub fn block(&self, block: VaBlock) -> Option<&VaBlockState> {
        self.blocks.get(block.0.wrapping_sub(self.first) as usize)
    }

    /// The same, to change.
    pub fn block_mut(&mut self, block: VaBlock) -> Option<&mut VaBlockState> {
        self.blocks.get_mut(block.0.wrapping_sub(self.first) as usize)
    }

    /// Gives a block its host memory; false if it has it already.
    pub(crate) fn populate_cpu(&mut self, block: VaBlock) -> bool {
        let Some(state) = self.block_mut(block).filter(|state| !state.cpu_allocated) else {
            return false;
        };
        state.cpu_allocated = true;
        self.host.bytes += BLOCK_BYTES;
        if self.host.limit.is_some_and(|limit| self.host.bytes > limit) {
            self.host.exhausted_at.get_or_insert(block);
        }
        true
    }

    /// A block has no page any more.
    pub(crate) fn forget_block(&mut self, block: VaBlock, had_host_memory: bool) {
        self.advice.remove(&block);
        if had_host_memory {
            self.host.bytes -= BLOCK_BYTES;
        }
    }

    /// Is the page managed?
    pub fn is_managed(&self, page: Page) -> bool {
        self.block(page.block())
            .is_some_and(|state| state.valid.contains(page.index()))
    }

    /// Are all pages of a range managed?
    pub fn all_managed(&self, range: ByteRange) -> bool {
        pieces(range).all(|(block, pages)| {
            self.block(block)
                .is_some_and(|state| pages.is_subset_of(&state.valid))
        })
    }

    /// All blocks, by address.
    pub fn iter(&self) -> impl Iterator<Item = (VaBlock, &VaBlockState)> {
        self.blocks
            .iter()
            .enumerate()
            .map(|(i, state)| (VaBlock(self.first + i as u64), state))
    }

    /// Adds a range.
    ///
    /// # Errors
    /// A range that is not whole pages, or that overlaps another one.
    pub fn add(&mut self, range: ByteRange) -> Result<(), HostError> {
        let ByteRange { start, bytes } = range;
        if bytes == 0 || start % 4096 != 0 || start.checked_add(bytes).is_none_or(|end| end > 1 << 57) {
            return Err(HostError::BadRange { start, bytes });
        }
        let overlap = pieces(range).any(|(block, pages)| {
            self.block(block)
                .is_some_and(|state| state.valid.intersects(&pages))
        });
        if overlap {
            return Err(HostError::Overlap { start, bytes });
        }
        let first = start / BLOCK_BYTES;
        let end = range.end().div_ceil(BLOCK_BYTES);
        if self.blocks.is_empty() {
            self.first = first;
        }
        if first < self.first {
            let missing = (self.first - first) as usize;
            self.blocks
                .splice(0..0, std::iter::repeat_n(VaBlockState::default(), missing));
            self.first = first;
        }
        let needed = (end - self.first) as usize;
        if needed > self.blocks.len() {
            self.blocks.resize(needed, VaBlockState::default());
        }
        for (block, pages) in pieces(range) {
            if let Some(state) = self.block_mut(block) {
                state.valid |= pages;
            }
        }
        Ok(())
    }
}
