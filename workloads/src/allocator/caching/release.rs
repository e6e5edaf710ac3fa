//! Giving memory back to the device (pytorch-caching-allocator 5, 6, 8).

use super::{Action, Backing, CachingAllocator};

impl CachingAllocator {
    /// Gives every unused segment back (`torch.cuda.empty_cache`); completes all pending frees first.
    pub fn empty_cache(&mut self) {
        self.release_cached();
    }

    pub(super) fn release_cached(&mut self) {
        self.stats.num_sync_all_streams += 1;
        self.finish_events();
        for large in [true, false] {
            self.release_pool(large);
        }
    }

    fn release_pool(&mut self, large: bool) {
        let free: Vec<u32> = self.pools[usize::from(large)]
            .free
            .iter()
            .map(|key| key.3)
            .collect();
        let (ranges, segments): (Vec<u32>, Vec<u32>) =
            free.into_iter().partition(|id| self.blocks[*id].range.is_some());
        for id in segments {
            if !self.blocks.is_split(id) {
                self.release(id);
            }
        }
        for id in ranges {
            self.unmap(id);
        }
    }

    /// Gives one unsplit free segment back.
    pub(super) fn release(&mut self, id: u32) {
        let (large, stream) = (self.blocks[id].large, self.blocks[id].stream);
        let range = self.segment(id);
        self.note(Action::SegmentFree, range.start, range.bytes, stream);
        self.device.free(range);
        self.backing.push(Backing::Free(range));
        self.stats.num_device_free += 1;
        self.stats.segment.sub(large, 1);
        self.stats.reserved_bytes.sub(large, range.bytes);
        if range.bytes >= self.options.max_split_size {
            self.stats.oversize_segments.sub(1);
        }
        self.take_out(id);
        self.blocks.remove(id);
    }

    /// Gives oversize blocks back until a request of `size` might fit: one that is large enough, else the
    /// largest ones. True if that sufficed.
    pub(super) fn release_oversize(&mut self, size: u64, large: bool, stream: u64) -> bool {
        if !self.splits_are_limited() {
            return false;
        }
        let key = size.max(self.options.max_split_size);
        let free = &self.pools[usize::from(large)].free;
        let first = free.range((stream, key, 0, 0)..).next().map(|key| key.3);
        if let Some(id) = first.filter(|id| {
            let block = &self.blocks[*id];
            block.stream == stream && block.range.is_none() && !self.blocks.is_split(*id)
        }) {
            self.release(id);
            return true;
        }
        let mut released = 0;
        while released < key {
            let below = self.pools[usize::from(large)].free.range(..(stream, key, 0, 0));
            let largest = below
                .rev()
                .take_while(|(other, block, ..)| *other == stream && *block >= self.options.max_split_size)
                .map(|key| key.3)
                // A rest can be that large if `large_segment_size_mb` exceeds the limit.
                .find(|id| self.blocks[*id].range.is_none() && !self.blocks.is_split(*id));
            let Some(id) = largest else { return false };
            released += self.blocks[id].size;
            self.release(id);
        }
        true
    }

    /// Gives old unsplit blocks of the large pool back while more than the threshold is reserved.
    pub(super) fn collect_garbage(&mut self) {
        let allowed = self.allowed().unwrap_or(u64::MAX);
        let threshold = (self.options.garbage_collection_threshold * allowed as f64) as u64;
        let reserved = self.reserved_bytes();
        if reserved <= threshold {
            return;
        }
        let target = reserved - threshold;
        let searches = self.pools[1].searches;
        let mut candidates: Vec<(u32, u64)> = self.pools[1]
            .free
            .iter()
            .map(|key| key.3)
            .filter(|id| !self.blocks.is_split(*id) && self.blocks[*id].range.is_none())
            .map(|id| (id, searches - self.blocks[id].inserted))
            .collect();
        let mut reclaimed = 0;
        while reclaimed < target && !candidates.is_empty() {
            let count = candidates.len() as u128;
            let total: u128 = candidates.iter().map(|(_, age)| u128::from(*age)).sum();
            // At least as old as the mean, without a division.
            let (old, young): (Vec<_>, Vec<_>) = candidates
                .into_iter()
                .partition(|(_, age)| u128::from(*age) * count >= total);
            for (id, _) in old {
                reclaimed += self.blocks[id].size;
                self.release(id);
            }
            candidates = young;
        }
    }
}
