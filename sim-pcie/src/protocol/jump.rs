//! The periodic jump: when the joint state of both ends repeats relative to now, whole periods are added up
//! instead of stepped.
//!
//! Exact because the system is deterministic and time-invariant: what follows from a state depends on it
//! only. The state is compared field by field, not by a hash. A cycle is found as Brent (1980) does: the
//! state is saved after 1, 2, 4, 8 ... packets, and each later state is compared with the saved one, a few
//! integers first. A jump ends before anything that does not repeat: the last packets of a job, an event
//! that was already pending when the period began, a bit error. What the sink would have been told is
//! repeated to it, shifted. Reads between ordered sets repeat seldom (the ACK timer and the sets have periods of
//! their own): after 6 to 972 sets at default settings, so that long ones are jumped over too.

use super::agenda::{Agenda, NEVER, TIMERS};
use super::port::{Dllp, Frame, Port, SEQUENCES, Tlp};
use super::run::{Protocol, State};
use super::sink::{Delivery, Sink, TraceEntry};
use super::source::{Answer, NO_TAG};
use super::{Sent, Side};
use crate::config::CompletionPolicy;
use sim_core::Time;

/// What a sink is told.
#[derive(Clone, Copy, Debug)]
enum Told {
    Sent(TraceEntry),
    Delivered(Delivery),
}

/// Few integers that differ in most states that differ.
type Key = [u64; 6];

/// Search for a period.
#[derive(Clone, Debug, Default)]
pub(super) struct Jumper {
    saved: Option<(Key, Box<State>)>,
    told: Vec<Told>,
    /// Packets since the state was saved, and after how many the next is saved.
    since: u64,
    power: u64,
    on: bool,
    pub skipped: (u64, u64),
}

/// Longest period that is looked for, packets. Reads between ordered sets repeat after up to a thousand sets,
/// that is, a few million packets (measured over the generations: at most 972 sets).
const LONGEST: u64 = 1 << 24;
/// The same when someone listens: what was told within the period is kept.
const LONGEST_TOLD: u64 = 1 << 20;

impl Jumper {
    pub fn reset(&mut self) {
        let skipped = self.skipped;
        *self = Jumper {
            skipped,
            power: 1,
            ..Jumper::default()
        };
    }

    pub fn keep_sent(&mut self, entry: &TraceEntry) {
        if self.on {
            self.told.push(Told::Sent(*entry));
        }
    }

    pub fn keep_delivery(&mut self, delivery: &Delivery) {
        if self.on {
            self.told.push(Told::Delivered(*delivery));
        }
    }
}

/// Two states, the later one first, and how far apart they are.
struct Pair<'a> {
    new: &'a State,
    old: &'a State,
    /// Addresses that can lie in a different place of their granule behave differently.
    granule: u64,
    /// Per side and class of request and source: bytes moved on.
    moved: [[[u64; 3]; 2]; 2],
}

impl Pair<'_> {
    fn relative(&self, new: u64, old: u64) -> bool {
        new.wrapping_sub(self.new.now) == old.wrapping_sub(self.old.now)
    }

    fn sequence(&self, sender: Side, new: u16, old: u16) -> bool {
        let from =
            |state: &State, s: u16| state.ports[sender as usize].next_sequence.wrapping_sub(s) % SEQUENCES;
        from(self.new, new) == from(self.old, old)
    }

    fn place(&self, new: u64, old: u64, moved: u64) -> bool {
        new == old + moved && moved.is_multiple_of(self.granule)
    }

    /// `sender` put it (or will put it) on the wire.
    fn tlp(&self, sender: Side, new: &Tlp, old: &Tlp, numbered: bool) -> bool {
        use crate::packet::Kind;
        let requester = match new.kind {
            Kind::CplD => sender.other() as usize,
            _ => sender as usize,
        };
        let lane = usize::from(new.kind != Kind::MWr);
        let blank = |tlp: &Tlp| Tlp {
            address: 0,
            sequence: 0,
            tag: NO_TAG,
            ..*tlp
        };
        let moved = self.moved[requester][lane][usize::from(new.source).min(2)];
        blank(new) == blank(old)
            && self.place(new.address, old.address, moved)
            && (!numbered || self.sequence(sender, new.sequence, old.sequence))
            && self.new.tags[requester].relative(new.tag) == self.old.tags[requester].relative(old.tag)
    }

    fn dllp(&self, sender: Side, new: Dllp, old: Dllp) -> bool {
        match (new, old) {
            (Dllp::Ack(a), Dllp::Ack(b)) | (Dllp::Nak(a), Dllp::Nak(b)) => {
                self.sequence(sender.other(), a, b)
            }
            (Dllp::Update(c, h, d), Dllp::Update(c_old, h_old, d_old)) => {
                let freed = |state: &State| state.ports[sender as usize].freed[c as usize];
                let (new, old) = (freed(self.new), freed(self.old));
                c == c_old && new.0 - h == old.0 - h_old && new.1 - d == old.1 - d_old
            }
            _ => false,
        }
    }

    /// Is what is queued the same? And when runs out the first timer that stands still since the period began?
    fn agenda(&self) -> Option<u64> {
        let (new, old) = (&self.new.agenda, &self.old.agenda);
        let mut still = NEVER;
        for side in Side::BOTH {
            let i = side as usize;
            let arrivals = new.arrivals[i].len() == old.arrivals[i].len()
                && (new.arrivals[i].iter().zip(&old.arrivals[i]))
                    .all(|(a, b)| self.relative(a.0, b.0) && self.frame(side.other(), &a.1, &b.1));
            let frees = new.frees[i].iter().zip(&old.frees[i]).all(|(new, old)| {
                let mut pairs = new.iter().zip(old);
                new.len() == old.len() && pairs.all(|(a, b)| a.1 == b.1 && self.relative(a.0, b.0))
            });
            if !arrivals || !frees {
                return None;
            }
            for timer in 0..TIMERS {
                let (new, old) = (new.timers[i][timer], old.timers[i][timer]);
                if new == old {
                    still = still.min(new);
                } else if new == NEVER || old == NEVER || !self.relative(new, old) {
                    return None;
                }
            }
        }
        Some(still)
    }

    fn frame(&self, sender: Side, new: &Frame, old: &Frame) -> bool {
        match (new, old) {
            (Frame::Tlp(a), Frame::Tlp(b)) => self.tlp(sender, a, b, true),
            (Frame::Dllp(a), Frame::Dllp(b)) => self.dllp(sender, *a, *b),
            _ => false,
        }
    }

    fn port(&self, side: Side) -> bool {
        let (new, old) = (&self.new.ports[side as usize], &self.old.ports[side as usize]);
        let credits = |port: &Port| port.accounts.map(|a| (a.headers_left(), a.data_left()));
        let untold = |state: &State, class: usize| {
            let (freed, known) = (
                state.ports[side as usize].freed[class],
                state.ports[side.other() as usize].accounts[class].freed,
            );
            (freed.0 - known.0, freed.1 - known.1)
        };
        let finite = |class: usize| self.new.ports[side.other() as usize].accounts[class].is_finite();
        let head = |(new, old): (&Option<Tlp>, &Option<Tlp>)| match (new, old) {
            (Some(new), Some(old)) => self.tlp(side, new, old, false),
            (new, old) => new.is_none() && old.is_none(),
        };
        new.turn == old.turn
            && new.ack == old.ack
            && new.nak.is_some() == old.nak.is_some()
            && new
                .nak
                .zip(old.nak)
                .is_none_or(|(a, b)| self.sequence(side.other(), a, b))
            && new.retry.len() == old.retry.len()
            && new.replay == old.replay
            && new.replays == old.replays
            && new.nak_scheduled == old.nak_scheduled
            && new.unsent_headers == old.unsent_headers
            && new.lost_update == old.lost_update
            && credits(new) == credits(old)
            && self.sequence(side.other(), new.expected, old.expected)
            && new.blocked_until.saturating_sub(self.new.now)
                == old.blocked_until.saturating_sub(self.old.now)
            && (0..3).all(|c| !finite(c) || untold(self.new, c) == untold(self.old, c))
            && new.updates.len() == old.updates.len()
            && new
                .updates
                .iter()
                .zip(&old.updates)
                .all(|(a, b)| self.dllp(side, Dllp::Update(a.0, a.1, a.2), Dllp::Update(b.0, b.1, b.2)))
            && new.heads.iter().zip(&old.heads).all(head)
            && head((&new.relaxed, &old.relaxed))
            && new
                .retry
                .iter()
                .zip(&old.retry)
                .all(|(a, b)| self.tlp(side, a, b, true))
    }

    fn answer(&self, side: Side, new: &Answer, old: &Answer) -> bool {
        let requester = side.other() as usize;
        let blank = |a: &Answer| Answer {
            ready: 0,
            address: 0,
            tag: 0,
            ..*a
        };
        // Times that have passed are alike.
        let ready = |a: &Answer, state: &State| a.ready.saturating_sub(state.now);
        blank(new) == blank(old)
            && ready(new, self.new) == ready(old, self.old)
            && self.place(
                new.address,
                old.address,
                self.moved[requester][1][usize::from(new.source).min(2)],
            )
            && self.new.tags[requester].relative(new.tag) == self.old.tags[requester].relative(old.tag)
    }
}

fn moved_sequence(new: &State, old: &State, side: Side) -> u16 {
    let of = |state: &State| state.ports[side as usize].next_sequence;
    of(new).wrapping_sub(of(old)) % SEQUENCES
}

impl<S: Sink> Protocol<S> {
    /// Can the state repeat at all?
    pub(super) fn may_jump(&self) -> bool {
        self.errors.corrupt.is_empty()
            && self.errors.lose.is_empty()
            && self.state.root.options.iotlb.is_none()
    }

    fn key(&self, side: Side) -> Key {
        let state = &self.state;
        let retry = |i: usize| state.ports[i].retry.len() as u64;
        let free = |i: usize| state.wires[i].free().wrapping_sub(state.now).min(1 << 40);
        [
            side as u64 + 2 * state.ports[side as usize].turn as u64,
            retry(0) << 32 | retry(1),
            state.agenda.len() as u64,
            free(side as usize),
            (state.answers[1].len() as u64) << 32 | u64::from(state.lanes[0][1].outstanding[0]),
            state.now % self.config.generation.symbol_ticks(),
        ]
    }

    /// After each packet: has this state been before?
    pub(super) fn try_jump(&mut self, side: Side) {
        let longest = if S::RECORDS { LONGEST_TOLD } else { LONGEST };
        if self.jumper.power > longest {
            return;
        }
        let key = self.key(side);
        self.jumper.since += 1;
        if let Some((saved, old)) = &self.jumper.saved
            && *saved == key
            && let Some(times) = self.times(old)
            && times > 0
        {
            self.jump(times);
            self.jumper.reset();
            return;
        }
        if self.jumper.since >= self.jumper.power {
            self.jumper.since = 0;
            self.jumper.power *= 2;
            self.jumper.told.clear();
            self.jumper.on = S::RECORDS && self.jumper.power <= longest;
            self.jumper.saved = (self.jumper.power <= longest).then(|| (key, Box::new(self.state.clone())));
        }
    }

    /// How many whole periods can be added; `None` if the state differs from the old one.
    fn times(&self, old: &State) -> Option<u64> {
        let new = &self.state;
        let period = new.now.checked_sub(old.now).filter(|&p| p > 0)?;
        let mut most = u64::MAX;
        let mut moved = [[[0; 3]; 2]; 2];
        for (side, class, source) in lanes() {
            let (a, b) = (&new.lanes[side][class], &old.lanes[side][class]);
            if a.turn != b.turn
                || a.outstanding != b.outstanding
                || a.jobs[source].len() != b.jobs[source].len()
            {
                return None;
            }
            let (Some(job), Some(was)) = (a.jobs[source].front(), b.jobs[source].front()) else {
                continue;
            };
            let by = was.bytes.checked_sub(job.bytes)?;
            if job.at > new.now {
                most = most.min((job.at - new.now - 1) / period);
            } else if was.at > old.now {
                return None;
            }
            if (job.limit, job.purpose, job.copy) != (was.limit, was.purpose, was.copy) || by % job.limit > 0
            {
                return None;
            }
            moved[side][class][source] = by;
            if let Some(times) = job.bytes.saturating_sub(job.limit).checked_div(by) {
                most = most.min(times);
            }
        }
        let pair = Pair {
            new,
            old,
            granule: u64::from(self.config.mps.max(self.config.rcb)),
            moved,
        };
        let answered = match self.config.completions {
            CompletionPolicy::Mixed { of, .. } => u64::from(of),
            _ => 1,
        };
        for side in Side::BOTH {
            let i = side as usize;
            let answers = new.answers[i].len() == old.answers[i].len()
                && new.answers[i]
                    .iter()
                    .zip(&old.answers[i])
                    .all(|(a, b)| pair.answer(side, a, b));
            if !answers
                || !new.wires[i].same(new.now, &old.wires[i], old.now)
                || !new.tags[i].same(&old.tags[i])
                || !pair.port(side)
            {
                return None;
            }
            let bits = old.gaps[i].left - new.gaps[i].left.min(old.gaps[i].left);
            if new.gaps[i].errors != old.gaps[i].errors {
                return None;
            }
            if let Some(times) = new.gaps[i].left.checked_div(bits) {
                most = most.min(times);
            }
        }
        if new.root.answered % answered != old.root.answered % answered
            || !new.root.same(new.now, &old.root, old.now)
            || !new.engines.same(&old.engines)
        {
            return None;
        }
        let still = pair.agenda()?;
        if still < NEVER {
            most = most.min(still.saturating_sub(new.now + 1) / period);
        }
        // Nothing moved: a state without end.
        (most < u64::MAX).then_some(most)
    }

    fn jump(&mut self, times: u64) {
        let Some((_, old)) = self.jumper.saved.take() else {
            return;
        };
        let now = self.state.now;
        let period = now - old.now;
        let ticks = period * times;
        if S::RECORDS {
            self.repeat(&old, period, times);
        }
        let sequences = Side::BOTH.map(|side| {
            let by = u64::from(moved_sequence(&self.state, &old, side)) * times;
            (by % u64::from(SEQUENCES)) as u16
        });
        let state = &mut self.state;
        let tags: [u64; 2] = [0, 1].map(|i| {
            let count = state.tags[i].count();
            let by = (state.tags[i].next as u64 + count - old.tags[i].next as u64) % count;
            by * (times % count) % count
        });
        let mut moved = [[[0; 3]; 2]; 2];
        for (side, class, source) in lanes() {
            let front = state.lanes[side][class].jobs[source].front_mut();
            if let (Some(job), Some(was)) = (front, old.lanes[side][class].jobs[source].front()) {
                let by = (was.bytes - job.bytes) * times;
                moved[side][class][source] = by;
                job.bytes -= by;
                job.address += by;
            }
        }
        let shift = Shift {
            ticks,
            sequences,
            tags,
            counts: [state.tags[0].count(), state.tags[1].count()],
            moved,
        };
        let freed =
            freed_since(state, &old).map(|port| port.map(|(headers, data)| (headers * times, data * times)));
        shift.agenda(&mut state.agenda, &old.agenda, &freed);
        state.changed = [true; 2];
        for side in Side::BOTH {
            let i = side as usize;
            state.wires[i].shift(now, period, times, &old.wires[i]);
            for answer in &mut state.answers[i] {
                answer.ready += ticks;
                answer.address += moved[1 - i][1][usize::from(answer.source).min(2)];
                answer.tag = shift.tag(1 - i, answer.tag);
            }
            state.gaps[i].left -= (old.gaps[i].left - state.gaps[i].left) * times;
            state.dllps_sent[i] += (state.dllps_sent[i] - old.dllps_sent[i]) * times;
            shift.port(side, &mut state.ports[i], &old.ports[i], times, now, &freed[i]);
        }
        for (i, by) in tags.into_iter().enumerate() {
            state.tags[i].rotate(by);
        }
        let answered = (state.root.answered - old.root.answered) * times;
        state.root.shift(now, ticks, answered);
        state.engines.shift(times, &old.engines);
        state.now += ticks;
        self.jumper.skipped.0 += times;
        self.jumper.skipped.1 += ticks;
    }

    /// Tells the sink what happened in each skipped period.
    fn repeat(&mut self, old: &State, period: u64, times: u64) {
        let told = std::mem::take(&mut self.jumper.told);
        let new = &self.state;
        let sequences = Side::BOTH.map(|side| u64::from(moved_sequence(new, old, side)));
        let counts = [new.tags[0].count(), new.tags[1].count()];
        let tags: [u64; 2] =
            [0, 1].map(|i| (new.tags[i].next as u64 + counts[i] - old.tags[i].next as u64) % counts[i]);
        let mut moved = [[[0; 3]; 2]; 2];
        for (side, class, source) in lanes() {
            let bytes = |state: &State| {
                state.lanes[side][class].jobs[source]
                    .front()
                    .map_or(0, |job| job.bytes)
            };
            moved[side][class][source] = bytes(old) - bytes(new);
        }
        let freed = freed_since(new, old);
        for n in 1..=times {
            let freed = freed.map(|port| port.map(|(headers, data)| (headers * n, data * n)));
            let shift = Shift {
                ticks: period * n,
                sequences: sequences.map(|s| (s * (n % u64::from(SEQUENCES)) % u64::from(SEQUENCES)) as u16),
                tags: [0, 1].map(|i| tags[i] * (n % counts[i]) % counts[i]),
                counts,
                moved: moved.map(|side| side.map(|class| class.map(|by| by * n))),
            };
            for told in &told {
                match told {
                    Told::Sent(entry) => self.sink.sent(&shift.sent(entry, &freed)),
                    Told::Delivered(delivery) => self.sink.delivered(&shift.delivered(delivery)),
                }
            }
        }
    }
}

/// Credits that each port has freed between two states, by class: headers and data.
fn freed_since(new: &State, old: &State) -> [[(u64, u64); 3]; 2] {
    [0, 1].map(|port| {
        let (new, was) = (new.ports[port].freed, old.ports[port].freed);
        [0, 1, 2].map(|class| (new[class].0 - was[class].0, new[class].1 - was[class].1))
    })
}

fn lanes() -> impl Iterator<Item = (usize, usize, usize)> {
    (0..12).map(|i| (i / 6, i / 3 % 2, i % 3))
}

/// Moves what a state holds on by whole periods.
struct Shift {
    ticks: u64,
    sequences: [u16; 2],
    tags: [u64; 2],
    counts: [u64; 2],
    moved: [[[u64; 3]; 2]; 2],
}

impl Shift {
    fn sequence(&self, sender: Side, sequence: u16) -> u16 {
        (sequence + self.sequences[sender as usize]) % SEQUENCES
    }

    fn tag(&self, requester: usize, tag: u16) -> u16 {
        if tag == NO_TAG {
            return tag;
        }
        ((u64::from(tag) + self.tags[requester]) % self.counts[requester]) as u16
    }

    fn address(&self, sender: Side, kind: crate::packet::Kind, source: u8) -> (usize, u64) {
        use crate::packet::Kind;
        let requester = match kind {
            Kind::CplD => sender.other() as usize,
            _ => sender as usize,
        };
        let lane = usize::from(kind != Kind::MWr);
        (requester, self.moved[requester][lane][usize::from(source).min(2)])
    }

    fn tlp(&self, sender: Side, tlp: &mut Tlp, numbered: bool) {
        let (requester, by) = self.address(sender, tlp.kind, tlp.source);
        tlp.address += by;
        tlp.tag = self.tag(requester, tlp.tag);
        if numbered {
            tlp.sequence = self.sequence(sender, tlp.sequence);
        }
    }

    fn agenda(&self, agenda: &mut Agenda, old: &Agenda, freed: &[[(u64, u64); 3]; 2]) {
        for side in Side::BOTH {
            let i = side as usize;
            for (time, frame) in &mut agenda.arrivals[i] {
                *time += self.ticks;
                self.frame(side.other(), frame, freed);
            }
            for (time, _) in agenda.frees[i].iter_mut().flatten() {
                *time += self.ticks;
            }
            for (timer, was) in agenda.timers[i].iter_mut().zip(&old.timers[i]) {
                if timer != was {
                    *timer += self.ticks;
                }
            }
        }
        agenda.moved();
    }

    fn frame(&self, sender: Side, frame: &mut Frame, freed: &[[(u64, u64); 3]; 2]) {
        match frame {
            Frame::Tlp(tlp) => self.tlp(sender, tlp, true),
            Frame::Dllp(Dllp::Ack(s) | Dllp::Nak(s)) => *s = self.sequence(sender.other(), *s),
            Frame::Dllp(Dllp::Update(class, headers, data)) => {
                let by = freed[sender as usize][*class as usize];
                *headers += by.0;
                *data += by.1;
            }
        }
    }

    fn port(&self, side: Side, port: &mut Port, old: &Port, times: u64, now: u64, freed: &[(u64, u64); 3]) {
        for (class, account) in port.accounts.iter_mut().enumerate() {
            let was = &old.accounts[class];
            account.used.0 += (account.used.0 - was.used.0) * times;
            account.used.1 += (account.used.1 - was.used.1) * times;
            account.freed.0 += (account.freed.0 - was.freed.0) * times;
            account.freed.1 += (account.freed.1 - was.freed.1) * times;
            port.freed[class].0 += freed[class].0;
            port.freed[class].1 += freed[class].1;
        }
        for (class, headers, data) in &mut port.updates {
            *headers += freed[*class as usize].0;
            *data += freed[*class as usize].1;
        }
        for tlp in port.heads.iter_mut().chain([&mut port.relaxed]).flatten() {
            self.tlp(side, tlp, false);
        }
        for tlp in &mut port.retry {
            self.tlp(side, tlp, true);
        }
        port.nak = port.nak.map(|s| self.sequence(side.other(), s));
        port.next_sequence = self.sequence(side, port.next_sequence);
        port.expected = self.sequence(side.other(), port.expected);
        if port.blocked_until > now {
            port.blocked_until += self.ticks;
        }
        port.counters.repeat(&old.counters, times);
    }

    fn sent(&self, entry: &TraceEntry, freed: &[[(u64, u64); 3]; 2]) -> TraceEntry {
        let mut entry = *entry;
        let side = entry.side;
        entry.start = Time(entry.start.0 + self.ticks);
        entry.end = Time(entry.end.0 + self.ticks);
        match &mut entry.sent {
            Sent::Ack(s) | Sent::Nak(s) => *s = self.sequence(side.other(), *s),
            Sent::Tlp { kind, sequence } => {
                *sequence = self.sequence(side, *sequence);
                if let Some(tlp) = &mut entry.tlp {
                    let (requester, by) = self.address(side, *kind, tlp.source);
                    tlp.address += by;
                    tlp.tag = tlp.tag.map(|tag| self.tag(requester, tag));
                }
            }
            Sent::UpdateFc { class, headers, data } => {
                let by = freed[side as usize][*class as usize];
                *headers += by.0;
                *data += by.1;
            }
            Sent::Skp | Sent::ReplayTimer | Sent::Retrain => {}
        }
        entry
    }

    fn delivered(&self, delivery: &Delivery) -> Delivery {
        let (requester, by) = self.address(delivery.side, delivery.kind, delivery.source);
        Delivery {
            sequence: self.sequence(delivery.side, delivery.sequence),
            time: Time(delivery.time.0 + self.ticks),
            address: delivery.address + by,
            tag: delivery.tag.map(|tag| self.tag(requester, tag)),
            ..*delivery
        }
    }
}
