//! Attention: with the matrix of scores in memory, and in tiles that never leave the SM.

use super::bench::{Bench, Work};
use super::{Entry, Param, norms, param};
use crate::pattern::{Axis, PatternSpec, Walk, Window, WindowsSpec};
use crate::program::ProgramError;

const SHAPE: [Param; 4] = [
    param("batch", "sequences", 8, 1, 1 << 16),
    param("heads", "heads", 12, 1, 1 << 12),
    param("n", "tokens of a sequence", 1024, 1, 1 << 20),
    param("k", "floats of a head", 64, 1, 1 << 12),
];

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 2] = [
    Entry {
        name: "attention",
        summary: "softmax(Q K^T) V with the scores in memory: two batched products and a softmax",
        params: &SHAPE,
        sized: false,
        build: materialised,
    },
    Entry {
        name: "flash-attention",
        summary: "the same in tiles: a block keeps 128 queries and streams keys and values",
        params: &SHAPE,
        sized: false,
        build: tiled,
    },
];

/// Threads of a block of a product (128 x 128 tile).
const GEMM_THREADS: u32 = 256;

fn materialised(b: &mut Bench) -> Result<(), ProgramError> {
    let (heads, n, k) = (b.param("batch") * b.param("heads"), b.param("n"), b.param("k"));
    let bytes = u128::from(heads) * u128::from(n) * u128::from(k) * 4;
    let (q, keys, values) = (b.input(bytes)?, b.input(bytes)?, b.input(bytes)?);
    let square = u128::from(heads) * u128::from(n) * u128::from(n) * 4;
    let (scores, weights) = (b.output(square)?, b.output(square)?);
    let out = b.output(bytes)?;
    let product = |m, n, k| {
        let walk = Walk::Gemm {
            batch: heads,
            m,
            n,
            k,
            element: 4,
        };
        PatternSpec {
            waits: false,
            ..PatternSpec::new(GEMM_THREADS, walk)
        }
    };
    let flops = 2 * heads * n * n * k;
    let work = Work {
        flops,
        read: q.bytes + keys.bytes,
        write: scores.bytes,
    };
    b.launch("attention-scores", &[q, keys], &[scores], product(n, n, k), work)?;
    norms::softmax_rows(b, heads * n, n, scores, weights)?;
    let work = Work {
        flops,
        read: weights.bytes + values.bytes,
        write: out.bytes,
    };
    b.launch(
        "attention-values",
        &[weights, values],
        &[out],
        product(n, k, n),
        work,
    )
}

/// `FlashAttention` (Dao et al., 2022): blocks over queries, steps over keys and values; 128 x 128 tiles.
fn tiled(b: &mut Bench) -> Result<(), ProgramError> {
    const TILE: u64 = 128;
    let (heads, n, k) = (b.param("batch") * b.param("heads"), b.param("n"), b.param("k"));
    let row = k * 4;
    let bytes = u128::from(heads) * u128::from(n) * u128::from(row);
    let (q, keys, values) = (b.input(bytes)?, b.input(bytes)?, b.input(bytes)?);
    let out = b.output(bytes)?;
    let tiles = n.div_ceil(TILE);
    let steps = tiles as u32;
    // A tile's rows lie together: columns are all bytes of a head, planes the heads.
    let own = |operand| {
        Window::new(operand, Axis::new(TILE * row, n * row).x(TILE * row))
            .planes(Axis::new(1, heads).y(1), n * row)
            .warp(512)
    };
    let streamed = |operand| {
        Window::new(operand, Axis::new(TILE * row, n * row).step(TILE * row))
            .planes(Axis::new(1, heads).y(1), n * row)
            .warp(512)
    };
    let spec = WindowsSpec {
        grid: [tiles, heads, 1],
        steps,
        windows: vec![
            own(0).in_steps(0, 1),
            streamed(1),
            streamed(2),
            own(3).in_steps(steps - 1, steps),
        ],
        ..WindowsSpec::default()
    };
    let work = Work {
        flops: 4 * heads * n * n * k,
        read: 3 * q.bytes,
        write: out.bytes,
    };
    // Shared memory holds the tiles of two blocks; the next keys are loaded ahead.
    let pattern = PatternSpec {
        waits: false,
        blocks_per_sm: Some(2),
        ..PatternSpec::windows(GEMM_THREADS, spec)
    };
    b.launch("flash-attention", &[q, keys, values], &[out], pattern, work)
}
