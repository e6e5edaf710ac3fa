//! Physical device memory: 2 MiB root chunks, their lists, and the victim order (uvm-driver 7).
//!
//! Chunks come from RM's page allocator (PMA), `2^pma_batch_order` at a time; a freed chunk goes back
//! to PMA. What eviction takes first: free chunks, then UNUSED, DISCARDED, USED, each oldest first.

use sim_core::pages::VaBlock;

use crate::tracker::Tracker;

/// Names a root chunk.
pub type ChunkId = u32;

const NONE: u32 = u32::MAX;

/// The list a root chunk is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum List {
    /// Allocated, no page of its block resident.
    Unused = 0,
    /// Its block was discarded.
    Discarded = 1,
    /// In use, by last service.
    Used = 2,
    /// On no list: free, in PMA's hands, or temporarily pinned.
    None = 3,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    owner: Option<VaBlock>,
    list: List,
    previous: u32,
    next: u32,
    zero: bool,
    tracker: Tracker,
    /// When it got its owner, as a count of assignments.
    assigned: u64,
    /// Memory of `cudaMalloc`: it stays off all lists until it is freed.
    pinned: bool,
}

/// Where an allocated chunk came from: what it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The driver's free list.
    FreeList,
    /// A call of PMA that succeeded.
    Pma,
}

/// The root chunks of one GPU.
#[derive(Clone, Debug)]
pub struct Pmm {
    chunks: Vec<Chunk>,
    /// Chunks on the driver's free list: known to be zero, and not.
    free_zero: Vec<ChunkId>,
    free_dirty: Vec<ChunkId>,
    /// Chunks that PMA can still give, fresh ones (zero) and returned ones.
    pma_fresh: u64,
    pma_returned: Vec<ChunkId>,
    batch: u64,
    capacity: u64,
    assignments: u64,
    heads: [(u32, u32); 3],
}

impl Pmm {
    /// `capacity` chunks, all with PMA; PMA gives `2^batch_order` at a time.
    pub fn new(capacity: u64, batch_order: u32) -> Pmm {
        Pmm {
            chunks: Vec::new(),
            free_zero: Vec::new(),
            free_dirty: Vec::new(),
            pma_fresh: capacity,
            pma_returned: Vec::new(),
            batch: 1 << batch_order,
            capacity,
            assignments: 0,
            heads: [(NONE, NONE); 3],
        }
    }

    /// Takes a chunk without evicting: from the free list, else from PMA. It is pinned (on no list).
    pub fn allocate(&mut self, owner: VaBlock) -> Option<(ChunkId, Source)> {
        let mut source = Source::FreeList;
        if self.free_zero.is_empty() && self.free_dirty.is_empty() {
            source = Source::Pma;
            for _ in 0..self.batch {
                if self.pma_fresh > 0 {
                    self.pma_fresh -= 1;
                    let id = self.chunks.len() as ChunkId;
                    self.chunks.push(Chunk {
                        owner: None,
                        list: List::None,
                        previous: NONE,
                        next: NONE,
                        zero: true,
                        tracker: Tracker::default(),
                        assigned: 0,
                        pinned: false,
                    });
                    self.free_zero.push(id);
                } else if let Some(id) = self.pma_returned.pop() {
                    self.free_dirty.push(id);
                } else {
                    break;
                }
            }
        }
        let id = self.free_zero.pop().or_else(|| self.free_dirty.pop())?;
        self.assign(id, owner);
        Some((id, source))
    }

    fn assign(&mut self, id: ChunkId, owner: VaBlock) {
        self.assignments += 1;
        let chunk = &mut self.chunks[id as usize];
        chunk.owner = Some(owner);
        chunk.assigned = self.assignments;
    }

    /// The oldest chunk of a list.
    pub fn head(&self, list: List) -> Option<ChunkId> {
        let head = if list == List::None {
            NONE
        } else {
            self.heads[list as usize].0
        };
        (head != NONE).then_some(head)
    }

    /// Chunks that exist, in whoever's hands.
    pub fn chunks(&self) -> u64 {
        self.chunks.len() as u64
    }

    /// Can the chunk be evicted: is it on a list?
    pub fn is_evictable(&self, id: ChunkId) -> bool {
        self.chunks[id as usize].list != List::None
    }

    /// All chunks that can be evicted, by number.
    pub fn evictable(&self) -> impl Iterator<Item = ChunkId> + '_ {
        (0..self.chunks.len() as ChunkId).filter(|id| self.is_evictable(*id))
    }

    /// When the chunk got its owner, as a count of assignments.
    pub fn assigned(&self, id: ChunkId) -> u64 {
        self.chunks[id as usize].assigned
    }

    /// Gives an evicted chunk to a new owner, pinned.
    pub fn reassign(&mut self, id: ChunkId, owner: VaBlock) {
        self.move_to(id, List::None);
        self.chunks[id as usize].zero = false;
        self.assign(id, owner);
    }

    /// Takes a chunk off its list for good: it can no longer be evicted.
    pub fn pin(&mut self, id: ChunkId) {
        self.move_to(id, List::None);
        self.chunks[id as usize].pinned = true;
    }

    /// Is the chunk pinned for good?
    pub fn is_pinned(&self, id: ChunkId) -> bool {
        self.chunks[id as usize].pinned
    }

    /// Returns a chunk to PMA.
    pub fn free(&mut self, id: ChunkId) {
        self.chunks[id as usize].pinned = false;
        self.move_to(id, List::None);
        let chunk = &mut self.chunks[id as usize];
        chunk.owner = None;
        chunk.zero = false;
        self.pma_returned.push(id);
    }

    /// Moves a chunk to the tail of a list; a pinned one stays where it is.
    pub fn move_to(&mut self, id: ChunkId, list: List) {
        if self.chunks[id as usize].pinned {
            return;
        }
        let Chunk {
            list: old,
            previous,
            next,
            ..
        } = self.chunks[id as usize];
        if old != List::None {
            match previous {
                NONE => self.heads[old as usize].0 = next,
                p => self.chunks[p as usize].next = next,
            }
            match next {
                NONE => self.heads[old as usize].1 = previous,
                n => self.chunks[n as usize].previous = previous,
            }
        }
        let mut previous = NONE;
        if list != List::None {
            previous = self.heads[list as usize].1;
            self.heads[list as usize].1 = id;
            match previous {
                NONE => self.heads[list as usize].0 = id,
                p => self.chunks[p as usize].next = id,
            }
        }
        let chunk = &mut self.chunks[id as usize];
        chunk.list = list;
        chunk.previous = previous;
        chunk.next = NONE;
    }

    /// The block that owns a chunk.
    pub fn owner(&self, id: ChunkId) -> Option<VaBlock> {
        self.chunks[id as usize].owner
    }

    /// Is the chunk's memory known to be zero?
    pub fn is_zero(&self, id: ChunkId) -> bool {
        self.chunks[id as usize].zero
    }

    /// Its memory has been written.
    pub fn mark_written(&mut self, id: ChunkId) {
        self.chunks[id as usize].zero = false;
    }

    /// Work on the chunk's memory that a new owner has to wait for.
    pub fn tracker(&mut self, id: ChunkId) -> &mut Tracker {
        &mut self.chunks[id as usize].tracker
    }

    /// Chunks that blocks own.
    pub fn owned(&self) -> u64 {
        (self.chunks.len() - self.free_zero.len() - self.free_dirty.len() - self.pma_returned.len()) as u64
    }

    /// All chunks, in whoever's hands.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Chunks that can be had without eviction.
    pub fn available(&self) -> u64 {
        self.capacity - self.owned()
    }

    /// Puts an evicted chunk on the driver's free list.
    pub fn recycle(&mut self, id: ChunkId) {
        self.move_to(id, List::None);
        let chunk = &mut self.chunks[id as usize];
        chunk.owner = None;
        chunk.zero = false;
        self.free_dirty.push(id);
    }

    /// Chunks on a list, oldest first.
    pub fn list_iter(&self, list: List) -> impl Iterator<Item = ChunkId> + '_ {
        let next = |id: u32| (id != NONE).then_some(id);
        std::iter::successors(self.head(list), move |id| next(self.chunks[*id as usize].next))
    }

    /// Chunks on a list, oldest first.
    pub fn list(&self, list: List) -> Vec<ChunkId> {
        self.list_iter(list).collect()
    }
}
