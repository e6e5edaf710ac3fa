//! What is going to happen, by source: there are few, and each knows its own order, so that no heap is needed.
//!
//! Packets arrive at a port in the order in which they were sent; credits of a class are freed nearly in the
//! order of the arrivals; everything else is a timer of which a port has one. At the same time timers run out
//! first, then packets arrive, then credits are freed; the device's port goes before the host's.

use super::port::Frame;
use super::{Class, Side};
use std::collections::VecDeque;

/// A timer that does not run.
pub(super) const NEVER: u64 = u64::MAX;
/// Timers of a port.
pub(super) const TIMERS: usize = 9;

/// A timer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// The end of a packet from which the replay timer runs.
    TlpEnds,
    Ack,
    Replay,
    /// A job or an answer of this class becomes ready.
    Wake(Class),
    /// The periodic `UpdateFC` of a class.
    Refresh(Class),
}

impl Timer {
    const ALL: [Timer; TIMERS] = [
        Timer::TlpEnds,
        Timer::Ack,
        Timer::Replay,
        Timer::Wake(Class::Posted),
        Timer::Wake(Class::NonPosted),
        Timer::Wake(Class::Completion),
        Timer::Refresh(Class::Posted),
        Timer::Refresh(Class::NonPosted),
        Timer::Refresh(Class::Completion),
    ];

    #[inline]
    const fn index(self) -> usize {
        match self {
            Timer::TlpEnds => 0,
            Timer::Ack => 1,
            Timer::Replay => 2,
            Timer::Wake(class) => 3 + class as usize,
            Timer::Refresh(class) => 6 + class as usize,
        }
    }
}

/// What happens at a port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Event {
    Arrives(Frame),
    /// The credits of a packet of this class: one header, so many data units.
    Free(Class, u16),
    RunsOut(Timer),
}

/// See the [module documentation](self).
#[derive(Clone, Debug)]
pub(super) struct Agenda {
    /// Per port.
    pub arrivals: [VecDeque<(u64, Frame)>; 2],
    /// Per port and class.
    pub frees: [[VecDeque<(u64, u16)>; 3]; 2],
    pub timers: [[u64; TIMERS]; 2],
    /// The first of the frees of each port.
    first_free: [u64; 2],
    /// No timer runs out earlier; and does one run out then?
    soonest: u64,
    exact: bool,
}

impl Agenda {
    pub fn new() -> Agenda {
        Agenda {
            arrivals: Default::default(),
            frees: Default::default(),
            timers: [[NEVER; TIMERS]; 2],
            first_free: [NEVER; 2],
            soonest: NEVER,
            exact: true,
        }
    }

    /// Starts a timer, or sets it anew.
    #[inline]
    pub fn set(&mut self, port: Side, timer: Timer, time: u64) {
        let slot = &mut self.timers[port as usize][timer.index()];
        let was = std::mem::replace(slot, time);
        if time <= self.soonest {
            (self.soonest, self.exact) = (time, true);
        } else if was == self.soonest {
            self.exact = false;
        }
    }

    #[inline]
    pub fn stop(&mut self, port: Side, timer: Timer) {
        self.set(port, timer, NEVER);
    }

    /// When a timer runs out.
    #[inline]
    pub fn timer(&self, port: Side, timer: Timer) -> u64 {
        self.timers[port as usize][timer.index()]
    }

    #[inline]
    pub fn runs(&self, port: Side, timer: Timer) -> bool {
        self.timer(port, timer) != NEVER
    }

    /// A packet reaches `port`, after those that were sent to it before.
    #[inline]
    pub fn arrives(&mut self, time: u64, port: Side, frame: Frame) {
        self.arrivals[port as usize].push_back((time, frame));
    }

    /// Credits are freed at `port`.
    #[inline]
    pub fn frees(&mut self, time: u64, port: Side, class: Class, units: u16) {
        let queue = &mut self.frees[port as usize][class as usize];
        let mut place = queue.len();
        while place > 0 && queue[place - 1].0 > time {
            place -= 1;
        }
        if place == queue.len() {
            queue.push_back((time, units));
        } else {
            queue.insert(place, (time, units));
        }
        self.first_free[port as usize] = self.first_free[port as usize].min(time);
    }

    /// When the next thing happens; [`NEVER`] if nothing does.
    #[inline]
    pub fn next_time(&mut self) -> u64 {
        let first = |port: usize| {
            let arrival = self.arrivals[port].front().map_or(NEVER, |a| a.0);
            arrival.min(self.first_free[port])
        };
        let queued = first(0).min(first(1));
        if self.soonest <= queued && !self.exact {
            self.soonest = self.timers.iter().flatten().copied().min().unwrap_or(NEVER);
            self.exact = true;
        }
        queued.min(self.soonest)
    }

    /// Takes the next thing, which happens at `time`, the answer of [`next_time`](Self::next_time).
    #[inline]
    pub fn pop(&mut self, time: u64) -> Option<(Side, Event)> {
        if time == NEVER {
            return None;
        }
        if self.soonest == time {
            for side in Side::BOTH {
                for timer in Timer::ALL {
                    if self.timer(side, timer) == time {
                        self.stop(side, timer);
                        return Some((side, Event::RunsOut(timer)));
                    }
                }
            }
        }
        for side in Side::BOTH {
            let arrivals = &mut self.arrivals[side as usize];
            if arrivals.front().is_some_and(|a| a.0 == time)
                && let Some((_, frame)) = arrivals.pop_front()
            {
                return Some((side, Event::Arrives(frame)));
            }
        }
        for side in Side::BOTH {
            let i = side as usize;
            if self.first_free[i] != time {
                continue;
            }
            for class in [Class::Posted, Class::NonPosted, Class::Completion] {
                let queue = &mut self.frees[i][class as usize];
                if queue.front().is_some_and(|f| f.0 == time)
                    && let Some((_, units)) = queue.pop_front()
                {
                    self.first_free[i] = self.earliest_free(i);
                    return Some((side, Event::Free(class, units)));
                }
            }
        }
        None
    }

    fn earliest_free(&self, port: usize) -> u64 {
        let fronts = self.frees[port].iter().filter_map(|queue| queue.front());
        fronts.map(|f| f.0).min().unwrap_or(NEVER)
    }

    /// How many things are queued.
    pub fn len(&self) -> usize {
        let frees = self.frees.iter().flatten().map(VecDeque::len);
        self.arrivals.iter().map(VecDeque::len).chain(frees).sum()
    }

    /// Finds the first of everything again, after times have been moved.
    pub fn moved(&mut self) {
        self.first_free = [self.earliest_free(0), self.earliest_free(1)];
        (self.soonest, self.exact) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::port::Dllp;
    use proptest::prelude::*;

    proptest! {
        /// The agenda against a plain list, sorted by (time, kind, port, order of entry).
        #[test]
        fn events_come_in_order(
            steps in prop::collection::vec((0u8..4, any::<bool>(), 0usize..TIMERS, 0u64..40), 1..80)
        ) {
            let (mut agenda, mut plain) = (Agenda::new(), Vec::new());
            let (mut now, mut last) = (0, [0; 2]);
            for (order, (what, up, timer, gap)) in steps.into_iter().enumerate() {
                let side = if up { Side::Up } else { Side::Down };
                let i = side as usize;
                match what {
                    0 => {
                        last[i] = last[i].max(now) + gap;
                        let frame = Frame::Dllp(Dllp::Ack(order as u16));
                        agenda.arrives(last[i], side, frame);
                        plain.push((last[i], 1, i, 0, order, Event::Arrives(frame)));
                    }
                    1 => {
                        let class = [Class::Posted, Class::NonPosted, Class::Completion][timer % 3];
                        agenda.frees(now + gap, side, class, order as u16);
                        plain.push((now + gap, 2, i, class as usize, order, Event::Free(class, order as u16)));
                    }
                    2 => {
                        let event = Event::RunsOut(Timer::ALL[timer]);
                        plain.retain(|p| p.2 != i || p.5 != event);
                        plain.push((now + gap, 0, i, timer, 0, event));
                        agenda.set(side, Timer::ALL[timer], now + gap);
                    }
                    _ => {
                        plain.sort_by_key(|p| (p.0, p.1, p.2, p.3, p.4));
                        let time = agenda.next_time();
                        prop_assert_eq!(time, plain.first().map_or(NEVER, |p| p.0));
                        if let Some((side, event)) = agenda.pop(time) {
                            let first = plain.remove(0);
                            prop_assert_eq!((side as usize, event), (first.2, first.5));
                            now = time;
                        }
                    }
                }
            }
        }
    }
}
