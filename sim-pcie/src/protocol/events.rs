//! What happens when something arrives, runs out or becomes ready.

use super::copy::Order;
use super::port::{Dllp, Frame, SEQUENCES, Tlp};
use super::run::Protocol;
use super::sink::{Delivery, Sink, TlpInfo, TraceEntry};
use super::source::{Answer, NO_TAG};
use super::{Class, Purpose, Sent, Side};
use crate::packet::{Kind, Piece, first_completion, first_request};
use sim_core::Time;
use std::cmp::{Ordering, Reverse};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Event {
    Arrives(Frame),
    TlpEnds,
    AckTimer(u64),
    ReplayTimer(u64),
    Free(Class, u64),
    /// The periodic `UpdateFC` of a class; and was one lost?
    Refresh(Class, bool),
    /// A job or an answer of this class becomes ready.
    Wake(Class),
}

/// An event at a port, ordered by (time, number).
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub time: u64,
    pub number: u64,
    pub port: Side,
    pub event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.time, self.number) == (other.time, other.number)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

/// Freed credits are told at least this often: 30 us (published: PCIe base specification).
const FC_REFRESH: u64 = 30_000 * 1024;

impl<S: Sink> Protocol<S> {
    fn at(&mut self, time: u64, port: Side, event: Event) {
        self.state.events_ever += 1;
        self.state.events.push(Reverse(Entry {
            time,
            number: self.state.events_ever,
            port,
            event,
        }));
    }

    /// Puts the next packet of a class at the head, if the head is free and one is ready.
    pub(super) fn fill(&mut self, side: Side, class: Class, now: u64) {
        let (s, c) = (side as usize, class as usize);
        if self.state.ports[s].heads[c].is_some() {
            return;
        }
        let (at, tlp) = match class {
            Class::Completion => {
                let Some(&answer) = self.state.answers[s].front() else {
                    return;
                };
                (
                    answer.ready,
                    (answer.ready <= now).then(|| self.next_completion(side)),
                )
            }
            Class::Posted | Class::NonPosted => {
                if class == Class::NonPosted && !self.state.tags[s].any_free() {
                    return;
                }
                let Some((source, at)) = self.state.lanes[s][c].next(now) else {
                    return;
                };
                (at, (at <= now).then(|| self.next_request(side, class, source)))
            }
        };
        match tlp {
            Some(tlp) => self.state.ports[s].heads[c] = tlp,
            None if self.state.wake[s][c].is_none_or(|wake| at < wake) => {
                self.state.wake[s][c] = Some(at);
                self.at(at, side, Event::Wake(class));
            }
            None => {}
        }
    }

    fn next_completion(&mut self, side: Side) -> Option<Tlp> {
        let (mps, rcb) = (u64::from(self.config.mps), u64::from(self.config.rcb));
        let answers = &mut self.state.answers[side as usize];
        let answer = answers.front_mut()?;
        let bytes = first_completion(answer.address, answer.bytes, mps, rcb, answer.max);
        let now = *answer;
        answer.address += bytes;
        answer.bytes -= bytes;
        let last = answer.bytes == 0;
        if last {
            answers.pop_front();
        }
        Some(Tlp {
            last,
            tag: now.tag,
            source: now.source,
            purpose: now.purpose,
            copy: now.copy,
            ..self.tlp(Kind::CplD, now.address, bytes)
        })
    }

    fn next_request(&mut self, side: Side, class: Class, source: usize) -> Option<Tlp> {
        let lane = &mut self.state.lanes[side as usize][class as usize];
        let job = lane.jobs[source].front_mut()?;
        let bytes = first_request(job.address, job.bytes, job.limit);
        let now = *job;
        job.address += bytes;
        job.bytes -= bytes;
        if job.bytes == 0 {
            lane.jobs[source].pop_front();
        }
        lane.turn = (source + 1) % super::source::SOURCES;
        let (kind, tag) = match class {
            Class::NonPosted => {
                lane.outstanding[source] += 1;
                (Kind::MRd, self.state.tags[side as usize].take())
            }
            _ => (Kind::MWr, NO_TAG),
        };
        Some(Tlp {
            tag,
            source: source as u8,
            purpose: now.purpose,
            copy: now.copy,
            ..self.tlp(kind, now.address, bytes)
        })
    }

    fn tlp(&self, kind: Kind, address: u64, bytes: u64) -> Tlp {
        let class = match kind {
            Kind::MWr => Class::Posted,
            Kind::MRd => Class::NonPosted,
            Kind::CplD => Class::Completion,
        };
        let data = if kind == Kind::MRd { 0 } else { bytes };
        let piece = Piece { address, bytes };
        Tlp {
            kind,
            class,
            wire_bytes: self.config.tlp_bytes(kind, data),
            units: data.div_ceil(16),
            address: piece.address,
            payload: piece.bytes,
            last: false,
            sequence: 0,
            attempt: 0,
            bad: false,
            tag: NO_TAG,
            source: 0,
            purpose: Purpose::CopyWrite,
            copy: 0,
        }
    }

    /// A packet has been put on the wire.
    pub(super) fn launched(&mut self, side: Side, mut frame: Frame, start: u64, end: u64) {
        let index = side as usize;
        let bytes = frame.wire_bytes();
        self.state.ports[index].counters.wire_bytes += bytes;
        let mut lost = self.state.gaps[index].pass(bytes * 8);
        let mut refresh = None;
        match &mut frame {
            Frame::Tlp(tlp) => {
                lost |= self.errors.corrupt.contains(&(side, tlp.sequence, tlp.attempt));
                tlp.bad = lost;
            }
            Frame::Dllp(Dllp::Update(class, ..)) => refresh = Some(*class),
            Frame::Dllp(_) => {
                self.state.dllps_sent[index] += 1;
                lost |= self.errors.lose.contains(&(side, self.state.dllps_sent[index]));
            }
        }
        self.state.ports[index].counters.corrupted += u64::from(lost);
        if S::RECORDS {
            let entry = TraceEntry {
                side,
                sent: frame.sent(),
                start: Time(start),
                end: Time(end),
                wire_bytes: bytes,
                tlp: Self::info(&frame),
            };
            self.record(entry);
        }
        match frame {
            Frame::Tlp(tlp) => {
                self.at(end, side, Event::TlpEnds);
                self.fill(side, tlp.class, start);
            }
            Frame::Dllp(_) if lost => {
                if let Some(class) = refresh {
                    self.at(end + FC_REFRESH, side, Event::Refresh(class, true));
                }
                return;
            }
            Frame::Dllp(_) => {}
        }
        self.at(end + self.config.one_way.0, side.other(), Event::Arrives(frame));
    }

    fn info(frame: &Frame) -> Option<TlpInfo> {
        let Frame::Tlp(tlp) = frame else { return None };
        Some(TlpInfo {
            tag: (tlp.tag != NO_TAG).then_some(tlp.tag),
            address: tlp.address,
            bytes: tlp.payload,
            purpose: tlp.purpose,
            source: tlp.source,
            replay: tlp.attempt > 0,
            corrupted: tlp.bad,
        })
    }

    pub(super) fn next_event(&mut self) {
        let Some(Reverse(entry)) = self.state.events.pop() else {
            return;
        };
        let Entry {
            time, port, event, ..
        } = entry;
        self.state.now = self.state.now.max(time);
        let index = port as usize;
        match event {
            Event::TlpEnds => self.arm_replay(port, time, false),
            Event::Wake(class) => {
                let wake = &mut self.state.wake[index][class as usize];
                if *wake == Some(time) {
                    *wake = None;
                }
                self.fill(port, class, time);
            }
            Event::AckTimer(deadline) => {
                let p = &mut self.state.ports[index];
                if p.ack_deadline == Some(deadline) {
                    p.ack_deadline = None;
                    p.ack = true;
                }
            }
            Event::ReplayTimer(deadline) => {
                let p = &mut self.state.ports[index];
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
                let granted = self.state.ports[port.other() as usize].accounts[class as usize].granted;
                if granted.headers.is_none() && granted.data.is_none() {
                    return;
                }
                if self.state.ports[index].free_credits(class, units) {
                    self.refresh(port, class, time);
                }
            }
            Event::Refresh(class, lost) => {
                let p = &mut self.state.ports[index];
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
        let pending = &mut self.state.ports[port as usize].refresh[class as usize];
        if !std::mem::replace(pending, true) {
            self.at(now + FC_REFRESH, port, Event::Refresh(class, false));
        }
    }

    pub(super) fn note(&mut self, side: Side, sent: Sent, time: u64) {
        if S::RECORDS {
            self.record(TraceEntry {
                side,
                sent,
                start: Time(time),
                end: Time(time),
                wire_bytes: 0,
                tlp: None,
            });
        }
    }

    /// (Re)starts the replay timer of a transmitter, or stops it when nothing is unacknowledged.
    fn arm_replay(&mut self, port: Side, now: u64, progress: bool) {
        let p = &mut self.state.ports[port as usize];
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
        let p = &mut self.state.ports[port as usize];
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
        let p = &mut self.state.ports[port as usize];
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
        p.expected = (p.expected + 1) % SEQUENCES;
        p.nak_scheduled = false;
        match p.options.ack_delay {
            None => p.ack = true,
            Some(delay) if p.ack_deadline.is_none() => {
                p.ack_deadline = Some(time + delay);
                self.at(time + delay, port, Event::AckTimer(time + delay));
            }
            Some(_) => {}
        }
        let drain = self.state.ports[port as usize].options.drain;
        let free = if port == Side::Down && tlp.kind == Kind::MWr {
            self.state.root.write(time, tlp.address, tlp.payload)
        } else {
            time + drain
        };
        self.at(free, port, Event::Free(tlp.class, tlp.units));
        let side = port.other();
        let sender = &mut self.state.ports[side as usize].counters;
        sender.delivered += 1;
        sender.payload += if tlp.kind == Kind::MRd { 0 } else { tlp.payload };
        if S::RECORDS {
            self.record_delivery(Delivery {
                side,
                kind: tlp.kind,
                sequence: tlp.sequence,
                payload: tlp.payload,
                time: Time(time),
                address: tlp.address,
                purpose: tlp.purpose,
                source: tlp.source,
            });
        }
        self.accepted(port, side, &tlp, time);
    }

    fn accepted(&mut self, port: Side, side: Side, tlp: &Tlp, time: u64) {
        match tlp.kind {
            Kind::MWr => {}
            Kind::MRd => self.answer(port, tlp, time),
            Kind::CplD => {
                if tlp.last {
                    let requester = port as usize;
                    self.state.tags[requester].release(tlp.tag);
                    if let Some(n) = self.state.lanes[requester][1]
                        .outstanding
                        .get_mut(usize::from(tlp.source))
                    {
                        *n = n.saturating_sub(1);
                    }
                    self.fill(port, Class::NonPosted, time);
                }
            }
        }
        if tlp.copy > 0 {
            let mut orders: Vec<Order> = Vec::new();
            let limits = [u64::from(self.config.write_tlp), u64::from(self.config.mrrs)];
            let (copy, purpose, bytes) = (tlp.copy, tlp.purpose, tlp.payload);
            self.state
                .engines
                .delivered(side, copy, purpose, bytes, tlp.last, time, limits, &mut orders);
            for (posted, source, job) in orders {
                let class = if posted { Class::Posted } else { Class::NonPosted };
                self.state.lanes[0][class as usize].jobs[source].push_back(job);
                self.fill(Side::Up, class, time);
            }
        }
    }

    /// The receiver of a read request gets its data ready.
    fn answer(&mut self, port: Side, request: &Tlp, time: u64) {
        let (ready, max) = match port {
            Side::Down => {
                let max = self.config.completions.is_max(self.state.root.answered);
                (self.state.root.read(time, request.address, request.payload), max)
            }
            Side::Up => (time + self.state.root.options.mmio.0, true),
        };
        let answers = &mut self.state.answers[port as usize];
        // Behind those that are ready no later, and behind one that has begun.
        let place = answers.partition_point(|a| a.ready <= ready);
        answers.insert(
            place,
            Answer {
                ready,
                address: request.address,
                bytes: request.payload,
                max,
                tag: request.tag,
                source: request.source,
                purpose: request.purpose,
                copy: request.copy,
            },
        );
        self.fill(port, Class::Completion, time);
    }
}
