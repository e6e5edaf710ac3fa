//! Statistics of a simulation: where time goes, distributions, means over replicates.

use statrs::distribution::{ChiSquared, ContinuousCDF, StudentsT};

use crate::Time;

/// Accounts each tick of a thing to exactly one of `N` named states.
#[derive(Clone, Debug)]
pub struct StateClock<const N: usize> {
    state: usize,
    since: Time,
    total: [Time; N],
}

impl<const N: usize> StateClock<N> {
    /// In state `state` from time zero on.
    pub fn new(state: usize) -> Self {
        StateClock {
            state,
            since: Time::ZERO,
            total: [Time::ZERO; N],
        }
    }

    /// Is in `state` from `now` on. Times must not decrease.
    pub fn enter(&mut self, state: usize, now: Time) {
        debug_assert!(now >= self.since && state < N);
        self.total[self.state] += now.saturating_sub(self.since);
        self.since = now;
        self.state = state;
    }

    /// Time in each state up to `now`; the sum is `now`.
    pub fn totals(&self, now: Time) -> [Time; N] {
        let mut total = self.total;
        total[self.state] += now.saturating_sub(self.since);
        total
    }
}

/// A distribution of times with bounded relative error (three digits) and bounded memory.
#[derive(Clone, Debug)]
pub struct TimeHistogram(hdrhistogram::Histogram<u64>);

impl Default for TimeHistogram {
    fn default() -> Self {
        // The bounds are constants that the crate accepts: 1 tick to 2^50 ticks (18 minutes), 3 digits.
        let histogram = hdrhistogram::Histogram::new_with_bounds(1, 1 << 50, 3);
        TimeHistogram(histogram.unwrap_or_else(|_| unreachable!("constant bounds are accepted")))
    }
}

impl TimeHistogram {
    /// Adds one time; longer ones than the bound count as the bound.
    pub fn add(&mut self, time: Time) {
        self.0.saturating_record(time.0.max(1));
    }

    /// Times added.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that a share `q` (0..=1) of the times do not exceed; zero without times.
    pub fn quantile(&self, q: f64) -> Time {
        if self.0.is_empty() {
            Time::ZERO
        } else {
            Time(self.0.value_at_quantile(q))
        }
    }
}

/// Mean over replicates, with a confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replicates {
    /// Replicates.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Half the width of the interval around the mean; absent for fewer than two replicates.
    pub half_width: Option<f64>,
}

impl Replicates {
    /// Mean of `values` and its interval at `confidence` (0.95, say), by Student's t; `None` without
    /// values.
    pub fn of(values: &[f64], confidence: f64) -> Option<Replicates> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let half_width = (count > 1)
            .then(|| {
                let freedom = (count - 1) as f64;
                let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom;
                let t = StudentsT::new(0.0, 1.0, freedom)
                    .ok()?
                    .inverse_cdf(0.5 + confidence / 2.0);
                Some(t * (variance / count as f64).sqrt())
            })
            .flatten();
        Some(Replicates {
            count,
            mean,
            half_width,
        })
    }
}

/// Probability that counts drawn from the expected distribution differ from it as much as `counts` do
/// (Pearson's chi-square test); 0 if there is nothing to compare.
pub fn chi_square_p_value(counts: &[u64], expected: &[f64]) -> f64 {
    let statistic: f64 = counts
        .iter()
        .zip(expected)
        .map(|(count, expected)| (*count as f64 - expected).powi(2) / expected)
        .sum();
    let freedom = counts.len().min(expected.len()).saturating_sub(1) as f64;
    ChiSquared::new(freedom).map_or(0.0, |distribution| distribution.sf(statistic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tick_is_in_one_state() {
        let mut clock = StateClock::<3>::new(0);
        clock.enter(2, Time(10));
        clock.enter(1, Time(10));
        clock.enter(2, Time(25));
        assert_eq!(clock.totals(Time(40)), [Time(10), Time(15), Time(15)]);
    }

    #[test]
    fn quantiles_are_within_a_thousandth() {
        let mut histogram = TimeHistogram::default();
        assert_eq!(histogram.quantile(0.5), Time::ZERO);
        for us in 1..=1000 {
            histogram.add(Time::from_us(us));
        }
        for (q, us) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let error = histogram.quantile(q).0.abs_diff(Time::from_us(us).0);
            assert!(error * 1000 <= Time::from_us(us).0, "{q}");
        }
    }

    #[test]
    fn intervals_are_those_of_the_textbook() {
        // t(0.975, 4) = 2.776; s = sqrt(2.5), so half a width is 2.776 sqrt(2.5 / 5) = 1.963.
        let result = Replicates::of(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95).expect("values");
        assert!((result.mean - 3.0).abs() < 1e-12);
        assert!((result.half_width.expect("five values") - 1.963).abs() < 1e-3);
        assert_eq!(Replicates::of(&[4.0], 0.95).expect("one").half_width, None);
        assert_eq!(Replicates::of(&[], 0.95), None);
    }

    #[test]
    fn the_test_of_fit_tells_good_from_bad() {
        assert!(chi_square_p_value(&[100, 101, 99], &[100.0; 3]) > 0.9);
        assert!(chi_square_p_value(&[150, 50, 100], &[100.0; 3]) < 1e-6);
    }
}
