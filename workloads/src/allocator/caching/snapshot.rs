//! Segments and blocks as they are now (`torch.cuda.memory_snapshot`).

use super::CachingAllocator;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// In use.
    ActiveAllocated,
    /// Freed, waiting for events of other streams.
    ActivePendingFree,
    /// Free.
    Inactive,
}

impl BlockState {
    /// Its name in snapshots.
    pub const fn name(self) -> &'static str {
        match self {
            BlockState::ActiveAllocated => "active_allocated",
            BlockState::ActivePendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        }
    }
}

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes of its last request.
    pub requested: u64,
    /// What it is.
    pub state: BlockState,
}

/// One segment, or one contiguous piece with memory of an expandable range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// Address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Of the large pool.
    pub large: bool,
    /// Handle of its stream.
    pub stream: u64,
    /// Its blocks, by address.
    pub blocks: Vec<BlockView>,
}

impl CachingAllocator {
    /// All segments, by address.
    pub fn snapshot(&self) -> Vec<SegmentView> {
        let mut segments = Vec::new();
        for head in self.blocks.heads() {
            let mut open: Option<SegmentView> = None;
            let mut at = Some(head);
            while let Some(block) = at.map(|id| &self.blocks[id]) {
                at = block.next;
                if !block.mapped {
                    segments.extend(open.take());
                    continue;
                }
                let segment = open.get_or_insert_with(|| SegmentView {
                    address: block.address,
                    size: 0,
                    large: block.large,
                    stream: block.stream,
                    blocks: Vec::new(),
                });
                segment.size += block.size;
                segment.blocks.push(BlockView {
                    address: block.address,
                    size: block.size,
                    requested: block.requested,
                    state: if block.live {
                        BlockState::ActiveAllocated
                    } else if block.events > 0 || !block.users.is_empty() {
                        BlockState::ActivePendingFree
                    } else {
                        BlockState::Inactive
                    },
                });
            }
            segments.extend(open);
        }
        segments.sort_unstable_by_key(|segment| segment.address);
        segments
    }
}
