//! One coordinate of a window as a linear function of a thread block's place, and bounds of it.

// Coordinates are below 2^50: `WindowsSpec::check`.
#![allow(clippy::cast_possible_wrap)]

use serde::{Deserialize, Serialize};

/// Where the window of a block starts along one axis, how long it is, what it is clipped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Start for block (0, 0, 0) in step 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at: i64,
    /// Further on for each block along x.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub x: i64,
    /// Along y.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub y: i64,
    /// Along z.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub z: i64,
    /// For each step.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub step: i64,
    /// Length.
    pub len: u64,
    /// Clipped to `low..high`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub low: i64,
    /// See `low`.
    pub high: i64,
}

// serde hands over references.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// The farthest coordinate.
const LIMIT: i128 = 1 << 50;

impl Default for Axis {
    /// The single coordinate 0.
    fn default() -> Axis {
        Axis::new(1, 1)
    }
}

impl Axis {
    /// `len` coordinates from 0, clipped to `0..extent`.
    pub const fn new(len: u64, extent: u64) -> Axis {
        Axis {
            at: 0,
            x: 0,
            y: 0,
            z: 0,
            step: 0,
            len,
            low: 0,
            high: extent as i64,
        }
    }

    /// Starts at `at` for the first block.
    #[must_use]
    pub const fn at(mut self, at: i64) -> Axis {
        self.at = at;
        self
    }

    /// Advances by `by` for each block along x.
    #[must_use]
    pub const fn x(mut self, by: u64) -> Axis {
        self.x = by as i64;
        self
    }

    /// Advances by `by` for each block along y.
    #[must_use]
    pub const fn y(mut self, by: u64) -> Axis {
        self.y = by as i64;
        self
    }

    /// Advances by `by` for each block along z.
    #[must_use]
    pub const fn z(mut self, by: u64) -> Axis {
        self.z = by as i64;
        self
    }

    /// Advances by `by` for each step.
    #[must_use]
    pub const fn step(mut self, by: u64) -> Axis {
        self.step = by as i64;
        self
    }

    /// Clipped from below at `low`.
    #[must_use]
    pub const fn from(mut self, low: u64) -> Axis {
        self.low = low as i64;
        self
    }

    /// The coordinates `first..end` at block and step `at` (x, y, z, step); `None`: none.
    pub fn span(&self, at: [i64; 4]) -> Option<(i64, i64)> {
        let start = self.at + self.x * at[0] + self.y * at[1] + self.z * at[2] + self.step * at[3];
        let (first, end) = (start.max(self.low), (start + self.len as i64).min(self.high));
        (first < end).then_some((first, end))
    }

    /// The smallest coordinate and the end of the largest over all places of `reach`.
    pub fn bounds(&self, reach: &Reach) -> Option<(i64, i64)> {
        let (mut low, mut high) = (self.at, self.at + self.len as i64);
        for (by, (first, last)) in [
            (self.x, reach.x),
            (self.y, reach.y),
            (self.z, reach.z),
            (self.step, reach.steps),
        ] {
            let (a, b) = (by * first, by * last);
            low += a.min(b);
            high += a.max(b);
        }
        let (low, high) = (low.max(self.low), high.min(self.high));
        (low < high).then_some((low, high))
    }

    /// Do all coordinates stay where arithmetic is exact?
    pub fn is_sound(&self, reach: &Reach) -> bool {
        let mut far = i128::from(self.at).abs() + i128::from(self.len);
        for (by, (_, last)) in [
            (self.x, reach.x),
            (self.y, reach.y),
            (self.z, reach.z),
            (self.step, reach.steps),
        ] {
            far = far.saturating_add(i128::from(by).abs() * i128::from(last));
        }
        far <= LIMIT && self.low >= 0 && i128::from(self.high) <= LIMIT && self.len > 0
    }
}

/// A box of blocks, first and last along each axis, and of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Along x.
    pub x: (i64, i64),
    /// Along y.
    pub y: (i64, i64),
    /// Along z.
    pub z: (i64, i64),
    /// Steps.
    pub steps: (i64, i64),
}

impl Reach {
    /// The whole grid.
    pub fn all(grid: [u64; 3], steps: u32) -> Reach {
        let [x, y, z] = grid.map(|n| (0, n as i64 - 1));
        let steps = (0, i64::from(steps) - 1);
        Reach { x, y, z, steps }
    }

    fn place(grid: [u64; 3], block: u64) -> [i64; 3] {
        [
            block % grid[0],
            block / grid[0] % grid[1],
            block / grid[0] / grid[1],
        ]
        .map(|c| c as i64)
    }

    /// Boxes that together are the blocks at or after `block`.
    pub fn from_block(grid: [u64; 3], block: u64) -> [Option<Reach>; 3] {
        let all = Reach::all(grid, 1);
        let [x, y, z] = Reach::place(grid, block);
        [
            Some(Reach {
                x: (x, all.x.1),
                y: (y, y),
                z: (z, z),
                ..all
            }),
            (y < all.y.1).then_some(Reach {
                y: (y + 1, all.y.1),
                z: (z, z),
                ..all
            }),
            (z < all.z.1).then_some(Reach {
                z: (z + 1, all.z.1),
                ..all
            }),
        ]
    }

    /// Boxes that together are the blocks up to and with `block`.
    pub fn until_block(grid: [u64; 3], block: u64) -> [Option<Reach>; 3] {
        let all = Reach::all(grid, 1);
        let [x, y, z] = Reach::place(grid, block);
        [
            Some(Reach {
                x: (0, x),
                y: (y, y),
                z: (z, z),
                ..all
            }),
            (y > 0).then_some(Reach {
                y: (0, y - 1),
                z: (z, z),
                ..all
            }),
            (z > 0).then_some(Reach { z: (0, z - 1), ..all }),
        ]
    }
}
