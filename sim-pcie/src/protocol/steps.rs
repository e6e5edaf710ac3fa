//! How time moves: from decision to decision, or slot by slot.

use super::agenda::NEVER;
use super::port::Port;
use super::run::Protocol;
use super::sink::{Delivery, Sink, TraceEntry};
use super::{Sent, Side};
use crate::wire::{Start, Unit};
use sim_core::Time;

impl<S: Sink> Protocol<S> {
    pub(super) fn run_packets(&mut self, jump: bool) {
        self.jumper.reset();
        self.state.changed = [true; 2];
        let mut starts: [Option<Start>; 2] = [None; 2];
        loop {
            for side in Side::BOTH {
                let i = side as usize;
                // A start stays where it is while time comes nearer to it.
                if std::mem::take(&mut self.state.changed[i]) {
                    let ready = self.state.ports[i].ready(self.state.now);
                    starts[i] = ready.map(|ready| self.state.wires[i].peek(ready));
                }
            }
            let time = |i: usize| starts[i].map_or(NEVER, |start| start.time);
            let side = if time(1) < time(0) { Side::Down } else { Side::Up };
            let index = side as usize;
            let event = self.state.agenda.next_time();
            match starts[index] {
                Some(start) if start.time < event => {
                    self.state.now = start.time;
                    self.state.changed[index] = true;
                    if let Some(frame) = self.state.ports[index].pick(start.time) {
                        if S::RECORDS {
                            for set in self.state.wires[index].ordered_sets(start) {
                                self.ordered_set(side, set);
                            }
                        }
                        let unit = Unit {
                            slots: frame.wire_bytes() / 4,
                            count: 0,
                        };
                        let end = self.state.wires[index].send_at(start, unit);
                        self.launched(side, frame, start.time, end);
                        if jump {
                            self.try_jump(side);
                        }
                    }
                }
                _ if event == NEVER => return,
                _ => self.next_event(event),
            }
        }
    }

    /// The reference: every slot, with timing of its own.
    pub(super) fn run_slots(&mut self) {
        let (slot, align) = (
            self.config.slot_ticks(),
            self.config.slot_ticks() * self.config.slots_per_symbol(),
        );
        let interval = self.config.skp_interval_symbols() * self.config.generation.symbol_ticks();
        let set = self.state.wires[0].ticks().1;
        let first_due = if self.config.skp { interval } else { u64::MAX };
        let (mut busy, mut idle, mut due) = ([0; 2], [true; 2], [first_due; 2]);
        let mut sets: [Vec<u64>; 2] = Default::default();
        let mut t = 0;
        loop {
            self.events_until(t);
            for side in Side::BOTH {
                let i = side as usize;
                if t < busy[i] {
                    continue;
                }
                if due[i] <= t {
                    if t % align == 0 {
                        sets[i].push(t);
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
                if let Some(frame) = self.state.ports[i].pick(t) {
                    for set in std::mem::take(&mut sets[i]) {
                        self.ordered_set(side, set);
                    }
                    busy[i] = t + frame.wire_bytes() / 4 * slot;
                    idle[i] = false;
                    self.launched(side, frame, t, busy[i]);
                }
            }
            let waits = |port: &Port| port.ready(t).is_some();
            if self.state.agenda.next_time() == NEVER && !self.state.ports.iter().any(waits) {
                return;
            }
            t += slot;
        }
    }

    /// Ordered sets are told just before the packet that follows them.
    fn ordered_set(&mut self, side: Side, start: u64) {
        if S::RECORDS {
            self.record(TraceEntry {
                side,
                sent: Sent::Skp,
                start: Time(start),
                end: Time(start + self.state.wires[side as usize].ticks().1),
                wire_bytes: 0,
                corrupted: false,
                tlp: None,
            });
        }
    }

    pub(super) fn record(&mut self, entry: TraceEntry) {
        self.jumper.keep_sent(&entry);
        self.sink.sent(&entry);
    }

    pub(super) fn record_delivery(&mut self, delivery: Delivery) {
        self.jumper.keep_delivery(&delivery);
        self.sink.delivered(&delivery);
    }
}
