//! Pages that leave the device, and `cudaMemPrefetchAsync` (uvm-driver 9.1, 10).

use sim_core::Time;
use sim_core::pages::{PageMask, VaBlock};
use sim_core::push::{Cause, ChannelKind, Direction, Method, Ticket};
use sim_core::tools::Processor;

use crate::device::Device;
use crate::pmm::List;
use crate::service::{Cursor, Memory, pieces, tlb_invalidate};
use crate::stats::BatchRecord;
use crate::tracker::Tracker;

impl Memory {
    /// Takes the GPU's mappings of pages away.
    pub fn unmap_gpu<D: Device>(&mut self, block: VaBlock, pages: &PageMask, cursor: &mut Cursor<'_, D>) {
        let Some(state) = self.space.block_mut(block) else {
            return;
        };
        let unmapping = state.mapped & *pages;
        if unmapping.is_empty() {
            return;
        }
        // A whole block was one entry perhaps; a part of it is split into small ones.
        let entries = if unmapping == state.mapped {
            state.entries_to_unmap()
        } else {
            unmapping.count()
        };
        cursor.at += self.cost.push + self.cost.pte_method.times(u64::from(entries));
        let tracker = state.tracker;
        let unmap = Method::UnmapPtes {
            block,
            pages: unmapping,
            entries,
        };
        let unmapped = cursor.push(
            ChannelKind::MemOps,
            &tracker,
            vec![unmap, tlb_invalidate(entries)],
        );
        state.mapped = state.mapped.without(&unmapping);
        state.remote = state.remote.without(&unmapping);
        state.read_only = state.read_only.without(&unmapping);
        state.tracker.add(unmapped);
        self.batch_tracker.add(unmapped);
    }

    /// Takes the CPU's mappings of pages away: synchronous, one call per run (uvm-driver 4.1).
    pub fn unmap_cpu<D: Device>(&mut self, block: VaBlock, pages: &PageMask, cursor: &mut Cursor<'_, D>) {
        let (call, page) = (self.unmap_call(), self.cost.cpu_unmap_page);
        let Some(state) = self.space.block_mut(block) else {
            return;
        };
        let unmapped = state.cpu_mapped & *pages;
        for (first, end) in unmapped.runs() {
            cursor.at += call + page.times((end - first) as u64);
        }
        state.cpu_mapped = state.cpu_mapped.without(&unmapped);
        cursor.record.cpu_unmapped_pages += unmapped.count();
    }

    /// One call that unmaps a run of pages of the CPU: each further thread of the process runs on a
    /// core that has to be interrupted to drop its TLB entries.
    pub fn unmap_call(&self) -> Time {
        let others = u64::from(self.params.host_threads.saturating_sub(1));
        self.cost.cpu_unmap_call + self.cost.cpu_unmap_thread.times(others)
    }

    /// Pages of both sides leave the device.
    pub fn drop_gpu_copy<D: Device>(&mut self, block: VaBlock, pages: &PageMask, cursor: &mut Cursor<'_, D>) {
        self.unmap_gpu(block, pages, cursor);
        let Some(state) = self.space.block_mut(block) else {
            return;
        };
        state.resident = state.resident.without(pages);
        self.unused_if_empty(block);
    }

    /// Pages of both sides leave the host.
    pub fn drop_cpu_copy<D: Device>(&mut self, block: VaBlock, pages: &PageMask, cursor: &mut Cursor<'_, D>) {
        self.unmap_cpu(block, pages, cursor);
        if let Some(state) = self.space.block_mut(block) {
            state.cpu_resident = state.cpu_resident.without(pages);
        }
    }

    /// The chunk of a block that has lost its last resident page is the first to be evicted
    /// (uvm-driver 7.3).
    fn unused_if_empty(&mut self, block: VaBlock) {
        if let Some(state) = self.space.block(block)
            && state.resident.is_empty()
            && let Some(chunk) = state.chunk
        {
            self.pmm.move_to(chunk, List::Unused);
        }
    }

    /// Makes pages resident on the CPU: unmap on the GPU, populate, copy. `faulted` pages move for
    /// `cause`, the others because of the prefetcher. The chunk is kept.
    pub fn make_resident_on_cpu<D: Device>(
        &mut self,
        block: VaBlock,
        pages: &PageMask,
        faulted: &PageMask,
        cause: Cause,
        cursor: &mut Cursor<'_, D>,
    ) -> Option<Ticket> {
        let leaving = self.space.block(block)?.resident & *pages;
        self.unmap_gpu(block, &leaving, cursor);
        if self.space.populate_cpu(block) {
            cursor.at += self.cost.page_population;
        }
        let state = self.space.block_mut(block)?;
        let copied = leaving.without(&state.cpu_resident).without(&state.discarded);
        let mut runs: Vec<(usize, usize, Cause)> = Vec::new();
        for (mask, cause) in [
            (copied & *faulted, cause),
            (copied.without(faulted), Cause::Prefetch),
        ] {
            for (first, end) in mask.runs() {
                runs.extend(pieces(first, end, self.params.copy_split).map(|(f, e)| (f, e, cause)));
            }
        }
        runs.sort_unstable_by_key(|run| run.0);
        let mut ticket = None;
        if !runs.is_empty() {
            cursor.at += self.cost.push + self.cost.copy_method.times(runs.len() as u64);
            let methods = runs
                .into_iter()
                .map(|(first, end, cause)| Method::Copy {
                    direction: Direction::DeviceToHost,
                    cause,
                    first: block.page(first),
                    pages: (end - first) as u32,
                })
                .collect();
            let tracker = state.tracker;
            let pushed = cursor.push(ChannelKind::DeviceToHost, &tracker, methods);
            state.tracker.add(pushed);
            let to = (Processor::Cpu, cause);
            self.thrashing
                .moved(block, &copied, to, &mut self.stats.thrashing, cursor);
            ticket = Some(pushed);
        }
        self.stats.cpu_migrated_pages += u64::from(copied.count());
        state.cpu_resident |= *pages & state.valid;
        // Reads leave the copy of a read-mostly page on the device; it has become read-only.
        state.resident = state.resident.without(&leaving.without(&state.read_mostly));
        state.discarded = state.discarded.without(&leaving);
        let chunk = state.chunk;
        if let (Some(chunk), Some(ticket)) = (chunk, ticket) {
            self.pmm.tracker(chunk).add(ticket);
        }
        self.unused_if_empty(block);
        ticket
    }

    /// One block of a migration that the program asks for: made resident; mapped too, if `map`.
    pub fn migrate_block<D: Device>(
        &mut self,
        block: VaBlock,
        pages: &PageMask,
        (to, map): (Processor, bool),
        now: Time,
        device: &mut D,
        done: &mut Tracker,
    ) -> Time {
        let mut record = BatchRecord::default();
        let mut cursor = Cursor::new(now + self.cost.block_fixed, device, &mut record);
        match to {
            Processor::Gpu if map => {
                self.make_resident(block, pages, &PageMask::EMPTY, Cause::User, &mut cursor);
            }
            Processor::Gpu => {
                self.move_to_gpu(block, pages, &PageMask::EMPTY, Cause::User, &mut cursor);
            }
            Processor::Cpu => {
                self.make_resident_on_cpu(block, pages, pages, Cause::User, &mut cursor);
                self.map_accessed_by(block, &mut cursor);
            }
        }
        if let Some(state) = self.space.block(block) {
            done.merge(&state.tracker);
        }
        cursor.at
    }
}
