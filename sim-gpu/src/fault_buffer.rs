//! The replayable fault buffer and the port through which uTLBs write into it.
//!
//! Entries are numbered from 0 without wrapping; hardware indices are these modulo the size. uTLBs
//! with unwritten faults take turns, `fault_burst` entries a turn; a replay starts the turns anew. One
//! uTLB writes an entry per `fault_emission_interval`; together they never write faster than one per
//! `fault_write_interval`. Emission is evaluated lazily: nothing happens per entry until the driver
//! looks at it, and entries that the driver discards or that find the buffer full are never built:
//! whole rounds of turns of them are counted at once.

use std::collections::VecDeque;

use sim_core::Time;
use sim_core::fault::FaultEntry;
use sim_core::rng::mix64;

use crate::params::{Exactness, GpuParams};
use crate::utlb::Utlb;

/// Entries that differ only in their time.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Index of the first of them.
    index: u64,
    count: u64,
    entry: FaultEntry,
    interval: Time,
}

/// What becomes of entries that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// They can be read; those that find the buffer full are lost.
    Stored,
    /// The driver releases them unread.
    Discarded,
    /// The buffer was full when they were written.
    Lost,
}

/// State of the buffer and of the emission.
#[derive(Clone, Debug, Default)]
pub struct FaultBuffer {
    /// Entries built and not yet released, in order, as runs of equal ones.
    runs: VecDeque<Run>,
    /// Index of the next entry to be built.
    built: u64,
    /// GET: entries before it are released.
    get: u64,
    /// The uTLBs in the order of their turns, from the last replay on.
    order: Vec<u16>,
    replays: u64,
    /// Place in `order` whose turn it is, and how much of its turn it has used.
    turn: usize,
    used: u32,
    /// Time of the next entry, if one is unwritten.
    next_write: Time,
    interval: Time,
    /// Unwritten faults of all uTLBs together, and the uTLBs that have some.
    unwritten: u64,
    active: u64,
    /// Entries written, and lost to overflow, so far.
    written: u64,
    dropped: u64,
}

impl FaultBuffer {
    /// Entries written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Faults that found the buffer full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// GET.
    pub fn get(&self) -> u64 {
        self.get
    }

    /// PUT at `now`: entries written up to and including `now`.
    pub fn put(&self, now: Time, params: &GpuParams) -> u64 {
        self.built + self.due(now).min(self.room(params))
    }

    /// Entries that can be written until PUT would catch GET.
    fn room(&self, params: &GpuParams) -> u64 {
        params.fault_buffer_entries - 1 - (self.built - self.get)
    }

    /// Writes that are due by `now` but not yet carried out.
    fn due(&self, now: Time) -> u64 {
        if self.unwritten == 0 || self.next_write > now {
            return 0;
        }
        if self.interval == Time::ZERO {
            return self.unwritten;
        }
        ((now - self.next_write).0 / self.interval.0 + 1).min(self.unwritten)
    }

    /// When the first unreleased entry is there: now or in the future; `None` if none is coming.
    pub fn first_entry_at(&self, now: Time) -> Option<Time> {
        if self.built > self.get {
            Some(now)
        } else {
            (self.unwritten > 0).then_some(self.next_write.max(now))
        }
    }

    /// `parked` more faults of one uTLB have to be written, the first one not before `ready`. Call
    /// after they have been parked, with [`FaultBuffer::catch_up`] called before; `was_idle` says
    /// whether that uTLB had nothing to write before.
    pub fn faults_parked(&mut self, parked: u64, was_idle: bool, ready: Time, params: &GpuParams) {
        if parked == 0 {
            return;
        }
        if self.unwritten == 0 {
            self.next_write = self.next_write.max(ready);
        }
        self.unwritten += parked;
        self.active += u64::from(was_idle);
        self.interval = self.interval(params);
    }

    /// A replay was carried out: all faults that are parked now have to be written, from `ready` on.
    pub fn restart(&mut self, ready: Time, utlbs: &[Utlb], params: &GpuParams) {
        self.unwritten = utlbs.iter().map(|u| u64::from(u.unemitted())).sum();
        self.active = utlbs.iter().filter(|u| u.unemitted() > 0).count() as u64;
        self.turn = 0;
        self.used = 0;
        self.replays += 1;
        self.arrange(utlbs.len(), params);
        self.next_write = self.next_write.max(ready);
        self.interval = self.interval(params);
    }

    /// Who goes first: uTLBs by number, or in an order drawn anew for each replay.
    fn arrange(&mut self, utlbs: usize, params: &GpuParams) {
        if self.order.len() != utlbs {
            self.order = (0..utlbs as u16).collect();
        }
        if let Some(seed) = params.fault_order_seed {
            for place in (1..utlbs).rev() {
                let draw = mix64(seed ^ self.replays.rotate_left(32) ^ place as u64);
                let other = ((u128::from(draw) * (place as u128 + 1)) >> 64) as usize;
                self.order.swap(place, other);
            }
        }
    }

    fn interval(&self, params: &GpuParams) -> Time {
        Time(params.fault_emission_interval.0 / self.active.max(1)).max(params.fault_write_interval)
    }

    /// Carries out the writes due by `now`.
    pub fn catch_up(&mut self, now: Time, utlbs: &mut [Utlb], params: &GpuParams) {
        let due = self.due(now);
        self.write(due, Fate::Stored, utlbs, params);
    }

    /// Entry `index`, if it has been written by `now` and not been released.
    pub fn entry(
        &mut self,
        index: u64,
        now: Time,
        utlbs: &mut [Utlb],
        params: &GpuParams,
    ) -> Option<FaultEntry> {
        if index >= self.built {
            let wanted = index + 1 - self.built;
            self.write(self.due(now).min(wanted), Fate::Stored, utlbs, params);
        }
        let place = self.runs.partition_point(|run| run.index + run.count <= index);
        let run = self.runs.get(place).filter(|run| run.index <= index)?;
        Some(FaultEntry {
            raised: run.entry.raised + run.interval.times(index - run.index),
            ..run.entry
        })
    }

    /// Moves GET to `index`, which releases the entries before it.
    pub fn set_get(&mut self, index: u64, now: Time, utlbs: &mut [Utlb], params: &GpuParams) {
        debug_assert!(index >= self.get && index <= self.put(now, params));
        let due = self.due(now);
        let lost = due - due.min(self.room(params));
        if index >= self.built {
            self.runs.clear();
            // Discarded unread: their faults stay parked, no entry need be built.
            self.get = self.built;
            let skipped = (index - self.built).min(due - lost);
            self.write(skipped, Fate::Discarded, utlbs, params);
            debug_assert_eq!(self.built, index);
            if lost > 0 {
                self.write(due - lost - skipped, Fate::Stored, utlbs, params);
            }
        } else {
            while self
                .runs
                .front()
                .is_some_and(|run| run.index + run.count <= index)
            {
                self.runs.pop_front();
            }
            if lost > 0 {
                self.write(due - lost, Fate::Stored, utlbs, params);
            }
        }
        // What came while the buffer was full finds no room now.
        self.write(lost, Fate::Lost, utlbs, params);
        self.get = index;
    }

    /// Carries out the next `n` writes, in turn.
    fn write(&mut self, n: u64, fate: Fate, utlbs: &mut [Utlb], params: &GpuParams) {
        let mut left = n;
        if self.order.len() != utlbs.len() {
            self.arrange(utlbs.len(), params);
        }
        while left > 0 {
            if (self.turn, self.used) == (0, 0) && params.exactness == Exactness::Fast {
                left -= self.skip_rounds(left, fate, utlbs, params);
                if left == 0 {
                    break;
                }
            }
            let number = self.order[self.turn];
            let utlb = &mut utlbs[usize::from(number)];
            let quota = u64::from(params.fault_burst - self.used).min(left) as u32;
            let mut taken = 0;
            while taken < quota {
                let Some((access, warps)) = utlb.emit(quota - taken) else {
                    break;
                };
                taken += warps;
                let warps = u64::from(warps);
                let count = match fate {
                    Fate::Stored => warps.min(self.room(params)),
                    Fate::Discarded => warps,
                    Fate::Lost => 0,
                };
                if fate == Fate::Stored && count > 0 {
                    let entry = FaultEntry {
                        page: access.page,
                        access: access.kind,
                        utlb: number,
                        instance: 0,
                        raised: self.next_write,
                    };
                    self.runs.push_back(Run {
                        index: self.built,
                        count,
                        entry,
                        interval: self.interval,
                    });
                }
                self.built += count;
                if fate == Fate::Discarded {
                    self.get = self.built;
                }
                self.written += count;
                self.dropped += warps - count;
                self.next_write += self.interval.times(warps);
            }
            left -= u64::from(taken);
            self.unwritten -= u64::from(taken);
            self.used += taken;
            let dry = utlb.unemitted() == 0;
            self.active -= u64::from(dry && taken > 0);
            if self.used >= params.fault_burst || dry {
                self.turn = (self.turn + 1) % utlbs.len();
                self.used = 0;
            }
        }
    }

    /// Carries out as many whole rounds of `n` writes as no one will see: in a round each uTLB that has
    /// faults to write has its full turn. Returns how many writes that was.
    fn skip_rounds(&mut self, n: u64, fate: Fate, utlbs: &mut [Utlb], params: &GpuParams) -> u64 {
        let seen = fate == Fate::Stored && self.room(params) > 0;
        let round = self.active * u64::from(params.fault_burst);
        // Going round once more costs as much as finding out.
        if seen || n < 2 * round || round == 0 {
            return 0;
        }
        debug_assert_eq!(
            self.active,
            utlbs.iter().filter(|u| u.unemitted() > 0).count() as u64
        );
        let least = utlbs.iter().map(Utlb::unemitted).filter(|left| *left > 0).min();
        let rounds = (u64::from(least.unwrap_or(0) / params.fault_burst)).min(n / round);
        if rounds == 0 {
            return 0;
        }
        for utlb in utlbs.iter_mut().filter(|utlb| utlb.unemitted() > 0) {
            utlb.skip(rounds as u32 * params.fault_burst);
            self.active -= u64::from(utlb.unemitted() == 0);
        }
        let writes = rounds * round;
        self.unwritten -= writes;
        self.next_write += self.interval.times(writes);
        if fate == Fate::Discarded {
            self.built += writes;
            self.get = self.built;
            self.written += writes;
        } else {
            self.dropped += writes;
        }
        writes
    }
}
