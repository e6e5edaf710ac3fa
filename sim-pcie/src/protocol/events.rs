//! What happens when something arrives, runs out or becomes ready.

use super::agenda::{Event, Timer};
use super::copy::Order;
use super::port::{Dllp, Frame, SEQUENCES, Tlp};
use super::run::Protocol;
use super::sink::{Delivery, Sink, TlpInfo, TraceEntry};
use super::source::{Answer, NO_TAG, told_tag};
use super::{Class, Purpose, Sent, Side};
use crate::packet::{Kind, first_completion, first_request};
use sim_core::Time;

/// Freed credits are told at least this often: 30 us (published: PCIe base specification).
const FC_REFRESH: u64 = 30_000 * 1024;

impl<S: Sink> Protocol<S> {
    /// Puts the next packet of a class at the head, if the head is free and one is ready.
    pub(super) fn fill(&mut self, side: Side, class: Class, now: u64) {
        let (s, c) = (side as usize, class as usize);
        let port = &mut self.state.ports[s];
        if class == Class::Posted && port.options.relaxed_writes {
            // The write that could have passed the head is the next head.
            if port.heads[c].is_none() && port.relaxed.is_some() {
                port.heads[c] = port.relaxed.take();
                self.state.changed[s] = true;
            }
            if self.state.ports[s].heads[c].is_some() {
                return self.look_behind(side, now);
            }
        }
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
            Some(tlp) => {
                self.state.ports[s].heads[c] = tlp;
                self.state.changed[s] = true;
                if class == Class::Posted && self.state.ports[s].options.relaxed_writes {
                    self.look_behind(side, now);
                }
            }
            None => self.wake(side, class, at),
        }
    }

    fn wake(&mut self, side: Side, class: Class, at: u64) {
        if at < self.state.agenda.timer(side, Timer::Wake(class)) {
            self.state.agenda.set(side, Timer::Wake(class), at);
        }
    }

    /// The write of another requester that is next behind the head, if it carries the relaxed ordering
    /// attribute.
    fn look_behind(&mut self, side: Side, now: u64) {
        let s = side as usize;
        let lane = &self.state.lanes[s][Class::Posted as usize];
        let port = &self.state.ports[s];
        let (Some(head), None) = (port.heads[0], port.relaxed) else {
            return;
        };
        let Some((source, at)) = lane.next_but(now, usize::from(head.source)) else {
            return;
        };
        let purpose = lane.jobs[source].front().map(|job| job.purpose);
        if !matches!(purpose, Some(Purpose::CopyWrite | Purpose::ZeroCopyWrite)) {
            return;
        }
        if at <= now {
            self.state.ports[s].relaxed = self.next_request(side, Class::Posted, source);
            self.state.changed[s] = true;
        } else {
            self.wake(side, Class::Posted, at);
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
        let data = if kind == Kind::MRd { 0 } else { bytes };
        Tlp {
            address,
            copy: 0,
            // At most 4096 bytes, as `mps` and `mrrs`.
            payload: bytes as u16,
            wire_bytes: self.config.tlp_bytes(kind, data) as u16,
            sequence: 0,
            tag: NO_TAG,
            kind,
            purpose: Purpose::CopyWrite,
            source: 0,
            attempt: 0,
            last: false,
            bad: false,
        }
    }

    /// A packet has been put on the wire.
    pub(super) fn launched(&mut self, side: Side, mut frame: Frame, start: u64, end: u64) {
        let index = side as usize;
        self.state.changed[index] = true;
        let bytes = match frame {
            // In a field of the flit.
            Frame::Dllp(_) if self.config.generation.uses_flits() => 0,
            _ => frame.wire_bytes(),
        };
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
                corrupted: lost,
                tlp: Self::info(&frame),
            };
            self.record(entry);
        }
        match frame {
            Frame::Tlp(tlp) => {
                // A replay timer that runs goes on; so does a start of it that is due.
                let agenda = &mut self.state.agenda;
                if !agenda.runs(side, Timer::Replay) && !agenda.runs(side, Timer::TlpEnds) {
                    agenda.set(side, Timer::TlpEnds, end);
                }
                self.fill(side, tlp.class(), start);
            }
            Frame::Dllp(_) if lost => {
                if let Some(class) = refresh {
                    self.state.ports[index].lost_update[class as usize] = true;
                    self.refresh(side, class, end);
                }
                return;
            }
            Frame::Dllp(_) => {}
        }
        let arrival = end + self.config.one_way.0;
        self.state.agenda.arrives(arrival, side.other(), frame);
    }

    fn info(frame: &Frame) -> Option<TlpInfo> {
        let Frame::Tlp(tlp) = frame else { return None };
        Some(TlpInfo {
            tag: told_tag(tlp.tag),
            address: tlp.address,
            bytes: u64::from(tlp.payload),
            purpose: tlp.purpose,
            source: tlp.source,
            replay: tlp.attempt > 0,
        })
    }

    /// Lets everything happen that happens by `time`, and makes it the present: for the slot steppers.
    pub(super) fn events_until(&mut self, time: u64) {
        let mut event = self.state.agenda.next_time();
        while event <= time {
            self.next_event(event);
            event = self.state.agenda.next_time();
        }
        self.state.now = self.state.now.max(time);
    }

    /// Lets the next thing happen, at `time`.
    pub(super) fn next_event(&mut self, time: u64) {
        let Some((port, event)) = self.state.agenda.pop(time) else {
            return;
        };
        self.state.now = self.state.now.max(time);
        let index = port as usize;
        if let Event::Arrives(Frame::Tlp(tlp)) = event {
            // Most change nothing that the receiver's own transmitter could send.
            return self.tlp_arrives(port, tlp, time);
        }
        self.state.changed[index] = true;
        match event {
            Event::Arrives(Frame::Tlp(_)) => {}
            Event::Arrives(Frame::Dllp(dllp)) => self.dllp_arrives(port, dllp, time),
            Event::Free(class, units) => {
                if self.state.ports[index].free_credits(class, u64::from(units)) {
                    self.refresh(port, class, time);
                }
            }
            Event::RunsOut(Timer::TlpEnds) => self.arm_replay(port, time, false),
            Event::RunsOut(Timer::Wake(class)) => self.fill(port, class, time),
            Event::RunsOut(Timer::Ack) => self.state.ports[index].ack = true,
            Event::RunsOut(Timer::Replay) => {
                let p = &mut self.state.ports[index];
                if !p.retry.is_empty() {
                    p.counters.timeouts += 1;
                    let retrain = p.start_replay(time);
                    self.note(port, Sent::ReplayTimer, time);
                    if retrain {
                        self.note(port, Sent::Retrain, time);
                    }
                    self.arm_replay(port, time, false);
                }
            }
            Event::RunsOut(Timer::Refresh(class)) => {
                let p = &mut self.state.ports[index];
                let lost = std::mem::take(&mut p.lost_update[class as usize]);
                if lost || p.has_untold(class) {
                    p.send_update(class);
                }
            }
        }
    }

    /// Starts the timer of the periodic `UpdateFC`, if it does not run.
    fn refresh(&mut self, port: Side, class: Class, now: u64) {
        if !self.state.agenda.runs(port, Timer::Refresh(class)) {
            let agenda = &mut self.state.agenda;
            agenda.set(port, Timer::Refresh(class), now + FC_REFRESH);
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
                corrupted: false,
                tlp: None,
            });
        }
    }

    /// (Re)starts the replay timer of a transmitter, or stops it when nothing is unacknowledged.
    fn arm_replay(&mut self, port: Side, now: u64, progress: bool) {
        let p = &self.state.ports[port as usize];
        let Some(timer) = p.options.replay_timer else {
            return;
        };
        let agenda = &mut self.state.agenda;
        if p.retry.is_empty() {
            agenda.stop(port, Timer::Replay);
        } else if progress || !agenda.runs(port, Timer::Replay) {
            agenda.set(port, Timer::Replay, now.max(p.blocked_until) + timer);
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
                self.state.changed[port as usize] = true;
                self.state.agenda.stop(port, Timer::Ack);
                p.ack = false;
                p.nak = Some(p.last_good());
            }
            return;
        }
        if place.is_lt() {
            p.ack = true;
            self.state.changed[port as usize] = true;
            return;
        }
        p.expected = (p.expected + 1) % SEQUENCES;
        p.nak_scheduled = false;
        match p.options.ack_delay {
            None => {
                p.ack = true;
                self.state.changed[port as usize] = true;
            }
            Some(delay) => {
                if !self.state.agenda.runs(port, Timer::Ack) {
                    self.state.agenda.set(port, Timer::Ack, time + delay);
                }
            }
        }
        let drain = p.options.drain;
        let free = if port == Side::Down && tlp.kind == Kind::MWr {
            self.state.root.write(time, tlp.address, u64::from(tlp.payload))
        } else {
            time + drain
        };
        let side = port.other();
        let sender = &mut self.state.ports[side as usize];
        sender.counters.delivered += 1;
        if tlp.kind != Kind::MRd {
            sender.counters.payload += u64::from(tlp.payload);
        }
        // Infinite credits need not be told.
        if sender.accounts[tlp.class() as usize].is_finite() {
            self.state.agenda.frees(free, port, tlp.class(), tlp.units());
        }
        if S::RECORDS {
            self.record_delivery(Delivery {
                side,
                kind: tlp.kind,
                sequence: tlp.sequence,
                payload: u64::from(tlp.payload),
                time: Time(time),
                address: tlp.address,
                purpose: tlp.purpose,
                source: tlp.source,
                tag: told_tag(tlp.tag),
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
            let (copy, purpose, bytes) = (tlp.copy, tlp.purpose, u64::from(tlp.payload));
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
                let bytes = u64::from(request.payload);
                (self.state.root.read(time, request.address, bytes), max)
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
                bytes: u64::from(request.payload),
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
