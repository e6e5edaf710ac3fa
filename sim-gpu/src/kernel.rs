//! One running kernel: thread blocks on their slots, served in turn.
//!
//! A kernel has at most `SMs x blocks per SM` resident blocks, each on a slot. A block makes steps;
//! each step needs one service of the kernel's bottleneck (issue slots, floating point or HBM,
//! whichever bounds its roofline), and the services follow each other `tau` apart, first come first
//! served. With everything resident that server is never idle, so that a kernel of N blocks and m
//! steps takes N m tau: exactly its known duration. A block that waits for a page leaves the queue,
//! and the others are served sooner.
//!
//! As all services are equal, n of them in a row with every page mapped are arithmetic: that is the
//! fast path ([`KernelRun::run_until`]); one service after another is the reference. How many
//! services are known to meet only mapped pages is `clean`; new PTEs can only extend it, and lost
//! PTEs reset it ([`KernelRun::pages_unmapped`]).

use std::collections::VecDeque;

use sim_core::Time;
use sim_core::access::{Access, AccessKind, AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::{PAGE_BYTES, Page};
use sim_core::push::Direction;

use crate::accounting::Accounting;
use crate::fault_buffer::FaultBuffer;
use crate::gpu::RemoteAccess;
use crate::page_table::PageTable;
use crate::params::{Exactness, GpuParams};
use crate::utlb::{ParkedAccess, Utlb, Waiter};
use crate::walkers::Walkers;

/// Fraction bits of service times: kernels of 10^8 services keep their duration within a tick.
const FRACTION: u32 = 32;

/// Steps with more independent accesses than this issue them in one go (a tile's rows, say).
const RANKED_ACCESSES: usize = 8;

/// After a service that had to be looked at, so many more are looked at before the next attempt to
/// find a longer run of mapped pages: bounds the cost of failed attempts.
const CLEAN_BACKOFF: u32 = 32;

/// Dispatches between two attempts to find all loaded pages mapped.
const LOADS_BACKOFF: u32 = 256;

fn fixed(time: Time) -> u128 {
    u128::from(time.0) << FRACTION
}

fn ceil_time(fixed_time: u128) -> Time {
    Time(((fixed_time + (1 << FRACTION) - 1) >> FRACTION) as u64)
}

/// What the kernels of a GPU share.
#[derive(Debug)]
pub struct Shared {
    /// Parameters.
    pub params: GpuParams,
    /// Valid PTEs.
    pub table: PageTable,
    /// Parked requests, by uTLB.
    pub utlbs: Vec<Utlb>,
    /// Blocks that wait for their uTLB to have no parked request (without hit-under-fault).
    pub blocked: Vec<Vec<Waiter>>,
    /// Fault entries.
    pub buffer: FaultBuffer,
    /// Page walkers.
    pub walkers: Walkers,
    /// SM time.
    pub accounting: Accounting,
    /// Accesses that missed, one per warp and page.
    pub misses: u64,
    /// Accesses to host memory made and not yet on the link.
    pub remote: Vec<RemoteAccess>,
    step: StepAccesses,
    missing: Vec<Missing>,
}

/// A page without PTE that a step touches.
#[derive(Clone, Copy, Debug)]
struct Missing {
    page: Page,
    /// Its place in the run of pages of its access.
    offset: u32,
    rank: u16,
    warps: u16,
    kind: AccessKind,
}

impl Shared {
    /// Nothing mapped, nothing parked.
    pub fn new(params: GpuParams) -> Shared {
        let utlbs = params.utlbs();
        Shared {
            table: PageTable::new(),
            utlbs: vec![Utlb::new(params.utlb_outstanding_faults); utlbs],
            blocked: vec![Vec::new(); utlbs],
            buffer: FaultBuffer::default(),
            walkers: Walkers::new(params.page_walkers, params.page_walk_latency),
            accounting: Accounting::new(params.sms),
            misses: 0,
            remote: Vec::new(),
            step: StepAccesses::default(),
            missing: Vec::new(),
            params,
        }
    }

    /// Parks every access to a page without PTE; returns how many there are.
    fn park(&mut self, accesses: &[Access], utlb: usize, waiter: Waiter, now: Time) -> u32 {
        self.missing.clear();
        let ranked = accesses.len() <= RANKED_ACCESSES;
        for (rank, access) in accesses.iter().enumerate() {
            if access.pages == 1 && self.table.hits(access.first, access.kind) {
                continue;
            }
            let end = Page(access.first.0 + u64::from(access.pages));
            let mut page = access.first;
            while let Some(hole) = self.table.first_unmapped(page, end) {
                if self.table.has_shared() && self.table.hits(hole, access.kind) {
                    page = Page(hole.0 + 1);
                    continue;
                }
                let rank = if ranked { rank as u16 } else { 0 };
                let offset = (hole.0 - access.first.0) as u32;
                self.missing.push(Missing {
                    page: hole,
                    offset,
                    rank,
                    warps: access.warps,
                    kind: access.kind,
                });
                page = Page(hole.0 + 1);
            }
        }
        if self.missing.is_empty() {
            return 0;
        }
        self.buffer.catch_up(now, &mut self.utlbs, &self.params);
        let walk_from = now + self.params.utlb_latency + self.params.l2_tlb_latency;
        let mut ready = Time::MAX;
        for _ in &self.missing {
            ready = ready.min(self.walkers.walk(walk_from));
        }
        let utlb = &mut self.utlbs[utlb];
        let before = utlb.unemitted();
        let mut misses = 0;
        if ranked {
            // Warps go over their pages one after another, each issuing its accesses together.
            self.missing.sort_by_key(|missing| missing.offset);
        }
        for missing in &self.missing {
            let Missing { page, rank, kind, .. } = *missing;
            let warps = u32::from(missing.warps);
            utlb.miss(ParkedAccess {
                page,
                waiter,
                kind,
                rank,
                warps,
                missed: now,
            });
            misses += warps;
        }
        let parked = u64::from(utlb.unemitted() - before);
        self.misses += u64::from(misses);
        self.buffer
            .faults_parked(parked, before == 0, ready, &self.params);
        misses
    }

    /// Starts the transfers for the accesses to pages in host memory, all of which must be mapped;
    /// returns how many there are. One per run of pages; a warp moves `bytes` of each.
    fn access_remotely(
        &mut self,
        accesses: &[Access],
        direction: Direction,
        bytes: u64,
        waiter: Waiter,
    ) -> u32 {
        if !self.table.has_shared() {
            return 0;
        }
        let before = self.remote.len();
        for access in accesses {
            let mut run = 0;
            for offset in 0..=u64::from(access.pages) {
                let page = Page(access.first.0 + offset);
                if offset < u64::from(access.pages) && self.table.is_remote(page) {
                    run += 1;
                } else if run > 0 {
                    self.remote.push(RemoteAccess {
                        direction,
                        bytes: run * u64::from(access.warps) * bytes,
                        address: page.address() - run * PAGE_BYTES,
                        waiter,
                    });
                    run = 0;
                }
            }
        }
        (self.remote.len() - before) as u32
    }

    fn all_mapped(&self, accesses: &[Access]) -> bool {
        accesses.iter().all(|access| {
            let end = Page(access.first.0 + u64::from(access.pages));
            self.table.first_unmapped(access.first, end).is_none()
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In the queue, or about to be.
    Served,
    /// Waits for the loads of its step.
    Loads,
    /// Was served, waits for the stores of its step.
    Stores,
    /// Waits for its uTLB to have no parked request.
    Blocked,
    /// All pages of its loads are mapped; waits for those in host memory.
    RemoteLoads,
    /// Was served; waits for its stores to host memory.
    RemoteStores,
    /// Has no block any more.
    Retired,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    block: u64,
    step: u32,
    sm: u16,
    phase: Phase,
    /// The stores of the step had PTEs when it was dispatched.
    stores_mapped: bool,
    /// Parked accesses it waits for.
    missing: u32,
    /// Services of its block that are not counted in `left` while it is parked.
    withheld: u32,
}

/// One running kernel.
#[derive(Debug)]
pub struct KernelRun<P> {
    pattern: P,
    index: u32,
    blocks: u64,
    steps: u32,
    tau: u128,
    base_tau: u128,
    slots: Vec<Slot>,
    /// Slots in the order of their service.
    queue: VecDeque<u32>,
    /// When the head of the queue will have been served.
    head_done: u128,
    next_block: u64,
    /// Services that blocks not parked have still to get, the not yet dispatched blocks included.
    left: u64,
    parked: u32,
    /// The next so many services meet only mapped pages.
    clean: u64,
    backoff: u32,
    /// All pages that it loads are mapped; after so many dispatches it is worth asking again.
    loads_mapped: bool,
    loads_backoff: u32,
    /// After none of the next so many services does a slot run out of blocks.
    steady: u64,
    /// So many services are served one by one before `steady` is determined again.
    tail: u64,
    /// Slots in the queue whose stores were not all mapped when dispatched.
    unsure: u32,
    /// Clean services that are accounted in `head_done` and `left` but not yet in the slots.
    lazy: u64,
    last_done: Time,
    alone: bool,
}

impl<P: AccessPattern> KernelRun<P> {
    /// Starts a kernel that takes `duration` when nothing faults.
    pub fn start(
        pattern: P,
        index: u32,
        blocks_per_sm: u32,
        duration: Time,
        now: Time,
        shared: &mut Shared,
    ) -> Self {
        let blocks = pattern.blocks();
        let steps = pattern.steps();
        let services = blocks * u64::from(steps);
        let tau = (fixed(duration) / u128::from(services.max(1))).max(1);
        let sms = u64::from(shared.params.sms);
        let slots = blocks.min(sms * u64::from(blocks_per_sm.max(1)));
        let mut run = KernelRun {
            pattern,
            index,
            blocks,
            steps,
            tau,
            base_tau: tau,
            slots: Vec::new(),
            queue: VecDeque::new(),
            head_done: 0,
            next_block: slots,
            left: services,
            parked: 0,
            clean: 0,
            backoff: 0,
            loads_mapped: false,
            loads_backoff: 0,
            steady: 0,
            tail: 0,
            unsure: 0,
            lazy: 0,
            last_done: now,
            alone: true,
        };
        run.slots.extend((0..slots).map(|block| Slot {
            block,
            step: 0,
            sm: (block % sms) as u16,
            phase: Phase::Retired,
            stores_mapped: true,
            missing: 0,
            withheld: 0,
        }));
        let resident = shared.params.exactness == Exactness::Fast
            && shared.params.hit_under_fault
            && run.pattern.first_unmapped_block(0, &shared.table).is_none();
        if resident {
            run.queue.extend(0..slots as u32);
            for slot in &mut run.slots {
                slot.phase = Phase::Served;
            }
            for sm in 0..sms.min(slots) {
                let resident = (slots - sm).div_ceil(sms) as i32;
                shared.accounting.blocks_changed(sm as u16, resident, 0, now);
            }
            run.head_done = fixed(now) + tau;
            run.clean = run.left;
        } else {
            for slot in 0..slots as u32 {
                run.dispatch(slot, fixed(now), now, shared);
            }
        }
        run
    }

    /// All blocks have finished.
    pub fn is_done(&self) -> bool {
        self.queue.is_empty() && self.parked == 0
    }

    /// When the last service ended.
    pub fn last_done(&self) -> Time {
        self.last_done
    }

    /// Share of the kernel's services that are done, 0..=1.
    pub fn progress(&self) -> f64 {
        let total = (self.blocks * u64::from(self.steps)).max(1);
        1.0 - self.left as f64 / total as f64
    }

    /// The kernel shares the GPU with `others` other running kernels from `now` on; services up to
    /// `now` must have been carried out.
    pub fn share_with(&mut self, others: u32, hit_under_fault: bool) {
        self.tau = self.base_tau * u128::from(others + 1);
        self.alone = others == 0;
        if !hit_under_fault {
            // Another kernel's fault can block this one's hits at any time.
            self.pages_unmapped();
        }
    }

    /// When the next service ends that has to be looked at: pages that may have no PTE, or a slot that
    /// may run out of blocks.
    pub fn next_time(&self) -> Option<Time> {
        if self.queue.is_empty() {
            return None;
        }
        let skip = self.clean.min(self.steady);
        Some(ceil_time(self.head_done + self.tau * u128::from(skip)))
    }

    /// Pages have lost their PTE: what was known about coming services is void. Services up to now
    /// must have been carried out ([`KernelRun::run_until`]).
    pub fn pages_unmapped(&mut self) {
        self.clean = 0;
        self.backoff = 0;
        self.loads_mapped = false;
        self.loads_backoff = 0;
    }

    /// Could this kernel touch pages of `first..end`?
    pub fn may_touch(&self, first: Page, end: Page) -> bool {
        self.pattern.may_touch(first, end)
    }

    /// Carries out the services that end by `limit`.
    pub fn run_until(&mut self, limit: Time, shared: &mut Shared) {
        let limit_fixed = fixed(limit);
        while !self.queue.is_empty() && self.head_done <= limit_fixed {
            if self.clean == 0 {
                self.look_ahead(shared);
            }
            if self.clean == 0 {
                self.serve_one(shared);
                continue;
            }
            if self.steady == 0 {
                self.find_steady();
            }
            let due = ((limit_fixed - self.head_done) / self.tau + 1) as u64;
            let n = due.min(self.clean).min(self.steady);
            if n == 0 {
                self.serve_clean_one(shared);
                continue;
            }
            self.clean -= n;
            self.steady -= n;
            self.left -= n;
            self.lazy += n;
            self.last_done = ceil_time(self.head_done + self.tau * u128::from(n - 1));
            self.head_done += self.tau * u128::from(n);
        }
    }

    /// Determines how many services certainly leave every slot with a block.
    fn find_steady(&mut self) {
        if self.tail > 0 {
            self.tail -= 1;
            return;
        }
        self.apply_lazy();
        self.steady = if self.next_block < self.blocks {
            self.blocks - self.next_block
        } else {
            let to_go = self
                .queue
                .iter()
                .map(|&s| self.steps - self.slots[s as usize].step)
                .min();
            u64::from(to_go.unwrap_or(1) - 1) * self.queue.len() as u64
        };
        if self.steady == 0 {
            self.tail = self.queue.len() as u64;
        }
    }

    /// Finds out how many coming services meet only mapped pages.
    fn look_ahead(&mut self, shared: &mut Shared) {
        if shared.params.exactness == Exactness::Stepped {
            return;
        }
        if self.backoff > 0 {
            self.backoff -= 1;
            return;
        }
        self.apply_lazy();
        self.clean = self.count_clean(shared);
        if self.clean == 0 {
            self.backoff = CLEAN_BACKOFF;
        }
    }

    fn count_clean(&self, shared: &Shared) -> u64 {
        if !shared.params.hit_under_fault && (!self.alone || shared.utlbs.iter().any(|u| !u.is_empty())) {
            return 0;
        }
        let mut clean = self.left;
        if self.unsure > 0 {
            let first = self
                .queue
                .iter()
                .position(|&s| !self.slots[s as usize].stores_mapped);
            clean = clean.min(first.unwrap_or(0) as u64);
        }
        if clean == 0 {
            return 0;
        }
        if self.steps == 1 {
            if self.next_block < self.blocks
                && let Some(block) = self.pattern.first_unmapped_block(self.next_block, &shared.table)
            {
                clean = clean.min(block - self.next_block);
            }
        } else {
            let in_flight = self.queue.iter().map(|&s| self.slots[s as usize].block).min();
            let from = in_flight.unwrap_or(self.next_block).min(self.next_block);
            if self.pattern.first_unmapped_block(from, &shared.table).is_some() {
                return 0;
            }
        }
        clean
    }

    /// Brings the slots up to date with the services that were only counted.
    fn apply_lazy(&mut self) {
        let n = std::mem::take(&mut self.lazy);
        if n == 0 {
            return;
        }
        if self.steps == 1 {
            let width = self.queue.len() as u64;
            for position in 0..width.min(n) {
                let last = position + (n - 1 - position) / width * width;
                let slot = self.queue[position as usize] as usize;
                self.slots[slot].block = self.next_block + last;
            }
            self.queue.rotate_left((n % width) as usize);
            self.next_block += n;
            return;
        }
        for _ in 0..n {
            let Some(index) = self.queue.pop_front() else {
                break;
            };
            let slot = &mut self.slots[index as usize];
            slot.step += 1;
            if slot.step == self.steps {
                slot.step = 0;
                slot.block = self.next_block;
                self.next_block += 1;
            }
            self.queue.push_back(index);
        }
    }

    /// Ends the service of the head of the queue, whose pages and whose next pages are mapped.
    fn serve_clean_one(&mut self, shared: &mut Shared) {
        self.apply_lazy();
        let Some(index) = self.queue.pop_front() else {
            return;
        };
        let now = ceil_time(self.head_done);
        self.last_done = now;
        self.head_done += self.tau;
        self.left -= 1;
        self.clean -= 1;
        let slot = &mut self.slots[index as usize];
        slot.step += 1;
        if slot.step == self.steps {
            if self.next_block == self.blocks {
                self.set_phase(index, Phase::Retired, now, shared);
                return;
            }
            slot.step = 0;
            slot.block = self.next_block;
            self.next_block += 1;
        }
        self.queue.push_back(index);
    }

    /// Ends the service of the head of the queue, looking at the pages.
    fn serve_one(&mut self, shared: &mut Shared) {
        self.apply_lazy();
        self.steady = 0;
        let Some(index) = self.queue.pop_front() else {
            return;
        };
        let done = self.head_done;
        let now = ceil_time(done);
        self.last_done = now;
        self.head_done = done + self.tau;
        self.left -= 1;
        let slot = self.slots[index as usize];
        if !slot.stores_mapped {
            self.unsure -= 1;
            let mut step = std::mem::take(&mut shared.step);
            step.clear();
            self.pattern.stores(slot.block, slot.step, &mut step);
            let waiter = Waiter {
                kernel: self.index,
                slot: index,
            };
            let utlb = usize::from(slot.sm) / shared.params.sms_per_utlb as usize;
            let missing = shared.park(&step.stores, utlb, waiter, now);
            shared.step = step;
            if missing > 0 {
                let slot = &mut self.slots[index as usize];
                slot.missing = missing;
                self.set_phase(index, Phase::Stores, now, shared);
                return;
            }
            if self.store_remotely(index, now, shared) {
                return;
            }
        }
        self.advance(index, done, now, shared);
    }

    /// Starts the slot's loads from host memory, if its step has any; it then waits for them.
    fn load_remotely(&mut self, index: u32, now: Time, shared: &mut Shared) -> bool {
        self.transfer(index, Direction::HostToDevice, now, shared)
    }

    /// The same for its stores. They are posted; that the block waits for them stands for the limited
    /// room of the device's write queues.
    fn store_remotely(&mut self, index: u32, now: Time, shared: &mut Shared) -> bool {
        self.transfer(index, Direction::DeviceToHost, now, shared)
    }

    fn transfer(&mut self, index: u32, direction: Direction, now: Time, shared: &mut Shared) -> bool {
        if !shared.table.has_shared() {
            return false;
        }
        let slot = self.slots[index as usize];
        let mut step = std::mem::take(&mut shared.step);
        step.clear();
        self.pattern.step(slot.block, slot.step, &mut step);
        let waiter = Waiter {
            kernel: self.index,
            slot: index,
        };
        let (accesses, phase) = match direction {
            Direction::HostToDevice => (&step.loads, Phase::RemoteLoads),
            Direction::DeviceToHost => (&step.stores, Phase::RemoteStores),
        };
        let started = shared.access_remotely(accesses, direction, self.pattern.bytes_per_warp(), waiter);
        shared.step = step;
        if started > 0 {
            self.slots[index as usize].missing = started;
            self.set_phase(index, phase, now, shared);
        }
        started > 0
    }

    /// The slot has finished its step: on to the next step, the next block, or nothing.
    fn advance(&mut self, index: u32, done: u128, now: Time, shared: &mut Shared) {
        let slot = &mut self.slots[index as usize];
        slot.step += 1;
        if slot.step == self.steps {
            if self.next_block == self.blocks {
                self.set_phase(index, Phase::Retired, now, shared);
                return;
            }
            slot.step = 0;
            slot.block = self.next_block;
            self.next_block += 1;
            self.clean = self.clean.saturating_sub(1);
        }
        self.dispatch(index, done, now, shared);
    }

    /// Issues the loads of the slot's step: into the queue if all hit, else parks it.
    fn dispatch(&mut self, index: u32, done: u128, now: Time, shared: &mut Shared) {
        let slot = self.slots[index as usize];
        let utlb = usize::from(slot.sm) / shared.params.sms_per_utlb as usize;
        let waiter = Waiter {
            kernel: self.index,
            slot: index,
        };
        if !shared.params.hit_under_fault && !shared.utlbs[utlb].is_empty() {
            shared.blocked[utlb].push(waiter);
            self.set_phase(index, Phase::Blocked, now, shared);
            return;
        }
        let mut step = std::mem::take(&mut shared.step);
        step.clear();
        if !self.loads_mapped {
            if self.loads_backoff == 0 {
                self.loads_mapped = self.pattern.loads_mapped(&shared.table);
                self.loads_backoff = LOADS_BACKOFF;
            }
            self.loads_backoff -= 1;
        }
        if self.loads_mapped {
            self.pattern.stores(slot.block, slot.step, &mut step);
        } else {
            self.pattern.step(slot.block, slot.step, &mut step);
        }
        let missing = shared.park(&step.loads, utlb, waiter, now);
        let stores_mapped = missing == 0 && shared.all_mapped(&step.stores);
        shared.step = step;
        if missing > 0 {
            self.slots[index as usize].missing = missing;
            self.set_phase(index, Phase::Loads, now, shared);
        } else if !self.load_remotely(index, now, shared) {
            self.enqueue(index, stores_mapped, done, now, shared);
        }
    }

    fn enqueue(&mut self, index: u32, stores_mapped: bool, done: u128, now: Time, shared: &mut Shared) {
        self.slots[index as usize].stores_mapped = stores_mapped;
        self.unsure += u32::from(!stores_mapped);
        if self.queue.is_empty() {
            self.head_done = done + self.tau;
        }
        self.queue.push_back(index);
        self.set_phase(index, Phase::Served, now, shared);
    }

    fn set_phase(&mut self, index: u32, phase: Phase, now: Time, shared: &mut Shared) {
        let weight = |phase: Phase| match phase {
            Phase::Served => (1, 0),
            Phase::Loads | Phase::Stores | Phase::Blocked | Phase::RemoteLoads | Phase::RemoteStores => {
                (0, 1)
            }
            Phase::Retired => (0, 0),
        };
        let steps = self.steps;
        let slot = &mut self.slots[index as usize];
        let (served, parked) = weight(slot.phase);
        let (served_now, parked_now) = weight(phase);
        self.left += u64::from(slot.withheld);
        slot.phase = phase;
        slot.withheld = match phase {
            Phase::Loads | Phase::Blocked | Phase::RemoteLoads => steps - slot.step,
            Phase::Stores | Phase::RemoteStores => steps - slot.step - 1,
            Phase::Served | Phase::Retired => 0,
        };
        self.left -= u64::from(slot.withheld);
        let sm = slot.sm;
        self.parked = self.parked.wrapping_add_signed(parked_now - parked);
        shared
            .accounting
            .blocks_changed(sm, served_now - served, parked_now - parked, now);
    }

    /// `warps` parked accesses of slot `index` have hit. True when they were the last ones.
    pub fn hit(&mut self, index: u32, warps: u32) -> bool {
        let slot = &mut self.slots[index as usize];
        slot.missing -= warps;
        slot.missing == 0
    }

    /// Slot `index` has all the pages it waited for. Services up to `now` must have been carried out.
    pub fn resume(&mut self, index: u32, now: Time, shared: &mut Shared) {
        self.apply_lazy();
        self.steady = 0;
        // What is in the queue keeps its order; the newcomer is served after it.
        self.clean = self.clean.min(self.queue.len() as u64);
        if !shared.params.hit_under_fault {
            self.pages_unmapped();
        }
        let phase = self.slots[index as usize].phase;
        match phase {
            Phase::Loads if self.load_remotely(index, now, shared) => {}
            Phase::Stores if self.store_remotely(index, now, shared) => {}
            Phase::Loads | Phase::RemoteLoads => {
                let slot = self.slots[index as usize];
                let mut step = std::mem::take(&mut shared.step);
                step.clear();
                self.pattern.stores(slot.block, slot.step, &mut step);
                let stores_mapped = shared.all_mapped(&step.stores);
                shared.step = step;
                self.enqueue(index, stores_mapped, fixed(now), now, shared);
            }
            Phase::Stores | Phase::RemoteStores => self.advance(index, fixed(now), now, shared),
            Phase::Blocked => self.dispatch(index, fixed(now), now, shared),
            Phase::Served | Phase::Retired => debug_assert!(false, "a block resumed that did not wait"),
        }
    }
}
