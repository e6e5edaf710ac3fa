//! Expandable segments (pytorch-caching-allocator 11): one range of addresses per stream and pool that
//! gets memory by the granule where a request needs it.

use sim_core::pages::ByteRange;

use super::blocks::Block;
use super::{Action, AllocError, Backing, CachingAllocator, SMALL_SEGMENT};

/// The largest range, for a device whose memory is not known: more than any device has.
const MAX_RANGE: u64 = 1 << 40;

/// A reserved range of addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub start: u64,
    /// Memory comes and goes in such pieces.
    pub granule: u64,
}

impl CachingAllocator {
    /// The size of a free block with the part behind it that can still be mapped.
    pub(super) fn growable_size(&self, id: u32) -> u64 {
        let behind = self.blocks[id].next.map(|next| &self.blocks[next]);
        self.blocks[id].size + behind.filter(|b| !b.mapped).map_or(0, |b| b.size)
    }

    /// Free and unmapped pieces from `id` on hold `size` bytes.
    fn has_room(&self, id: u32, size: u64) -> bool {
        let (mut bytes, mut at) = (0, Some(id));
        while let Some(block) = at.map(|id| &self.blocks[id]).filter(|b| b.is_available()) {
            bytes += block.size;
            if bytes >= size {
                return true;
            }
            at = block.next;
        }
        false
    }

    /// Where a request of `size` begins: the lowest place in the ranges of its stream, else a new range.
    fn place(&mut self, size: u64, large: bool, stream: u64) -> Result<u32, AllocError> {
        let unmapped = &self.pools[usize::from(large)].unmapped;
        for &(other, _, id) in unmapped.range((stream, 0, 0)..) {
            if other != stream {
                break;
            }
            let before = self.blocks[id].previous;
            let start = before.filter(|b| self.blocks[*b].is_available()).unwrap_or(id);
            if self.has_room(start, size) {
                return Ok(start);
            }
        }
        let granule = if large {
            self.options.large_segment
        } else {
            SMALL_SEGMENT
        };
        // 1 1/8 of the device's memory, in whole granules.
        let bytes = (self.device.total().min(MAX_RANGE) / 8 * 9)
            .checked_next_multiple_of(granule)
            .ok_or(AllocError::AddressSpace { bytes: size })?;
        let start = self.device.reserve(bytes)?;
        self.ranges.push(Range { start, granule });
        let mut block = Block::new(start, bytes, large, stream);
        block.mapped = false;
        block.range = Some(self.ranges.len() as u32 - 1);
        let id = self.blocks.add(block);
        self.pools[usize::from(large)]
            .unmapped
            .insert((stream, start, id));
        Ok(id)
    }

    /// A free block of at least `size` bytes, in no set; `None` if memory is full.
    pub(super) fn expand(&mut self, size: u64, large: bool, stream: u64) -> Result<Option<u32>, AllocError> {
        let mut id = self.place(size, large, stream)?;
        if !self.blocks[id].mapped {
            let part = size.min(self.blocks[id].size);
            if !self.map(id, part) {
                return Ok(None);
            }
        }
        while self.blocks[id].size < size {
            let missing = size - self.blocks[id].size;
            let Some(next) = self.blocks[id].next else {
                return Ok(None);
            };
            if !self.map(next, missing.min(self.blocks[next].size)) {
                return Ok(None);
            }
            // The mapped piece has taken the block before it in.
            id = next;
        }
        self.take_out(id);
        Ok(Some(id))
    }

    /// Puts memory behind the first `size` bytes of an unmapped piece, rounded up to whole granules, and
    /// merges it with its neighbours; it goes to the free set. False if memory is full.
    fn map(&mut self, id: u32, size: u64) -> bool {
        let Block {
            address,
            size: whole,
            large,
            stream,
            range,
            ..
        } = self.blocks[id];
        let granule = range.map_or(SMALL_SEGMENT, |range| self.ranges[range as usize].granule);
        let mapped = size.next_multiple_of(granule).min(whole);
        if !self.device.map(mapped) {
            return false;
        }
        let pool = usize::from(large);
        self.pools[pool].unmapped.remove(&(stream, address, id));
        if mapped < whole {
            let mut rest = Block::new(address + mapped, whole - mapped, large, stream);
            rest.mapped = false;
            rest.range = range;
            let rest = self.blocks.add(rest);
            let next = self.blocks[id].next;
            self.blocks.link(rest, Some(id), next);
            self.pools[pool].unmapped.insert((stream, address + mapped, rest));
            self.blocks[id].size = mapped;
        }
        self.blocks[id].mapped = true;
        for neighbour in [self.blocks[id].previous, self.blocks[id].next] {
            self.merge(id, neighbour);
        }
        self.put_in(id);
        self.stats.reserved_bytes.add(large, mapped);
        self.stats.num_device_alloc += 1;
        self.note(Action::SegmentMap, address, mapped, stream);
        self.back(address, address + mapped, granule, Backing::Allocate);
        true
    }

    /// Tells the runtime of granules: each is memory of its own.
    fn back(&mut self, start: u64, end: u64, granule: u64, make: impl Fn(ByteRange) -> Backing) {
        let mut at = start;
        while at < end {
            let bytes = granule.min(end - at);
            self.backing.push(make(ByteRange { start: at, bytes }));
            at += bytes;
        }
    }

    /// Takes the memory of the whole granules inside a free block away; a range without memory is given
    /// back.
    pub(super) fn unmap(&mut self, id: u32) {
        let Block {
            address,
            size,
            large,
            stream,
            range,
            ..
        } = self.blocks[id];
        let Some(index) = range else { return };
        let Range { start, granule } = self.ranges[index as usize];
        let first = start + (address - start).next_multiple_of(granule);
        let end = start + (address + size - start) / granule * granule;
        if first >= end {
            return;
        }
        self.take_out(id);
        let piece = |address, size| {
            let mut block = Block::new(address, size, large, stream);
            block.range = range;
            block
        };
        if first > address {
            let low = self.blocks.add(piece(address, first - address));
            let previous = self.blocks[id].previous;
            self.blocks.link(low, previous, Some(id));
            self.put_in(low);
        }
        if address + size > end {
            let high = self.blocks.add(piece(end, address + size - end));
            let next = self.blocks[id].next;
            self.blocks.link(high, Some(id), next);
            self.put_in(high);
        }
        let block = &mut self.blocks[id];
        (block.address, block.size, block.mapped) = (first, end - first, false);
        for neighbour in [self.blocks[id].previous, self.blocks[id].next] {
            self.merge(id, neighbour);
        }
        self.device.unmap(end - first);
        self.stats.reserved_bytes.sub(large, end - first);
        self.stats.num_device_free += 1;
        self.note(Action::SegmentUnmap, first, end - first, stream);
        self.back(first, end, granule, Backing::Free);
        if self.blocks.is_split(id) {
            let address = self.blocks[id].address;
            self.pools[usize::from(large)]
                .unmapped
                .insert((stream, address, id));
        } else {
            // The whole range has no memory left: it is given up.
            self.blocks.remove(id);
        }
    }
}
