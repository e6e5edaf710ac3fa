//! Windows: each thread block touches a rectangle of every operand, whose place is a linear function
//! of the block's coordinates and the step; beside them, touches at pseudo-random places.
//!
//! Streams, strides, stencils, convolutions, matrix-vector products, passes of an FFT, wavefronts: most
//! kernels without data-dependent addresses are a few windows. [`Touch`] adds random lookups.

// Coordinates are below 2^50: `WindowsSpec::check`.
#![allow(clippy::cast_possible_wrap)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sim_core::access::{Access, AccessKind, AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::{ByteRange, PAGE_BYTES, Page};

use super::axis::{Axis, Reach};
use super::touch::{Touch, merge_touches};

/// Bytes that one instruction of a warp covers where 32 lanes take 4 bytes each.
pub const WARP_BYTES: u64 = 128;
/// Rows that a window may have at one place: more is not a thread block's work.
pub const MAX_ROWS: u64 = 1 << 20;

// serde hands over references.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
fn warp_bytes() -> u64 {
    WARP_BYTES
}
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_warp_bytes(value: &u64) -> bool {
    *value == WARP_BYTES
}
fn one() -> u32 {
    1
}
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_one(value: &u32) -> bool {
    *value == 1
}

/// A rectangle of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Index of the operand: first those read, then those written. A written one is stored to.
    pub operand: u32,
    /// Bytes of a row.
    pub columns: Axis,
    /// Rows, `pitch` bytes apart.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rows: Axis,
    /// Bytes from one row to the next.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pitch: u64,
    /// Planes, `plane` bytes apart.
    #[serde(default, skip_serializing_if = "is_default")]
    pub planes: Axis,
    /// Bytes from one plane to the next.
    #[serde(default, skip_serializing_if = "is_default")]
    pub plane: u64,
    /// The steps in which it is touched, `first..end`; all if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<(u32, u32)>,
    /// Bytes that one instruction of a warp covers: decides how many warps touch each page.
    #[serde(default = "warp_bytes", skip_serializing_if = "is_warp_bytes")]
    pub warp_bytes: u64,
}

impl Window {
    /// A window over the bytes of one row.
    pub fn new(operand: u32, columns: Axis) -> Window {
        Window {
            operand,
            columns,
            rows: Axis::default(),
            pitch: 0,
            planes: Axis::default(),
            plane: 0,
            steps: None,
            warp_bytes: WARP_BYTES,
        }
    }

    /// With rows `pitch` bytes apart.
    #[must_use]
    pub fn rows(mut self, rows: Axis, pitch: u64) -> Window {
        (self.rows, self.pitch) = (rows, pitch);
        self
    }

    /// With planes `plane` bytes apart.
    #[must_use]
    pub fn planes(mut self, planes: Axis, plane: u64) -> Window {
        (self.planes, self.plane) = (planes, plane);
        self
    }

    /// Only in these steps.
    #[must_use]
    pub fn in_steps(mut self, first: u32, end: u32) -> Window {
        self.steps = Some((first, end));
        self
    }

    /// With `bytes` for each instruction of a warp.
    #[must_use]
    pub fn warp(mut self, bytes: u64) -> Window {
        self.warp_bytes = bytes;
        self
    }

    /// The steps of a kernel of `steps` in which it is touched.
    fn active(&self, steps: u32) -> (u32, u32) {
        let (first, end) = self.steps.unwrap_or((0, steps));
        (first, end.min(steps))
    }

    /// First byte and end of the bytes it can touch anywhere in `reach`; `None`: nothing.
    fn bounds(&self, mut reach: Reach, steps: u32, bytes: u64) -> Option<(u64, u64)> {
        let (first, end) = self.active(steps);
        if first >= end || bytes == 0 {
            return None;
        }
        reach.steps = (i64::from(first), i64::from(end) - 1);
        let (c, r, p) = (
            self.columns.bounds(&reach)?,
            self.rows.bounds(&reach)?,
            self.planes.bounds(&reach)?,
        );
        let low = p.0 as u64 * self.plane + r.0 as u64 * self.pitch + c.0 as u64;
        let high = (p.1 - 1) as u64 * self.plane + (r.1 - 1) as u64 * self.pitch + c.1 as u64;
        (low < bytes).then(|| (low, high.min(bytes)))
    }
}

/// A kernel of windows and touches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowsSpec {
    /// Blocks along x (fastest), y and z.
    pub grid: [u64; 3],
    /// Steps of each block.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub steps: u32,
    /// Rectangles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// Pseudo-random lookups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touches: Vec<Touch>,
    /// Chooses the places of the touches.
    #[serde(default, skip_serializing_if = "is_default")]
    pub seed: u64,
}

impl WindowsSpec {
    /// Is it within what can be simulated? `operands`: how many ranges the kernel has.
    ///
    /// # Errors
    /// What is wrong, and what is accepted.
    pub fn check(&self, operands: usize) -> Result<(), String> {
        let blocks = self.grid.iter().try_fold(1_u64, |n, d| n.checked_mul(*d));
        if blocks.is_none_or(|n| n == 0 || n > 1 << 40) || self.grid.iter().any(|d| *d > 1 << 40) {
            return Err(format!("grid {:?}: accepted: 1 to 2^40 blocks", self.grid));
        }
        if self.steps == 0 {
            return Err("steps = 0: accepted: at least 1".to_owned());
        }
        let reach = Reach::all(self.grid, self.steps);
        for (i, w) in self.windows.iter().enumerate() {
            let wrong = |what: &str| Err(format!("window {i}: {what}"));
            if w.operand as usize >= operands {
                return wrong(&format!("operand {}: there are {operands}", w.operand));
            }
            let axes = [&w.columns, &w.rows, &w.planes];
            if axes.iter().any(|axis| !axis.is_sound(&reach)) {
                return wrong("an axis leaves 0..2^50, is below 0 or has no length");
            }
            if w.rows.len.saturating_mul(w.planes.len) > MAX_ROWS {
                return wrong("more than 2^20 rows in one step");
            }
            if w.pitch > 1 << 50 || w.plane > 1 << 50 || w.warp_bytes == 0 {
                return wrong("pitch, plane: at most 2^50; warp_bytes: at least 1");
            }
            let last = |axis: &Axis| axis.bounds(&reach).map_or(0, |b| b.1 as u128);
            let end = last(&w.planes) * u128::from(w.plane) + last(&w.rows) * u128::from(w.pitch);
            if end > 1 << 60 {
                return wrong("it reaches beyond 2^60 bytes");
            }
        }
        for (i, touch) in self.touches.iter().enumerate() {
            touch
                .check(operands)
                .map_err(|what| format!("touch {i}: {what}"))?;
        }
        Ok(())
    }
}

/// A [`WindowsSpec`] at its addresses.
#[derive(Clone, Debug)]
pub struct Windows {
    spec: Arc<WindowsSpec>,
    /// Operands: first those read, then those written.
    operands: Vec<ByteRange>,
    /// How many are read.
    reads: usize,
}

impl Windows {
    /// Places a spec that has been checked against this number of operands.
    pub fn new(spec: Arc<WindowsSpec>, reads: &[ByteRange], writes: &[ByteRange]) -> Windows {
        Windows {
            spec,
            operands: reads.iter().chain(writes).copied().collect(),
            reads: reads.len(),
        }
    }

    fn range(&self, operand: u32) -> ByteRange {
        self.operands.get(operand as usize).copied().unwrap_or_default()
    }

    fn kind(&self, operand: u32, atomic: bool) -> AccessKind {
        if (operand as usize) < self.reads {
            AccessKind::Read
        } else if atomic {
            AccessKind::AtomicWeak
        } else {
            AccessKind::Write
        }
    }

    fn touch_window(&self, w: &Window, at: [i64; 4], out: &mut Vec<Access>) {
        let (Some(c), Some(r), Some(p)) = (w.columns.span(at), w.rows.span(at), w.planes.span(at)) else {
            return;
        };
        let range = self.range(w.operand);
        let kind = self.kind(w.operand, false);
        let mut flush = |first: u64, end: u64, bytes: u64| {
            if bytes > 0 {
                let warps = bytes.div_ceil(end - first).div_ceil(w.warp_bytes);
                out.push(Access {
                    first: Page(first),
                    pages: (end - first) as u32,
                    warps: warps.clamp(1, 64) as u16,
                    kind,
                });
            }
        };
        // The run of consecutive pages so far, and the bytes of the rows in it.
        let (mut first, mut end, mut bytes) = (0, 0, 0);
        for plane in p.0..p.1 {
            for row in r.0..r.1 {
                let start = plane as u64 * w.plane + row as u64 * w.pitch + c.0 as u64;
                if start >= range.bytes {
                    break;
                }
                let length = ((c.1 - c.0) as u64).min(range.bytes - start);
                let page = (range.start + start) / PAGE_BYTES;
                let last = (range.start + start + length).div_ceil(PAGE_BYTES);
                if bytes > 0 && page >= first && page <= end {
                    end = end.max(last);
                    bytes += length;
                } else {
                    flush(first, end, bytes);
                    (first, end, bytes) = (page, last, length);
                }
            }
        }
        flush(first, end, bytes);
    }

    fn accesses(&self, block: u64, step: u32, loads: Option<&mut Vec<Access>>, stores: &mut Vec<Access>) {
        let spec = &*self.spec;
        let [x, y, _] = spec.grid;
        let at = [block % x, block / x % y, block / x / y, u64::from(step)].map(|c| c as i64);
        let mut loads = loads;
        for w in &spec.windows {
            let (first, end) = w.active(spec.steps);
            if step < first || step >= end {
                continue;
            }
            if (w.operand as usize) >= self.reads {
                self.touch_window(w, at, stores);
            } else if let Some(loads) = loads.as_deref_mut() {
                self.touch_window(w, at, loads);
            }
        }
        for touch in &spec.touches {
            let (range, kind) = (self.range(touch.operand), self.kind(touch.operand, touch.atomic));
            let out = if (touch.operand as usize) >= self.reads {
                &mut *stores
            } else if let Some(loads) = loads.as_deref_mut() {
                loads
            } else {
                continue;
            };
            let before = out.len();
            touch.accesses(spec.seed, block, step, range, kind, out);
            merge_touches(out, before);
        }
    }

    /// Some byte range that covers everything touched by blocks at or after `from`.
    fn reach_from(&self, w: &Window, from: u64) -> Option<(u64, u64)> {
        let bytes = self.range(w.operand).bytes;
        let boxes = Reach::from_block(self.spec.grid, from);
        boxes
            .into_iter()
            .flatten()
            .filter_map(|reach| w.bounds(reach, self.spec.steps, bytes))
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// One past the last byte that blocks up to `block` touch.
    fn end_until(&self, w: &Window, block: u64) -> u64 {
        let bytes = self.range(w.operand).bytes;
        let boxes = Reach::until_block(self.spec.grid, block);
        boxes
            .into_iter()
            .flatten()
            .filter_map(|reach| w.bounds(reach, self.spec.steps, bytes))
            .map(|b| b.1)
            .max()
            .unwrap_or(0)
    }

    /// The first block at or after `from` that can touch an unmapped page with this window.
    fn first_hole(&self, w: &Window, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        let range = self.range(w.operand);
        let (low, high) = self.reach_from(w, from)?;
        let end = Page((range.start + high).div_ceil(PAGE_BYTES));
        let page = mapped.first_unmapped(Page::containing(range.start + low), end)?;
        // The bytes that blocks up to b have touched only grow with b: bisect for the first b whose
        // bytes go beyond the start of that page. Every hole lies at or after it.
        let byte = page.address().saturating_sub(range.start);
        let (mut low, mut high) = (from, self.blocks() - 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.end_until(w, middle) > byte {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(low)
    }
}

impl AccessPattern for Windows {
    fn blocks(&self) -> u64 {
        self.spec.grid.iter().product()
    }

    fn steps(&self) -> u32 {
        self.spec.steps
    }

    fn step(&self, block: u64, step: u32, out: &mut StepAccesses) {
        self.accesses(block, step, Some(&mut out.loads), &mut out.stores);
    }

    fn stores(&self, block: u64, step: u32, out: &mut StepAccesses) {
        self.accesses(block, step, None, &mut out.stores);
    }

    fn loads_mapped(&self, mapped: &dyn MappedPages) -> bool {
        let whole = |range: ByteRange| {
            range.bytes == 0
                || mapped
                    .first_unmapped(range.first_page(), range.end_page())
                    .is_none()
        };
        self.operands.iter().take(self.reads).all(|range| whole(*range))
    }

    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        if from >= self.blocks() {
            return None;
        }
        let hole = self.spec.touches.iter().any(|touch| {
            let range = self.range(touch.operand);
            range.bytes > 0
                && mapped
                    .first_unmapped(range.first_page(), range.end_page())
                    .is_some()
        });
        if hole {
            return Some(from);
        }
        let windows = self.spec.windows.iter();
        windows.filter_map(|w| self.first_hole(w, from, mapped)).min()
    }

    fn may_touch(&self, first: Page, end: Page) -> bool {
        self.operands
            .iter()
            .any(|range| range.bytes > 0 && range.first_page() < end && first < range.end_page())
    }
}
