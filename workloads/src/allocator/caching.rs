//! The caching allocator of PyTorch (native backend, plain segments, one stream), exactly.
//!
//! Requests are rounded to 512 bytes; small (<= 1 MiB) and large ones have pools of their own; the
//! smallest sufficient free block is taken, lowest address among equals; blocks are split and merged
//! inside their segment; segments are never returned while managed memory does not run out.

use std::collections::{BTreeMap, BTreeSet};

use super::{AddressSpace, AllocError, Backing};

/// Every size is a multiple of this.
const MIN_BLOCK: u64 = 512;
/// Rounded sizes up to this go to the small pool.
const SMALL_SIZE: u64 = 1 << 20;
/// Segment of the small pool.
const SMALL_SEGMENT: u64 = 2 << 20;
/// Segment for rounded sizes below [`MIN_LARGE_ALLOC`].
const LARGE_SEGMENT: u64 = 20 << 20;
/// From this rounded size on, a request has a segment of its own.
const MIN_LARGE_ALLOC: u64 = 10 << 20;
/// Such segments are multiples of this.
const LARGE_ROUNDING: u64 = 2 << 20;

#[derive(Clone, Copy, Debug)]
struct Block {
    size: u64,
    large: bool,
    live: bool,
    /// First byte of its segment; a neighbour in address order with the same one can be merged.
    segment: u64,
}

/// State of the allocator.
#[derive(Clone, Debug, Default)]
pub struct CachingAllocator {
    space: AddressSpace,
    /// All blocks, by address.
    blocks: BTreeMap<u64, Block>,
    /// Free blocks of the small and the large pool, by (size, address).
    free: [BTreeSet<(u64, u64)>; 2],
    reserved: u64,
    allocated: u64,
}

impl CachingAllocator {
    /// Bytes of all segments.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved
    }

    /// Bytes of live blocks.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated
    }

    /// Allocates a block; a new segment is reported to `backing`. Zero bytes take no block.
    ///
    /// # Errors
    /// No addresses are left.
    pub fn allocate(&mut self, bytes: u64, backing: &mut Vec<Backing>) -> Result<u64, AllocError> {
        if bytes == 0 {
            return Ok(0);
        }
        let too_much = AllocError::AddressSpace { bytes };
        let size = bytes
            .max(MIN_BLOCK)
            .checked_next_multiple_of(MIN_BLOCK)
            .ok_or(too_much)?;
        let large = size > SMALL_SIZE;
        let found = self.free[usize::from(large)].range((size, 0)..).next().copied();
        let address = if let Some((block_size, address)) = found {
            self.free[usize::from(large)].remove(&(block_size, address));
            address
        } else {
            let request = if size <= SMALL_SIZE {
                SMALL_SEGMENT
            } else if size < MIN_LARGE_ALLOC {
                LARGE_SEGMENT
            } else {
                size.next_multiple_of(LARGE_ROUNDING)
            };
            let range = self.space.allocate(request)?;
            backing.push(Backing::Allocate(range));
            self.reserved += request;
            self.blocks.insert(
                range.start,
                Block {
                    size: request,
                    large,
                    live: false,
                    segment: range.start,
                },
            );
            range.start
        };
        let Some(block) = self.blocks.get_mut(&address) else {
            return Ok(address);
        };
        block.live = true;
        let remainder = block.size - size;
        let split = if large {
            remainder > SMALL_SIZE
        } else {
            remainder >= MIN_BLOCK
        };
        if split {
            block.size = size;
            let rest = Block {
                size: remainder,
                live: false,
                ..*block
            };
            self.blocks.insert(address + size, rest);
            self.free[usize::from(large)].insert((remainder, address + size));
            self.allocated += size;
        } else {
            self.allocated += block.size;
        }
        Ok(address)
    }

    /// Frees the block at `address` and merges it with free neighbours of its segment.
    pub fn free(&mut self, address: u64) {
        let Some(mut block) = self.blocks.get(&address).copied().filter(|block| block.live) else {
            return;
        };
        let mut start = address;
        self.allocated -= block.size;
        block.live = false;
        let pool = usize::from(block.large);
        let before = self.blocks.range(..start).next_back().map(|(at, b)| (*at, *b));
        let after = self.blocks.range(start + 1..).next().map(|(at, b)| (*at, *b));
        if let Some((at, neighbour)) = before.filter(|(_, b)| !b.live && b.segment == block.segment) {
            self.free[pool].remove(&(neighbour.size, at));
            self.blocks.remove(&start);
            start = at;
            block.size += neighbour.size;
        }
        if let Some((at, neighbour)) = after.filter(|(_, b)| !b.live && b.segment == block.segment) {
            self.free[pool].remove(&(neighbour.size, at));
            self.blocks.remove(&at);
            block.size += neighbour.size;
        }
        self.blocks.insert(start, block);
        self.free[pool].insert((block.size, start));
    }
}
