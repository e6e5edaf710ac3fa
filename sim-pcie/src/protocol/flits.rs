//! How time moves in generation 6: flits follow each other without pause; transaction layer packets start at any
//! slot of their 236 bytes, and arrive with the end of the flit that holds their last byte. Each flit has room for
//! an ACK and for one `UpdateFC`, which cost no slots and wait for the next flit to start.

use super::Side;
use super::agenda::NEVER;
use super::port::{Frame, Port};
use super::run::Protocol;
use super::sink::Sink;
use crate::wire::{Start, Unit};

/// Slots of a flit, and those of packets.
const SLOTS: u64 = 256 / 4;
const TLP_SLOTS: u64 = 236 / 4;
/// A control SKP ordered set, symbol times (unverified).
const SKP_SYMBOLS: u64 = 40;

fn has_data_link(port: &Port) -> bool {
    port.ack || port.nak.is_some() || !port.updates.is_empty()
}

impl<S: Sink> Protocol<S> {
    /// Decision by decision.
    pub(super) fn run_flits(&mut self, jump: bool) {
        self.jumper.reset();
        self.state.changed = [true; 2];
        let mut fields = [NEVER; 2];
        let mut starts: [Option<Start>; 2] = [None; 2];
        loop {
            for i in 0..2 {
                if std::mem::take(&mut self.state.changed[i]) {
                    let (port, wire, now) = (&self.state.ports[i], &self.state.wires[i], self.state.now);
                    let field = has_data_link(port).then(|| wire.peek_data_link(now));
                    fields[i] = field.flatten().unwrap_or(NEVER);
                    starts[i] = port.ready_tlp(now).map(|ready| wire.peek(ready));
                }
            }
            let tlp = |i: usize| starts[i].map_or(NEVER, |start| start.time);
            let first = |i: usize| fields[i].min(tlp(i));
            let side = if first(1) < first(0) { Side::Down } else { Side::Up };
            let index = side as usize;
            let (time, event) = (first(index), self.state.agenda.next_time());
            if event <= time {
                if event == NEVER {
                    return;
                }
                self.next_event(event);
                continue;
            }
            self.state.now = time;
            self.state.changed[index] = true;
            if fields[index] == time {
                let end = self.state.wires[index].send_data_link(time);
                self.fill_field(side, time, end);
            } else if let (Some(start), Some(frame)) = (starts[index], self.state.ports[index].pick_tlp()) {
                let unit = Unit {
                    slots: frame.wire_bytes() / 4,
                    count: 0,
                };
                let end = self.state.wires[index].send_at(start, unit);
                self.launched(side, frame, time, end);
                if jump {
                    self.try_jump(side);
                }
            }
        }
    }

    /// The data-link packets of a flit.
    fn fill_field(&mut self, side: Side, start: u64, end: u64) {
        let port = &mut self.state.ports[side as usize];
        for dllp in [port.pick_reply(), port.pick_update()].into_iter().flatten() {
            self.launched(side, Frame::Dllp(dllp), start, end);
        }
    }

    /// The reference: every slot, with timing of its own.
    pub(super) fn run_flit_slots(&mut self) {
        let slot = self.config.slot_ticks();
        let symbol = self.config.generation.symbol_ticks();
        let per_set = self.config.skp_interval_symbols() * u64::from(self.config.lanes) / (4 * SLOTS);
        let set = if self.config.skp {
            SKP_SYMBOLS * symbol / slot
        } else {
            0
        };
        let mut clocks = [Clock::default(); 2];
        let mut busy = [0; 2];
        let mut t = 0;
        loop {
            self.events_until(t);
            for side in Side::BOTH {
                let i = side as usize;
                let clock = clocks[i];
                if clock.at == 0 && clock.set == 0 {
                    self.fill_field(side, t, t + SLOTS * slot);
                }
                if clock.set == 0 && clock.at < TLP_SLOTS {
                    if busy[i] == 0
                        && let Some(frame) = self.state.ports[i].pick_tlp()
                    {
                        busy[i] = frame.wire_bytes() / 4;
                        let slots = clock.slots_for(busy[i], per_set, set);
                        self.launched(side, frame, t, t + slots * slot);
                    }
                    busy[i] = u64::saturating_sub(busy[i], 1);
                }
                clocks[i].tick(per_set, set);
            }
            let waits = |port: &Port| port.ready(t).is_some();
            if self.state.agenda.next_time() == NEVER && !self.state.ports.iter().any(waits) {
                return;
            }
            t += slot;
        }
    }
}

/// Where a direction is: slot of the flit, flits since the ordered set, slots left of one.
#[derive(Clone, Copy, Default)]
struct Clock {
    at: u64,
    flits: u64,
    set: u64,
}

impl Clock {
    fn tick(&mut self, per_set: u64, set: u64) {
        if self.set > 0 {
            self.set -= 1;
            return;
        }
        self.at += 1;
        if self.at == SLOTS {
            (self.at, self.flits) = (0, self.flits + 1);
            if self.flits == per_set {
                (self.flits, self.set) = (0, set);
            }
        }
    }

    /// Slots until the end of the flit that holds the last of `left` slots of packets, this one the first.
    fn slots_for(mut self, mut left: u64, per_set: u64, set: u64) -> u64 {
        let mut slots = 0;
        loop {
            left -= u64::from(left > 0 && self.set == 0 && self.at < TLP_SLOTS);
            self.tick(per_set, set);
            slots += 1;
            if left == 0 && self.at == 0 {
                return slots;
            }
        }
    }
}
