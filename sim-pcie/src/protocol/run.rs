//! Two ports, the wires between them, and the device and host that use them.

use super::port::{Dllp, Frame, Hold, Port, PortOptions, Tlp};
use super::{Class, Counters, ProtocolError, Sent, Side};
use crate::config::{DllpModel, LinkConfig};
use crate::packet::{Kind, Piece, split_completions, split_request};
use crate::wire::{Side as WireSide, Unit, Wire};
use sim_core::Time;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;

/// How time moves. The results are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepping {
    /// From decision to decision.
    Packets,
    /// Slot by slot: the reference.
    Slots,
}

/// What goes wrong on the wires.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    /// Corrupt the packet with this sequence number sent by this side at this attempt (0: the first).
    pub corrupt: Vec<(Side, u16, u8)>,
    /// Lose the ACK or NAK that this side sends as its n-th (from 1).
    pub lose: Vec<(Side, u64)>,
    /// Bit error rate, and the seed of its random stream. A packet of n bits is corrupted with probability
    /// n times the rate.
    pub bit_errors: Option<(f64, u64)>,
}

/// A packet on a wire, or an event of a transmitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// Who sent it.
    pub side: Side,
    /// What.
    pub sent: Sent,
    /// First byte leaves.
    pub start: Time,
    /// Last byte has left.
    pub end: Time,
}

/// A packet that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Which way it went.
    pub side: Side,
    /// What it is.
    pub kind: Kind,
    /// Its sequence number.
    pub sequence: u16,
    /// User bytes (of a read request: requested).
    pub payload: u64,
    /// When.
    pub time: Time,
}

/// What the head of a queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// A header credit of its class.
    HeaderCredit,
    /// Data credits of its class.
    DataCredits {
        /// Credits that it needs.
        need: u64,
        /// Credits that are left.
        have: u64,
    },
    /// Room in the retry buffer, that is, an ACK.
    RetryBuffer,
}

/// One blocked class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The transmitter.
    pub side: Side,
    /// The class.
    pub class: Class,
    /// What for.
    pub waits_for: WaitsFor,
}

/// Nothing can ever move again, although packets are queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// Since when.
    pub time: Time,
    /// Who waits for what.
    pub blocked: Vec<Blocked>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link deadlock at {}", self.time)?;
        for b in &self.blocked {
            write!(f, "; {:?} {:?} waits for ", b.side, b.class)?;
            match b.waits_for {
                WaitsFor::HeaderCredit => write!(f, "a header credit")?,
                WaitsFor::DataCredits { need, have } => write!(f, "{need} data credits (has {have})")?,
                WaitsFor::RetryBuffer => write!(f, "room in the retry buffer")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Deadlock {}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives(Frame),
    TlpEnds,
    AckTimer(u64),
    ReplayTimer(u64),
    Free(Class, u64),
    /// The periodic `UpdateFC` of a class; and was one lost?
    Refresh(Class, bool),
}

/// An event at a port, ordered by (time, number).
#[derive(Clone, Copy, Debug)]
struct Entry {
    time: u64,
    number: u64,
    port: Side,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.time, self.number) == (other.time, other.number)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

/// Freed credits are told at least this often: 30 us (published: PCIe base specification).
const FC_REFRESH: u64 = 30_000 * 1024;

/// Generator `SplitMix64` (published: Steele, Lea, Flood 2014): one stream for bit errors.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// The link with both ends; see the [module documentation](super).
#[derive(Clone, Debug)]
pub struct Protocol {
    config: LinkConfig,
    ports: [Port; 2],
    wires: [Wire; 2],
    events: BinaryHeap<Reverse<Entry>>,
    events_ever: u64,
    now: u64,
    errors: Errors,
    random: Random,
    dllps_sent: [u64; 2],
    /// Read requests that wait for a tag.
    requests: VecDeque<(u64, Piece)>,
    outstanding: u32,
    reads_answered: u64,
    deliveries: Vec<Delivery>,
    trace: Vec<TraceEntry>,
}

impl Protocol {
    /// An idle link whose ports follow `config`.
    ///
    /// # Errors
    /// A field that no link can have, or generation 6.
    pub fn new(config: &LinkConfig) -> Result<Protocol, ProtocolError> {
        let options = [PortOptions::new(config, true), PortOptions::new(config, false)];
        Protocol::with_options(config, options, Errors::default())
    }

    /// An idle link with other port behaviour (device, host) or errors.
    ///
    /// # Errors
    /// A field that no link can have, or generation 6.
    pub fn with_options(
        config: &LinkConfig,
        [device, host]: [PortOptions; 2],
        errors: Errors,
    ) -> Result<Protocol, ProtocolError> {
        config.validate()?;
        if config.generation.uses_flits() {
            return Err(ProtocolError::Flits);
        }
        if errors
            .bit_errors
            .is_some_and(|(rate, _)| !(0.0..=1e-4).contains(&rate))
        {
            return Err(ProtocolError::BitErrors);
        }
        let config = LinkConfig {
            dllp: DllpModel::None,
            ..config.clone()
        };
        Ok(Protocol {
            ports: [Port::new(device), Port::new(host)],
            wires: [
                Wire::new(&config, WireSide::Up),
                Wire::new(&config, WireSide::Down),
            ],
            events: BinaryHeap::new(),
            events_ever: 0,
            now: 0,
            random: Random(errors.bit_errors.map_or(0, |(_, seed)| seed)),
            errors,
            dllps_sent: [0; 2],
            requests: VecDeque::new(),
            outstanding: 0,
            reads_answered: 0,
            deliveries: Vec::new(),
            trace: Vec::new(),
            config,
        })
    }

    /// The device writes to host memory, in packets of `config.write_tlp`, ready at `at`.
    pub fn write(&mut self, at: Time, address: u64, bytes: u64) {
        for piece in split_request(address % 4096, bytes, u64::from(self.config.write_tlp)) {
            let tlp = self.tlp(Kind::MWr, piece, true);
            self.ports[0].queues[0].push_back((at.0, tlp));
        }
    }

    /// The device reads host memory, from `at` on, as tags permit.
    pub fn read(&mut self, at: Time, address: u64, bytes: u64) {
        self.requests
            .extend(split_request(address % 4096, bytes, u64::from(self.config.mrrs)).map(|p| (at.0, p)));
        self.issue(0);
    }

    fn tlp(&self, kind: Kind, piece: Piece, last: bool) -> Tlp {
        let class = match kind {
            Kind::MWr => Class::Posted,
            Kind::MRd => Class::NonPosted,
            Kind::CplD => Class::Completion,
        };
        let data = if kind == Kind::MRd { 0 } else { piece.bytes };
        Tlp {
            kind,
            class,
            wire_bytes: self.config.tlp_bytes(kind, data),
            units: data.div_ceil(16),
            address: piece.address,
            payload: piece.bytes,
            last,
            sequence: 0,
            attempt: 0,
            bad: false,
        }
    }

    fn issue(&mut self, now: u64) {
        while self.outstanding < self.config.tags {
            let Some((ready, piece)) = self.requests.pop_front() else {
                return;
            };
            self.outstanding += 1;
            let tlp = self.tlp(Kind::MRd, piece, false);
            self.ports[0].queues[1].push_back((ready.max(now), tlp));
        }
    }

    /// Everything that was sent, in order of time and, at the same time, device first.
    pub fn trace(&self) -> &[TraceEntry] {
        &self.trace
    }

    /// Everything that was accepted, in order of time.
    pub fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    /// Counters of what one side sent.
    pub fn counters(&self, side: Side) -> Counters {
        self.ports[side as usize].counters
    }

    fn at(&mut self, time: u64, port: Side, event: Event) {
        self.events_ever += 1;
        self.events.push(Reverse(Entry {
            time,
            number: self.events_ever,
            port,
            event,
        }));
    }

    /// Runs until everything queued has been delivered and acknowledged.
    ///
    /// # Errors
    /// A deadlock: something is queued that can never move.
    pub fn run(&mut self, stepping: Stepping) -> Result<(), Deadlock> {
        match stepping {
            Stepping::Packets => self.run_packets(),
            Stepping::Slots => self.run_slots(),
        }
        let blocked = self.blocked();
        if blocked.is_empty() {
            Ok(())
        } else {
            Err(Deadlock {
                time: Time(self.now),
                blocked,
            })
        }
    }

    fn blocked(&self) -> Vec<Blocked> {
        let mut blocked = Vec::new();
        for side in Side::BOTH {
            let port = &self.ports[side as usize];
            for (_, tlp) in port.queues.iter().filter_map(|queue| queue.front()) {
                let waits_for = match port.hold(tlp) {
                    None => continue,
                    Some(Hold::Headers) => WaitsFor::HeaderCredit,
                    Some(Hold::Data { need, have }) => WaitsFor::DataCredits { need, have },
                    Some(Hold::Retry) => WaitsFor::RetryBuffer,
                };
                blocked.push(Blocked {
                    side,
                    class: tlp.class,
                    waits_for,
                });
            }
        }
        blocked
    }

    fn run_packets(&mut self) {
        loop {
            let start = |side: Side| {
                let ready = self.ports[side as usize].ready(self.now)?;
                Some((self.wires[side as usize].peek(ready), side))
            };
            let next = [start(Side::Up), start(Side::Down)]
                .into_iter()
                .flatten()
                .min_by_key(|(s, _)| s.time);
            let event = self.events.peek().map(|Reverse(entry)| entry.time);
            match (next, event) {
                (None, None) => return,
                (Some((start, side)), event) if event.is_none_or(|time| start.time < time) => {
                    self.now = start.time;
                    if let Some(frame) = self.ports[side as usize].pick(start.time) {
                        let unit = Unit {
                            slots: frame.wire_bytes() / 4,
                            count: 0,
                        };
                        let end = self.wires[side as usize].send_at(start, unit);
                        self.launched(side, frame, start.time, end);
                    }
                }
                _ => self.next_event(),
            }
        }
    }

    /// The reference: every slot, with timing of its own.
    fn run_slots(&mut self) {
        let (slot, align) = (
            self.config.slot_ticks(),
            self.config.slot_ticks() * self.config.slots_per_symbol(),
        );
        let interval = self.config.skp_interval_symbols() * self.config.generation.symbol_ticks();
        let set = self.wires[0].ticks().1;
        let first_due = if self.config.skp { interval } else { u64::MAX };
        let (mut busy, mut idle, mut due) = ([0; 2], [true; 2], [first_due; 2]);
        let mut t = 0;
        loop {
            while self.events.peek().is_some_and(|Reverse(entry)| entry.time <= t) {
                self.next_event();
            }
            self.now = self.now.max(t);
            for side in Side::BOTH {
                let i = side as usize;
                if t < busy[i] {
                    continue;
                }
                if due[i] <= t {
                    if t % align == 0 {
                        busy[i] = t + set;
                        due[i] += interval;
                        idle[i] = false;
                    }
                    continue;
                }
                if idle[i] && t % align != 0 {
                    continue;
                }
                idle[i] = true;
                if let Some(frame) = self.ports[i].pick(t) {
                    busy[i] = t + frame.wire_bytes() / 4 * slot;
                    idle[i] = false;
                    self.launched(side, frame, t, busy[i]);
                }
            }
            let waits = |port: &Port| port.ready(t).is_some();
            if self.events.is_empty() && !self.ports.iter().any(waits) {
                return;
            }
            t += slot;
        }
    }

    fn launched(&mut self, side: Side, mut frame: Frame, start: u64, end: u64) {
        self.trace.push(TraceEntry {
            side,
            sent: frame.sent(),
            start: Time(start),
            end: Time(end),
        });
        let index = side as usize;
        self.ports[index].counters.wire_bytes += frame.wire_bytes();
        let mut lost = false;
        if let Some((rate, _)) = self.errors.bit_errors {
            // 2^64 as a factor turns the probability into a threshold of a random word.
            let threshold = (frame.wire_bytes() * 8) as f64 * rate * 18_446_744_073_709_551_616.0;
            lost = (self.random.next() as f64) < threshold;
        }
        match &mut frame {
            Frame::Tlp(tlp) => {
                lost |= self.errors.corrupt.contains(&(side, tlp.sequence, tlp.attempt));
                tlp.bad = lost;
                self.ports[index].counters.corrupted += u64::from(lost);
                self.at(end, side, Event::TlpEnds);
            }
            Frame::Dllp(dllp) => {
                if !matches!(dllp, Dllp::Update(..)) {
                    self.dllps_sent[index] += 1;
                    lost |= self.errors.lose.contains(&(side, self.dllps_sent[index]));
                }
                if lost {
                    self.ports[index].counters.corrupted += 1;
                    if let Dllp::Update(class, ..) = *dllp {
                        self.at(end + FC_REFRESH, side, Event::Refresh(class, true));
                    }
                    return;
                }
            }
        }
        self.at(end + self.config.one_way.0, side.other(), Event::Arrives(frame));
    }

    fn next_event(&mut self) {
        let Some(Reverse(Entry {
            time, port, event, ..
        })) = self.events.pop()
        else {
            return;
        };
        self.now = self.now.max(time);
        let index = port as usize;
        match event {
            Event::TlpEnds => self.arm_replay(port, time, false),
            Event::AckTimer(deadline) => {
                let p = &mut self.ports[index];
                if p.ack_deadline == Some(deadline) {
                    p.ack_deadline = None;
                    p.ack = true;
                }
            }
            Event::ReplayTimer(deadline) => {
                let p = &mut self.ports[index];
                if p.replay_deadline == Some(deadline) && !p.retry.is_empty() {
                    p.replay_deadline = None;
                    p.counters.timeouts += 1;
                    let retrain = p.start_replay(time);
                    self.note(port, Sent::ReplayTimer, time);
                    if retrain {
                        self.note(port, Sent::Retrain, time);
                    }
                    self.arm_replay(port, time, false);
                }
            }
            Event::Free(class, units) => {
                let granted = self.ports[port.other() as usize].accounts[class as usize].granted;
                if granted.headers.is_none() && granted.data.is_none() {
                    return;
                }
                if self.ports[index].free_credits(class, units) {
                    self.refresh(port, class, time);
                }
            }
            Event::Refresh(class, lost) => {
                let p = &mut self.ports[index];
                p.refresh[class as usize] = false;
                if lost || p.has_untold(class) {
                    p.send_update(class);
                }
            }
            Event::Arrives(Frame::Dllp(dllp)) => self.dllp_arrives(port, dllp, time),
            Event::Arrives(Frame::Tlp(tlp)) => self.tlp_arrives(port, tlp, time),
        }
    }

    /// Starts the timer of the periodic `UpdateFC`, if it does not run.
    fn refresh(&mut self, port: Side, class: Class, now: u64) {
        let pending = &mut self.ports[port as usize].refresh[class as usize];
        if !std::mem::replace(pending, true) {
            self.at(now + FC_REFRESH, port, Event::Refresh(class, false));
        }
    }

    fn note(&mut self, side: Side, sent: Sent, time: u64) {
        self.trace.push(TraceEntry {
            side,
            sent,
            start: Time(time),
            end: Time(time),
        });
    }

    /// (Re)starts the replay timer of a transmitter, or stops it when nothing is unacknowledged.
    fn arm_replay(&mut self, port: Side, now: u64, progress: bool) {
        let p = &mut self.ports[port as usize];
        let Some(timer) = p.options.replay_timer else {
            return;
        };
        if p.retry.is_empty() {
            p.replay_deadline = None;
        } else if progress || p.replay_deadline.is_none() {
            let deadline = now.max(p.blocked_until) + timer;
            p.replay_deadline = Some(deadline);
            self.at(deadline, port, Event::ReplayTimer(deadline));
        }
    }

    fn dllp_arrives(&mut self, port: Side, dllp: Dllp, time: u64) {
        let p = &mut self.ports[port as usize];
        match dllp {
            Dllp::Ack(sequence) => {
                if p.acknowledged(sequence) {
                    self.arm_replay(port, time, true);
                }
            }
            Dllp::Nak(sequence) => {
                p.acknowledged(sequence);
                if p.start_replay(time) {
                    self.note(port, Sent::Retrain, time);
                }
                self.arm_replay(port, time, true);
            }
            Dllp::Update(class, headers, data) => {
                let account = &mut p.accounts[class as usize];
                account.freed = (account.freed.0.max(headers), account.freed.1.max(data));
            }
        }
    }

    fn tlp_arrives(&mut self, port: Side, tlp: Tlp, time: u64) {
        let p = &mut self.ports[port as usize];
        let place = p.place(tlp.sequence);
        if tlp.bad || place.is_gt() {
            if !p.nak_scheduled {
                p.nak_scheduled = true;
                p.ack_deadline = None;
                p.ack = false;
                p.nak = Some(p.last_good());
            }
            return;
        }
        if place.is_lt() {
            p.ack = true;
            return;
        }
        p.expected = (p.expected + 1) % super::port::SEQUENCES;
        p.nak_scheduled = false;
        match p.options.ack_delay {
            None => p.ack = true,
            Some(delay) if p.ack_deadline.is_none() => {
                p.ack_deadline = Some(time + delay);
                self.at(time + delay, port, Event::AckTimer(time + delay));
            }
            Some(_) => {}
        }
        let drain = self.ports[port as usize].options.drain;
        self.at(time + drain, port, Event::Free(tlp.class, tlp.units));
        let side = port.other();
        let sender = &mut self.ports[side as usize].counters;
        sender.delivered += 1;
        sender.payload += if tlp.kind == Kind::MRd { 0 } else { tlp.payload };
        self.deliveries.push(Delivery {
            side,
            kind: tlp.kind,
            sequence: tlp.sequence,
            payload: tlp.payload,
            time: Time(time),
        });
        match tlp.kind {
            Kind::MWr => {}
            Kind::MRd => self.answer(tlp, time),
            Kind::CplD => {
                if tlp.last {
                    self.outstanding -= 1;
                    self.issue(time);
                }
            }
        }
    }

    /// The host has received a read request.
    fn answer(&mut self, request: Tlp, time: u64) {
        let ready = time + self.config.host_read.0;
        let max = self.config.completions.is_max(self.reads_answered);
        self.reads_answered += 1;
        let end = request.address + request.payload;
        let (mps, rcb) = (u64::from(self.config.mps), u64::from(self.config.rcb));
        for piece in split_completions(request.address, request.payload, mps, rcb, max) {
            let tlp = self.tlp(Kind::CplD, piece, piece.address + piece.bytes == end);
            self.ports[1].queues[2].push_back((ready, tlp));
        }
    }
}
