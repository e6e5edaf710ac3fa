//! Named random streams: each derived from the seed and the name of the component that draws, so that
//! adding a component does not shift the draws of the others.

/// One well-mixed word per counter value: `SplitMix64` (Steele, Lea, Flood 2014), whose state is the
/// counter.
pub const fn mix64(counter: u64) -> u64 {
    let mut z = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    base: u64,
    drawn: u64,
}

impl Stream {
    /// The stream of `component` under `seed`.
    pub fn new(seed: u64, component: &str) -> Stream {
        let base = component
            .bytes()
            .fold(mix64(seed ^ 0x5eed), |base, byte| mix64(base ^ u64::from(byte)));
        Stream { base, drawn: 0 }
    }

    /// The next word.
    pub fn next_u64(&mut self) -> u64 {
        self.drawn += 1;
        mix64(self.base ^ mix64(self.drawn))
    }

    /// The next number below `n` (0 if `n` is 0), every one equally likely (Lemire 2019).
    pub fn below(&mut self, n: u64) -> u64 {
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            if product as u64 >= n.wrapping_neg() % n.max(1) {
                return (product >> 64) as u64;
            }
        }
    }

    /// The next number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Puts a slice into a random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for place in (1..items.len()).rev() {
            let other = self.below(place as u64 + 1) as usize;
            items.swap(place, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::chi_square_p_value;

    #[test]
    fn draws_are_uniform() {
        let mut stream = Stream::new(7, "test");
        let mut counts = [0_u64; 37];
        for _ in 0..100_000 {
            counts[stream.below(37) as usize] += 1;
        }
        let expected = [100_000.0 / 37.0; 37];
        let p = chi_square_p_value(&counts, &expected);
        assert!((0.001..0.999).contains(&p), "p = {p}");
    }

    #[test]
    fn streams_do_not_depend_on_each_other() {
        let mut alone = Stream::new(1, "eviction");
        let mut other = Stream::new(1, "faults");
        let mut again = Stream::new(1, "eviction");
        let first: Vec<u64> = (0..10).map(|_| alone.next_u64()).collect();
        let mixed: Vec<u64> = (0..10)
            .map(|_| {
                other.next_u64();
                again.next_u64()
            })
            .collect();
        assert_eq!(first, mixed);
        assert_ne!(Stream::new(2, "eviction").next_u64(), first[0]);
        assert_ne!(other.next_u64(), first[0]);
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut items: Vec<u32> = (0..100).collect();
        Stream::new(3, "shuffle").shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
