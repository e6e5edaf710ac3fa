//! Simulated time: an integer number of ticks of 2^-10 ns.
//!
//! Every PCIe symbol time of generations 1 to 6 is a whole number of ticks, so that no event is ever
//! ordered by floating point. A `u64` holds 208 days.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

/// Ticks in one nanosecond.
pub const TICKS_PER_NS: u64 = 1024;
/// Ticks in one second.
pub const TICKS_PER_SECOND: u64 = TICKS_PER_NS * 1_000_000_000;

/// A point in simulated time, or a span of it, in ticks of 2^-10 ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The start of the simulation; also the empty span.
    pub const ZERO: Time = Time(0);
    /// Later than every event.
    pub const MAX: Time = Time(u64::MAX);

    /// A span of `ns` whole nanoseconds.
    pub const fn from_ns(ns: u64) -> Time {
        Time(ns * TICKS_PER_NS)
    }

    /// A span of `us` whole microseconds.
    pub const fn from_us(us: u64) -> Time {
        Time(us * 1000 * TICKS_PER_NS)
    }

    /// The span nearest to `seconds`; negative and NaN become zero, too large saturates.
    ///
    /// For configuration values and roofline estimates; never for ordering events.
    pub fn from_secs_f64(seconds: f64) -> Time {
        Time((seconds * 1e9 * TICKS_PER_NS as f64).round() as u64)
    }

    /// Seconds, for reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / TICKS_PER_NS as f64 / 1e9
    }

    /// Microseconds, for reports.
    pub fn as_us_f64(self) -> f64 {
        self.as_secs_f64() * 1e6
    }

    /// Nanoseconds, for reports.
    pub fn as_ns_f64(self) -> f64 {
        self.0 as f64 / TICKS_PER_NS as f64
    }

    /// `self - other`, or zero when `other` is later.
    #[must_use]
    pub const fn saturating_sub(self, other: Time) -> Time {
        Time(self.0.saturating_sub(other.0))
    }

    /// `self * n`, saturating.
    #[must_use]
    pub const fn times(self, n: u64) -> Time {
        Time(self.0.saturating_mul(n))
    }
}

/// A clock that ticks at a fixed rate from time zero: cycle numbers to times and back, without drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    hertz: u64,
}

/// Ticks in one second.
const TICKS_PER_S: u128 = 1_000_000_000 * TICKS_PER_NS as u128;

impl Clock {
    /// A clock of `hertz` cycles per second; `None` for 0.
    pub const fn new(hertz: u64) -> Option<Clock> {
        if hertz == 0 { None } else { Some(Clock { hertz }) }
    }

    /// When cycle `n` begins, rounded up to a tick.
    pub const fn edge(self, n: u64) -> Time {
        Time((n as u128 * TICKS_PER_S).div_ceil(self.hertz as u128) as u64)
    }

    /// The first cycle that begins at `time` or later.
    pub const fn cycle_at(self, time: Time) -> u64 {
        let cycle = time.0 as u128 * self.hertz as u128 / TICKS_PER_S;
        // Rounding edges up can put the edge of this cycle, too, at or after `time`.
        if self.edge(cycle as u64).0 >= time.0 {
            cycle as u64
        } else {
            cycle as u64 + 1
        }
    }
}

impl Add for Time {
    type Output = Time;
    fn add(self, other: Time) -> Time {
        Time(self.0 + other.0)
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Time) {
        self.0 += other.0;
    }
}

impl Sub for Time {
    type Output = Time;
    fn sub(self, other: Time) -> Time {
        Time(self.0 - other.0)
    }
}

impl Sum for Time {
    fn sum<I: Iterator<Item = Time>>(iter: I) -> Time {
        iter.fold(Time::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_do_not_drift() {
        for hertz in [1, 1_410_000_000, 1_455_000_001, 999_999_937] {
            let clock = Clock::new(hertz).expect("not 0");
            assert_eq!(
                clock.edge(hertz),
                Time::from_us(1_000_000),
                "a second has all its cycles"
            );
            for n in [0, 1, 2, 1000, 123_456_789]
                .into_iter()
                .filter(|n| n / hertz < 10_000)
            {
                assert_eq!(clock.cycle_at(clock.edge(n)), n);
                assert_eq!(clock.cycle_at(clock.edge(n) + Time(1)), n + 1);
            }
        }
        assert_eq!(Clock::new(0), None);
    }
}
