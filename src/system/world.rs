//! What lies between the device, the driver and the link: the event queue, and who hears of what.

use sim_core::Time;
use sim_core::fault::FaultEntry;
use sim_core::push::{Cause, Direction, Push, Ticket};
use sim_core::scheduler::Scheduler;
use sim_gpu::gpu::CopyRecord;
use sim_gpu::{Gpu, GpuEvent, KernelId, Port};
use sim_pcie::{Link, Transfer};
use workloads::pattern::KernelPattern;

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
    /// A push that the driver waits for has completed.
    PushCompleted(Ticket),
    /// A kernel has finished.
    KernelFinished(KernelId),
    /// The program's thread goes on.
    Host,
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

/// The event queue, the link, and what was observed.
#[derive(Debug)]
pub struct World {
    /// Pending events.
    pub events: Scheduler<Event>,
    /// The link between host and device.
    pub link: Link,
    /// Time from the write of the first fault entry to the host's interrupt.
    pub interrupt_flight: Time,
    /// Bytes moved so far.
    pub traffic: TrafficTable,
    /// Copies in order, if they are to be kept.
    pub copies: Option<Vec<CopyRecord>>,
    generation: u64,
    link_wake: Option<Time>,
    in_flight: Vec<(sim_pcie::TransferId, Direction)>,
    arrivals: Vec<sim_pcie::Completion>,
}

impl World {
    /// Nothing is pending.
    pub fn new(link: Link, interrupt_flight: Time, keep_copies: bool) -> World {
        World {
            events: Scheduler::new(),
            link,
            interrupt_flight,
            traffic: TrafficTable::default(),
            copies: keep_copies.then(Vec::new),
            generation: 0,
            link_wake: None,
            in_flight: Vec::new(),
            arrivals: Vec::new(),
        }
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
    pub fn link_arrivals(&mut self, generation: u64, now: Time) -> Vec<Direction> {
        if generation != self.generation {
            return Vec::new();
        }
        self.link_wake = None;
        self.arrivals.clear();
        self.link.advance(now, &mut self.arrivals);
        let mut directions = Vec::with_capacity(self.arrivals.len());
        for arrival in &self.arrivals {
            if let Some(place) = self.in_flight.iter().position(|(id, _)| *id == arrival.id) {
                directions.push(self.in_flight.remove(place).1);
            }
        }
        self.watch_link();
        directions
    }
}

impl Port for World {
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
        self.in_flight.push((id, direction));
        self.watch_link();
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
        if let Some(copies) = &mut self.copies {
            copies.push(record);
        }
    }
}

/// The device as the driver sees it during one of its calls.
pub struct DeviceView<'a> {
    /// The GPU.
    pub gpu: &'a mut Gpu<KernelPattern>,
    /// Everything between.
    pub world: &'a mut World,
    /// Time of the call.
    pub now: Time,
}

impl sim_host::Device for DeviceView<'_> {
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
        self.gpu.submit(push, self.now, self.world)
    }

    fn wake_at(&mut self, at: Time) {
        self.world.events.at(at, Event::Driver);
    }
}
