//! The transfer-level model stepped slot by slot: the reference that the fast link is tested against.
//!
//! Shares no timing code with [`Link`](crate::Link): it looks at both wires at every slot, keeps a list of
//! things in flight, and asks at each slot what may start. Slow and plain.

use crate::config::{Arbiter, DllpModel, LinkConfig, LinkConfigError};
use crate::link::{Completion, Transfer, TransferId};
use crate::packet::{Kind, split_completions, split_request};
use crate::stats::{DirectionStats, LinkStats};
use crate::wire::{WireCount, cadence_period};
use sim_core::Time;
use sim_core::push::Direction;
use std::collections::VecDeque;

/// A packet of a transfer.
#[derive(Clone, Copy, Debug)]
struct Packet {
    kind: Kind,
    transfer: usize,
    address: u64,
    payload: u64,
    /// Bytes that count towards the next data-link packets.
    count: u64,
    /// The last packet of its transfer; for a completion also: of its read.
    last: bool,
    last_of_read: bool,
}

/// Something that happens at a time.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives(Packet),
    CreditsBack(u64),
}

struct SlotByslot {
    slot: u64,
    align: u64,
    busy_until: u64,
    was_idle: bool,
    due: u64,
    interval: u64,
    set: u64,
    period: u64,
    counter: u64,
    dllps: u64,
    /// Flit mode: slot inside the flit, flits since the last ordered set, rest of an ordered set, and what
    /// is left of the packet being sent.
    flit: Option<FlitState>,
    count: WireCount,
}

#[derive(Default)]
struct FlitState {
    at: u64,
    flits: u64,
    per_set: u64,
    set_slots: u64,
    in_set: u64,
    sending: Option<(Packet, u64)>,
}

impl SlotByslot {
    fn new(config: &LinkConfig, dllps: u64) -> SlotByslot {
        let (slot, symbol) = (config.slot_ticks(), config.generation.symbol_ticks());
        let align = (slot * u64::from(config.lanes) / 4).max(slot);
        let align = if config.lanes < 4 { slot } else { align };
        let interval = config.skp_interval_symbols();
        let mut set = if config.generation.number() <= 2 {
            4 * symbol
        } else {
            slot + 16 * symbol
        };
        while set % align != 0 {
            set += if align > symbol {
                symbol.min(align - set % align)
            } else {
                align - set % align
            };
        }
        let flit = config.generation.uses_flits().then(|| FlitState {
            per_set: interval * u64::from(config.lanes) / 256,
            set_slots: if config.skp { 40 * symbol / slot } else { 0 },
            ..FlitState::default()
        });
        SlotByslot {
            slot,
            align,
            busy_until: 0,
            was_idle: true,
            due: if config.skp { interval * symbol } else { u64::MAX },
            interval: interval * symbol,
            set,
            period: if config.dllp == DllpModel::Cadence {
                cadence_period(config)
            } else {
                0
            },
            counter: 0,
            dllps,
            flit,
            count: WireCount::default(),
        }
    }

    /// One slot at tick `t`. `pick` chooses the packet that starts now, if any may; `sent` takes a packet
    /// and the tick at which its last byte is out.
    fn step(
        &mut self,
        t: u64,
        slots: impl Fn(&Packet) -> u64,
        pick: impl FnOnce() -> Option<Packet>,
        mut sent: impl FnMut(Packet, u64),
    ) {
        if self.flit.is_some() {
            return self.step_flit(t, slots, pick, sent);
        }
        if t < self.busy_until {
            return;
        }
        let on_symbol = t.is_multiple_of(self.align);
        if self.due <= t {
            if on_symbol {
                self.busy_until = t + self.set;
                self.due += self.interval;
                self.count.skps += 1;
                self.was_idle = false;
            }
            return;
        }
        if self.was_idle && !on_symbol {
            return;
        }
        let Some(packet) = pick() else {
            self.was_idle = true;
            return;
        };
        self.was_idle = false;
        let length = slots(&packet);
        self.busy_until = t + length * self.slot;
        self.count.tlps += 1;
        self.count.tlp_slots += length;
        sent(packet, self.busy_until);
        if self.period > 0 {
            self.counter += packet.count;
            while self.counter >= self.period {
                self.counter -= self.period;
                self.count.dllps += self.dllps;
                self.count.dllp_slots += 2 * self.dllps;
                self.busy_until += 2 * self.dllps * self.slot;
            }
        }
    }

    fn step_flit(
        &mut self,
        t: u64,
        slots: impl Fn(&Packet) -> u64,
        pick: impl FnOnce() -> Option<Packet>,
        mut sent: impl FnMut(Packet, u64),
    ) {
        let Some(flit) = &mut self.flit else { return };
        if flit.in_set > 0 {
            flit.in_set -= 1;
            return;
        }
        if flit.at < 59 {
            if flit.sending.is_none() {
                flit.sending = pick().map(|packet| (packet, slots(&packet)));
                if let Some((_, length)) = flit.sending {
                    self.count.tlps += 1;
                    self.count.tlp_slots += length;
                }
            }
            if let Some((packet, left)) = &mut flit.sending {
                *left -= 1;
                if *left == 0 {
                    sent(*packet, t + (64 - flit.at) * self.slot);
                    flit.sending = None;
                }
            }
        }
        flit.at += 1;
        if flit.at == 64 {
            flit.at = 0;
            flit.flits += 1;
            if flit.flits == flit.per_set {
                flit.flits = 0;
                flit.in_set = flit.set_slots;
                self.count.skps += u64::from(flit.set_slots > 0);
            }
        }
    }
}

/// First-come first-served at a byte rate, in exact 128-bit arithmetic.
#[derive(Default)]
struct Queue {
    rate: Option<u64>,
    /// Numerator of the time at which it is free, over `rate`.
    free: u128,
}

impl Queue {
    fn serve(&mut self, arrival: u64, bytes: u64) -> u64 {
        let Some(rate) = self.rate.map(u128::from) else {
            return arrival;
        };
        if u128::from(arrival) * rate > self.free / rate * rate {
            self.free = self.free.max(u128::from(arrival) * rate);
        }
        self.free += u128::from(bytes) * 1_024_000_000_000;
        (self.free / rate) as u64
    }
}

/// Sends `transfers` (with their submission times, ascending) over an idle link, slot by slot, until all
/// have arrived; completions in (time, id) order and the counters at the last of them.
///
/// # Errors
/// A field of `config` that no link can have.
pub fn simulate(
    config: &LinkConfig,
    transfers: &[(Time, Transfer)],
) -> Result<(Vec<Completion>, LinkStats), LinkConfigError> {
    config.validate()?;
    let (mps, rcb, latency) = (u64::from(config.mps), u64::from(config.rcb), config.one_way.0);
    let mut writes: VecDeque<(u64, Packet)> = VecDeque::new();
    let mut reads: VecDeque<(u64, Packet)> = VecDeque::new();
    let mut index = 0;
    for (id, (ready, transfer)) in transfers.iter().enumerate() {
        let (address, bytes) = (transfer.address % 4096, transfer.bytes.max(1));
        let write = transfer.direction == Direction::DeviceToHost;
        for piece in split_request(
            address,
            bytes,
            u64::from(if write { config.write_tlp } else { config.mrrs }),
        ) {
            let last = piece.address + piece.bytes == address + bytes;
            let mut packet = Packet {
                kind: if write { Kind::MWr } else { Kind::MRd },
                transfer: id,
                address: piece.address,
                payload: piece.bytes,
                count: 0,
                last,
                last_of_read: false,
            };
            if !write {
                let max = config.completions.is_max(index);
                packet.count = split_completions(piece.address, piece.bytes, mps, rcb, max)
                    .map(|c| config.tlp_bytes(Kind::CplD, c.bytes))
                    .sum();
                index += 1;
            }
            if write { &mut writes } else { &mut reads }.push_back((ready.0, packet));
        }
    }
    let limited = config.rc_write.is_some() || config.rc_total.is_some();
    let headers = config
        .posted_headers
        .or(limited.then_some(64))
        .map_or(u64::MAX, u64::from);
    let data = config
        .posted_data
        .or(limited.then_some(1024))
        .map_or(u64::MAX, u64::from);
    let mut rc_total = Queue {
        rate: config.rc_total,
        free: 0,
    };
    let mut rc_read = Queue {
        rate: config.rc_read,
        free: 0,
    };
    let mut rc_write = Queue {
        rate: config.rc_write,
        free: 0,
    };
    let (mut up, mut down) = (SlotByslot::new(config, 1), SlotByslot::new(config, 2));
    let mut completions: VecDeque<(u64, Packet)> = VecDeque::new();
    let mut events: VecDeque<(u64, Event)> = VecDeque::new();
    let (mut tags, mut held_headers, mut held_units) = (u64::from(config.tags), 0u64, 0u64);
    let (mut wrote_last, mut answered, mut payload) = (false, 0u64, [0u64; 2]);
    let mut done: Vec<Completion> = Vec::new();
    let mut t = 0;
    let slots = |p: &Packet| config.tlp_slots(p.kind, p.payload);
    while done.len() < transfers.len() {
        // Everything up to now, in time order.
        while let Some(at) = (0..events.len())
            .filter(|&i| events[i].0 <= t)
            .min_by_key(|&i| (events[i].0, i))
        {
            let Some((time, event)) = events.remove(at) else {
                break;
            };
            match event {
                Event::CreditsBack(units) => {
                    held_headers -= 1;
                    held_units -= units;
                }
                Event::Arrives(packet) => {
                    match packet.kind {
                        Kind::MWr => {
                            let served = rc_total.serve(time, packet.payload);
                            let drained = rc_write.serve(served, packet.payload) + config.drain.0;
                            let back = drained + 2 * config.slot_ticks() + latency;
                            events.push_back((back, Event::CreditsBack(packet.payload.div_ceil(16))));
                        }
                        Kind::MRd => {
                            let served = rc_total.serve(time, packet.payload);
                            let ready = rc_read.serve(served, packet.payload) + config.host_read.0;
                            let max = config.completions.is_max(answered);
                            answered += 1;
                            let end = packet.address + packet.payload;
                            for piece in split_completions(packet.address, packet.payload, mps, rcb, max) {
                                let last_of_read = piece.address + piece.bytes == end;
                                completions.push_back((
                                    ready,
                                    Packet {
                                        kind: Kind::CplD,
                                        payload: piece.bytes,
                                        count: config.tlp_bytes(Kind::CplD, piece.bytes),
                                        last: packet.last && last_of_read,
                                        last_of_read,
                                        ..packet
                                    },
                                ));
                            }
                        }
                        Kind::CplD => tags += u64::from(packet.last_of_read),
                    }
                    if packet.last && packet.kind != Kind::MRd {
                        done.push(Completion {
                            id: TransferId(packet.transfer as u64),
                            time: Time(time),
                        });
                    }
                }
            }
        }
        let pick_up = || {
            let write = writes.front().filter(|w| w.0 <= t).copied();
            let has_credit = write.is_none_or(|(_, p)| {
                held_headers < headers && p.payload.div_ceil(16) <= data - held_units.min(data)
            });
            if !has_credit {
                return None;
            }
            let read = reads.front().filter(|r| r.0 <= t && tags > 0);
            let write_first = match config.arbiter {
                Arbiter::RoundRobin => !wrote_last,
                Arbiter::PostedFirst => true,
                Arbiter::NonPostedFirst => false,
            };
            let (_, packet) = match (write, read) {
                (None, None) => return None,
                (Some(_), None) => writes.pop_front()?,
                (None, Some(_)) => reads.pop_front()?,
                (Some(_), Some(_)) => {
                    if write_first {
                        writes.pop_front()?
                    } else {
                        reads.pop_front()?
                    }
                }
            };
            wrote_last = packet.kind == Kind::MWr;
            if wrote_last {
                payload[0] += packet.payload;
                held_headers += 1;
                held_units += packet.payload.div_ceil(16);
            } else {
                tags -= 1;
            }
            Some(packet)
        };
        up.step(t, slots, pick_up, |p, end| {
            events.push_back((end + latency, Event::Arrives(p)));
        });
        let pick_down = || {
            completions.front().filter(|c| c.0 <= t)?;
            let (_, packet) = completions.pop_front()?;
            payload[1] += packet.payload;
            Some(packet)
        };
        down.step(t, slots, pick_down, |p, end| {
            events.push_back((end + latency, Event::Arrives(p)));
        });
        t += config.slot_ticks();
    }
    done.sort_by_key(|c| (c.time, c.id));
    let end = done.last().map_or(0, |c| c.time.0);
    // The loop ends with a few slots of lag: ordered sets of that time are not compared.
    let stats =
        |wire: &SlotByslot, payload| DirectionStats::new(wire.count, (wire.slot, wire.set), payload, end);
    Ok((
        done,
        LinkStats {
            up: stats(&up, payload[0]),
            down: stats(&down, payload[1]),
        },
    ))
}
