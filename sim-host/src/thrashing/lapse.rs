//! The adaptive lapse: how close in time two events are (uvm-driver 6.4).

use sim_core::Time;

use super::params::{AdaptiveLapse, DEFAULT_LAPSE, ThrashingParams};

/// The lapse does not grow beyond this (uvm-driver 6.4: about half a second).
const MOST: Time = Time::from_us(500_000);

/// The lapse of the address space, and the votes since it last changed.
#[derive(Clone, Debug)]
pub(super) struct Lapse {
    now: Time,
    votes: i64,
    threshold: i64,
    adapts: AdaptiveLapse,
}

impl Lapse {
    pub fn new(params: &ThrashingParams) -> Lapse {
        let adapts = if params.lapse == DEFAULT_LAPSE {
            params.adaptive_lapse
        } else {
            AdaptiveLapse::Off
        };
        Lapse {
            now: params.lapse,
            votes: 0,
            threshold: params.lapse_vote_threshold.into(),
            adapts,
        }
    }

    pub fn get(&self) -> Time {
        self.now
    }

    /// A hint on a thrashing page votes: its last event was `gap` ago.
    pub fn vote(&mut self, gap: Time) {
        if self.adapts == AdaptiveLapse::Off {
            return;
        }
        self.votes += if gap >= self.now { 1 } else { -1 };
        let grows = match self.adapts {
            // What is negative is a huge number without a sign.
            AdaptiveLapse::Driver => self.votes < 0 || self.votes >= self.threshold,
            _ => self.votes >= self.threshold,
        };
        if grows {
            self.now = (self.now + Time(self.now.0 / 8)).min(MOST);
            self.votes = 0;
        } else if self.votes <= -self.threshold {
            // 7/8 of few ticks is as many: it never becomes zero.
            self.now = Time(self.now.0 - self.now.0 / 8);
            self.votes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lapse(adaptive_lapse: AdaptiveLapse) -> Lapse {
        Lapse::new(&ThrashingParams {
            adaptive_lapse,
            ..ThrashingParams::default()
        })
    }

    #[test]
    fn fast_ping_pong_grows_the_drivers_lapse_with_each_vote() {
        let mut lapse = lapse(AdaptiveLapse::Driver);
        lapse.vote(Time::from_us(50));
        assert_eq!(lapse.get(), Time::from_ns(562_500));
        lapse.vote(Time::from_us(50));
        assert_eq!(lapse.get(), Time(Time::from_ns(632_812).0 + 512), "632.8125 us");
        let mut votes = 2;
        while lapse.get() < MOST {
            lapse.vote(Time::from_us(50));
            votes += 1;
        }
        assert_eq!(votes, 59);
        // Slow events grow it only after 32 votes.
        let mut slow = self::lapse(AdaptiveLapse::Driver);
        (0..31).for_each(|_| slow.vote(Time::from_us(500)));
        assert_eq!(slow.get(), DEFAULT_LAPSE);
        slow.vote(Time::from_us(500));
        assert_eq!(slow.get(), Time::from_ns(562_500));
    }

    #[test]
    fn the_intended_lapse_shrinks_and_a_set_one_stays() {
        let mut intended = lapse(AdaptiveLapse::Intended);
        (0..31).for_each(|_| intended.vote(Time::from_us(50)));
        assert_eq!(intended.get(), DEFAULT_LAPSE);
        intended.vote(Time::from_us(50));
        assert_eq!(intended.get(), Time::from_ns(437_500));
        let mut off = lapse(AdaptiveLapse::Off);
        let mut set = Lapse::new(&ThrashingParams {
            lapse: Time::from_us(400),
            ..ThrashingParams::default()
        });
        for _ in 0..100 {
            off.vote(Time::from_us(50));
            set.vote(Time::from_us(50));
        }
        assert_eq!(off.get(), DEFAULT_LAPSE);
        assert_eq!(set.get(), Time::from_us(400));
    }
}
