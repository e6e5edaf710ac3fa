//! Accesses of the CPU to managed memory (uvm-driver 10).
//!
//! One page per fault, in the thread that faults: residency, the tree prefetcher with the CPU as its
//! destination, unmap on the GPU, copy, wait for the copy, map. Memory that nobody has touched is
//! populated at the cost of a minor fault a page.

use sim_core::Time;
use sim_core::access::AccessKind;
use sim_core::pages::{ByteRange, PageMask, VaBlock};
use sim_core::push::{Cause, Ticket};
use sim_core::tools::{Processor, ToolsEvent};

use crate::device::Device;
use crate::prefetch::{Service, tree_prefetch};
use crate::service::{Cursor, Memory};
use crate::stats::BatchRecord;
use crate::va_space::pieces;

/// An access in progress: the part of the range that is still to be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuAccess {
    /// All of it.
    pub range: ByteRange,
    /// It writes.
    pub write: bool,
    /// Blocks that are done.
    done: usize,
}

impl CpuAccess {
    /// An access that has not begun.
    pub fn new(range: ByteRange, write: bool) -> CpuAccess {
        CpuAccess {
            range,
            write,
            done: 0,
        }
    }
}

/// How far a CPU access has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuProgress {
    /// It is done at this time.
    Done(Time),
    /// The thread holds this block and waits for this push; it goes on when the push has completed.
    Wait(VaBlock, Ticket),
    /// The thread sleeps until then, as the page it needs thrashes; it holds nothing.
    Throttled(Time),
}

/// How one fault was served.
enum Served {
    /// Nothing had to be copied.
    AtOnce,
    /// Once this copy has arrived.
    AfterCopy(Ticket),
    /// Not served: the thread sleeps. The kernel lets it sleep up to half as long again (uvm-driver
    /// 6.3); here it wakes once the period is over.
    Throttled(Time),
}

impl Memory {
    /// Goes on with an access from `now` on.
    pub fn cpu_access<D: Device>(
        &mut self,
        access: &mut CpuAccess,
        now: Time,
        device: &mut D,
    ) -> CpuProgress {
        let mut record = BatchRecord::default();
        let mut cursor = Cursor::new(now, device, &mut record);
        cursor.notify = true;
        for (block, pages) in pieces(access.range).skip(access.done) {
            while let Some(fault) = self.cpu_fault(block, &pages, access.write, &mut cursor) {
                match fault {
                    Served::AtOnce => {}
                    Served::AfterCopy(ticket) => return CpuProgress::Wait(block, ticket),
                    Served::Throttled(until) => return CpuProgress::Throttled(until),
                }
            }
            access.done += 1;
        }
        CpuProgress::Done(cursor.at)
    }

    /// One fault of the CPU in a block, if any of `pages` needs one.
    fn cpu_fault<D: Device>(
        &mut self,
        block: VaBlock,
        pages: &PageMask,
        write: bool,
        cursor: &mut Cursor<'_, D>,
    ) -> Option<Served> {
        let state = self.space.block(block)?;
        let copies = state.resident & state.cpu_resident;
        let mut needed = pages.without(&state.cpu_mapped);
        if write {
            needed |= *pages & (copies | state.read_mostly & state.resident);
        }
        let fresh = needed.without(&state.resident).without(&state.cpu_resident);
        if !fresh.is_empty() {
            cursor.at += self.cost.cpu_touch_page.times(u64::from(fresh.count()));
            self.space.populate_cpu(block);
            let state = self.space.block_mut(block)?;
            state.cpu_resident |= fresh;
            state.cpu_mapped |= fresh;
            needed = needed.without(&fresh);
            self.map_accessed_by(block, cursor);
        }
        let first = needed.next_set(0)?;
        let faulted = PageMask::single(first);
        let hints = self.thrashing_hints(block, &faulted, Processor::Cpu, cursor);
        if !hints.throttled.is_empty() {
            return Some(Served::Throttled(hints.until.max(cursor.at) + Time::from_ns(1)));
        }
        cursor.at += self.cost.cpu_fault;
        self.stats.cpu_faults += 1;
        if cursor.device.listens() {
            cursor.device.report(ToolsEvent::CpuFault {
                access: if write {
                    AccessKind::Write
                } else {
                    AccessKind::Read
                },
                address: block.page(first).address(),
                time: cursor.at,
            });
        }
        if write {
            // A write ends read duplication: the other copies go, nothing is copied.
            let copy = faulted & copies;
            self.drop_gpu_copy(block, &copy, cursor);
        } else if self.space.block(block)?.read_mostly.contains(first) {
            // The GPU keeps a copy, but may no longer write it.
            let writable = faulted & self.space.block(block)?.mapped;
            self.unmap_gpu(block, &writable, cursor);
        }
        let all = faulted | self.cpu_prefetch(block, &faulted);
        let ticket = self.make_resident_on_cpu(block, &all, &faulted, Cause::Coherence, cursor);
        if write {
            // A written page is on the CPU only, read-mostly or not.
            self.drop_gpu_copy(block, &(faulted & self.space.block(block)?.resident), cursor);
        }
        cursor.at += self.cost.cpu_map_page.times(u64::from(all.count()));
        self.map_accessed_by(block, cursor);
        self.map_pinned(block, &all, cursor);
        let state = self.space.block_mut(block)?;
        state.cpu_mapped |= all & state.cpu_resident;
        Some(ticket.map_or(Served::AtOnce, Served::AfterCopy))
    }

    /// Pages that the tree adds for a fault of the CPU (uvm-driver 5.2 with the CPU as destination).
    fn cpu_prefetch(&self, block: VaBlock, faulted: &PageMask) -> PageMask {
        let Some(state) = self.space.block(block) else {
            return PageMask::EMPTY;
        };
        let advice = self.advice(block);
        // A preferred location elsewhere ends prefetching.
        if !self.params.prefetch_enable || advice.preferred_gpu.intersects(faulted) {
            return PageMask::EMPTY;
        }
        let service = Service {
            first_page: 0,
            pages: state.valid.last().map_or(0, |last| last + 1),
            faulted,
            resident: &state.cpu_resident,
            thrashing: &self.thrashing.pages(block),
        };
        let added = tree_prefetch(&service, self.params.prefetch_threshold);
        // Only what is somewhere: memory that nobody has touched is left to its own first touch.
        (added & state.valid & (state.resident | state.cpu_resident))
            .without(&(state.cpu_mapped & state.cpu_resident))
            .without(&state.read_mostly)
    }
}
