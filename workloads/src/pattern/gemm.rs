//! Matrix products: tiles of C, for each of them a row panel of A and a column panel of B.
//!
//! Row-major A (M x K), B (K x N), C (M x N), batches one after another. Tiles are 128 x 128, taken in
//! groups of [`GROUP`] tile rows so that blocks in flight share panels, as BLAS libraries rasterise.

use sim_core::access::{Access, AccessKind, AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::{ByteRange, PAGE_BYTES, Page};

/// Rows and columns of a tile of C.
const TILE: u64 = 128;
/// Tile rows that are worked through before the next ones start.
const GROUP: u64 = 8;
/// Elements along K that a step covers: four stages of 32 elements, which kernels for Ampere and later
/// keep in flight (CUTLASS multistage mainloops).
const STEP: u64 = 128;
/// Steps of a block, at most; longer products take deeper steps.
const MAX_STEPS: u64 = 2048;
/// Rows of a stage of 32 elements (128 bytes) that one warp loads with one instruction (16 bytes a lane).
const ROWS_PER_WARP: u32 = 4;
/// Warps of a block: 256 threads.
const WARPS: u16 = 8;

/// A (batched) product C = A B.
#[derive(Clone, Debug)]
pub struct Gemm {
    /// Left operand.
    pub a: ByteRange,
    /// Right operand.
    pub b: ByteRange,
    /// Result.
    pub c: ByteRange,
    /// Other ranges that are read (a bias, C itself).
    pub also_read: Vec<ByteRange>,
    /// Products in the batch.
    pub batch: u64,
    /// Rows of C.
    pub m: u64,
    /// Columns of C.
    pub n: u64,
    /// Inner dimension.
    pub k: u64,
    /// Bytes of an element.
    pub element: u64,
    /// Steps along K.
    pub steps: u32,
}

impl Gemm {
    /// Columns of A that one step covers.
    fn step_width(&self) -> u64 {
        self.k.div_ceil(u64::from(self.steps))
    }

    /// Steps along K of [`STEP`] elements each.
    pub fn steps_for(k: u64) -> u32 {
        k.div_ceil(STEP).clamp(1, MAX_STEPS) as u32
    }

    /// Batch, tile row, tile column of a block.
    fn tile(&self, block: u64) -> (u64, u64, u64) {
        let (rows, columns) = (self.m.div_ceil(TILE), self.n.div_ceil(TILE));
        let (batch, tile) = (block / (rows * columns), block % (rows * columns));
        let group = tile / (GROUP * columns);
        let height = (rows - group * GROUP).min(GROUP);
        let inside = tile - group * GROUP * columns;
        (batch, group * GROUP + inside % height, inside / height)
    }

    /// Accesses to a `rows` x `columns` piece of a row-major matrix: consecutive pages are merged.
    #[allow(clippy::too_many_arguments)]
    fn piece(
        &self,
        range: &ByteRange,
        matrix: u64,
        stride: u64,
        rows: (u64, u64),
        columns: (u64, u64),
        kind: AccessKind,
        out: &mut Vec<Access>,
    ) {
        if rows.0 >= rows.1 || columns.0 >= columns.1 || range.bytes == 0 {
            return;
        }
        let row_bytes = stride * self.element;
        let width = (columns.1 - columns.0) * self.element - 1;
        let mut at = (matrix + rows.0 * stride + columns.0) * self.element;
        // The run of consecutive pages so far: its first page, its end, the rows that lie in it.
        let (mut first, mut end, mut merged) = (0, 0, 0);
        let mut flush = |first: u64, end: u64, rows: u32| {
            if rows > 0 {
                let pages = (end - first) as u32;
                let warps = rows
                    .div_ceil(pages)
                    .div_ceil(ROWS_PER_WARP)
                    .clamp(1, u32::from(WARPS)) as u16;
                out.push(Access {
                    first: Page(first),
                    pages,
                    warps,
                    kind,
                });
            }
        };
        for _ in rows.0..rows.1 {
            if at >= range.bytes {
                break;
            }
            let page = (range.start + at) / PAGE_BYTES;
            let last = (range.start + (at + width).min(range.bytes - 1)) / PAGE_BYTES;
            if merged > 0 && page <= end {
                end = end.max(last + 1);
                merged += 1;
            } else {
                flush(first, end, merged);
                (first, end, merged) = (page, last + 1, 1);
            }
            at += row_bytes;
        }
        flush(first, end, merged);
    }

    fn ranges(&self) -> impl Iterator<Item = &ByteRange> {
        [&self.a, &self.b, &self.c]
            .into_iter()
            .chain(&self.also_read)
            .filter(|range| range.bytes > 0)
    }
}

impl AccessPattern for Gemm {
    fn blocks(&self) -> u64 {
        self.batch * self.m.div_ceil(TILE) * self.n.div_ceil(TILE)
    }

    fn steps(&self) -> u32 {
        self.steps
    }

    fn step(&self, block: u64, step: u32, out: &mut StepAccesses) {
        let (batch, row, column) = self.tile(block);
        let rows = (row * TILE, ((row + 1) * TILE).min(self.m));
        let columns = (column * TILE, ((column + 1) * TILE).min(self.n));
        let width = self.step_width();
        let inner = (
            u64::from(step) * width,
            ((u64::from(step) + 1) * width).min(self.k),
        );
        let read = AccessKind::Read;
        self.piece(
            &self.a,
            batch * self.m * self.k,
            self.k,
            rows,
            inner,
            read,
            &mut out.loads,
        );
        self.piece(
            &self.b,
            batch * self.k * self.n,
            self.n,
            inner,
            columns,
            read,
            &mut out.loads,
        );
        if step + 1 == self.steps {
            let matrix = batch * self.m * self.n;
            for range in &self.also_read {
                if range.bytes == self.c.bytes {
                    self.piece(range, matrix, self.n, rows, columns, read, &mut out.loads);
                } else if range.bytes > 0 {
                    // A vector along the columns.
                    self.piece(range, 0, self.n, (0, 1), columns, read, &mut out.loads);
                }
            }
            self.piece(
                &self.c,
                matrix,
                self.n,
                rows,
                columns,
                AccessKind::Write,
                &mut out.stores,
            );
        }
    }

    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        if from >= self.blocks() {
            return None;
        }
        let hole = self
            .ranges()
            .any(|r| mapped.first_unmapped(r.first_page(), r.end_page()).is_some());
        hole.then_some(from)
    }

    fn may_touch(&self, first: Page, end: Page) -> bool {
        self.ranges()
            .any(|range| range.first_page() < end && first < range.end_page())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn tiles_cover_all_operands() {
        let range = |start: u64, bytes: u64| ByteRange { start, bytes };
        let (batch, m, n, k) = (2, 300, 200, 2100);
        let gemm = Gemm {
            a: range(1 << 30, batch * m * k * 4),
            b: range(2 << 30, batch * k * n * 4),
            c: range(3 << 30, batch * m * n * 4),
            also_read: vec![],
            batch,
            m,
            n,
            k,
            element: 4,
            steps: Gemm::steps_for(k),
        };
        let mut read = BTreeSet::new();
        let mut written = BTreeSet::new();
        let mut out = StepAccesses::default();
        let mut tiles = BTreeSet::new();
        for block in 0..gemm.blocks() {
            assert!(tiles.insert(gemm.tile(block)));
            for step in 0..gemm.steps() {
                out.clear();
                gemm.step(block, step, &mut out);
                let pages = |a: &Access| a.first.0..a.first.0 + u64::from(a.pages);
                read.extend(out.loads.iter().flat_map(pages));
                written.extend(out.stores.iter().flat_map(pages));
            }
        }
        let all = |r: &ByteRange| r.first_page().0..r.end_page().0;
        assert!(written.iter().copied().eq(all(&gemm.c)));
        assert!(read.iter().copied().eq(all(&gemm.a).chain(all(&gemm.b))));
    }
}
