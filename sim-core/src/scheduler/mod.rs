//! The event queue: a stable, monotone priority queue over simulated time.
//!
//! Events leave in the order of (time, sequence number), where the sequence number counts
//! schedulings, so that events of equal time leave in the order in which they were scheduled.
//! Two structures hold them behind one total order:
//!
//! * [`Scheduler::at`] and [`Scheduler::after`] put events that are never taken back into a radix
//!   wheel ([`wheel`]): no comparison sort, no allocation in steady state. This is the hot path.
//! * [`Scheduler::timer_at`] and [`Scheduler::timer_after`] put events that may be cancelled or
//!   moved into an indexed heap (the `priority-queue` crate) and return a [`TimerId`].

mod timers;
mod wheel;

use crate::Time;
use timers::Timers;
use wheel::Wheel;

/// Names one cancellable event of one scheduler; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(u64);

/// A point in the total order of events.
type Key = (Time, u64);

/// The queue of future events and the current simulated time.
///
/// Scheduling before [`now`](Scheduler::now) is a mistake of the model: it fails a debug assertion;
/// in a release build the event is moved to `now` and counted in
/// [`late_schedules`](Scheduler::late_schedules), which an end-of-run check must find zero.
#[derive(Debug)]
pub struct Scheduler<E> {
    now: Time,
    next_sequence: u64,
    wheel: Wheel<E>,
    timers: Timers<E>,
    processed: u64,
    ties: u64,
    late: u64,
}

impl<E> Default for Scheduler<E> {
    fn default() -> Self {
        Scheduler::new()
    }
}

impl<E> Scheduler<E> {
    /// An empty queue at time zero.
    pub fn new() -> Self {
        Scheduler {
            now: Time::ZERO,
            next_sequence: 0,
            wheel: Wheel::new(),
            timers: Timers::new(),
            processed: 0,
            ties: 0,
            late: 0,
        }
    }

    /// The time of the event popped last; zero before the first.
    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Schedules `event` at `time`, behind everything already scheduled for that time.
    /// It cannot be cancelled.
    #[inline]
    pub fn at(&mut self, time: Time, event: E) {
        let key = self.key(time);
        self.wheel.push(key, event);
    }

    /// Schedules `event` `delay` from now (saturating at [`Time::MAX`]). It cannot be cancelled.
    #[inline]
    pub fn after(&mut self, delay: Time, event: E) {
        self.at(self.after_now(delay), event);
    }

    /// Schedules `event` at `time`, behind everything already scheduled for that time, so that it
    /// can be cancelled or moved.
    pub fn timer_at(&mut self, time: Time, event: E) -> TimerId {
        let key = self.key(time);
        // The sequence number of the first scheduling is unique, so it names the timer too.
        self.timers.insert(key.1, key, event);
        TimerId(key.1)
    }

    /// Schedules a cancellable `event` `delay` from now (saturating at [`Time::MAX`]).
    pub fn timer_after(&mut self, delay: Time, event: E) -> TimerId {
        self.timer_at(self.after_now(delay), event)
    }

    /// Takes a timer out and returns its event; `None` if it has fired or was cancelled.
    pub fn cancel(&mut self, timer: TimerId) -> Option<E> {
        self.timers.remove(timer.0)
    }

    /// Moves a timer to `time`, behind everything already scheduled for that time (also when
    /// `time` is the time it had). `false` if it has fired or was cancelled.
    pub fn reschedule(&mut self, timer: TimerId, time: Time) -> bool {
        if !self.timers.contains(timer.0) {
            return false;
        }
        let key = self.key(time);
        self.timers.reschedule(timer.0, key)
    }

    /// Is the timer still pending?
    pub fn is_pending(&self, timer: TimerId) -> bool {
        self.timers.contains(timer.0)
    }

    /// Takes the next event out and makes its time the current time.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, E)> {
        let timer_first = self
            .timers
            .peek()
            .is_some_and(|timer| self.wheel.peek().is_none_or(|event| timer < event));
        let (time, event) = if timer_first {
            self.timers.pop()?
        } else {
            self.wheel.pop()?
        };
        debug_assert!(time >= self.now);
        self.ties += u64::from(time == self.now && self.processed > 0);
        self.processed += 1;
        self.now = time;
        Some((time, event))
    }

    /// The time of the next event.
    #[inline]
    pub fn peek_time(&self) -> Option<Time> {
        match (self.wheel.peek(), self.timers.peek()) {
            (Some(event), Some(timer)) => Some(event.min(timer).0),
            (event, timer) => event.or(timer).map(|key| key.0),
        }
    }

    /// Pending events, timers included.
    pub fn len(&self) -> usize {
        self.wheel.len() + self.timers.len()
    }

    /// No pending event?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Events popped so far.
    pub fn processed(&self) -> u64 {
        self.processed
    }

    /// Popped events whose time was that of the event popped just before: those that only the
    /// sequence number ordered.
    pub fn ties(&self) -> u64 {
        self.ties
    }

    /// Schedulings before the current time, which were moved to it; zero in a correct model.
    pub fn late_schedules(&self) -> u64 {
        self.late
    }

    #[inline]
    fn after_now(&self, delay: Time) -> Time {
        Time(self.now.0.saturating_add(delay.0))
    }

    #[inline]
    fn key(&mut self, time: Time) -> Key {
        debug_assert!(time >= self.now, "scheduled at {time}, before now = {}", self.now);
        self.late += u64::from(time < self.now);
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        (time.max(self.now), sequence)
    }
}

#[cfg(test)]
mod tests;
