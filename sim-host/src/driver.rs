//! The bottom half: one thread that fetches, services, flushes and replays, batch after batch
//! (uvm-driver 3.2, 3.3), and the calls of the program's thread.

use std::sync::Arc;

use sim_core::Time;
use sim_core::pages::{ByteRange, Page, PageMask, VaBlock};
use sim_core::push::{ChannelKind, Method, Push, Ticket};
use sim_core::stats::StateClock;
use sim_core::tools::{FaultType, Processor, ToolsEvent};

use crate::advice::Advice;
use crate::cost::HostCost;
use crate::cpu_fault::{CpuAccess, CpuProgress};
use crate::device::Device;
use crate::eviction::EvictionPolicy;
use crate::fetch::Batch;
use crate::invariants::{InvariantViolation, check};
use crate::params::{DriverParams, ParamError, ReplayPolicy};
use crate::pmm::Pmm;
use crate::policy::UsePlan;
use crate::policy::state::Policies;
use crate::prefetch::PrefetchPolicy;
use crate::service::Memory;
use crate::stats::{BatchRecord, DriverStats, THREAD_STATES, ThreadState};
use crate::thrashing::Thrashing;
use crate::tracker::Tracker;
use crate::va_space::{HostError, VaSpace, pieces};

/// What the bottom half does when it is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// No bottom half.
    Asleep,
    /// Look whether there is anything to fetch; PUT has to be read first.
    Begin,
    /// PUT's value has arrived: fetch.
    Fetch,
    /// Service the block of fault `0`.
    Service(usize),
    /// Discard entries.
    Flush,
    /// Push the replay of the batch and wait for it.
    Replay,
    /// Wait for this push.
    Wait(Ticket),
    /// The program's thread holds the block of fault `0` until this push has completed.
    Held(usize, Ticket),
    /// The limit of batches is reached: end the bottom half.
    Leave,
}

/// The UVM driver of one GPU.
#[derive(Debug)]
pub struct UvmDriver {
    pub(crate) memory: Memory,
    step: Step,
    masked: bool,
    state: ThreadState,
    clock: StateClock<THREAD_STATES>,
    get: u64,
    cached_put: u64,
    batch: Batch,
    batches_now: u32,
    throttled_now: u32,
    replayed_now: bool,
    record: BatchRecord,
    duplicates_before: u64,
    finished: Option<BatchRecord>,
    /// The block that the bottom half worked on last, and until when.
    in_service: Option<(VaBlock, Time)>,
    /// The block that the program's thread holds, and the push it waits for.
    held: Option<(VaBlock, Ticket)>,
}

impl UvmDriver {
    /// A driver that has `device_chunks` root chunks of 2 MiB for managed data.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn new(params: DriverParams, cost: HostCost, device_chunks: u64) -> Result<Self, ParamError> {
        let policy = params.policy_params();
        let (eviction, prefetch) = (params.eviction_policy, params.prefetch_policy);
        Self::with_policies(
            params,
            cost,
            device_chunks,
            eviction.make(&policy),
            prefetch.make(&policy),
        )
    }

    /// The same with policies of one's own, instead of those that `params` names.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn with_policies(
        params: DriverParams,
        cost: HostCost,
        device_chunks: u64,
        eviction: Box<dyn EvictionPolicy>,
        prefetch: Box<dyn PrefetchPolicy>,
    ) -> Result<Self, ParamError> {
        params.validate()?;
        if device_chunks == 0 {
            return Err(ParamError {
                name: "device_chunks",
                value: "0".to_owned(),
                accepted: "at least one 2 MiB chunk of device memory for managed data",
            });
        }
        let pmm = Pmm::new(device_chunks, params.pma_batch_nonpinned_order);
        let mut space = VaSpace::default();
        space.host.limit = params.host_memory;
        let thrashing = Thrashing::new(&params.thrashing);
        Ok(UvmDriver {
            memory: Memory {
                params,
                cost,
                space,
                pmm,
                stats: DriverStats::default(),
                batch_tracker: Tracker::default(),
                policies: Policies::new(eviction, prefetch, device_chunks),
                thrashing,
            },
            step: Step::Asleep,
            masked: false,
            state: ThreadState::Idle,
            clock: StateClock::new(ThreadState::Idle as usize),
            get: 0,
            cached_put: 0,
            batch: Batch::default(),
            batches_now: 0,
            throttled_now: 0,
            replayed_now: false,
            record: BatchRecord::default(),
            duplicates_before: 0,
            finished: None,
            in_service: None,
            held: None,
        })
    }

    /// Gives policies the plan of the program ([`DriverParams::needs_plan`]).
    pub fn set_plan(&mut self, plan: Arc<UsePlan>) {
        self.memory.policies.plan = plan;
    }

    /// The `kernel`-th launch of the program, from 0, has started on the device.
    pub fn kernel_started(&mut self, kernel: u64, now: Time, device: &mut impl Device) {
        let capacity = self.memory.pmm.capacity();
        let kernel = u32::try_from(kernel).unwrap_or(u32::MAX);
        self.memory.policies.kernel_started(kernel, capacity);
        self.memory.work_ahead(now, device);
    }

    /// Counts.
    pub fn stats(&self) -> &DriverStats {
        &self.memory.stats
    }

    /// What the thread is doing.
    pub fn thread_state(&self) -> ThreadState {
        self.state
    }

    /// Time spent in each state up to `now`; the sum is `now`.
    pub fn thread_time(&self, now: Time) -> [Time; THREAD_STATES] {
        self.clock.totals(now)
    }

    /// The replayable-fault interrupt is masked: a bottom half is on its way or running.
    pub fn interrupt_masked(&self) -> bool {
        self.masked
    }

    /// The batch that has ended since the last call, if any.
    pub fn take_finished_batch(&mut self) -> Option<BatchRecord> {
        self.finished.take()
    }

    /// Root chunks that hold managed data.
    pub fn chunks_in_use(&self) -> u64 {
        self.memory.pmm.owned()
    }

    /// Is the page resident on the GPU?
    pub fn is_resident(&self, page: Page) -> bool {
        self.memory
            .space
            .block(page.block())
            .is_some_and(|s| s.resident.contains(page.index()))
    }

    /// Checks what must hold between batches (uvm-driver 15.2).
    ///
    /// # Errors
    /// The first violation.
    pub fn check_invariants(&self) -> Result<(), InvariantViolation> {
        check(&self.memory.space, &self.memory.pmm)?;
        let what = "the state of thrashing contradicts itself";
        let broken = self.memory.thrashing.broken();
        broken.map_or(Ok(()), |block| Err(InvariantViolation { what, block }))
    }

    fn enter(&mut self, state: ThreadState, now: Time) {
        self.clock.enter(state as usize, now);
        self.state = state;
    }

    fn go_on(&mut self, step: Step, at: Time, device: &mut impl Device) {
        self.step = step;
        device.wake_at(at);
    }

    /// The GPU's interrupt: the top half masks it and queues the bottom half.
    pub fn interrupt(&mut self, now: Time, device: &mut impl Device) {
        if self.masked {
            return;
        }
        self.masked = true;
        self.enter(ThreadState::WakeUp, now);
        self.batches_now = 0;
        self.throttled_now = 0;
        self.replayed_now = false;
        self.memory.stats.bottom_halves += 1;
        let cost = &self.memory.cost;
        let at = now + cost.interrupt + cost.bottom_half_wakeup;
        self.go_on(Step::Begin, at, device);
    }

    /// The bottom half goes on.
    pub fn wake(&mut self, now: Time, device: &mut impl Device) {
        match self.step {
            Step::Begin => self.begin(now, device),
            Step::Fetch => self.fetch(now, device),
            Step::Service(fault) => self.service(fault, now, device),
            Step::Flush => self.flush(now, device),
            Step::Replay => {
                let ticket = self.push_replay(now, true, device);
                self.memory.work_ahead(now, device);
                self.step = Step::Wait(ticket);
                self.enter(ThreadState::WaitForReplay, now);
            }
            Step::Leave => self.leave(now, device),
            Step::Asleep | Step::Wait(_) | Step::Held(..) => {}
        }
    }

    fn begin(&mut self, now: Time, device: &mut impl Device) {
        self.enter(ThreadState::Fetch, now);
        self.record = BatchRecord {
            start: now,
            ..BatchRecord::default()
        };
        if self.get == self.cached_put {
            let at = now + self.memory.cost.put_read;
            self.go_on(Step::Fetch, at, device);
        } else {
            self.fetch(now, device);
        }
    }

    fn fetch(&mut self, now: Time, device: &mut impl Device) {
        if self.get == self.cached_put {
            self.cached_put = device.fault_put(now);
        }
        self.batch.clear();
        self.memory.policies.served.clear();
        let limit = u64::from(self.memory.params.fault_batch_count);
        let end = self.cached_put.min(self.get + limit);
        let mut index = self.get;
        while index < end {
            let Some(entry) = device.fault_entry(index, now) else {
                break;
            };
            self.batch.add(&entry, self.memory.params.fault_coalesce);
            if device.listens() {
                device.report(ToolsEvent::GpuFault {
                    fault: FaultType::InvalidPte,
                    access: entry.access,
                    client: entry.utlb,
                    instance: entry.instance,
                    address: entry.page.address(),
                    time: now,
                    time_gpu: entry.raised,
                    batch: self.memory.stats.batches + 1,
                });
            }
            index += 1;
        }
        if self.batch.raw == 0 {
            self.leave(now, device);
            return;
        }
        self.get = index;
        device.set_fault_get(index, now);
        let stats = &mut self.memory.stats;
        stats.batches += 1;
        stats.raw_faults += u64::from(self.batch.raw);
        self.record.raw = self.batch.raw;
        self.duplicates_before = stats.duplicate_faults;
        self.batch.sort();
        stats.coalesced_faults += self.batch.faults.len() as u64;
        let cost = &self.memory.cost;
        let at = now
            + cost.batch_fixed
            + cost.fetch_per_entry.times(u64::from(self.batch.raw))
            + cost.sort_per_entry.times(self.batch.faults.len() as u64);
        self.memory.batch_tracker.clear();
        self.go_on(Step::Service(0), at, device);
    }

    fn service(&mut self, first: usize, now: Time, device: &mut impl Device) {
        let faults = &self.batch.faults;
        let block = faults[first].page.block();
        // A CPU fault that waits for its copy holds the block (uvm-driver 4.10, 10).
        if let Some((held, ticket)) = self.held
            && held == block
        {
            self.step = Step::Held(first, ticket);
            return;
        }
        let end = faults[first..]
            .iter()
            .position(|fault| fault.page.block() != block)
            .map_or(faults.len(), |length| first + length);
        let (at, evicted) =
            self.memory
                .service_block(block, &faults[first..end], now, device, &mut self.record);
        let last = end == faults.len();
        self.in_service = Some((block, at));
        self.enter(
            if evicted {
                ThreadState::Evict
            } else {
                ThreadState::Service
            },
            now,
        );
        if self.memory.params.fault_replay_policy == ReplayPolicy::Block {
            self.push_replay(at, false, device);
        }
        self.go_on(if last { Step::Flush } else { Step::Service(end) }, at, device);
    }

    fn flush(&mut self, now: Time, device: &mut impl Device) {
        self.enter(ThreadState::Flush, now);
        let mut at = now;
        match self.memory.params.fault_replay_policy {
            ReplayPolicy::BatchFlush => {
                let cost = &self.memory.cost;
                let stats = &mut self.memory.stats;
                let duplicates = stats.duplicate_faults - self.duplicates_before;
                let ratio = u64::from(self.memory.params.fault_replay_update_put_ratio);
                if duplicates * 100 > u64::from(self.batch.raw) * ratio {
                    at += cost.put_read;
                    stats.put_updates += 1;
                    self.cached_put = device.fault_put(now);
                }
                let discarded = self.cached_put - self.get;
                stats.discarded_entries += discarded;
                at += cost.flush_per_entry.times(discarded);
                self.get = self.cached_put;
                device.set_fault_get(self.get, now);
                self.go_on(Step::Replay, at, device);
            }
            ReplayPolicy::Batch => {
                self.push_replay(at, false, device);
                at += self.memory.cost.replay_push;
                self.memory.work_ahead(at, device);
                self.end_batch(at, device);
            }
            ReplayPolicy::Block | ReplayPolicy::Once => {
                self.memory.work_ahead(at, device);
                self.end_batch(at, device);
            }
        }
    }

    fn push_replay(&mut self, at: Time, notify: bool, device: &mut impl Device) -> Ticket {
        self.memory.stats.replays += 1;
        self.replayed_now = true;
        device.submit(Push {
            channel: ChannelKind::MemOps,
            submit: at + self.memory.cost.replay_push,
            acquire: self.memory.batch_tracker.acquires(ChannelKind::MemOps),
            methods: vec![Method::Replay],
            notify,
        })
    }

    /// A push with `notify` has completed: the batch is over if it is its replay.
    pub fn push_complete(&mut self, ticket: Ticket, now: Time, device: &mut impl Device) {
        if self.memory.policies.ahead_waits == Some(ticket) {
            self.memory.policies.ahead_waits = None;
            self.memory.work_ahead(now, device);
        }
        if self.held.is_some_and(|(_, held)| held == ticket) {
            self.held = None;
        }
        if let Step::Held(first, held) = self.step
            && held == ticket
        {
            self.service(first, now, device);
        } else if self.step == Step::Wait(ticket) {
            let at = now + self.memory.cost.completion_poll;
            self.end_batch(at, device);
        }
    }

    fn end_batch(&mut self, at: Time, device: &mut impl Device) {
        self.record.end = at;
        log::debug!(
            "batch {} at {:.3}: {} raw entries, {} pages in {} blocks, {} pages made resident, {} evictions, {:.1}",
            self.memory.stats.batches,
            self.record.start,
            self.record.raw,
            self.record.unique_pages,
            self.record.blocks,
            self.record.pages,
            self.record.evictions,
            at - self.record.start,
        );
        self.finished = Some(self.record);
        self.batches_now += 1;
        self.throttled_now += u32::from(self.record.throttled);
        let params = &self.memory.params;
        if self.batches_now >= params.fault_max_batches_per_service
            || self.throttled_now >= params.fault_max_throttle_per_service
        {
            // The interrupt is raised anew at once if entries are left.
            self.go_on(Step::Leave, at, device);
        } else {
            self.go_on(Step::Begin, at, device);
        }
    }

    /// The bottom half ends: the interrupt is unmasked.
    fn leave(&mut self, now: Time, device: &mut impl Device) {
        if !self.replayed_now {
            self.push_replay(now, false, device);
        }
        self.step = Step::Asleep;
        self.masked = false;
        self.enter(ThreadState::Idle, now);
    }

    // ---- calls of the program's thread ----

    /// `cudaMallocManaged`: reserves addresses. Returns when the call returns.
    ///
    /// # Errors
    /// A bad or overlapping range.
    pub fn managed_alloc(
        &mut self,
        range: ByteRange,
        now: Time,
        _device: &mut impl Device,
    ) -> Result<Time, HostError> {
        self.memory.space.add(range)?;
        self.memory.stats.managed_allocs += 1;
        let at = now + self.memory.cost.managed_alloc_call;
        self.memory.stats.call_time += at - now;
        Ok(at)
    }

    /// `cudaMalloc`: device memory that is mapped at once and never moves. Returns when the call returns.
    ///
    /// # Errors
    /// A bad or overlapping range, or no room on the device.
    pub fn device_alloc(
        &mut self,
        range: ByteRange,
        now: Time,
        device: &mut impl Device,
    ) -> Result<Time, HostError> {
        self.memory.space.add(range)?;
        for (block, pages) in pieces(range) {
            let full = HostError::DeviceMemory { bytes: range.bytes };
            let (chunk, _) = self.memory.pmm.allocate(block).ok_or(full)?;
            self.memory.pmm.mark_written(chunk);
            self.memory.pmm.pin(chunk);
            if let Some(state) = self.memory.space.block_mut(block) {
                state.chunk = Some(chunk);
                state.resident |= pages;
                state.mapped |= pages;
                state.touched = true;
            }
            device.map_now(block, pages);
        }
        let at = now + self.memory.cost.managed_alloc_call;
        self.memory.stats.call_time += at - now;
        Ok(at)
    }

    /// `cudaFree` of managed memory: pages are dropped without write-back. The caller has waited for
    /// the device. Returns when the call returns.
    ///
    /// # Errors
    /// A range that is not managed.
    pub fn managed_free(
        &mut self,
        range: ByteRange,
        now: Time,
        device: &mut impl Device,
    ) -> Result<Time, HostError> {
        self.require_managed(range)?;
        let mut at = now + self.memory.cost.managed_free_call;
        for (block, pages) in pieces(range) {
            at = self.memory.release_block(block, &pages, at, device);
        }
        self.memory.stats.managed_frees += 1;
        self.memory.stats.call_time += at - now;
        Ok(at)
    }

    /// The CPU touches pages; goes on with `access` where it is. After [`CpuProgress::Wait`], to be
    /// called again when that push has completed.
    ///
    /// # Errors
    /// A range that is not managed.
    pub fn cpu_access(
        &mut self,
        access: &mut CpuAccess,
        now: Time,
        device: &mut impl Device,
    ) -> Result<CpuProgress, HostError> {
        self.require_managed(access.range)?;
        self.require_movable(access.range)?;
        // The mutex of a block that the bottom half is working on.
        let start = match self.in_service {
            Some((block, until)) if pieces(access.range).any(|(mine, _)| mine == block) => now.max(until),
            _ => now,
        };
        let progress = self.memory.cpu_access(access, start, device);
        self.held = match progress {
            CpuProgress::Wait(block, ticket) => Some((block, ticket)),
            CpuProgress::Done(_) | CpuProgress::Throttled(_) => None,
        };
        Ok(progress)
    }

    /// The same for accesses that never wait: memory that the GPU does not have.
    ///
    /// # Errors
    /// A range that is not managed, or pages that are resident on the GPU.
    pub fn cpu_touch(
        &mut self,
        range: ByteRange,
        write: bool,
        now: Time,
        device: &mut impl Device,
    ) -> Result<Time, HostError> {
        match self.cpu_access(&mut CpuAccess::new(range, write), now, device)? {
            CpuProgress::Done(at) => Ok(at),
            CpuProgress::Wait(..) | CpuProgress::Throttled(_) => Err(HostError::NotManaged {
                start: range.start,
                bytes: range.bytes,
            }),
        }
    }

    /// `cudaMemPrefetchAsync`, at its turn in its stream: all blocks are made resident first, then all are
    /// mapped, so that the maps of incoming data do not hold up what makes room (uvm-driver 9.1); a
    /// single block in one pass. Returns when the CPU is done, and the pushes that have to complete.
    ///
    /// # Errors
    /// A range that is not managed.
    pub fn prefetch(
        &mut self,
        range: ByteRange,
        to: Processor,
        now: Time,
        device: &mut impl Device,
    ) -> Result<(Time, Vec<Ticket>), HostError> {
        self.require_managed(range)?;
        self.require_movable(range)?;
        let mut done = Tracker::default();
        let mut at = now;
        let two_passes = to == Processor::Gpu && pieces(range).nth(1).is_some();
        for map in [false, true] {
            if map || two_passes {
                for (block, pages) in pieces(range) {
                    at = self
                        .memory
                        .migrate_block(block, &pages, (to, map), at, device, &mut done);
                }
            }
        }
        self.memory.stats.call_time += at - now;
        Ok((at, done.all()))
    }

    /// `cudaMemAdvise`. Returns when the call returns.
    ///
    /// # Errors
    /// A range that is not managed.
    pub fn advise(
        &mut self,
        range: ByteRange,
        advice: Advice,
        now: Time,
        device: &mut impl Device,
    ) -> Result<Time, HostError> {
        self.call_by_block(range, now, |memory, block, pages, at| {
            memory.advise_block(block, pages, advice, at, device)
        })
    }

    /// Discards contents; with `unmap`, mappings and residency on the GPU, too. Returns when the call
    /// returns.
    ///
    /// # Errors
    /// A range that is not managed.
    pub fn discard(
        &mut self,
        range: ByteRange,
        unmap: bool,
        now: Time,
        device: &mut impl Device,
    ) -> Result<Time, HostError> {
        self.call_by_block(range, now, |memory, block, pages, at| {
            memory.discard_block(block, pages, unmap, at, device)
        })
    }

    /// A call that goes over a managed range block by block; `each` returns when it is done with one.
    fn call_by_block(
        &mut self,
        range: ByteRange,
        now: Time,
        mut each: impl FnMut(&mut Memory, VaBlock, &PageMask, Time) -> Time,
    ) -> Result<Time, HostError> {
        self.require_managed(range)?;
        self.require_movable(range)?;
        let mut at = now + self.memory.cost.managed_alloc_call;
        for (block, pages) in pieces(range) {
            at = each(&mut self.memory, block, &pages, at);
        }
        self.memory.stats.call_time += at - now;
        Ok(at)
    }

    /// What has made going on impossible, if anything: no host memory for an eviction, say.
    pub fn failure(&self) -> Option<HostError> {
        let host = &self.memory.space.host;
        host.exhausted_at.map(|block| HostError::HostMemory {
            limit: host.limit.unwrap_or_default(),
            bytes: host.bytes,
            block: block.address(),
        })
    }

    fn require_movable(&self, range: ByteRange) -> Result<(), HostError> {
        let ByteRange { start, bytes } = range;
        let pinned = pieces(range).any(|(block, _)| {
            let chunk = self.memory.space.block(block).and_then(|state| state.chunk);
            chunk.is_some_and(|chunk| self.memory.pmm.is_pinned(chunk))
        });
        if pinned {
            Err(HostError::DeviceOnly { start, bytes })
        } else {
            Ok(())
        }
    }

    /// `cudaMemcpyAsync` from the host into managed memory. Returns when the call returns and the last
    /// push it made, if any.
    ///
    /// # Errors
    /// A range that is not managed.
    pub fn copy_to_device(
        &mut self,
        range: ByteRange,
        now: Time,
        device: &mut impl Device,
    ) -> Result<(Time, Option<Ticket>), HostError> {
        self.require_managed(range)?;
        let mut at = now;
        let mut last = None;
        for (block, pages) in pieces(range) {
            let (end, ticket) = self.memory.copy_to_device(block, &pages, at, device);
            at = end;
            last = ticket.or(last);
        }
        self.memory.stats.call_time += at - now;
        Ok((at, last))
    }

    fn require_managed(&self, range: ByteRange) -> Result<(), HostError> {
        let ByteRange { start, bytes } = range;
        if bytes == 0 || start.checked_add(bytes).is_none() {
            return Err(HostError::BadRange { start, bytes });
        }
        if !self.memory.space.all_managed(range) {
            return Err(HostError::NotManaged { start, bytes });
        }
        Ok(())
    }
}
