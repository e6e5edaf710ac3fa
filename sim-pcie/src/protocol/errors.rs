//! What goes wrong on the wires.

use super::Side;
use sim_core::rng::Stream;

/// What goes wrong on the wires.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    /// Corrupt the packet with this sequence number sent by this side at this attempt (0: the first).
    pub corrupt: Vec<(Side, u16, u8)>,
    /// Lose the ACK or NAK that this side sends as its n-th (from 1).
    pub lose: Vec<(Side, u64)>,
    /// Bit error rate, and the seed of its random streams, one per direction. Errors of bits are
    /// independent; a packet with one or more is corrupted.
    pub bit_errors: Option<(f64, u64)>,
}

/// Good units (bits or flits) until the next bad one, at a given rate.
#[derive(Clone, Debug)]
pub(crate) struct ErrorGap {
    rate: f64,
    stream: Stream,
    /// The next bad unit, counted from the next to be sent.
    pub left: u64,
    /// Bad units so far.
    pub errors: u64,
}

impl ErrorGap {
    /// `rate` 0: never.
    pub fn new(rate: f64, seed: u64, name: &str) -> ErrorGap {
        let mut gap = ErrorGap {
            rate,
            stream: Stream::new(seed, name),
            left: u64::MAX,
            errors: 0,
        };
        gap.draw();
        gap
    }

    /// A geometric number: floor(ln U / ln(1 - rate)).
    fn draw(&mut self) {
        if self.rate > 0.0 {
            let u = 1.0 - self.stream.unit();
            // The cast saturates.
            self.left = (u.ln() / (-self.rate).ln_1p()) as u64;
        }
    }

    /// Sends `units`; is one of them bad?
    #[inline]
    pub fn pass(&mut self, units: u64) -> bool {
        if self.rate <= 0.0 {
            return false;
        }
        if self.left >= units {
            self.left -= units;
            return false;
        }
        self.errors += 1;
        self.draw();
        true
    }
}
