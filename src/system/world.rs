//! What lies between the device, the driver and the link: the event queue, and who hears of what.

use std::collections::{BTreeMap, VecDeque};

use sim_core::Time;
use sim_core::fault::FaultEntry;
use sim_core::pages::{PAGE_BYTES, PageMask, VaBlock};
use sim_core::push::{Cause, Direction, Method, Push, Ticket};
use sim_core::scheduler::Scheduler;
use sim_core::tools::{Processor, ToolsEvent};
use sim_gpu::gpu::{CopyRecord, RemoteAccess, RemoteMapping};
use sim_gpu::utlb::Waiter;
use sim_gpu::{Gpu, GpuEvent, KernelId, Port};
use sim_pcie::{Link, Transfer};
use workloads::pattern::KernelPattern;

use super::contents::Contents;
use super::probe::{Probe, Record};

/// Everything that can happen.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// The device asked for it.
    Gpu(GpuEvent),
    /// A transfer on the link may be complete.
    Link {
        /// Stale unless it is the latest.
        generation: u64,
    },
    /// The GPU's interrupt has reached the host.
    Interrupt,
    /// The driver's bottom half goes on.
    Driver,
    /// A timer of the driver.
    DriverTimer,
    /// A push that the driver waits for has completed.
    PushCompleted(Ticket),
    /// A kernel has started, and policies of the driver want to know.
    KernelStarted,
    /// A kernel has finished.
    KernelFinished(KernelId),
    /// The program's thread goes on.
    Host,
    /// A gate of a stream has its turn.
    GateReached {
        /// The stream.
        stream: u32,
        /// The gate.
        gate: u64,
    },
    /// What a gate waited for has happened.
    GatePassed,
}

/// Whose bytes have crossed the link.
#[derive(Clone, Copy, Debug)]
pub enum Arrival {
    /// A copy of the copy engine of this direction.
    Copy(Direction),
    /// An access of a kernel to host memory.
    Remote(Waiter),
}

/// Bytes and copies of one direction and cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes moved.
    pub bytes: u64,
    /// Copies of the copy engine.
    pub copies: u64,
    /// Time from the beginning to the end of these copies, added up.
    pub time: Time,
}

/// All traffic between host and device memory, by direction and cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficTable([[Traffic; 6]; 2]);

impl TrafficTable {
    /// The traffic of one direction and cause.
    pub fn of(&self, direction: Direction, cause: Cause) -> Traffic {
        self.0[direction as usize][cause as usize]
    }

    /// Bytes of one direction.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.0[direction as usize].iter().map(|t| t.bytes).sum()
    }

    /// Copies of one direction.
    pub fn copies(&self, direction: Direction) -> u64 {
        self.0[direction as usize].iter().map(|t| t.copies).sum()
    }

    fn add(&mut self, record: &CopyRecord) {
        let entry = &mut self.0[record.direction as usize][record.cause as usize];
        entry.bytes += u64::from(record.pages) * sim_core::pages::PAGE_BYTES;
        entry.copies += 1;
        entry.time += record.end - record.start;
    }
}

/// What has to be remembered until a record for the probe is complete.
#[derive(Debug, Default)]
struct Pending {
    /// The batch whose entries were fetched last.
    batch: u64,
    /// Replays pushed and not yet in flight: batch, when pushed.
    replays: VecDeque<(u64, Time)>,
    /// When kernels started that have not finished.
    kernels: BTreeMap<KernelId, Time>,
    /// The kernel that started last, until the driver has been told.
    started: Option<KernelId>,
}

/// The event queue, the link, and what was observed.
pub struct World<'p> {
    /// Pending events.
    pub events: Scheduler<Event>,
    /// The link between host and device.
    pub link: Link,
    /// Time from the write of the first fault entry to the host's interrupt.
    pub interrupt_flight: Time,
    /// Bytes moved so far.
    pub traffic: TrafficTable,
    /// Which bytes hold something that matters.
    pub contents: Contents,
    /// Copies in order, if they are to be kept.
    pub copies: Option<Vec<CopyRecord>>,
    /// Policies of the driver want to know of kernels that start.
    pub watch_kernels: bool,
    probe: Option<&'p mut dyn Probe>,
    pending: Pending,
    generation: u64,
    link_wake: Option<Time>,
    in_flight: VecDeque<(sim_pcie::TransferId, Arrival)>,
    arrivals: Vec<sim_pcie::Completion>,
}

impl<'p> World<'p> {
    /// Nothing is pending; `probe` hears what happens.
    pub fn new(
        link: Link,
        interrupt_flight: Time,
        keep_copies: bool,
        probe: Option<&'p mut dyn Probe>,
    ) -> World<'p> {
        World {
            events: Scheduler::new(),
            link,
            interrupt_flight,
            traffic: TrafficTable::default(),
            contents: Contents::default(),
            copies: keep_copies.then(Vec::new),
            watch_kernels: false,
            probe,
            pending: Pending::default(),
            generation: 0,
            link_wake: None,
            in_flight: VecDeque::new(),
            arrivals: Vec::new(),
        }
    }

    /// Is there a probe?
    pub fn probed(&self) -> bool {
        self.probe.is_some()
    }

    /// Tells the probe, if there is one.
    pub fn record(&mut self, record: &Record) {
        if let Some(probe) = &mut self.probe {
            probe.record(record);
        }
    }

    /// The kernel that started last, if there is one that has not been asked for.
    pub fn take_started(&mut self) -> Option<KernelId> {
        self.pending.started.take()
    }

    /// When a kernel started, asked once, at its end.
    pub fn take_kernel_start(&mut self, kernel: KernelId) -> Option<Time> {
        self.pending.kernels.remove(&kernel)
    }

    /// Time that the link carried something, host to device and device to host.
    pub fn link_busy(&self, now: Time) -> [Time; 2] {
        let stats = self.link.stats(now);
        [stats.down.busy, stats.up.busy]
    }

    fn watch_link(&mut self) {
        let wake = self.link.next_event();
        if wake == self.link_wake {
            return;
        }
        self.link_wake = wake;
        self.generation += 1;
        if let Some(at) = wake {
            self.events.at(
                at,
                Event::Link {
                    generation: self.generation,
                },
            );
        }
    }

    /// Transfers that have completed by `now`, oldest first, unless the wake-up was stale.
    pub fn link_arrivals(&mut self, generation: u64, now: Time) -> Vec<Arrival> {
        if generation != self.generation {
            return Vec::new();
        }
        self.link_wake = None;
        self.arrivals.clear();
        self.link.advance(now, &mut self.arrivals);
        let mut arrived = Vec::with_capacity(self.arrivals.len());
        for arrival in &self.arrivals {
            if let Some(place) = self.in_flight.iter().position(|(id, _)| *id == arrival.id) {
                arrived.extend(self.in_flight.remove(place).map(|(_, who)| who));
            }
        }
        self.watch_link();
        arrived
    }
}

impl Port for World<'_> {
    fn schedule(&mut self, at: Time, event: GpuEvent) {
        self.events.at(at, Event::Gpu(event));
    }

    fn next_event(&self) -> Time {
        self.events.peek_time().unwrap_or(Time::MAX)
    }

    fn transfer(&mut self, direction: Direction, bytes: u64, address: u64, now: Time) {
        let id = self.link.submit(
            now,
            Transfer {
                direction,
                bytes,
                address,
            },
        );
        self.in_flight.push_back((id, Arrival::Copy(direction)));
        self.watch_link();
    }

    fn remote(&mut self, access: RemoteAccess, now: Time) {
        let id = self.link.submit(
            now,
            Transfer {
                direction: access.direction,
                bytes: access.bytes,
                address: access.address,
            },
        );
        self.in_flight.push_back((id, Arrival::Remote(access.waiter)));
        self.watch_link();
    }

    fn gate_reached(&mut self, stream: u32, gate: u64, now: Time) {
        self.events.at(now, Event::GateReached { stream, gate });
    }

    fn gate_passed(&mut self, _gate: u64, now: Time) {
        self.events.at(now, Event::GatePassed);
    }

    fn interrupt(&mut self, at: Time) {
        self.events.at(at + self.interrupt_flight, Event::Interrupt);
    }

    fn push_completed(&mut self, ticket: Ticket, now: Time) {
        self.events.at(now, Event::PushCompleted(ticket));
    }

    fn kernel_finished(&mut self, kernel: KernelId, now: Time) {
        self.events.at(now, Event::KernelFinished(kernel));
    }

    fn copied(&mut self, record: CopyRecord) {
        self.traffic.add(&record);
        self.contents.copied(&record);
        if self.probed() {
            let (src, dst) = match record.direction {
                Direction::HostToDevice => (Processor::Cpu, Processor::Gpu),
                Direction::DeviceToHost => (Processor::Gpu, Processor::Cpu),
            };
            self.record(&Record::Tools(ToolsEvent::Migration {
                cause: record.cause,
                src,
                dst,
                address: record.first.address(),
                bytes: u64::from(record.pages) * PAGE_BYTES,
                begin: record.pushed,
                end: record.end,
                begin_gpu: record.start,
                end_gpu: record.end,
            }));
        }
        if let Some(copies) = &mut self.copies {
            copies.push(record);
        }
    }

    fn mapped_remotely(&mut self, mapping: &RemoteMapping) {
        if !self.probed() {
            return;
        }
        for (first, end) in mapping.pages.runs() {
            self.record(&Record::Tools(ToolsEvent::MapRemote {
                cause: mapping.cause,
                src: Processor::Gpu,
                dst: Processor::Cpu,
                address: mapping.block.page(first).address(),
                bytes: (end - first) as u64 * PAGE_BYTES,
                time: mapping.pushed,
                time_gpu: mapping.end,
            }));
        }
    }

    fn kernel_started(&mut self, kernel: KernelId, now: Time) {
        if self.watch_kernels {
            if self.pending.started.is_none() {
                self.events.at(now, Event::KernelStarted);
            }
            self.pending.started = self.pending.started.max(Some(kernel));
        }
        if self.probed() {
            self.pending.kernels.insert(kernel, now);
        }
    }

    fn replayed(&mut self, now: Time) {
        if let Some((batch, pushed)) = self.pending.replays.pop_front() {
            self.record(&Record::Tools(ToolsEvent::GpuFaultReplay {
                batch,
                time: pushed,
                time_gpu: now,
            }));
        }
    }
}

/// The device as the driver sees it during one of its calls.
pub struct DeviceView<'a, 'p> {
    /// The GPU.
    pub gpu: &'a mut Gpu<KernelPattern>,
    /// Everything between.
    pub world: &'a mut World<'p>,
    /// Time of the call.
    pub now: Time,
}

impl sim_host::Device for DeviceView<'_, '_> {
    fn fault_put(&mut self, _at: Time) -> u64 {
        self.gpu.fault_put(self.now)
    }

    fn fault_entry(&mut self, index: u64, _at: Time) -> Option<FaultEntry> {
        self.gpu.fault_entry(index, self.now)
    }

    fn set_fault_get(&mut self, index: u64, _at: Time) {
        self.gpu.set_fault_get(index, self.now);
    }

    fn submit(&mut self, push: Push) -> Ticket {
        if self.world.probed() && push.methods.contains(&Method::Replay) {
            let batch = self.world.pending.batch;
            self.world.pending.replays.push_back((batch, push.submit));
        }
        self.gpu.submit(push, self.now, self.world)
    }

    fn map_now(&mut self, block: VaBlock, pages: PageMask) {
        self.gpu.map_now(block, pages);
    }

    fn wake_at(&mut self, at: Time) {
        self.world.events.at(at, Event::Driver);
    }

    fn timer_at(&mut self, at: Time) {
        self.world.events.at(at, Event::DriverTimer);
    }

    fn listens(&self) -> bool {
        self.world.probed()
    }

    fn report(&mut self, event: ToolsEvent) {
        if let ToolsEvent::GpuFault { batch, .. } = event {
            self.world.pending.batch = batch;
        }
        self.world.record(&Record::Tools(event));
    }
}
