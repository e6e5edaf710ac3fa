//! Blocks in address order, and the sets of free ones.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use super::CachingAllocator;

/// A piece of a segment or of an expandable range.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub address: u64,
    pub size: u64,
    /// Bytes of its last request.
    pub requested: u64,
    pub large: bool,
    pub stream: u64,
    pub live: bool,
    /// Has memory; always, outside expandable ranges.
    pub mapped: bool,
    /// Its expandable range.
    pub range: Option<u32>,
    /// Neighbours inside the segment.
    pub previous: Option<u32>,
    pub next: Option<u32>,
    /// Other streams that use it.
    pub users: Vec<u64>,
    /// Events that its free waits for.
    pub events: u32,
    /// Searches of its pool when it came into the free set.
    pub inserted: u64,
}

impl Block {
    pub fn new(address: u64, size: u64, large: bool, stream: u64) -> Block {
        Block {
            address,
            size,
            requested: 0,
            large,
            stream,
            live: false,
            mapped: true,
            range: None,
            previous: None,
            next: None,
            users: Vec::new(),
            events: 0,
            inserted: 0,
        }
    }

    /// Free, and waiting for nothing.
    pub fn is_available(&self) -> bool {
        !self.live && self.events == 0 && self.users.is_empty()
    }
}

/// All blocks; a block keeps its number for life.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    slots: Vec<Block>,
    unused: Vec<u32>,
}

impl Index<u32> for Blocks {
    type Output = Block;
    fn index(&self, id: u32) -> &Block {
        &self.slots[id as usize]
    }
}

impl IndexMut<u32> for Blocks {
    fn index_mut(&mut self, id: u32) -> &mut Block {
        &mut self.slots[id as usize]
    }
}

impl Blocks {
    pub fn add(&mut self, block: Block) -> u32 {
        if let Some(id) = self.unused.pop() {
            self.slots[id as usize] = block;
            return id;
        }
        self.slots.push(block);
        self.slots.len() as u32 - 1
    }

    pub fn remove(&mut self, id: u32) {
        // An emptied slot belongs to no segment.
        self[id] = Block::new(0, 0, false, 0);
        self.unused.push(id);
    }

    /// Numbers of the blocks that begin a segment or an expandable range.
    pub fn heads(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.slots.len() as u32).filter(|id| self[*id].size > 0 && self[*id].previous.is_none())
    }

    pub fn is_split(&self, id: u32) -> bool {
        self[id].previous.is_some() || self[id].next.is_some()
    }

    /// Cuts `size` bytes off the low end of `id`, which keeps that part; the number of the rest.
    ///
    /// The rest takes over what the block was (its last request): PyTorch makes a new block of the low
    /// part, which is why a free block can carry the size of an old request.
    pub fn split_low(&mut self, id: u32, size: u64) -> u32 {
        let whole = self[id].clone();
        let rest = self.add(Block {
            address: whole.address + size,
            size: whole.size - size,
            previous: Some(id),
            ..whole
        });
        if let Some(next) = self[rest].next {
            self[next].previous = Some(rest);
        }
        let low = &mut self[id];
        low.size = size;
        low.next = Some(rest);
        rest
    }

    /// Links `id` in between two neighbours.
    pub fn link(&mut self, id: u32, previous: Option<u32>, next: Option<u32>) {
        if let Some(previous) = previous {
            self[previous].next = Some(id);
        }
        if let Some(next) = next {
            self[next].previous = Some(id);
        }
        self[id].previous = previous;
        self[id].next = next;
    }
}

/// The free blocks of one pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// (stream, size, address, block).
    pub free: BTreeSet<(u64, u64, u64, u32)>,
    /// Pieces of expandable ranges without memory: (stream, address, block).
    pub unmapped: BTreeSet<(u64, u64, u32)>,
    /// Searches made, counted while garbage is collected.
    pub searches: u64,
}

impl CachingAllocator {
    fn key(&self, id: u32) -> (u64, u64, u64, u32) {
        let block = &self.blocks[id];
        (block.stream, block.size, block.address, id)
    }

    /// Puts a block into the free set.
    pub(super) fn put_in(&mut self, id: u32) {
        let key = self.key(id);
        let pool = &mut self.pools[usize::from(self.blocks[id].large)];
        pool.free.insert(key);
        self.blocks[id].inserted = pool.searches;
    }

    /// Takes a block out of the free set.
    pub(super) fn take_out(&mut self, id: u32) {
        let key = self.key(id);
        self.pools[usize::from(self.blocks[id].large)].free.remove(&key);
    }

    /// Merges a neighbour into `id`, which is in no set, if it is available: the neighbour's size.
    pub(super) fn merge(&mut self, id: u32, neighbour: Option<u32>) -> Option<u64> {
        let other = neighbour?;
        let block = &self.blocks[other];
        if !block.is_available() || block.mapped != self.blocks[id].mapped {
            return None;
        }
        let (address, size) = (block.address, block.size);
        let (previous, next) = (block.previous, block.next);
        if block.mapped {
            self.take_out(other);
        } else {
            let key = (block.stream, address, other);
            self.pools[usize::from(block.large)].unmapped.remove(&key);
        }
        if self.blocks[id].previous == neighbour {
            let next = self.blocks[id].next;
            self.blocks[id].address = address;
            self.blocks.link(id, previous, next);
        } else {
            let previous = self.blocks[id].previous;
            self.blocks.link(id, previous, next);
        }
        self.blocks[id].size += size;
        self.blocks.remove(other);
        Some(size)
    }
}
