//! Touches at pseudo-random places of an operand.

use serde::{Deserialize, Serialize};
use sim_core::access::{Access, AccessKind};
use sim_core::pages::{ByteRange, PAGE_BYTES, Page};
use sim_core::rng::mix64;

/// How a lookup finds its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Drawn once: the same in every step.
    #[default]
    Drawn,
    /// Drawn anew in every step.
    Fresh,
    /// Drawn once, and approached: in the k-th step the middle of the interval of 1 / 2^k of the operand
    /// that the drawn number lies in.
    Bisect,
    /// Not drawn: lookup k of the grid goes to the k-th place.
    Ascending,
}

impl Place {
    // serde hands over references.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn is_drawn(&self) -> bool {
        *self == Place::Drawn
    }
}

/// Lookups of one step of a block at places drawn evenly, by a hash of seed, stream, block and lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Touch {
    /// Index of the operand; a written one is stored to.
    pub operand: u32,
    /// Touches with the same stream draw the same numbers.
    pub stream: u64,
    /// Places are multiples of so many bytes.
    pub granule: u64,
    /// Bytes from the place on.
    pub bytes: u64,
    /// Lookups of a block in a step, as a fraction: block b makes those from `ceil(b n / d)` up to
    /// `ceil((b + 1) n / d)`.
    pub rate: (u64, u64),
    /// The steps in which it happens, `first..end`.
    pub steps: (u32, u32),
    /// How a lookup finds its place.
    #[serde(default, skip_serializing_if = "Place::is_drawn")]
    pub place: Place,
    /// Stores are atomics.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub atomic: bool,
    /// Lookups made by consecutive lanes of one warp: a page that a warp touches twice counts once.
    pub lanes: u32,
}

impl Touch {
    /// `count` lookups of a block in each of the steps `steps`, 32 lanes a warp, at multiples of
    /// `granule` bytes, `bytes` each.
    pub fn new(operand: u32, count: u64, granule: u64, bytes: u64, steps: (u32, u32)) -> Touch {
        Touch {
            operand,
            granule,
            bytes,
            rate: (count, 1),
            steps,
            lanes: 32,
            ..Touch::default()
        }
    }

    /// Is it within what can be simulated?
    pub(super) fn check(&self, operands: usize) -> Result<(), String> {
        if self.operand as usize >= operands {
            return Err(format!("operand {}: there are {operands}", self.operand));
        }
        if self.granule == 0 || self.bytes == 0 || self.bytes > 1 << 30 || self.granule > 1 << 50 {
            return Err("granule: 1 to 2^50; bytes: 1 to 2^30".to_owned());
        }
        let (n, d) = self.rate;
        if d == 0 || n.div_ceil(d) > 1 << 20 || d > 1 << 20 || self.lanes == 0 {
            return Err("rate: at most 2^20 lookups, divisor 1 to 2^20; lanes: at least 1".to_owned());
        }
        Ok(())
    }

    /// The number drawn for lookup `i`.
    fn draw(&self, seed: u64, block: u64, step: u32, i: u32) -> u64 {
        let step = if self.place == Place::Fresh {
            u64::from(step) + 1
        } else {
            0
        };
        let key = mix64(seed ^ mix64(self.stream));
        mix64(mix64(key ^ mix64(block)) ^ (step << 32 | u64::from(i)))
    }

    /// Appends the accesses of a step; `warps` of each is the number of its warp until
    /// [`merge_touches`].
    pub(super) fn accesses(
        &self,
        seed: u64,
        block: u64,
        step: u32,
        range: ByteRange,
        kind: AccessKind,
        out: &mut Vec<Access>,
    ) {
        let places = range.bytes / self.granule;
        if step < self.steps.0 || step >= self.steps.1 || places == 0 {
            return;
        }
        let (n, d) = self.rate;
        let until = |block: u64| (u128::from(block) * u128::from(n)).div_ceil(u128::from(d)) as u64;
        let before = until(block);
        for i in 0..(until(block + 1) - before) as u32 {
            let scaled = |numerator: u128, bits: u32| ((numerator * u128::from(places)) >> bits) as u64;
            let drawn = self.draw(seed, block, step, i);
            let place = match self.place {
                Place::Ascending => before + u64::from(i),
                Place::Bisect => {
                    let level = (step - self.steps.0).min(62);
                    let interval = if level == 0 { 0 } else { drawn >> (64 - level) };
                    scaled(2 * u128::from(interval) + 1, level + 1)
                }
                Place::Drawn | Place::Fresh => scaled(u128::from(drawn), 64),
            };
            let start = place.saturating_mul(self.granule);
            if start >= range.bytes {
                continue;
            }
            let end = (start + self.bytes).min(range.bytes);
            let first = Page::containing(range.start + start);
            out.push(Access {
                first,
                pages: ((range.start + end).div_ceil(PAGE_BYTES) - first.0) as u32,
                warps: (i / self.lanes) as u16,
                kind,
            });
        }
    }
}

/// Brings the accesses from `before` on, whose `warps` are numbers of warps, into the order of their
/// pages and counts the warps of each.
pub(super) fn merge_touches(out: &mut Vec<Access>, before: usize) {
    let tail = &mut out[before..];
    tail.sort_unstable_by_key(|a| (a.first, a.pages, a.warps));
    let mut kept = before;
    let mut previous_warp = None;
    for i in before..out.len() {
        let access = out[i];
        let same = kept > before && {
            let last = &out[kept - 1];
            last.first == access.first && last.pages == access.pages
        };
        if same {
            if previous_warp != Some(access.warps) {
                out[kept - 1].warps = out[kept - 1].warps.saturating_add(1);
            }
        } else {
            out[kept] = Access { warps: 1, ..access };
            kept += 1;
        }
        previous_warp = Some(access.warps);
    }
    out.truncate(kept);
}
