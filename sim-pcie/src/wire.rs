//! One direction of a link: when packets start and end on it.
//!
//! Generations 1 to 5 send slots of 4 bytes ([`SlotWire`]): packets back to back, the first after idle on
//! a symbol boundary, SKP ordered sets between packets when they fall due. Generation 6 sends 256-byte
//! flits without pause ([`FlitWire`]): packets are a byte stream inside them and arrive with the end of
//! the flit that holds their last byte.
//!
//! [`Wire::burst`] launches many equal packets in closed form, a division per SKP interval; it is the
//! same as repeated [`Wire::send`], which the tests check.

use crate::config::{DllpModel, LinkConfig};
use crate::packet::{DLLP_BYTES, Kind, split_completions};

/// TLP bytes of a flit, in slots.
const FLIT_TLP_SLOTS: u64 = 236 / 4;
/// All bytes of a flit, in slots.
const FLIT_SLOTS: u64 = 256 / 4;
/// A Control SKP ordered set in flit mode, symbol times (unverified).
const FLIT_SKP_SYMBOLS: u64 = 40;

/// What a direction has carried, in slots and packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WireCount {
    pub tlps: u64,
    pub tlp_slots: u64,
    pub dllps: u64,
    pub dllp_slots: u64,
    pub skps: u64,
}

/// A kind of packet in a stream: its size, and how many bytes it adds to the count that makes
/// data-link packets due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub slots: u64,
    pub count: u64,
}

/// Packets sent back to back without an ordered set between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Ticks (slot wire) or stream position (flit wire) at which the first starts.
    pub origin: u64,
    pub unit: Unit,
    /// Data-link byte count before the first.
    pub counter: u64,
    pub packets: u64,
}

/// Where a packet would start if nothing else came first, and the ordered sets sent before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Tick of its first byte.
    pub time: u64,
    position: u64,
    due: u64,
    skps: u64,
}

/// Data-link packets that follow TLPs at an even rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cadence {
    /// Count of bytes that makes a group due; 0: never.
    pub period: u64,
    pub slots: u64,
    pub dllps: u64,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct SlotWire {
    pub slot: u64,
    /// Ticks of the grid on which a packet may start after idle.
    align: u64,
    /// End of the last thing sent.
    pub free: u64,
    pub due: u64,
    skp_interval: u64,
    skp_ticks: u64,
    pub cadence: Cadence,
    pub counter: u64,
    pub count: WireCount,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct FlitWire {
    slot: u64,
    /// Next free stream position, in TLP slots.
    free: u64,
    /// The first flit whose field for data-link packets is free.
    data_link: u64,
    /// Flits between ordered sets, and ticks of one; 0 ticks: off.
    skp_flits: u64,
    skp_ticks: u64,
    pub count: WireCount,
}

/// One direction.
#[derive(Clone, Debug)]
pub(crate) enum Wire {
    Slot(SlotWire),
    Flit(FlitWire),
}

/// Upstream or downstream: decides the data-link cadence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Up,
    Down,
}

/// Bytes of completions for which the cadence model sends one ACK each way.
pub(crate) fn cadence_period(config: &LinkConfig) -> u64 {
    let max = config.completions == crate::config::CompletionPolicy::Max;
    let read: u64 = split_completions(
        0,
        u64::from(config.mrrs),
        u64::from(config.mps),
        u64::from(config.rcb),
        max,
    )
    .map(|p| config.tlp_bytes(Kind::CplD, p.bytes))
    .sum();
    read.max(config.ack_limit_symbols() * u64::from(config.lanes))
}

impl Wire {
    pub fn new(config: &LinkConfig, side: Side) -> Wire {
        let (slot, symbol) = (config.slot_ticks(), config.generation.symbol_ticks());
        let interval = config.skp_interval_symbols();
        if config.generation.uses_flits() {
            let flit_symbols = 256 / u64::from(config.lanes);
            return Wire::Flit(FlitWire {
                slot,
                free: 0,
                data_link: 0,
                skp_flits: (interval / flit_symbols).max(1),
                skp_ticks: if config.skp { FLIT_SKP_SYMBOLS * symbol } else { 0 },
                count: WireCount::default(),
            });
        }
        let align = slot * config.slots_per_symbol();
        let set = match config.generation.number() {
            ..=2 => 4 * symbol,      // COM and three SKP
            _ => slot + 16 * symbol, // EDS token, then one block
        };
        let dllps = match side {
            Side::Up => 1,
            Side::Down => 2,
        };
        Wire::Slot(SlotWire {
            slot,
            align,
            free: 0,
            due: if config.skp { interval * symbol } else { u64::MAX },
            skp_interval: interval * symbol,
            skp_ticks: set.next_multiple_of(align),
            cadence: Cadence {
                period: if config.dllp == DllpModel::Cadence {
                    cadence_period(config)
                } else {
                    0
                },
                slots: dllps * DLLP_BYTES / 4,
                dllps,
            },
            counter: 0,
            count: WireCount::default(),
        })
    }

    /// Where a packet that is ready at tick `ready` would start. Changes nothing.
    #[inline]
    pub fn peek(&self, ready: u64) -> Start {
        match self {
            Wire::Slot(w) => w.peek(ready),
            Wire::Flit(w) => w.peek(ready),
        }
    }

    /// Sends one packet at `start`, the last answer of [`peek`](Self::peek); its end.
    #[inline]
    pub fn send_at(&mut self, start: Start, unit: Unit) -> u64 {
        match self {
            Wire::Slot(w) => w.send_at(start, unit),
            Wire::Flit(w) => w.send_at(start, unit),
        }
    }

    /// Sends one packet as soon as possible from `ready` on; its end.
    pub fn send(&mut self, ready: u64, unit: Unit) -> u64 {
        let start = self.peek(ready);
        self.send_at(start, unit)
    }

    /// Sends up to `max` equal packets, all ready at `ready`, whose starts lie before `stop`; calls
    /// `segment` for each run without an ordered set between. Answers how many, and the end of the last.
    pub fn burst(
        &mut self,
        ready: u64,
        unit: Unit,
        max: u64,
        stop: u64,
        mut segment: impl FnMut(&Wire, Segment),
    ) -> (u64, u64) {
        let (mut sent, mut end) = (0, 0);
        while sent < max {
            let start = self.peek(ready);
            if start.time >= stop {
                break;
            }
            let run = match self {
                Wire::Slot(w) => w.run_at(start, unit, max - sent, stop),
                Wire::Flit(w) => w.run_at(start, unit, max - sent, stop),
            };
            end = self.packet_end(&run, run.packets - 1);
            sent += run.packets;
            segment(self, run);
        }
        (sent, end)
    }

    /// The end of packet `index` of a segment of this wire.
    pub fn packet_end(&self, segment: &Segment, index: u64) -> u64 {
        match self {
            Wire::Slot(w) => w.packet_end(segment, index),
            Wire::Flit(w) => w.end_of(segment.origin + (index + 1) * segment.unit.slots),
        }
    }

    /// The tick from which a packet that is ready follows the last one without idle.
    pub fn free(&self) -> u64 {
        match self {
            Wire::Slot(w) => w.free,
            Wire::Flit(w) => w.time_of(w.free),
        }
    }

    /// Upper bound on the ticks that ordered sets, alignment and flit borders can add to one packet's
    /// delivery.
    pub fn jitter(&self) -> u64 {
        match self {
            Wire::Slot(w) => {
                (if w.due == u64::MAX { 0 } else { w.skp_ticks }) + 2 * w.align + w.cadence.slots * w.slot
            }
            Wire::Flit(w) => w.skp_ticks + 2 * FLIT_SLOTS * w.slot,
        }
    }

    /// Counts packets that were sent, one at a time, while the wire was otherwise idle, and are known to
    /// have ended before anything else starts.
    pub fn account_isolated(&mut self, unit: Unit, packets: u64) {
        match self {
            Wire::Slot(w) => w.account(unit, packets),
            Wire::Flit(w) => {
                w.count.tlps += packets;
                w.count.tlp_slots += packets * unit.slots;
            }
        }
    }

    /// Least ticks of `packets` equal packets back to back.
    pub fn least_ticks(&self, unit: Unit, packets: u64) -> u64 {
        let slot = match self {
            Wire::Slot(w) => w.slot,
            Wire::Flit(w) => w.slot,
        };
        unit.slots * packets * slot
    }

    /// What was sent, with the ordered sets of idle time up to tick `now`.
    pub fn count(&self, now: u64) -> WireCount {
        match self {
            Wire::Slot(w) => {
                let mut count = w.count;
                if w.due <= now {
                    count.skps += (now - w.due) / w.skp_interval + 1;
                }
                count
            }
            Wire::Flit(w) => {
                let mut count = w.count;
                if w.skp_ticks > 0 {
                    count.skps = now / (w.skp_flits * FLIT_SLOTS * w.slot + w.skp_ticks);
                }
                count
            }
        }
    }

    /// When the next flit starts whose field for data-link packets is free, from tick `ready` on; `None`: they
    /// take slots of their own. Changes nothing.
    pub fn peek_data_link(&self, ready: u64) -> Option<u64> {
        let Wire::Flit(w) = self else { return None };
        Some(w.flit_start(w.flit_from(ready).max(w.data_link)))
    }

    /// Fills that field in the flit that starts at `start`; the end of the flit.
    pub fn send_data_link(&mut self, start: u64) -> u64 {
        let Wire::Flit(w) = self else { return start };
        w.data_link = w.flit_from(start) + 1;
        start + FLIT_SLOTS * w.slot
    }

    /// Starts of the ordered sets that come before a packet at `start`.
    pub fn ordered_sets(&self, start: Start) -> Vec<u64> {
        let Wire::Slot(w) = self else { return Vec::new() };
        let (mut free, mut due) = (w.free, w.due);
        let sets = (0..start.skps).map(|_| {
            let begin = free.max(due).next_multiple_of(w.align);
            free = begin + w.skp_ticks;
            due += w.skp_interval;
            begin
        });
        sets.collect()
    }

    /// Is the wire at `now` in the state of `other` at `other_now`, for all that can follow?
    pub fn same(&self, now: u64, other: &Wire, other_now: u64) -> bool {
        let (a, b) = match (self, other) {
            (Wire::Slot(a), Wire::Slot(b)) => (a, b),
            (Wire::Flit(a), Wire::Flit(b)) => return a.same(now, b, other_now),
            _ => return false,
        };
        let due = |w: &SlotWire, now: u64| (w.due < u64::MAX).then(|| w.due.wrapping_sub(now));
        now % a.align == other_now % b.align
            && a.free.saturating_sub(now) == b.free.saturating_sub(other_now)
            && due(a, now) == due(b, other_now)
            && (a.due == u64::MAX || a.free.wrapping_sub(now) == b.free.wrapping_sub(other_now))
    }

    /// Moves on by `times` whole periods of `ticks`, the last of which began with the wire as `before`.
    pub fn shift(&mut self, now: u64, ticks: u64, times: u64, before: &Wire) {
        let (w, b) = match (self, before) {
            (Wire::Slot(w), Wire::Slot(b)) => (w, b),
            (Wire::Flit(w), Wire::Flit(b)) => return w.shift(ticks, times, b),
            _ => return,
        };
        if w.free >= now || w.due < u64::MAX {
            w.free += ticks * times;
        }
        if w.due < u64::MAX {
            w.due += ticks * times;
        }
        w.count.skps += (w.count.skps - b.count.skps) * times;
        w.count.tlps += (w.count.tlps - b.count.tlps) * times;
        w.count.tlp_slots += (w.count.tlp_slots - b.count.tlp_slots) * times;
    }

    /// Ticks of one slot and of one SKP ordered set with its padding.
    pub fn ticks(&self) -> (u64, u64) {
        match self {
            Wire::Slot(w) => (w.slot, w.skp_ticks),
            Wire::Flit(w) => (w.slot, w.skp_ticks),
        }
    }
}

impl SlotWire {
    #[inline]
    fn peek(&self, ready: u64) -> Start {
        let (mut free, mut due, mut skps) = (self.free, self.due, 0);
        // Due while the last packet was on the wire: they follow it.
        while due <= free {
            free = free.next_multiple_of(self.align) + self.skp_ticks;
            due += self.skp_interval;
            skps += 1;
        }
        let start = |free: u64| {
            if ready <= free {
                free
            } else {
                ready.next_multiple_of(self.align)
            }
        };
        let mut time = start(free);
        if due <= time {
            // Due while the wire was idle: each is sent when due; only the last can delay us.
            let earlier = (time - due) / self.skp_interval;
            let last = due + earlier * self.skp_interval;
            skps += earlier + 1;
            due = last + self.skp_interval;
            free = last.next_multiple_of(self.align) + self.skp_ticks;
            time = start(free);
        }
        Start {
            time,
            position: time,
            due,
            skps,
        }
    }

    #[inline]
    fn take(&mut self, start: Start) {
        self.due = start.due;
        self.count.skps += start.skps;
    }

    #[inline]
    fn send_at(&mut self, start: Start, unit: Unit) -> u64 {
        self.take(start);
        let end = start.time + unit.slots * self.slot;
        self.free = end;
        if self.cadence.period == 0 {
            self.count.tlps += 1;
            self.count.tlp_slots += unit.slots;
            return end;
        }
        let groups = self.count.dllps;
        self.account(unit, 1);
        self.free += (self.count.dllps - groups) / self.cadence.dllps * self.cadence.slots * self.slot;
        end
    }

    /// Data-link groups that are sent within the first `packets` packets of a run.
    fn groups(&self, counter: u64, unit: Unit, packets: u64) -> u64 {
        (counter + packets * unit.count)
            .checked_div(self.cadence.period)
            .unwrap_or(0)
    }

    fn account(&mut self, unit: Unit, packets: u64) {
        let groups = self.groups(self.counter, unit, packets);
        if self.cadence.period > 0 {
            self.counter = self.counter + packets * unit.count - groups * self.cadence.period;
        }
        self.count.tlps += packets;
        self.count.tlp_slots += packets * unit.slots;
        self.count.dllps += groups * self.cadence.dllps;
        self.count.dllp_slots += groups * self.cadence.slots;
    }

    /// Slots that the first `packets` packets of a run and their data-link groups take.
    pub fn elapsed(&self, counter: u64, unit: Unit, packets: u64) -> u64 {
        packets * unit.slots + self.groups(counter, unit, packets) * self.cadence.slots
    }

    /// The fewest packets, at least 1, after which a run has taken `slots` slots or more.
    fn packets_to_reach(&self, counter: u64, unit: Unit, slots: u64) -> u64 {
        let (period, group) = (self.cadence.period, self.cadence.slots);
        if period == 0 || unit.count == 0 {
            return slots.div_ceil(unit.slots).max(1);
        }
        // elapsed(n) <= n*unit.slots + group*(counter + n*count)/period, so this is never too many ...
        let mut packets = (slots * period)
            .saturating_sub(group * counter)
            .div_ceil(unit.slots * period + group * unit.count)
            .max(1);
        // ... and at most a few too few, because the floor inside `groups` hides less than one group.
        while self.elapsed(counter, unit, packets) < slots {
            packets += 1;
        }
        packets
    }

    fn run_at(&mut self, start: Start, unit: Unit, max: u64, stop: u64) -> Segment {
        self.take(start);
        let counter = self.counter;
        let until = stop.min(self.due);
        let most = self.elapsed(counter, unit, max);
        let packets = if most * self.slot <= until - start.time {
            max
        } else {
            let slots = (until - start.time).div_ceil(self.slot);
            self.packets_to_reach(counter, unit, slots).min(max)
        };
        self.free = start.time + self.elapsed(counter, unit, packets) * self.slot;
        self.account(unit, packets);
        Segment {
            origin: start.time,
            unit,
            counter,
            packets,
        }
    }

    fn packet_end(&self, segment: &Segment, index: u64) -> u64 {
        let before = self.elapsed(segment.counter, segment.unit, index);
        segment.origin + (before + segment.unit.slots) * self.slot
    }
}

impl FlitWire {
    fn flit_start(&self, flit: u64) -> u64 {
        let sets = if self.skp_ticks == 0 {
            0
        } else {
            flit / self.skp_flits
        };
        flit * FLIT_SLOTS * self.slot + sets * self.skp_ticks
    }

    /// Tick at which stream position `position` is sent.
    fn time_of(&self, position: u64) -> u64 {
        self.flit_start(position / FLIT_TLP_SLOTS) + position % FLIT_TLP_SLOTS * self.slot
    }

    /// End of the flit that holds the byte before `position`.
    fn end_of(&self, position: u64) -> u64 {
        self.flit_start((position - 1) / FLIT_TLP_SLOTS) + FLIT_SLOTS * self.slot
    }

    /// The first stream position sent at or after tick `ready`.
    fn position_from(&self, ready: u64) -> u64 {
        let flit_ticks = FLIT_SLOTS * self.slot;
        let flit = if self.skp_ticks == 0 {
            ready / flit_ticks
        } else {
            let round = self.skp_flits * flit_ticks + self.skp_ticks;
            let (rounds, rest) = (ready / round, ready % round);
            rounds * self.skp_flits + (rest / flit_ticks).min(self.skp_flits)
        };
        let inside = ready
            .saturating_sub(self.flit_start(flit))
            .div_ceil(self.slot)
            .min(FLIT_TLP_SLOTS);
        flit * FLIT_TLP_SLOTS + inside
    }

    #[inline]
    fn peek(&self, ready: u64) -> Start {
        let position = self.free.max(self.position_from(ready));
        Start {
            time: self.time_of(position),
            position,
            due: 0,
            skps: 0,
        }
    }

    #[inline]
    fn send_at(&mut self, start: Start, unit: Unit) -> u64 {
        self.free = start.position + unit.slots;
        self.count.tlps += 1;
        self.count.tlp_slots += unit.slots;
        self.end_of(self.free)
    }

    /// The first flit that starts at or after tick `ready`.
    fn flit_from(&self, ready: u64) -> u64 {
        let flit = self.position_from(ready) / FLIT_TLP_SLOTS;
        flit + u64::from(self.flit_start(flit) < ready)
    }

    /// Ticks after which the wire is in the same place of a flit, and of the ordered sets; and its positions.
    fn round(&self) -> (u64, u64) {
        let flit = FLIT_SLOTS * self.slot;
        if self.skp_ticks == 0 {
            (flit, FLIT_TLP_SLOTS)
        } else {
            (
                self.skp_flits * flit + self.skp_ticks,
                self.skp_flits * FLIT_TLP_SLOTS,
            )
        }
    }

    fn same(&self, now: u64, other: &FlitWire, other_now: u64) -> bool {
        let state = |wire: &FlitWire, now: u64| {
            let taken = wire.free.saturating_sub(wire.position_from(now));
            let data_link = wire.data_link.saturating_sub(wire.flit_from(now));
            (now % wire.round().0, taken, data_link)
        };
        state(self, now) == state(other, other_now)
    }

    /// `ticks` are whole rounds.
    fn shift(&mut self, ticks: u64, times: u64, before: &FlitWire) {
        let (round, positions) = self.round();
        let by = ticks / round * positions * times;
        self.free += by;
        self.data_link += by / FLIT_TLP_SLOTS;
        self.count.tlps += (self.count.tlps - before.count.tlps) * times;
        self.count.tlp_slots += (self.count.tlp_slots - before.count.tlp_slots) * times;
    }

    fn run_at(&mut self, start: Start, unit: Unit, max: u64, stop: u64) -> Segment {
        let most = max.saturating_mul(unit.slots);
        let room = if stop == u64::MAX {
            most
        } else {
            (self.position_from(stop) - start.position).min(most)
        };
        let packets = room.div_ceil(unit.slots).clamp(1, max);
        self.free = start.position + packets * unit.slots;
        self.count.tlps += packets;
        self.count.tlp_slots += packets * unit.slots;
        Segment {
            origin: start.position,
            unit,
            counter: 0,
            packets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Generation;
    use proptest::prelude::*;

    fn wire(generation: usize, lanes: u32, skp: bool, dllp: bool, interval: Option<u32>, side: Side) -> Wire {
        let config = LinkConfig {
            generation: Generation::ALL[generation],
            lanes,
            skp,
            skp_interval: interval,
            dllp: if dllp { DllpModel::Cadence } else { DllpModel::None },
            ..LinkConfig::default()
        };
        Wire::new(&config, side)
    }

    proptest! {
        #[test]
        fn burst_is_repeated_send(
            generation in 0usize..6,
            lanes in prop::sample::select(vec![1u32, 2, 4, 8, 16]),
            skp: bool, dllp: bool,
            interval in prop::option::of((256u32..2000).prop_map(|n| n * 4)),
            jobs in prop::collection::vec((0u64..3_000_000, 5u64..80, 0u64..600, 1u64..400, prop::option::of(0u64..3_000_000)), 1..6),
        ) {
            let mut fast = wire(generation, lanes, skp, dllp, interval, Side::Down);
            let mut slow = fast.clone();
            let mut from = 0;
            for (gap, slots, count, max, stop) in jobs {
                let (ready, unit) = (from + gap, Unit { slots, count: count.min(slots * 4) });
                let stop = stop.map_or(u64::MAX, |s| ready + s);
                let mut ends = Vec::new();
                let (sent, end) = fast.burst(ready, unit, max, stop, |w, s| {
                    ends.extend((0..s.packets).map(|i| w.packet_end(&s, i)));
                });
                let mut slow_ends = Vec::new();
                while (slow_ends.len() as u64) < max && slow.peek(ready).time < stop {
                    slow_ends.push(slow.send(ready, unit));
                }
                prop_assert_eq!(&ends, &slow_ends);
                prop_assert_eq!(sent, ends.len() as u64);
                prop_assert_eq!(end, ends.last().copied().unwrap_or(0));
                prop_assert_eq!(fast.peek(ready).time, slow.peek(ready).time);
                prop_assert_eq!(fast.free(), slow.free());
                from = ready / 2;
            }
            prop_assert_eq!(fast.count(1 << 40), slow.count(1 << 40));
        }
    }
}
