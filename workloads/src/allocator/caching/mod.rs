//! The native caching allocator of PyTorch, exactly: addresses, segments, statistics, event log.
//!
//! Written from this project's description of it ("pytorch-caching-allocator N" in comments), which was
//! checked against version 2.7.1. Requests are rounded; small (<= 1 MiB) and large ones have pools of
//! their own; of the free blocks of a stream the smallest sufficient one is taken, lowest address among
//! equals; blocks are split, and merged inside their segment. Segments go back to the device only when it
//! is full, when garbage is collected, or by [`CachingAllocator::empty_cache`].
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`options`] | the option string, rounding |
//! | [`device`] | addresses and capacity behind the allocator |
//! | `blocks` | blocks in address order, free sets, merging |
//! | `expandable` | expandable ranges: mapping and unmapping by granule |
//! | `release` | giving memory back: oversize blocks, garbage collection, everything |
//! | [`stats`], [`snapshot`] | statistics; segments and blocks as they are now |

mod blocks;
pub mod device;
mod expandable;
pub mod options;
mod release;
pub mod snapshot;
pub mod stats;

use std::collections::{BTreeMap, HashMap, VecDeque};

use sim_core::pages::ByteRange;

use super::{AllocError, Backing};
use blocks::{Block, Blocks, Pool};
use device::DeviceMemory;
use expandable::Range;
use options::UNLIMITED;
pub use options::{OptionError, Options};
use stats::Stats;

/// Every size is a multiple of this.
const MIN_BLOCK: u64 = 512;
/// Rounded sizes up to this go to the small pool.
const SMALL_SIZE: u64 = 1 << 20;
/// Segment of the small pool, and granule of its expandable ranges.
const SMALL_SEGMENT: u64 = 2 << 20;
/// From this rounded size on, a request has a segment of its own.
const MIN_LARGE_ALLOC: u64 = 10 << 20;
/// Such segments are multiples of this.
const LARGE_ROUNDING: u64 = 2 << 20;

/// What the allocator logs (its own trace entries, same names).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// A segment was allocated.
    SegmentAlloc,
    /// A segment was given back.
    SegmentFree,
    /// A piece of an expandable range got memory.
    SegmentMap,
    /// A piece of an expandable range lost its memory.
    SegmentUnmap,
    /// A block was handed out; the size is the requested one.
    Alloc,
    /// A block was given back by the program.
    FreeRequested,
    /// It can be used again.
    FreeCompleted,
    /// No memory; the address is the device's free bytes, the size the rounded request.
    Oom,
}

impl Action {
    /// Its name in PyTorch's traces.
    pub const fn name(self) -> &'static str {
        match self {
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::SegmentMap => "segment_map",
            Action::SegmentUnmap => "segment_unmap",
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::Oom => "oom",
        }
    }
}

/// One entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogEntry {
    /// What.
    pub action: Action,
    /// Address; free bytes for [`Action::Oom`].
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Handle of the stream.
    pub stream: u64,
}

/// State of the allocator of one device.
#[derive(Clone, Debug)]
pub struct CachingAllocator {
    options: Options,
    device: DeviceMemory,
    blocks: Blocks,
    /// Small and large pool.
    pools: [Pool; 2],
    /// Live blocks by address.
    live: HashMap<u64, u32>,
    ranges: Vec<Range>,
    /// Frees that wait for an event of a stream, by its handle.
    events: BTreeMap<u64, VecDeque<u32>>,
    events_pending: bool,
    stats: Stats,
    backing: Vec<Backing>,
    log: Option<Vec<LogEntry>>,
}

impl Default for CachingAllocator {
    fn default() -> Self {
        CachingAllocator::new(Options::default(), DeviceMemory::managed(None))
    }
}

impl CachingAllocator {
    /// An empty allocator.
    pub fn new(options: Options, device: DeviceMemory) -> CachingAllocator {
        CachingAllocator {
            options,
            device,
            blocks: Blocks::default(),
            pools: Default::default(),
            live: HashMap::new(),
            ranges: Vec::new(),
            events: BTreeMap::new(),
            events_pending: false,
            stats: Stats::default(),
            backing: Vec::new(),
            log: None,
        }
    }

    /// Keeps a log from now on.
    pub fn keep_log(&mut self) {
        self.log = Some(Vec::new());
    }

    /// The log so far, empty without [`keep_log`](Self::keep_log).
    pub fn log(&self) -> &[LogEntry] {
        self.log.as_deref().unwrap_or_default()
    }

    /// Statistics.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Bytes of all segments.
    pub fn reserved_bytes(&self) -> u64 {
        self.stats.reserved_bytes.all.current
    }

    /// Bytes of live blocks.
    pub fn allocated_bytes(&self) -> u64 {
        self.stats.allocated_bytes.all.current
    }

    /// What the runtime has been asked for since the last call is moved to `to`.
    pub fn drain_backing(&mut self, to: &mut Vec<Backing>) {
        to.append(&mut self.backing);
    }

    fn note(&mut self, action: Action, address: u64, size: u64, stream: u64) {
        if let Some(log) = &mut self.log {
            log.push(LogEntry {
                action,
                address,
                size,
                stream,
            });
        }
    }

    /// Bytes that may be reserved, if a fraction is set.
    fn allowed(&self) -> Option<u64> {
        let fraction = self.options.memory_fraction?;
        Some((fraction * self.device.total() as f64) as u64)
    }

    fn collects_garbage(&self) -> bool {
        self.options.memory_fraction.is_some() && self.options.garbage_collection_threshold > 0.0
    }

    /// Allocates `bytes` for a stream, by its handle (0: the default stream); the block's address. Zero
    /// bytes take no block and have address 0.
    ///
    /// # Errors
    /// Memory or addresses are used up.
    pub fn malloc(&mut self, bytes: u64, stream: u64) -> Result<u64, AllocError> {
        if bytes == 0 {
            return Ok(0);
        }
        self.poll_events();
        let size = self
            .options
            .round(bytes)
            .ok_or(AllocError::AddressSpace { bytes })?;
        let large = size > SMALL_SIZE;
        let found = self.find(size, large, stream);
        let id = match found {
            Some(id) => id,
            None => self.more_memory(size, large, stream)?,
        };
        self.hand_out(id, bytes, size);
        Ok(self.blocks[id].address)
    }

    /// The free block to take, removed from its set (4.3, 5, 11).
    fn find(&mut self, size: u64, large: bool, stream: u64) -> Option<u32> {
        if self.collects_garbage() {
            self.pools[usize::from(large)].searches += 1;
        }
        let free = &self.pools[usize::from(large)].free;
        let mut candidates = free.range((stream, size, 0, 0)..).map(|key| key.3);
        let mut id = candidates.next()?;
        if self.blocks[id].stream != stream {
            return None;
        }
        if self.blocks[id].range.is_some() {
            for next in candidates {
                let better = self.blocks[id].range.is_some()
                    && self.blocks[next].stream == stream
                    && self.growable_size(next) < self.growable_size(id);
                if !better {
                    break;
                }
                id = next;
            }
        }
        let most = self.options.max_split_size;
        let block = self.blocks[id].size;
        let oversize = if size < most {
            block >= most
        } else {
            block >= size.saturating_add(self.options.max_non_split_rounding)
        };
        if oversize {
            return None;
        }
        self.take_out(id);
        Some(id)
    }

    /// A block of new memory; gives cached memory back where that is needed (4.5 to 4.9).
    fn more_memory(&mut self, size: u64, large: bool, stream: u64) -> Result<u32, AllocError> {
        if self.collects_garbage() {
            self.collect_garbage();
        }
        if let Some(id) = self.new_memory(size, large, stream)? {
            return Ok(id);
        }
        if self.release_oversize(size, large, stream)
            && let Some(id) = self.new_memory(size, large, stream)?
        {
            return Ok(id);
        }
        self.release_cached();
        self.stats.num_alloc_retries += 1;
        if let Some(id) = self.new_memory(size, large, stream)? {
            return Ok(id);
        }
        if self.device.exceed() {
            let id = self.new_memory(size, large, stream);
            self.device.limited_again();
            if let Some(id) = id? {
                return Ok(id);
            }
        }
        self.stats.num_ooms += 1;
        let free = self.device.free_bytes();
        self.note(Action::Oom, free, size, stream);
        let reserved = self.reserved_bytes();
        Err(AllocError::OutOfMemory {
            // PyTorch's message has the size of the segment, not of the tensor.
            requested: self.segment_size(size, large)?,
            capacity: self.device.total(),
            free,
            allocated: self.allocated_bytes(),
            reserved,
            allowed: self.allowed(),
        })
    }

    /// What the device is asked for when a rounded request needs memory (4.6).
    fn segment_size(&self, size: u64, large: bool) -> Result<u64, AllocError> {
        if !large {
            Ok(SMALL_SEGMENT)
        } else if size < MIN_LARGE_ALLOC {
            Ok(self.options.large_segment)
        } else {
            size.checked_next_multiple_of(LARGE_ROUNDING)
                .ok_or(AllocError::AddressSpace { bytes: size })
        }
    }

    /// One try at a new segment, or at growing an expandable range; `None` if memory is full.
    fn new_memory(&mut self, size: u64, large: bool, stream: u64) -> Result<Option<u32>, AllocError> {
        let request = self.segment_size(size, large)?;
        let allowed = self.allowed().unwrap_or(u64::MAX);
        if request > allowed.saturating_sub(self.reserved_bytes()) {
            return Ok(None);
        }
        if self.options.expandable_segments {
            return self.expand(size, large, stream);
        }
        let Some(range) = self.device.allocate(request)? else {
            return Ok(None);
        };
        self.backing.push(Backing::Allocate(range));
        self.stats.num_device_alloc += 1;
        self.stats.segment.add(large, 1);
        self.stats.reserved_bytes.add(large, request);
        if request >= self.options.max_split_size {
            self.stats.oversize_segments.add(1);
        }
        self.note(Action::SegmentAlloc, range.start, request, stream);
        Ok(Some(self.blocks.add(Block::new(
            range.start,
            request,
            large,
            stream,
        ))))
    }

    /// Splits the block, which is in no set, and makes it live (4.10, 4.11).
    fn hand_out(&mut self, id: u32, bytes: u64, size: u64) {
        let Block {
            size: whole,
            large,
            stream,
            range,
            ..
        } = self.blocks[id];
        let was_split = self.blocks.is_split(id);
        let remainder = whole - size;
        let split = if !large || range.is_some() {
            remainder >= MIN_BLOCK
        } else {
            size < self.options.max_split_size && remainder > SMALL_SIZE
        };
        let inactive = range.is_none();
        if split {
            let rest = self.blocks.split_low(id, size);
            self.put_in(rest);
            if inactive && was_split {
                self.stats.inactive_split_bytes.sub(large, size);
            } else if inactive {
                self.stats.inactive_split_bytes.add(large, remainder);
                self.stats.inactive_split.add(large, 1);
            }
        } else if inactive && was_split {
            self.stats.inactive_split_bytes.sub(large, whole);
            self.stats.inactive_split.sub(large, 1);
        }
        let block = &mut self.blocks[id];
        block.live = true;
        block.requested = bytes;
        let (address, taken) = (block.address, block.size);
        self.live.insert(address, id);
        self.note(Action::Alloc, address, bytes, stream);
        self.stats.allocation.add(large, 1);
        self.stats.allocated_bytes.add(large, taken);
        self.stats.requested_bytes.add(large, bytes);
        self.stats.active.add(large, 1);
        self.stats.active_bytes.add(large, taken);
        if taken >= self.options.max_split_size {
            self.stats.oversize_allocations.add(1);
        }
    }

    /// Frees the block at `address` (7); an address without live block is passed over.
    pub fn free(&mut self, address: u64) {
        let Some(id) = self.live.remove(&address) else {
            return;
        };
        let block = &mut self.blocks[id];
        block.live = false;
        let (size, requested, large, stream) = (block.size, block.requested, block.large, block.stream);
        let users = std::mem::take(&mut block.users);
        block.events = users.len() as u32;
        self.stats.allocation.sub(large, 1);
        self.stats.allocated_bytes.sub(large, size);
        if size >= self.options.max_split_size {
            self.stats.oversize_allocations.sub(1);
        }
        self.note(Action::FreeRequested, address, requested, stream);
        if users.is_empty() {
            self.complete_free(id);
        }
        for user in users {
            self.events.entry(user).or_default().push_back(id);
        }
    }

    /// The block at `address` is used on another stream: its free will wait for that stream.
    pub fn record_stream(&mut self, address: u64, stream: u64) {
        if let Some(id) = self.live.get(&address) {
            let block = &mut self.blocks[*id];
            if block.stream != stream && !block.users.contains(&stream) {
                block.users.push(stream);
            }
        }
    }

    /// While `pending`, no event that a free waits for is complete.
    pub fn set_events_pending(&mut self, pending: bool) {
        self.events_pending = pending;
    }

    /// Completes the frees whose events are done.
    fn poll_events(&mut self) {
        if !self.events_pending && !self.events.is_empty() {
            self.finish_events();
        }
    }

    /// Completes all events, stream by stream in the order of handles (PyTorch leaves that order open).
    fn finish_events(&mut self) {
        for (_, queue) in std::mem::take(&mut self.events) {
            for id in queue {
                self.blocks[id].events -= 1;
                if self.blocks[id].events == 0 {
                    self.complete_free(id);
                }
            }
        }
    }

    fn complete_free(&mut self, id: u32) {
        let Block {
            address,
            size,
            requested,
            large,
            stream,
            range,
            ..
        } = self.blocks[id];
        self.note(Action::FreeCompleted, address, requested, stream);
        for neighbour in [self.blocks[id].previous, self.blocks[id].next] {
            if let Some(merged) = self.merge(id, neighbour)
                && range.is_none()
            {
                self.stats.inactive_split_bytes.sub(large, merged);
                self.stats.inactive_split.sub(large, 1);
            }
        }
        self.put_in(id);
        if self.blocks.is_split(id) && range.is_none() {
            let size = self.blocks[id].size;
            self.stats.inactive_split_bytes.add(large, size);
            self.stats.inactive_split.add(large, 1);
        }
        self.stats.active.sub(large, 1);
        self.stats.active_bytes.sub(large, size);
        self.stats.requested_bytes.sub(large, requested);
    }

    /// The range of a segment, for the runtime.
    fn segment(&self, id: u32) -> ByteRange {
        ByteRange {
            start: self.blocks[id].address,
            bytes: self.blocks[id].size,
        }
    }

    /// Is `max_split_size` set?
    fn splits_are_limited(&self) -> bool {
        self.options.max_split_size != UNLIMITED
    }
}
