//! The whole device, and all its dealings with the outside.

use std::collections::VecDeque;

use sim_core::Time;
use sim_core::access::AccessPattern;
use sim_core::fault::FaultEntry;
use sim_core::pages::{PAGE_BYTES, Page, PageMask, VaBlock};
use sim_core::push::{Cause, ChannelKind, Direction, Method, Push, Sharing, Ticket};
use sim_core::tools::MapRemoteCause;

use crate::accounting::Accounting;
use crate::channel::{Channels, KINDS, State, method_time};
use crate::kernel::{KernelRun, Shared};
use crate::params::{Exactness, GpuParams};
use crate::utlb::Waiter;

/// Names a launch, in the order of launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelId(pub u64);

/// What the device wants to be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuEvent {
    /// Something timed on a channel is over.
    Channel(ChannelKind),
    /// A service of the running kernel in this place has to be looked at, unless `generation` is stale.
    Kernel {
        /// Index of the running kernel.
        index: u32,
        /// Ignored unless it is the kernel's latest.
        generation: u64,
    },
    /// The next kernel of this stream starts.
    Start {
        /// The stream.
        stream: u32,
    },
    /// Parked requests are retried.
    Replay,
}

/// A kernel to be run.
#[derive(Clone, Debug)]
pub struct Launch<P> {
    /// In-order queue it goes to.
    pub stream: u32,
    /// What it touches.
    pub pattern: P,
    /// Resident blocks per SM (occupancy).
    pub blocks_per_sm: u32,
    /// How long it takes when nothing faults.
    pub duration: Time,
}

/// One finished copy of a copy engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRecord {
    /// Which way.
    pub direction: Direction,
    /// Why.
    pub cause: Cause,
    /// First page.
    pub first: Page,
    /// Pages.
    pub pages: u32,
    /// When the engine began with it.
    pub start: Time,
    /// When its last byte had arrived.
    pub end: Time,
    /// When the driver pushed it.
    pub pushed: Time,
}

/// PTEs of pages in host memory that have been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMapping {
    /// Why the pages are not moved.
    pub cause: MapRemoteCause,
    /// Their block.
    pub block: VaBlock,
    /// The pages.
    pub pages: PageMask,
    /// When the driver pushed it.
    pub pushed: Time,
    /// When the last PTE was valid.
    pub end: Time,
}

/// An access of a kernel to host memory, on its way over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAccess {
    /// Reads come to the device, writes leave it.
    pub direction: Direction,
    /// Bytes of all warps.
    pub bytes: u64,
    /// First byte.
    pub address: u64,
    /// Who waits for it.
    pub waiter: Waiter,
}

/// What the device needs from its surroundings.
pub trait Port {
    /// Starts an access to host memory; [`Gpu::remote_done`] is called at its end.
    fn remote(&mut self, access: RemoteAccess, now: Time) {
        let _ = (access, now);
        debug_assert!(false, "remote accesses are not connected");
    }
    /// A gate of a stream has its turn: [`Gpu::open_gate`] has to be called.
    fn gate_reached(&mut self, stream: u32, gate: u64, now: Time) {
        let _ = (stream, gate, now);
        debug_assert!(false, "gates are not connected");
    }
    /// What a gate had to wait for has happened.
    fn gate_passed(&mut self, gate: u64, now: Time) {
        let _ = (gate, now);
    }
    /// Calls [`Gpu::handle`] with `event` at `at` (now or later).
    fn schedule(&mut self, at: Time, event: GpuEvent);
    /// The time of the earliest event of the whole simulation, [`Time::MAX`] if there is none.
    fn next_event(&self) -> Time;
    /// Starts a transfer on the link; [`Gpu::transfer_done`] is called at its end.
    fn transfer(&mut self, direction: Direction, bytes: u64, address: u64, now: Time);
    /// Interrupts the host: an entry of the fault buffer is there at `at`. Not asked again before
    /// [`Gpu::interrupts_unmasked`].
    fn interrupt(&mut self, at: Time);
    /// A push with `notify` has completed.
    fn push_completed(&mut self, ticket: Ticket, now: Time);
    /// A kernel has finished.
    fn kernel_finished(&mut self, kernel: KernelId, now: Time);
    /// A copy has finished (for traces).
    fn copied(&mut self, record: CopyRecord);
    /// Pages of host memory have been mapped (for traces).
    fn mapped_remotely(&mut self, mapping: &RemoteMapping) {
        let _ = mapping;
    }
    /// A kernel has started (for traces).
    fn kernel_started(&mut self, kernel: KernelId, now: Time) {
        let _ = (kernel, now);
    }
    /// A replay is in flight (for traces).
    fn replayed(&mut self, now: Time) {
        let _ = now;
    }
}

#[derive(Debug)]
struct Running<P> {
    id: KernelId,
    stream: u32,
    generation: u64,
    run: KernelRun<P>,
}

/// What a stream does in order.
#[derive(Debug)]
enum Item<P> {
    Kernel(KernelId, Launch<P>),
    /// Something outside has to happen: its name, whether it was told, and what it left to wait for.
    Gate(u64, bool, Option<Vec<Ticket>>),
}

#[derive(Debug)]
struct Stream<P> {
    id: u32,
    waiting: VecDeque<Item<P>>,
    busy: bool,
    idle_since: Time,
}

/// Counts of what the device did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuStats {
    /// Kernels finished.
    pub kernels: u64,
    /// Replays carried out.
    pub replays: u64,
    /// Parked accesses that hit in a replay.
    pub replay_hits: u64,
    /// Pages that received a valid PTE.
    pub pages_mapped: u64,
    /// Accesses of kernels to host memory.
    pub remote_accesses: u64,
    /// Their bytes, by [`Direction`].
    pub remote_bytes: [u64; 2],
    /// Time that each channel kind spent on its methods, by [`ChannelKind`].
    pub channel_busy: [Time; 4],
}

/// One GPU.
#[derive(Debug)]
pub struct Gpu<P> {
    shared: Shared,
    channels: Channels,
    streams: Vec<Stream<P>>,
    kernels: Vec<Option<Running<P>>>,
    launched: u64,
    interrupt_asked: bool,
    awakened: Vec<Waiter>,
    stats: GpuStats,
}

impl<P: AccessPattern> Gpu<P> {
    /// An idle GPU with nothing mapped.
    pub fn new(params: GpuParams) -> Gpu<P> {
        Gpu {
            shared: Shared::new(params),
            channels: Channels::default(),
            streams: Vec::new(),
            kernels: Vec::new(),
            launched: 0,
            interrupt_asked: false,
            awakened: Vec::new(),
            stats: GpuStats::default(),
        }
    }

    /// Its parameters.
    pub fn params(&self) -> &GpuParams {
        &self.shared.params
    }

    /// Counts.
    pub fn stats(&self) -> &GpuStats {
        &self.stats
    }

    /// Fault entries written so far, and faults that found the buffer full.
    pub fn fault_entries(&self) -> (u64, u64) {
        (self.shared.buffer.written(), self.shared.buffer.dropped())
    }

    /// Warp accesses to pages without PTE.
    pub fn misses(&self) -> u64 {
        self.shared.misses
    }

    /// Where the SM time went.
    pub fn accounting(&mut self) -> &mut Accounting {
        &mut self.shared.accounting
    }

    /// Pages with a valid PTE.
    pub fn mapped_pages(&self) -> u64 {
        self.shared.table.mapped_pages()
    }

    /// The mapped pages of one block.
    pub fn mapped(&self, block: VaBlock) -> PageMask {
        self.shared.table.block(block)
    }

    /// No kernel runs or waits and all channels are empty.
    pub fn is_idle(&self) -> bool {
        self.channels.is_idle()
            && self.kernels.iter().all(Option::is_none)
            && self
                .streams
                .iter()
                .all(|stream| stream.waiting.is_empty() && !stream.busy)
    }

    /// No kernel runs or waits.
    pub fn kernels_idle(&self) -> bool {
        self.streams
            .iter()
            .all(|stream| stream.waiting.is_empty() && !stream.busy)
    }

    /// Pages that parked or waiting requests need, ascending, for a report of a deadlock.
    pub fn awaited_pages(&self) -> Vec<Page> {
        let mut pages: Vec<Page> = self
            .shared
            .utlbs
            .iter()
            .flat_map(crate::utlb::Utlb::pages)
            .collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Requests parked or waiting.
    pub fn parked_requests(&self) -> usize {
        self.shared.utlbs.iter().map(crate::utlb::Utlb::len).sum()
    }

    /// Takes a kernel; it runs after those launched before on its stream.
    pub fn launch(&mut self, launch: Launch<P>, now: Time, port: &mut impl Port) -> KernelId {
        let id = KernelId(self.launched);
        self.launched += 1;
        let stream = launch.stream;
        self.enqueue(stream, Item::Kernel(id, launch), now, port);
        id
    }

    /// Appends a gate to a stream: when what was launched before has finished, [`Port::gate_reached`] is
    /// told, and the stream goes on when [`Gpu::open_gate`] has been called and the pushes that it names
    /// have completed.
    pub fn add_gate(&mut self, stream: u32, gate: u64, now: Time, port: &mut impl Port) {
        self.enqueue(stream, Item::Gate(gate, false, None), now, port);
    }

    /// What a gate stood for has been started; `tickets` are what is left to wait for.
    pub fn open_gate(
        &mut self,
        stream: u32,
        gate: u64,
        tickets: Vec<Ticket>,
        now: Time,
        port: &mut impl Port,
    ) {
        if let Some(stream) = self.streams.iter_mut().find(|s| s.id == stream)
            && let Some(Item::Gate(id, _, waits)) = stream.waiting.front_mut()
            && *id == gate
        {
            *waits = Some(tickets);
        }
        self.pass_gates(now, port);
    }

    fn pass_gates(&mut self, now: Time, port: &mut impl Port) {
        for place in 0..self.streams.len() {
            let stream = &mut self.streams[place];
            let Some(Item::Gate(gate, _, Some(tickets))) = stream.waiting.front() else {
                continue;
            };
            if !tickets.iter().all(|ticket| self.channels.is_complete(*ticket)) {
                continue;
            }
            let (gate, id) = (*gate, stream.id);
            stream.waiting.pop_front();
            stream.busy = !stream.waiting.is_empty();
            if stream.busy {
                port.schedule(now, GpuEvent::Start { stream: id });
            }
            port.gate_passed(gate, now);
        }
    }

    fn enqueue(&mut self, stream: u32, item: Item<P>, now: Time, port: &mut impl Port) {
        let place = self
            .streams
            .iter()
            .position(|s| s.id == stream)
            .unwrap_or_else(|| {
                self.streams.push(Stream {
                    id: stream,
                    waiting: VecDeque::new(),
                    busy: false,
                    idle_since: Time::ZERO,
                });
                self.streams.len() - 1
            });
        let entry = &mut self.streams[place];
        let gap = match item {
            Item::Kernel(..) => self.shared.params.launch_gap,
            Item::Gate(..) => Time::ZERO,
        };
        entry.waiting.push_back(item);
        if !entry.busy {
            entry.busy = true;
            let at = now.max(entry.idle_since + gap);
            port.schedule(at, GpuEvent::Start { stream });
        }
    }

    /// Takes a push of the driver; it is carried out in the order of its channel.
    pub fn submit(&mut self, push: Push, now: Time, port: &mut impl Port) -> Ticket {
        let kind = push.channel;
        let ticket = self.channels.submit(push);
        self.pump(kind, now, port);
        ticket
    }

    /// Has this push completed?
    pub fn is_complete(&self, ticket: Ticket) -> bool {
        self.channels.is_complete(ticket)
    }

    /// PUT of the fault buffer, as an absolute count of entries.
    pub fn fault_put(&self, now: Time) -> u64 {
        self.shared.buffer.put(now, &self.shared.params)
    }

    /// Entry `index` of the fault buffer if it is valid at `now`.
    pub fn fault_entry(&mut self, index: u64, now: Time) -> Option<FaultEntry> {
        let Shared {
            buffer,
            utlbs,
            params,
            ..
        } = &mut self.shared;
        buffer.entry(index, now, utlbs, params)
    }

    /// Releases the entries before `index`.
    pub fn set_fault_get(&mut self, index: u64, now: Time) {
        let Shared {
            buffer,
            utlbs,
            params,
            ..
        } = &mut self.shared;
        buffer.set_get(index, now, utlbs, params);
    }

    /// The host takes interrupts again: one is raised at once if an entry is there.
    pub fn interrupts_unmasked(&mut self, now: Time, port: &mut impl Port) {
        self.interrupt_asked = false;
        self.ask_interrupt(now, port);
    }

    /// Drops the PTEs of `pages` at once (a range that is freed while the device is idle).
    pub fn drop_mappings(&mut self, block: VaBlock, pages: PageMask, now: Time, port: &mut impl Port) {
        self.unmap(block, pages, now, port);
    }

    fn ask_interrupt(&mut self, now: Time, port: &mut impl Port) {
        if !self.interrupt_asked
            && let Some(at) = self.shared.buffer.first_entry_at(now)
        {
            self.interrupt_asked = true;
            port.interrupt(at);
        }
    }

    /// Gives pages valid PTEs at once.
    pub fn map_now(&mut self, block: VaBlock, pages: PageMask) {
        self.stats.pages_mapped += u64::from(pages.count());
        self.shared.table.map(block, pages);
    }

    /// Carries out an event asked for through [`Port::schedule`].
    pub fn handle(&mut self, event: GpuEvent, now: Time, port: &mut impl Port) {
        match event {
            GpuEvent::Channel(kind) => self.channel_event(kind, now, port),
            GpuEvent::Kernel { index, generation } => {
                if self.kernels[index as usize]
                    .as_ref()
                    .is_some_and(|k| k.generation == generation)
                {
                    self.drive(index, true, now, port);
                }
            }
            GpuEvent::Start { stream } => self.start_next(stream, now, port),
            GpuEvent::Replay => {
                port.replayed(now);
                self.retry_parked(now, port);
            }
        }
    }

    /// The transfer that a channel of this direction had on the link is complete.
    pub fn transfer_done(&mut self, direction: Direction, now: Time, port: &mut impl Port) {
        let kind = match direction {
            Direction::HostToDevice => ChannelKind::HostToDevice,
            Direction::DeviceToHost => ChannelKind::DeviceToHost,
        };
        let State::OnLink(method) = self.channels.of(kind).state else {
            debug_assert!(false, "a transfer ended that no channel had started");
            return;
        };
        self.shared.accounting.copy_ended(now);
        let began = self.channels.of(kind).began;
        let head = self.channels.of(kind).queue.front();
        let pushed = head.map_or(now, |push| push.submit);
        if let Some(Method::Copy {
            direction,
            cause,
            first,
            pages,
        }) = head.and_then(|push| push.methods.get(method).copied())
        {
            port.copied(CopyRecord {
                direction,
                cause,
                first,
                pages,
                start: began,
                end: now,
                pushed,
            });
        }
        self.begin_method(kind, method + 1, now, port);
    }

    // ---- kernels ----

    fn start_next(&mut self, stream: u32, now: Time, port: &mut impl Port) {
        let Some(place) = self.streams.iter().position(|s| s.id == stream) else {
            return;
        };
        if let Some(Item::Gate(gate, told, _)) = self.streams[place].waiting.front_mut() {
            if !std::mem::replace(told, true) {
                let gate = *gate;
                port.gate_reached(stream, gate, now);
            }
            return;
        }
        let Some(Item::Kernel(id, launch)) = self.streams[place].waiting.pop_front() else {
            return;
        };
        port.kernel_started(id, now);
        self.catch_up_kernels(now);
        let index = self.kernels.iter().position(Option::is_none).unwrap_or_else(|| {
            self.kernels.push(None);
            self.kernels.len() - 1
        });
        let run = KernelRun::start(
            launch.pattern,
            index as u32,
            launch.blocks_per_sm,
            launch.duration,
            now,
            &mut self.shared,
        );
        self.kernels[index] = Some(Running {
            id,
            stream,
            generation: 0,
            run,
        });
        self.share_device();
        for other in 0..self.kernels.len() as u32 {
            if self.kernels[other as usize].is_some() {
                self.drive(other, false, now, port);
            }
        }
        self.ask_interrupt(now, port);
    }

    fn share_device(&mut self) {
        let running = self.kernels.iter().flatten().count() as u32;
        let hit_under_fault = self.shared.params.hit_under_fault;
        for kernel in self.kernels.iter_mut().flatten() {
            kernel.run.share_with(running - 1, hit_under_fault);
        }
    }

    fn catch_up_kernels(&mut self, now: Time) {
        for kernel in self.kernels.iter_mut().flatten() {
            kernel.run.run_until(now, &mut self.shared);
        }
    }

    /// Runs a kernel up to `now` and asks for its next event. With `run_ahead` (nothing else happens in
    /// the present event any more), a kernel that is alone goes on as long as no other event of the
    /// simulation can interfere.
    fn drive(&mut self, index: u32, run_ahead: bool, now: Time, port: &mut impl Port) {
        let mut at = now;
        loop {
            let Some(kernel) = self.kernels[index as usize].as_mut() else {
                return;
            };
            kernel.run.run_until(at, &mut self.shared);
            self.send_remote(at, port);
            self.ask_interrupt(at, port);
            let Some(kernel) = self.kernels[index as usize].as_mut() else {
                return;
            };
            if kernel.run.is_done() {
                let done = kernel.run.last_done().max(now);
                if done <= now {
                    self.finish(index, now, port);
                } else {
                    kernel.generation += 1;
                    port.schedule(
                        done,
                        GpuEvent::Kernel {
                            index,
                            generation: kernel.generation,
                        },
                    );
                }
                return;
            }
            let Some(next) = kernel.run.next_time() else {
                kernel.generation += 1;
                return;
            };
            kernel.generation += 1;
            let generation = kernel.generation;
            let alone = self.kernels.iter().flatten().count() == 1;
            if run_ahead
                && alone
                && self.shared.params.exactness == Exactness::Fast
                && next < port.next_event()
            {
                at = next;
                continue;
            }
            port.schedule(next, GpuEvent::Kernel { index, generation });
            return;
        }
    }

    /// Hands the remote accesses that kernels have made over to the link.
    fn send_remote(&mut self, now: Time, port: &mut impl Port) {
        if self.shared.remote.is_empty() {
            return;
        }
        let mut remote = std::mem::take(&mut self.shared.remote);
        for access in remote.drain(..) {
            self.stats.remote_accesses += 1;
            self.stats.remote_bytes[access.direction as usize] += access.bytes;
            port.remote(access, now);
        }
        self.shared.remote = remote;
    }

    /// A remote access has been carried out.
    pub fn remote_done(&mut self, waiter: Waiter, now: Time, port: &mut impl Port) {
        self.catch_up_kernels(now);
        if let Some(kernel) = self.kernels[waiter.kernel as usize].as_mut()
            && kernel.run.hit(waiter.slot, 1)
        {
            kernel.run.resume(waiter.slot, now, &mut self.shared);
        }
        for index in 0..self.kernels.len() as u32 {
            self.drive(index, false, now, port);
        }
    }

    fn finish(&mut self, index: u32, now: Time, port: &mut impl Port) {
        let Some(kernel) = self.kernels[index as usize].take() else {
            return;
        };
        self.stats.kernels += 1;
        self.catch_up_kernels(now);
        self.share_device();
        for other in 0..self.kernels.len() as u32 {
            self.drive(other, false, now, port);
        }
        if let Some(stream) = self.streams.iter_mut().find(|s| s.id == kernel.stream) {
            stream.idle_since = now;
            stream.busy = !stream.waiting.is_empty();
            if stream.busy {
                let at = now + self.shared.params.launch_gap;
                port.schedule(
                    at,
                    GpuEvent::Start {
                        stream: kernel.stream,
                    },
                );
            }
        }
        port.kernel_finished(kernel.id, now);
    }

    fn retry_parked(&mut self, now: Time, port: &mut impl Port) {
        self.stats.replays += 1;
        self.catch_up_kernels(now);
        let Shared {
            buffer,
            utlbs,
            params,
            table,
            ..
        } = &mut self.shared;
        buffer.catch_up(now, utlbs, params);
        let mut awakened = std::mem::take(&mut self.awakened);
        awakened.clear();
        let new = table.take_new().filter(|_| params.exactness == Exactness::Fast);
        for utlb in utlbs.iter_mut() {
            if new.as_ref().is_some_and(|new| !utlb.waits_for(new)) {
                utlb.replay_in_vain();
                continue;
            }
            utlb.replay(
                |page, kind| table.hits(page, kind),
                |waiter, warps| {
                    self.stats.replay_hits += u64::from(warps);
                    if let Some(kernel) = self.kernels[waiter.kernel as usize].as_mut()
                        && kernel.run.hit(waiter.slot, warps)
                    {
                        awakened.push(waiter);
                    }
                },
            );
        }
        buffer.restart(now + params.miss_latency(), utlbs, params);
        if !params.hit_under_fault {
            for (utlb, blocked) in self.shared.utlbs.iter().zip(&mut self.shared.blocked) {
                if utlb.is_empty() {
                    awakened.append(blocked);
                }
            }
        }
        for waiter in &awakened {
            if let Some(kernel) = self.kernels[waiter.kernel as usize].as_mut() {
                kernel.run.resume(waiter.slot, now, &mut self.shared);
            }
        }
        self.awakened = awakened;
        for index in 0..self.kernels.len() as u32 {
            self.drive(index, false, now, port);
        }
        self.ask_interrupt(now, port);
    }

    fn unmap(&mut self, block: VaBlock, pages: PageMask, now: Time, port: &mut impl Port) {
        let mut touched = false;
        let (first, end) = (block.page(0), VaBlock(block.0 + 1).page(0));
        for kernel in self.kernels.iter_mut().flatten() {
            if kernel.run.may_touch(first, end) {
                kernel.run.run_until(now, &mut self.shared);
                kernel.run.pages_unmapped();
                touched = true;
            }
        }
        self.shared.table.unmap(block, pages);
        if touched {
            for index in 0..self.kernels.len() as u32 {
                self.drive(index, false, now, port);
            }
        }
    }

    // ---- channels ----

    /// Starts the head of a channel if it can start.
    fn pump(&mut self, kind: ChannelKind, now: Time, port: &mut impl Port) {
        let channel = self.channels.of(kind);
        if channel.state != State::Idle {
            return;
        }
        let Some(head) = channel.queue.front() else { return };
        if head.submit > now {
            let submit = head.submit;
            channel.state = State::AwaitingSubmit;
            port.schedule(submit, GpuEvent::Channel(kind));
            return;
        }
        if self.channels.acquired(kind) {
            self.channels.of(kind).state = State::Fetching;
            port.schedule(now + self.shared.params.push_overhead, GpuEvent::Channel(kind));
        }
    }

    fn channel_event(&mut self, kind: ChannelKind, now: Time, port: &mut impl Port) {
        match self.channels.of(kind).state {
            State::AwaitingSubmit => {
                self.channels.of(kind).state = State::Idle;
                self.pump(kind, now, port);
            }
            State::Fetching => self.begin_method(kind, 0, now, port),
            State::Running(method) => {
                self.end_method(kind, method, now, port);
                self.begin_method(kind, method + 1, now, port);
            }
            State::SettingUp(method) => {
                let Some(Method::Copy {
                    direction,
                    first,
                    pages,
                    ..
                }) = self
                    .channels
                    .of(kind)
                    .queue
                    .front()
                    .and_then(|push| push.methods.get(method).copied())
                else {
                    return;
                };
                self.channels.of(kind).state = State::OnLink(method);
                port.transfer(direction, u64::from(pages) * PAGE_BYTES, first.address(), now);
            }
            State::Idle | State::OnLink(_) => debug_assert!(false, "no event was due on this channel"),
        }
    }

    fn begin_method(&mut self, kind: ChannelKind, method: usize, now: Time, port: &mut impl Port) {
        let mut index = method;
        loop {
            let params = &self.shared.params;
            let channel = self.channels.of(kind);
            let Some(head) = channel.queue.front() else { return };
            let Some(&next) = head.methods.get(index) else {
                break;
            };
            channel.began = now;
            if let Method::Copy { direction, .. } = next {
                let setup = match direction {
                    Direction::HostToDevice => params.h2d_copy_fixed,
                    Direction::DeviceToHost => params.d2h_copy_fixed,
                };
                channel.state = State::SettingUp(index);
                self.shared.accounting.copy_started(now);
                port.schedule(now + setup, GpuEvent::Channel(kind));
                return;
            }
            let time = method_time(&next, params);
            if let Method::UnmapPtes { block, pages, .. } = next {
                self.unmap(block, pages, now, port);
            }
            if time > Time::ZERO {
                self.channels.of(kind).state = State::Running(index);
                port.schedule(now + time, GpuEvent::Channel(kind));
                return;
            }
            self.end_method(kind, index, now, port);
            index += 1;
        }
        self.complete(kind, now, port);
    }

    fn end_method(&mut self, kind: ChannelKind, method: usize, now: Time, port: &mut impl Port) {
        let channel = self.channels.of(kind);
        self.stats.channel_busy[kind as usize] += now - channel.began;
        let Some(head) = channel.queue.front() else {
            return;
        };
        let pushed = head.submit;
        let Some(&done) = head.methods.get(method) else {
            return;
        };
        match done {
            Method::MapPtes { block, pages, .. } => {
                self.stats.pages_mapped += u64::from(pages.count());
                self.shared.table.map(block, pages);
            }
            Method::MapShared {
                block,
                pages,
                sharing,
                ..
            } => {
                self.stats.pages_mapped += u64::from(pages.count());
                self.shared.table.map_shared(block, pages, sharing);
                if let Sharing::Remote(cause) = sharing {
                    port.mapped_remotely(&RemoteMapping {
                        cause,
                        block,
                        pages,
                        pushed,
                        end: now,
                    });
                }
            }
            Method::Replay => port.schedule(now + self.shared.params.replay_latency, GpuEvent::Replay),
            _ => {}
        }
    }

    fn complete(&mut self, kind: ChannelKind, now: Time, port: &mut impl Port) {
        if let Some((ticket, push)) = self.channels.complete(kind)
            && push.notify
        {
            port.push_completed(ticket, now);
        }
        self.pass_gates(now, port);
        for kind in KINDS {
            self.pump(kind, now, port);
        }
    }
}
