//! Exact fractions for closed forms.

/// A non-negative fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    numerator: u128,
    denominator: u128,
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Ratio {
    /// `numerator / denominator`; a zero denominator counts as one.
    pub fn new(numerator: u128, denominator: u128) -> Ratio {
        let denominator = denominator.max(1);
        let common = gcd(numerator, denominator).max(1);
        Ratio {
            numerator: numerator / common,
            denominator: denominator / common,
        }
    }

    /// A whole number.
    pub fn whole(number: u64) -> Ratio {
        Ratio::new(u128::from(number), 1)
    }

    /// The product.
    #[must_use]
    pub fn times(self, other: Ratio) -> Ratio {
        Ratio::new(
            self.numerator * other.numerator,
            self.denominator * other.denominator,
        )
    }

    /// The quotient.
    #[must_use]
    pub fn over(self, other: Ratio) -> Ratio {
        self.times(Ratio::new(other.denominator, other.numerator))
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Ratio) -> Ratio {
        Ratio::new(
            self.numerator * other.denominator + other.numerator * self.denominator,
            self.denominator * other.denominator,
        )
    }

    /// The difference, or zero if `other` is larger.
    #[must_use]
    pub fn minus(self, other: Ratio) -> Ratio {
        let (a, b) = (
            self.numerator * other.denominator,
            other.numerator * self.denominator,
        );
        Ratio::new(a.saturating_sub(b), self.denominator * other.denominator)
    }

    /// The larger.
    #[must_use]
    pub fn max(self, other: Ratio) -> Ratio {
        if self.numerator * other.denominator >= other.numerator * self.denominator {
            self
        } else {
            other
        }
    }

    /// The whole number that it is, if it is one.
    pub fn to_whole(self) -> Option<u128> {
        (self.denominator == 1).then_some(self.numerator)
    }

    /// The nearest floating-point number (exact to the last bit while both terms are below 2^53).
    pub fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}
