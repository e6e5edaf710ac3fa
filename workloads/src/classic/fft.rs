//! Fast Fourier transform: passes over the whole array, each block with segments far apart.

use super::bench::{Bench, Work};
use super::{Entry, param};
use crate::pattern::{Axis, PatternSpec, Window, WindowsSpec};
use crate::program::ProgramError;

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 1] = [Entry {
    name: "fft",
    summary: "one complex transform of 2^scale points, Stockham passes of radix 256 in shared memory",
    params: &[param("scale", "logarithm of the points", 24, 8, 38)],
    sized: false,
    build: fft,
}];

/// Points of a pass that a block transforms: 2^8 (what fits into shared memory 16 columns wide).
const RADIX_BITS: u64 = 8;
/// Columns of a block: 16 complex floats, 128 bytes.
const COLUMNS: u64 = 16;
/// Bytes of a point.
const POINT: u64 = 8;

/// Pass p reads x[j + r n/R] and writes y[(j / s) s R + j % s + r s] with s = R^p (Stockham's
/// self-sorting order), for r = 0..R; a block takes 16 neighbouring j.
fn fft(b: &mut Bench) -> Result<(), ProgramError> {
    let bits = b.param("scale");
    let n = 1_u64 << bits;
    let bytes = u128::from(n * POINT);
    let (mut from, mut to) = (b.input(bytes)?, b.output(bytes)?);
    let mut done = 0;
    while done < bits {
        let radix_bits = RADIX_BITS.min(bits - done);
        let (radix, s) = (1_u64 << radix_bits, 1_u64 << done);
        let columns = COLUMNS.min(n / radix);
        // Neighbouring j up to s apart lie together in the result.
        let (x, y) = (s.div_ceil(columns), n / radix / s.max(columns));
        let chunk = s.max(columns) * POINT;
        let read = Window::new(
            0,
            Axis::new(columns * POINT, n * POINT).x(columns * POINT).y(chunk),
        )
        .rows(Axis::new(radix, radix), n / radix * POINT);
        let write = if s < columns {
            Window::new(
                1,
                Axis::new(columns * radix * POINT, n * POINT).y(columns * radix * POINT),
            )
        } else {
            Window::new(
                1,
                Axis::new(columns * POINT, n * POINT)
                    .x(columns * POINT)
                    .y(chunk * radix),
            )
            .rows(Axis::new(radix, radix), s * POINT)
        };
        let spec = WindowsSpec {
            grid: [x, y, 1],
            steps: 1,
            windows: vec![read, write],
            ..WindowsSpec::default()
        };
        let work = Work {
            flops: 5 * n * radix_bits,
            read: n * POINT,
            write: n * POINT,
        };
        b.launch("fft", &[from], &[to], PatternSpec::windows(256, spec), work)?;
        (from, to) = (to, from);
        done += radix_bits;
    }
    Ok(())
}
