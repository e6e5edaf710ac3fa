//! Servicing the faults of one VA block (uvm-driver 3.6, 4, 7.4).

use sim_core::Time;
use sim_core::access::AccessKind;
use sim_core::pages::{PAGE_BYTES, PageMask, VaBlock};
use sim_core::push::{Cause, ChannelKind, Direction, Method, Push, Sharing, Ticket};
use sim_core::tools::{MapRemoteCause, Processor, ToolsEvent};

use crate::cost::HostCost;
use crate::device::Device;
use crate::fetch::CoalescedFault;
use crate::params::{CopySplit, DriverParams};
use crate::pmm::{ChunkId, List, Pmm, Source};
use crate::policy::state::{Policies, view};
use crate::prefetch::Service;
use crate::stats::{BatchRecord, DriverStats};
use crate::thrashing::Thrashing;
use crate::tracker::Tracker;
use crate::va_space::VaSpace;

/// More ranges than this in one mapping operation are invalidated as a whole (uvm-driver 4.7).
const TARGETED_INVALIDATES: u32 = 4;

/// The state that a service works on.
#[derive(Debug)]
pub(crate) struct Memory {
    pub params: DriverParams,
    pub cost: HostCost,
    pub space: VaSpace,
    pub pmm: Pmm,
    pub stats: DriverStats,
    /// All work of the batch.
    pub batch_tracker: Tracker,
    pub policies: Policies,
    pub thrashing: Thrashing,
}

/// A service in progress: the CPU time it has come to, and what it has counted.
pub(crate) struct Cursor<'a, D> {
    pub at: Time,
    pub device: &'a mut D,
    pub record: &'a mut BatchRecord,
    pub evicted: bool,
    /// Pushes report their completion.
    pub notify: bool,
}

impl<'a, D: Device> Cursor<'a, D> {
    /// Of a service that begins at `at`; its pushes do not report their completion.
    pub fn new(at: Time, device: &'a mut D, record: &'a mut BatchRecord) -> Cursor<'a, D> {
        Cursor {
            at,
            device,
            record,
            evicted: false,
            notify: false,
        }
    }

    pub fn push(&mut self, channel: ChannelKind, acquire: &Tracker, methods: Vec<Method>) -> Ticket {
        self.device.submit(Push {
            channel,
            submit: self.at,
            acquire: acquire.acquires(channel),
            methods,
            notify: self.notify,
        })
    }
}

pub(crate) fn tlb_invalidate(entries: u32) -> Method {
    Method::TlbInvalidate {
        targeted: (entries <= TARGETED_INVALIDATES).then_some(entries),
    }
}

impl Memory {
    /// Services the sorted faults of one block from `now` on; returns when the CPU is done with it
    /// and whether it evicted.
    pub fn service_block<D: Device>(
        &mut self,
        block: VaBlock,
        faults: &[CoalescedFault],
        now: Time,
        device: &mut D,
        record: &mut BatchRecord,
    ) -> (Time, bool) {
        let mut cursor = Cursor::new(now + self.cost.block_fixed, device, record);
        let Some(state) = self.space.block(block) else {
            self.stats.stale_faults += faults.len() as u64;
            return (cursor.at, false);
        };
        let (mut faulted, mut written) = (PageMask::EMPTY, PageMask::EMPTY);
        let mut last = None;
        for fault in faults {
            let index = fault.page.index();
            if last == Some(index) {
                self.stats.duplicate_faults += u64::from(fault.instances);
                continue;
            }
            last = Some(index);
            cursor.record.unique_pages += 1;
            self.stats.duplicate_faults += u64::from(fault.instances.saturating_sub(1));
            if !state.valid.contains(index) {
                self.stats.stale_faults += 1;
            } else if state.mapped.contains(index)
                && !(state.read_only.contains(index) && fault.access >= AccessKind::Write)
            {
                self.stats.already_mapped_faults += 1;
            } else {
                faulted.insert(index);
                if fault.access >= AccessKind::Write {
                    written.insert(index);
                    self.stats.serviced_writes += 1;
                } else {
                    self.stats.serviced_reads += 1;
                }
            }
        }
        self.mitigate(block, &mut faulted, &mut cursor);
        if faulted.is_empty() {
            return (cursor.at, false);
        }
        self.stats.block_services += 1;
        self.policies.served_now(block, self.pmm.capacity());
        cursor.record.blocks += 1;
        cursor.at += self.cost.fault_page.times(u64::from(faulted.count()));
        if self.space.block(block).is_some_and(|state| state.advised) {
            self.service_advised(block, faulted, &written, &mut cursor);
            return (cursor.at, cursor.evicted);
        }
        let prefetched = self.prefetch(block, &faulted);
        self.make_resident(block, &faulted, &prefetched, Cause::Coherence, &mut cursor);
        if self.params.dirty_tracking {
            for fault in faults.iter().filter(|fault| fault.access >= AccessKind::Write) {
                self.policies
                    .written(block, &PageMask::single(fault.page.index()));
            }
        }
        let view = view!(self);
        self.policies.eviction.served(block, &view);
        (cursor.at, cursor.evicted)
    }

    /// The same for a block about which the program has given advice: pages can stay in host memory,
    /// and reads can make copies.
    fn service_advised<D: Device>(
        &mut self,
        block: VaBlock,
        faulted: PageMask,
        written: &PageMask,
        cursor: &mut Cursor<'_, D>,
    ) {
        let remote = self.to_map_remotely(block, &faulted);
        let local = faulted.without(&remote);
        if !remote.is_empty() {
            self.map_remotely(block, &remote, MapRemoteCause::Policy, cursor);
        }
        if local.is_empty() {
            return;
        }
        // A write leaves one copy, with full rights.
        let collapsing = self.space.block(block).map_or(PageMask::EMPTY, |state| {
            state.resident & (state.read_only | state.cpu_resident) & *written
        });
        if !collapsing.is_empty() {
            self.unmap_gpu(block, &collapsing, cursor);
            self.drop_cpu_copy(block, &collapsing, cursor);
        }
        // Only pages that all go to one place have neighbours fetched, and none that should stay on
        // the host (uvm-driver 5.1).
        let keep_out = self.advice(block).preferred_cpu;
        let prefetched = if remote.is_empty() && !keep_out.intersects(&local) {
            let accessed = self.advice(block).accessed_by_gpu;
            let added = self.prefetch(block, &local);
            self.space.block(block).map_or(PageMask::EMPTY, |state| {
                added.without(&keep_out).without(&(accessed & state.cpu_resident))
            })
        } else {
            PageMask::EMPTY
        };
        if let Some(state) = self.space.block_mut(block) {
            state.written_now = *written;
        }
        self.make_resident(block, &local, &prefetched, Cause::Coherence, cursor);
        if let Some(state) = self.space.block_mut(block) {
            state.written_now = PageMask::EMPTY;
        }
    }

    /// Pages that the prefetcher adds and that are not resident yet.
    fn prefetch(&mut self, block: VaBlock, faulted: &PageMask) -> PageMask {
        let Some(state) = self.space.block_mut(block) else {
            return PageMask::EMPTY;
        };
        state.prefetch_faults = state.prefetch_faults.saturating_add(faulted.count());
        if !self.params.prefetch_enable || state.prefetch_faults < self.params.prefetch_min_faults {
            return PageMask::EMPTY;
        }
        let state = *state;
        // The block is numbered from its first managed page.
        let first = state.valid.next_set(0).unwrap_or(0);
        let pages = state.valid.last().map_or(0, |last| last + 1 - first);
        let shift = |mask: &PageMask| {
            if first == 0 {
                *mask
            } else {
                shifted_down(mask, first)
            }
        };
        let thrashing = shift(&self.thrashing.pages(block));
        let (faulted_here, resident) = (shift(faulted), shift(&state.resident));
        let service = Service {
            first_page: first,
            pages,
            faulted: &faulted_here,
            resident: &resident,
            thrashing: &thrashing,
        };
        let view = view!(self);
        let added = self
            .policies
            .prefetch
            .pages(block, &service, &view)
            .without(&faulted_here);
        let added = if first == 0 {
            added
        } else {
            shifted_up(&added, first)
        };
        (added & state.valid).without(&state.resident)
    }

    /// Makes pages resident on the GPU and maps them: unmap elsewhere, populate, copy, map.
    pub fn make_resident<D: Device>(
        &mut self,
        block: VaBlock,
        wanted: &PageMask,
        prefetched: &PageMask,
        cause: Cause,
        cursor: &mut Cursor<'_, D>,
    ) -> Option<Ticket> {
        let (copied, ready) = self.move_to_gpu(block, wanted, prefetched, cause, cursor)?;
        let mapped = self.map_gpu(block, &(*wanted | *prefetched), &ready, cursor);
        copied.or(mapped)
    }

    /// The same without the mapping; also what a mapping has to wait for.
    pub fn move_to_gpu<D: Device>(
        &mut self,
        block: VaBlock,
        wanted: &PageMask,
        prefetched: &PageMask,
        cause: Cause,
        cursor: &mut Cursor<'_, D>,
    ) -> Option<(Option<Ticket>, Tracker)> {
        let remote = self.space.block(block)?.remote & (*wanted | *prefetched);
        if !remote.is_empty() {
            self.unmap_gpu(block, &remote, cursor);
        }
        let chunk = self.ensure_chunk(block, cursor)?;
        let unmap_call = self.unmap_call();
        let state = self.space.block_mut(block)?;
        let all = *wanted | *prefetched;
        let arriving = all.without(&state.resident);
        if !state.touched {
            state.touched = true;
            cursor.at += self.cost.block_first_touch;
        }

        // Other processors lose their mappings: synchronous, one call per run.
        let unmapped = state.cpu_mapped & arriving;
        if !unmapped.is_empty() {
            for (first, end) in unmapped.runs() {
                cursor.at += unmap_call + self.cost.cpu_unmap_page.times((end - first) as u64);
            }
            // A copy of a read-mostly page leaves the CPU its reads.
            state.cpu_mapped = state.cpu_mapped.without(&unmapped.without(&state.read_mostly));
            cursor.record.cpu_unmapped_pages += unmapped.count();
        }

        // Copies: one per run of pages of one cause.
        let mut moving = (arriving & state.cpu_resident).without(&state.discarded);
        if cause == Cause::User {
            // A copy of the program brings its pages, whatever was there.
            moving |= arriving & state.written_now;
        }
        let mut ready = *self.pmm.tracker(chunk);
        ready.merge(&state.tracker);
        let mut ticket = None;
        if !moving.is_empty() {
            let mut methods = Vec::new();
            let runs = split_runs(block, &moving, wanted, cause, self.params.copy_split);
            cursor.at += self.cost.push + self.cost.copy_method.times(runs.len() as u64);
            methods.extend(runs);
            let copied = cursor.push(ChannelKind::HostToDevice, &ready, methods);
            ticket = Some(copied);
            self.batch_tracker.add(copied);
            state.tracker.add(copied);
            ready.add(copied);
            cursor.record.copied_pages += moving.count();
            let to = (Processor::Gpu, cause);
            self.thrashing
                .moved(block, &moving, to, &mut self.stats.thrashing, cursor);
            if self.params.dirty_tracking {
                match cause {
                    Cause::User => self.policies.written(block, &moving),
                    _ => self.policies.arrived(block, &moving),
                }
            }
        }
        // The book-keeping of the pages comes after their copy has been pushed, and overlaps with it.
        cursor.at += self.cost.migrate_page.times(u64::from(arriving.count()));
        if cause == Cause::Coherence {
            self.stats.demand_pages += u64::from((arriving & *wanted).count());
            self.stats.prefetched_pages += u64::from((arriving & *prefetched).count());
        }
        self.stats.populated_pages += u64::from(arriving.without(&moving).count());
        cursor.record.pages += arriving.count();
        self.pmm.mark_written(chunk);

        state.resident |= arriving;
        let copies = state.read_mostly.without(&state.written_now);
        state.cpu_resident = state.cpu_resident.without(&arriving.without(&copies));
        state.cpu_mapped &= state.cpu_resident;
        let list = if state.resident.is_empty() {
            List::Unused
        } else {
            List::Used
        };
        self.pmm.move_to(chunk, list);
        Some((ticket, ready))
    }

    /// Maps pages that are resident on the GPU: PTE writes after everything that they make visible.
    pub fn map_gpu<D: Device>(
        &mut self,
        block: VaBlock,
        pages: &PageMask,
        ready: &Tracker,
        cursor: &mut Cursor<'_, D>,
    ) -> Option<Ticket> {
        let state = self.space.block_mut(block)?;
        let mapping = pages.without(&state.mapped) & state.resident;
        if mapping.is_empty() {
            return None;
        }
        let read_only = mapping & state.read_mostly.without(&state.written_now);
        let mut last = None;
        for (pages, shared) in [(mapping.without(&read_only), false), (read_only, true)] {
            if pages.is_empty() {
                continue;
            }
            let entries = state.entries_to_map(&pages);
            cursor.at += self.cost.push + self.cost.pte_method.times(u64::from(entries));
            let map = if shared {
                Method::MapShared {
                    block,
                    pages,
                    entries,
                    sharing: Sharing::ReadOnly,
                }
            } else {
                Method::MapPtes {
                    block,
                    pages,
                    entries,
                }
            };
            let mapped = cursor.push(ChannelKind::MemOps, ready, vec![map, tlb_invalidate(entries)]);
            state.mapped |= pages;
            state.tracker.add(mapped);
            self.batch_tracker.add(mapped);
            last = Some(mapped);
        }
        state.read_only |= read_only;
        // What can be written holds contents again (uvm-driver 9.3).
        state.discarded = state.discarded.without(&mapping);
        last
    }

    /// The block's root chunk, allocated if it has none: its memory is zeroed where no page is
    /// resident anywhere, unless it is known to be zero.
    fn ensure_chunk<D: Device>(&mut self, block: VaBlock, cursor: &mut Cursor<'_, D>) -> Option<ChunkId> {
        if let Some(chunk) = self.space.block(block)?.chunk {
            return Some(chunk);
        }
        let chunk = if let Some((chunk, source)) = self.pmm.allocate(block) {
            cursor.at += self.cost.chunk_alloc;
            if source == Source::Pma {
                cursor.at += self.cost.pma_call;
            }
            chunk
        } else {
            // Both attempts, without and with eviction, ask PMA first; then the service starts over.
            cursor.at += self.cost.pma_call.times(2);
            self.evict(block, cursor)?
        };
        let state = self.space.block_mut(block)?;
        state.chunk = Some(chunk);
        let holes = state.valid.without(&state.cpu_resident.without(&state.discarded));
        if !self.pmm.is_zero(chunk) && !holes.is_empty() {
            cursor.at += self.cost.push;
            let methods = holes
                .runs()
                .map(|(first, end)| Method::Memset {
                    bytes: (end - first) as u64 * PAGE_BYTES,
                })
                .collect();
            let mut after = *self.pmm.tracker(chunk);
            after.merge(&state.tracker);
            let zeroed = cursor.push(ChannelKind::GpuInternal, &after, methods);
            self.pmm.tracker(chunk).add(zeroed);
            self.batch_tracker.add(zeroed);
        }
        Some(chunk)
    }

    /// Evicts one root chunk for `new_owner` (uvm-driver 7.4): everything resident goes to the host,
    /// clean or not; nothing waits on the CPU.
    fn evict<D: Device>(&mut self, new_owner: VaBlock, cursor: &mut Cursor<'_, D>) -> Option<ChunkId> {
        let victim = self.choose_victim()?;
        self.evict_chunk(victim, Some(new_owner), cursor)
    }

    /// The policy's victim; where it names none that can go, the driver's.
    fn choose_victim(&mut self) -> Option<ChunkId> {
        let view = view!(self);
        let mut victim = self.policies.eviction.victim(&view);
        if !victim.is_some_and(|chunk| view.is_evictable(chunk)) {
            self.stats.policy_refusals += 1;
            victim = view.driver_order().next();
        }
        victim.filter(|chunk| {
            let owner = view.owner(*chunk);
            !self.policies.protect || owner.is_some_and(|block| !self.policies.served.contains(&block))
        })
    }

    /// Evicts a root chunk that is on a list: for a new owner, or to the free list.
    pub fn evict_chunk<D: Device>(
        &mut self,
        victim: ChunkId,
        new_owner: Option<VaBlock>,
        cursor: &mut Cursor<'_, D>,
    ) -> Option<ChunkId> {
        let owner = self.pmm.owner(victim)?;
        self.stats.evictions += 1;
        cursor.record.evictions += 1;
        cursor.evicted = true;
        cursor.at += self.cost.eviction;
        let newly_populated = self.space.populate_cpu(owner);
        let state = self.space.block_mut(owner)?;
        let mut after = state.tracker;
        let unmapping = state.mapped.without(&state.remote);
        if !unmapping.is_empty() {
            let entries = if state.remote.is_empty() {
                state.entries_to_unmap()
            } else {
                unmapping.count()
            };
            cursor.at += self.cost.push + self.cost.pte_method.times(u64::from(entries));
            let unmap = Method::UnmapPtes {
                block: owner,
                pages: unmapping,
                entries,
            };
            let unmapped = cursor.push(ChannelKind::MemOps, &after, vec![unmap, tlb_invalidate(entries)]);
            after.add(unmapped);
            state.mapped = state.remote;
            state.read_only = PageMask::EMPTY;
        }
        if newly_populated {
            cursor.at += self.cost.page_population;
        }
        // Copies and pages without contents need not be written back.
        let leaving = state
            .resident
            .without(&state.cpu_resident)
            .without(&state.discarded);
        let clean = if self.params.dirty_tracking {
            self.policies.take_clean(owner) & leaving
        } else {
            PageMask::EMPTY
        };
        self.stats.clean_pages_dropped += u64::from(clean.count());
        let copied_out = leaving.without(&clean);
        if !copied_out.is_empty() {
            let methods: Vec<Method> = copied_out
                .runs()
                .flat_map(|(first, end)| pieces(first, end, self.params.copy_split))
                .map(|(first, end)| Method::Copy {
                    direction: Direction::DeviceToHost,
                    cause: Cause::Eviction,
                    first: owner.page(first),
                    pages: (end - first) as u32,
                })
                .collect();
            cursor.at += self.cost.push + self.cost.copy_method.times(methods.len() as u64);
            let copied = cursor.push(ChannelKind::DeviceToHost, &after, methods);
            after.add(copied);
            self.stats.evicted_pages += u64::from(copied_out.count());
        }
        if cursor.device.listens() {
            cursor.device.report(ToolsEvent::Eviction {
                address_out: owner.page(0).address(),
                address_in: new_owner.unwrap_or(owner).page(0).address(),
                bytes: u64::from(copied_out.count()) * PAGE_BYTES,
                time: cursor.at,
            });
        }
        state.cpu_resident |= state.resident;
        state.resident = PageMask::EMPTY;
        state.chunk = None;
        state.tracker = after;
        self.batch_tracker.merge(&after);
        match new_owner {
            Some(new_owner) => self.pmm.reassign(victim, new_owner),
            None => self.pmm.recycle(victim),
        }
        self.pmm.tracker(victim).merge(&after);
        let view = view!(self);
        self.policies.eviction.evicted(owner, &view);
        Some(victim)
    }

    /// `cudaMemcpyAsync` from the host into managed memory: the pages arrive by copy, whatever was
    /// there. Returns when the CPU is done.
    pub fn copy_to_device<D: Device>(
        &mut self,
        block: VaBlock,
        pages: &PageMask,
        now: Time,
        device: &mut D,
    ) -> (Time, Option<Ticket>) {
        let mut record = BatchRecord::default();
        let mut cursor = Cursor::new(now + self.cost.block_fixed, device, &mut record);
        let fresh = self
            .space
            .block(block)
            .map_or(PageMask::EMPTY, |state| pages.without(&state.resident));
        let copies = self.space.block(block).map_or(PageMask::EMPTY, |state| {
            state.resident & *pages & (state.read_only | state.cpu_resident)
        });
        if !copies.is_empty() {
            // A write leaves one copy.
            self.unmap_gpu(block, &copies, &mut cursor);
            self.drop_cpu_copy(block, &copies, &mut cursor);
        }
        if let Some(state) = self.space.block_mut(block) {
            state.written_now = *pages;
        }
        let mut ticket = self.make_resident(block, pages, &PageMask::EMPTY, Cause::User, &mut cursor);
        if let Some(state) = self.space.block_mut(block) {
            state.written_now = PageMask::EMPTY;
        }
        // Pages that are resident already are overwritten in place.
        let overwritten = pages.without(&fresh);
        if !overwritten.is_empty()
            && let Some(state) = self.space.block_mut(block)
        {
            let methods = split_runs(block, &overwritten, pages, Cause::User, CopySplit::Runs);
            cursor.at += self.cost.push;
            let copied = cursor.push(ChannelKind::HostToDevice, &state.tracker, methods);
            state.tracker.add(copied);
            ticket = Some(copied);
            self.policies.written(block, &overwritten);
        }
        (cursor.at, ticket)
    }

    /// Drops all pages of a range's piece without writing them back (uvm-driver: destroying a range).
    pub fn release_block<D: Device>(
        &mut self,
        block: VaBlock,
        pages: &PageMask,
        now: Time,
        device: &mut D,
    ) -> Time {
        let mut record = BatchRecord::default();
        let mut cursor = Cursor::new(now + self.cost.managed_free_block, device, &mut record);
        let Some(state) = self.space.block_mut(block) else {
            return cursor.at;
        };
        let unmapping = state.mapped & *pages;
        let mut after = state.tracker;
        if !unmapping.is_empty() {
            let entries = if unmapping == state.mapped {
                state.entries_to_unmap()
            } else {
                unmapping.count()
            };
            let unmap = Method::UnmapPtes {
                block,
                pages: unmapping,
                entries,
            };
            let unmapped = cursor.push(ChannelKind::MemOps, &after, vec![unmap, tlb_invalidate(entries)]);
            after.add(unmapped);
        }
        self.policies.written(block, pages);
        state.valid = state.valid.without(pages);
        state.mapped = state.mapped.without(pages);
        state.resident = state.resident.without(pages);
        state.cpu_resident = state.cpu_resident.without(pages);
        state.cpu_mapped = state.cpu_mapped.without(pages);
        state.remote = state.remote.without(pages);
        state.read_only = state.read_only.without(pages);
        state.read_mostly = state.read_mostly.without(pages);
        state.discarded = state.discarded.without(pages);
        state.tracker = after;
        self.thrashing.reset(block, pages);
        if state.valid.is_empty() {
            let chunk = state.chunk.take();
            state.touched = false;
            let held = std::mem::take(&mut state.cpu_allocated);
            state.prefetch_faults = 0;
            state.advised = false;
            self.space.forget_block(block, held);
            self.thrashing.forget(block);
            if let Some(chunk) = chunk {
                self.pmm.tracker(chunk).merge(&after);
                self.pmm.free(chunk);
            }
        }
        cursor.at
    }
}

pub(crate) fn pieces(first: usize, end: usize, split: CopySplit) -> impl Iterator<Item = (usize, usize)> {
    let step = match split {
        CopySplit::Runs => end - first,
        CopySplit::Pages => 1,
    };
    (first..end)
        .step_by(step.max(1))
        .map(move |start| (start, (start + step).min(end)))
}

/// The copies of a service: runs of pages of equal cause, ascending. Pages of `wanted` move for
/// `cause`, the others because of the prefetcher.
fn split_runs(
    block: VaBlock,
    moving: &PageMask,
    wanted: &PageMask,
    cause: Cause,
    split: CopySplit,
) -> Vec<Method> {
    let mut runs: Vec<(usize, usize, Cause)> = (*moving & *wanted)
        .runs()
        .map(|(first, end)| (first, end, cause))
        .chain(
            moving
                .without(wanted)
                .runs()
                .map(|(first, end)| (first, end, Cause::Prefetch)),
        )
        .collect();
    runs.sort_unstable_by_key(|run| run.0);
    runs.into_iter()
        .flat_map(|(first, end, cause)| pieces(first, end, split).map(move |(f, e)| (f, e, cause)))
        .map(|(first, end, cause)| Method::Copy {
            direction: Direction::HostToDevice,
            cause,
            first: block.page(first),
            pages: (end - first) as u32,
        })
        .collect()
}

fn shifted_down(mask: &PageMask, by: usize) -> PageMask {
    let mut out = PageMask::EMPTY;
    for (first, end) in mask.runs() {
        if end > by {
            out |= PageMask::range(first.max(by) - by, end - by);
        }
    }
    out
}

fn shifted_up(mask: &PageMask, by: usize) -> PageMask {
    let mut out = PageMask::EMPTY;
    for (first, end) in mask.runs() {
        out |= PageMask::range((first + by).min(512), (end + by).min(512));
    }
    out
}
