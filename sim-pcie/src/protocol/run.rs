//! Two ports, the wires between them, and the device and host that use them.

use super::agenda::Agenda;
use super::copy::{CopyCosts, CopyDone, Engines};
use super::deadlock::Deadlock;
use super::errors::{ErrorGap, Errors};
use super::jump::Jumper;
use super::port::{Port, PortOptions};
use super::root::{HostOptions, Root};
use super::sink::{Delivery, Recorder, Sink, TraceEntry};
use super::source::{Answer, Job, Lane, Tags};
use super::{Class, Counters, ProtocolError, Purpose, Side, limits};
use crate::config::{DllpModel, LinkConfig};
use crate::flit::FlitOptions;
use crate::wire::{Side as WireSide, Wire};
use sim_core::Time;
use sim_core::push::Direction;
use std::collections::VecDeque;

/// How time moves. The results are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stepping {
    /// From decision to decision, and over whole periods of a steady state at once.
    #[default]
    Periods,
    /// From decision to decision.
    Packets,
    /// Slot by slot: the reference.
    Slots,
}

/// Everything that changes while time passes.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub now: u64,
    pub ports: [Port; 2],
    pub wires: [Wire; 2],
    pub agenda: Agenda,
    /// Per side: can its next start be another than it was?
    pub changed: [bool; 2],
    /// Per side: posted packets, read requests.
    pub lanes: [[Lane; 2]; 2],
    /// Per side: reads that it answers, by the time at which the data are ready.
    pub answers: [VecDeque<Answer>; 2],
    /// Tags of each side's requests.
    pub tags: [Tags; 2],
    pub root: Root,
    pub engines: Engines,
    pub gaps: [ErrorGap; 2],
    pub dllps_sent: [u64; 2],
}

/// The link with both ends; see the [module documentation](super).
#[derive(Clone, Debug)]
pub struct Protocol<S: Sink = Recorder> {
    pub(super) config: LinkConfig,
    pub(super) errors: Errors,
    pub(super) state: State,
    pub(super) jumper: Jumper,
    pub(super) sink: S,
}

/// Addresses count modulo this, and lengths up to it, so that no sum overflows.
const MOST_BYTES: u64 = 1 << 50;
/// Later submissions count as this, 13 days.
const LATEST: u64 = 1 << 60;
/// Reads of device registers that a host has outstanding (assumed: one of each core, 5 bits of tag).
const HOST_TAGS: u32 = 32;

impl Protocol<Recorder> {
    /// An idle link whose ports follow `config`.
    ///
    /// # Errors
    /// A field that no link can have, or errors in generation 6.
    pub fn new(config: &LinkConfig) -> Result<Protocol, ProtocolError> {
        let options = [PortOptions::new(config, true), PortOptions::new(config, false)];
        Protocol::with_options(config, options, Errors::default())
    }

    /// An idle link with other port behaviour (device, host) or errors.
    ///
    /// # Errors
    /// A field that no link can have, or errors in generation 6.
    pub fn with_options(
        config: &LinkConfig,
        ports: [PortOptions; 2],
        errors: Errors,
    ) -> Result<Protocol, ProtocolError> {
        Protocol::with_sink(config, ports, HostOptions::default(), errors, Recorder::default())
    }

    /// Everything that was sent, in order of time and, at the same time, device first.
    pub fn trace(&self) -> &[TraceEntry] {
        &self.sink.trace
    }

    /// Everything that was accepted, in order of time.
    pub fn deliveries(&self) -> &[Delivery] {
        &self.sink.deliveries
    }
}

impl<S: Sink> Protocol<S> {
    /// An idle link with everything given: behaviour of the ports (device, host), the host, errors, and who
    /// listens.
    ///
    /// # Errors
    /// A field that no link can have, credits that could never let a packet through, or errors in generation 6.
    pub fn with_sink(
        config: &LinkConfig,
        [device, root_port]: [PortOptions; 2],
        host: HostOptions,
        errors: Errors,
        sink: S,
    ) -> Result<Protocol<S>, ProtocolError> {
        config.validate()?;
        let flits = config.generation.uses_flits();
        if flits && errors != Errors::default() {
            return Err(ProtocolError::Flits);
        }
        let ports = [device, root_port];
        limits::check(config, &ports, &host, &errors)?;
        let config = LinkConfig {
            dllp: DllpModel::None,
            // A flit is whole before it is checked.
            one_way: config.one_way
                + if flits {
                    FlitOptions::default().decode
                } else {
                    Time::ZERO
                },
            ..config.clone()
        };
        let (rate, seed) = errors.bit_errors.unwrap_or((0.0, 0));
        let root = Root::new(&config, host, ports[1].drain);
        Ok(Protocol {
            state: State {
                now: 0,
                ports: ports.map(Port::new),
                wires: [
                    Wire::new(&config, WireSide::Up),
                    Wire::new(&config, WireSide::Down),
                ],
                agenda: Agenda::new(),
                changed: [true; 2],
                lanes: Default::default(),
                answers: Default::default(),
                tags: [Tags::new(config.tags), Tags::new(HOST_TAGS)],
                root,
                engines: Engines::default(),
                gaps: ["link.bits.up", "link.bits.down"].map(|name| ErrorGap::new(rate, seed, name)),
                dllps_sent: [0; 2],
            },
            config,
            errors,
            jumper: Jumper::default(),
            sink,
        })
    }

    fn submit(&mut self, side: Side, class: Class, source: usize, mut job: Job) {
        if job.bytes == 0 {
            return;
        }
        (job.at, job.address, job.bytes) = (
            job.at.min(LATEST),
            job.address % MOST_BYTES,
            job.bytes.min(MOST_BYTES),
        );
        self.state.lanes[side as usize][class as usize].jobs[source].push_back(job);
        let now = self.state.now;
        self.fill(side, class, now);
    }

    fn job(at: Time, address: u64, bytes: u64, purpose: Purpose, limit: u32) -> Job {
        Job {
            at: at.0,
            address,
            bytes,
            limit: u64::from(limit),
            purpose,
            copy: 0,
        }
    }

    /// The device's copy engine writes host memory, in packets of `config.write_tlp`, ready at `at`.
    pub fn write(&mut self, at: Time, address: u64, bytes: u64) {
        let job = Self::job(at, address, bytes, Purpose::CopyWrite, self.config.write_tlp);
        self.submit(Side::Up, Class::Posted, 2, job);
    }

    /// The device's copy engine reads host memory, from `at` on, as tags permit.
    pub fn read(&mut self, at: Time, address: u64, bytes: u64) {
        let job = Self::job(at, address, bytes, Purpose::CopyRead, self.config.mrrs);
        self.submit(Side::Up, Class::NonPosted, 0, job);
    }

    /// The SMs write host memory without the copy engine, in packets of at most `sector` bytes (32 to 128).
    pub fn zero_copy_write(&mut self, at: Time, address: u64, bytes: u64, sector: u32) {
        let limit = sector.next_power_of_two().clamp(32, 128);
        let job = Self::job(at, address, bytes, Purpose::ZeroCopyWrite, limit);
        self.submit(Side::Up, Class::Posted, 1, job);
    }

    /// The SMs read host memory without the copy engine, in requests of at most `sector` bytes (32 to 128).
    pub fn zero_copy_read(&mut self, at: Time, address: u64, bytes: u64, sector: u32) {
        let limit = sector.next_power_of_two().clamp(32, 128);
        let job = Self::job(at, address, bytes, Purpose::ZeroCopyRead, limit);
        self.submit(Side::Up, Class::NonPosted, 1, job);
    }

    /// The device raises MSI-X: a posted write of 4 bytes behind the writes of the copy engine.
    pub fn interrupt(&mut self, at: Time) {
        let job = Self::job(at, 0, 4, Purpose::Interrupt, 64);
        self.submit(Side::Up, Class::Posted, 2, job);
    }

    /// The host rings a doorbell: a posted write of `bytes`, 4 or 8.
    pub fn doorbell(&mut self, at: Time, bytes: u64) {
        let job = Self::job(at, 0, bytes.clamp(1, 64), Purpose::Doorbell, 64);
        self.submit(Side::Down, Class::Posted, 0, job);
    }

    /// The host reads registers of the device, such as a PUT pointer.
    pub fn mmio_read(&mut self, at: Time, address: u64, bytes: u64) {
        let job = Self::job(at, address, bytes.clamp(1, 64), Purpose::MmioRead, 64);
        self.submit(Side::Down, Class::NonPosted, 0, job);
    }

    /// A whole copy with its fixed costs; its number, from 1. See [`CopyCosts`].
    pub fn copy(&mut self, at: Time, direction: Direction, address: u64, bytes: u64) -> u32 {
        let (address, bytes) = (address % MOST_BYTES, bytes.clamp(1, MOST_BYTES));
        let at = at.0.min(LATEST);
        let job = self.state.engines.submit(at, direction, address, bytes);
        self.submit(Side::Down, Class::Posted, 0, job);
        job.copy
    }

    /// Fixed costs of copies from now on.
    pub fn set_copy_costs(&mut self, costs: CopyCosts) {
        self.state.engines.costs = costs;
    }

    /// Reads that the copy engine and that the SMs may each have outstanding, within the tags; `None`: as many
    /// as there are tags.
    pub fn limit_reads(&mut self, copy_engine: Option<u32>, sms: Option<u32>) {
        let least = |limit: Option<u32>| limit.map(|n| n.max(1));
        self.state.lanes[0][1].limits = [least(copy_engine), least(sms), None];
    }

    /// Copies that have ended, in order of time.
    pub fn copies_done(&self) -> &[CopyDone] {
        &self.state.engines.done
    }

    /// Counters of what one side sent.
    pub fn counters(&self, side: Side) -> Counters {
        self.state.ports[side as usize].counters
    }

    /// Page walks of the IOMMU.
    pub fn iotlb_misses(&self) -> u64 {
        self.state.root.misses()
    }

    /// Whole periods that were not stepped, and the ticks of them.
    pub fn skipped(&self) -> (u64, u64) {
        self.jumper.skipped
    }

    /// Packets and other records that the jumps stand for are still told to the sink.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// The time of the last event.
    pub fn now(&self) -> Time {
        Time(self.state.now)
    }

    /// Runs until everything queued has been delivered and acknowledged.
    ///
    /// # Errors
    /// A deadlock: something is queued that can never move.
    pub fn run(&mut self, stepping: Stepping) -> Result<(), Deadlock> {
        let flits = self.config.generation.uses_flits();
        match stepping {
            Stepping::Slots if flits => self.run_flit_slots(),
            Stepping::Packets if flits => self.run_flits(false),
            Stepping::Periods if flits => self.run_flits(self.may_jump()),
            Stepping::Periods => self.run_packets(self.may_jump()),
            Stepping::Packets => self.run_packets(false),
            Stepping::Slots => self.run_slots(),
        }
        let blocked = self.state.blocked();
        if blocked.is_empty() {
            debug_assert_eq!(self.state.broken(), None);
            Ok(())
        } else {
            Err(Deadlock {
                time: Time(self.state.now),
                blocked,
            })
        }
    }
}

impl State {
    /// An invariant that does not hold when nothing moves any more, in words.
    fn broken(&self) -> Option<&'static str> {
        for side in Side::BOTH {
            let (port, other) = (&self.ports[side as usize], &self.ports[side.other() as usize]);
            let lanes = &self.lanes[side as usize];
            if !lanes.iter().all(Lane::is_empty)
                || port.heads.iter().any(Option::is_some)
                || port.relaxed.is_some()
            {
                return Some("something is left to send");
            }
            if lanes[1].outstanding != [0; 3] {
                return Some("a read was not answered");
            }
            if port.counters.tlps - port.counters.replayed != port.counters.delivered {
                return Some("a packet was lost or came twice");
            }
            for class in 0..3 {
                let (account, freed) = (&port.accounts[class], other.freed[class]);
                let finite = account.granted.headers.is_some() || account.granted.data.is_some();
                if finite && (account.used != freed || account.freed.0 > freed.0 || account.freed.1 > freed.1)
                {
                    return Some("credits were lost");
                }
            }
        }
        None
    }
}
