//! Matrix-vector kernels of `PolyBench`, and Gram-Schmidt.

use super::bench::{Array, Bench, Work};
use super::{Entry, Param, param};
use crate::pattern::{Axis, PatternSpec, Window, WindowsSpec};
use crate::program::ProgramError;

/// Threads of a block (`PolyBench`/GPU).
const THREADS: u64 = 256;
/// Columns that a thread which walks a row takes in a step: 32 bytes, the sector that one wait for memory
/// brings.
const LINE: u64 = 8;

const fn square(default: u64) -> [Param; 1] {
    [param("n", "rows and columns", default, 1, 1 << 20)]
}

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 5] = [
    Entry {
        name: "gemv",
        summary: "y = A x, a warp walks each row",
        params: &[
            param("n", "rows", 8192, 1, 1 << 30),
            param("m", "columns", 8192, 1, 1 << 30),
        ],
        sized: false,
        build: gemv,
    },
    Entry {
        name: "atax",
        summary: "y = A^T (A x): a thread a row, then a thread a column (PolyBench)",
        params: &square(1200),
        sized: false,
        build: atax,
    },
    Entry {
        name: "mvt",
        summary: "x1 += A y1, x2 += A^T y2 (PolyBench)",
        params: &square(4096),
        sized: false,
        build: mvt,
    },
    Entry {
        name: "bicg",
        summary: "s = A^T r, q = A p (PolyBench)",
        params: &square(4096),
        sized: false,
        build: bicg,
    },
    Entry {
        name: "gram-schmidt",
        summary: "orthonormal columns, three launches a column (PolyBench)",
        params: &[param("n", "rows and columns", 1024, 1, 1 << 15)],
        sized: false,
        build: gram_schmidt,
    },
];

fn gemv(b: &mut Bench) -> Result<(), ProgramError> {
    const ROWS: u64 = THREADS / 32;
    let (n, m) = (b.param("n"), b.param("m"));
    let a = b.input(u128::from(n) * u128::from(m) * 4)?;
    let (x, y) = (b.input(u128::from(m) * 4)?, b.output(u128::from(n) * 4)?);
    // A lane loads 16 bytes: a warp covers 512 bytes of its row in a step, eight loads in flight.
    let width = 4096_u64.min(m * 4);
    let steps = (m * 4).div_ceil(width) as u32;
    let windows = vec![
        Window::new(0, Axis::new(width, m * 4).step(width))
            .rows(Axis::new(ROWS, n).x(ROWS), m * 4)
            .warp(512),
        Window::new(1, Axis::new(width, m * 4).step(width)).warp(512),
        Window::new(2, Axis::new(ROWS * 4, n * 4).x(ROWS * 4)).in_steps(steps - 1, steps),
    ];
    let spec = WindowsSpec {
        grid: [n.div_ceil(ROWS), 1, 1],
        steps,
        windows,
        ..WindowsSpec::default()
    };
    let work = product(n, m);
    b.launch(
        "gemv",
        &[a, x],
        &[y],
        PatternSpec::windows(THREADS as u32, spec),
        work,
    )
}

fn product(n: u64, m: u64) -> Work {
    Work {
        flops: 2 * n * m,
        read: 4 * (n * m + m),
        write: 4 * n,
    }
}

/// out[i] += A[i][j] x[j], thread i walks row i: the lanes of a warp are a row apart.
fn by_rows(b: &mut Bench, name: &str, n: u64, [a, x, out]: [Array; 3]) -> Result<(), ProgramError> {
    let own = |operand| Window::new(operand, Axis::new(THREADS * 4, n * 4).x(THREADS * 4));
    let spec = WindowsSpec {
        grid: [n.div_ceil(THREADS), 1, 1],
        steps: n.div_ceil(LINE) as u32,
        windows: vec![
            Window::new(0, Axis::new(LINE * 4, n * 4).step(LINE * 4))
                .rows(Axis::new(THREADS, n).x(THREADS), n * 4)
                // 32 lanes, each in a sector of its own.
                .warp(32 * LINE * 4),
            Window::new(1, Axis::new(LINE * 4, n * 4).step(LINE * 4)),
            own(2),
        ],
        ..WindowsSpec::default()
    };
    let pattern = PatternSpec::windows(THREADS as u32, spec);
    b.launch(name, &[a, x], &[out], pattern, product(n, n))
}

/// out[j] += A[i][j] x[i], thread j walks column j: a block reads a piece of one row after another.
fn by_columns(b: &mut Bench, name: &str, n: u64, [a, x, out]: [Array; 3]) -> Result<(), ProgramError> {
    let own = |operand| Window::new(operand, Axis::new(THREADS * 4, n * 4).x(THREADS * 4));
    let spec = WindowsSpec {
        grid: [n.div_ceil(THREADS), 1, 1],
        steps: n as u32,
        windows: vec![
            own(0).rows(Axis::new(1, n).step(1), n * 4),
            Window::new(1, Axis::new(4, n * 4).step(4)),
            own(2),
        ],
        ..WindowsSpec::default()
    };
    let pattern = PatternSpec::windows(THREADS as u32, spec);
    b.launch(name, &[a, x], &[out], pattern, product(n, n))
}

fn atax(b: &mut Bench) -> Result<(), ProgramError> {
    let n = b.param("n");
    let (matrix, vector) = (u128::from(n) * u128::from(n) * 4, u128::from(n) * 4);
    let (a, x) = (b.input(matrix)?, b.input(vector)?);
    let (y, tmp) = (b.output(vector)?, b.output(vector)?);
    by_rows(b, "atax-1", n, [a, x, tmp])?;
    by_columns(b, "atax-2", n, [a, tmp, y])
}

fn mvt(b: &mut Bench) -> Result<(), ProgramError> {
    let n = b.param("n");
    let (matrix, vector) = (u128::from(n) * u128::from(n) * 4, u128::from(n) * 4);
    let a = b.input(matrix)?;
    let (x1, x2) = (b.input(vector)?, b.input(vector)?);
    let (y1, y2) = (b.input(vector)?, b.input(vector)?);
    by_rows(b, "mvt-1", n, [a, y1, x1])?;
    by_columns(b, "mvt-2", n, [a, y2, x2])
}

fn bicg(b: &mut Bench) -> Result<(), ProgramError> {
    let n = b.param("n");
    let (matrix, vector) = (u128::from(n) * u128::from(n) * 4, u128::from(n) * 4);
    let a = b.input(matrix)?;
    let (r, p) = (b.input(vector)?, b.input(vector)?);
    let (s, q) = (b.output(vector)?, b.output(vector)?);
    by_columns(b, "bicg-1", n, [a, r, s])?;
    by_rows(b, "bicg-2", n, [a, p, q])
}

fn gram_schmidt(b: &mut Bench) -> Result<(), ProgramError> {
    let n = b.param("n");
    let matrix = u128::from(n) * u128::from(n) * 4;
    let (a, r, q) = (b.input(matrix)?, b.output(matrix)?, b.output(matrix)?);
    let pitch = n * 4;
    let steps = n as u32;
    for k in 0..n {
        let column = Axis::new(4, pitch).at((k * 4) as i64);
        let diagonal = |operand| Window::new(operand, column).rows(Axis::new(1, n).at(k as i64), pitch);
        // One thread sums the squares of column k.
        let norm = WindowsSpec {
            grid: [1, 1, 1],
            steps,
            windows: vec![
                Window::new(0, column).rows(Axis::new(1, n).step(1), pitch),
                diagonal(1).in_steps(steps - 1, steps),
            ],
            ..WindowsSpec::default()
        };
        let work = Work {
            flops: 2 * n,
            read: 32 * n,
            write: 4,
        };
        let pattern = PatternSpec::windows(THREADS as u32, norm);
        b.launch("gram-schmidt-1", &[a], &[r], pattern, work)?;
        // A thread a row: q[i][k] = a[i][k] / r[k][k].
        let rows = Axis::new(THREADS, n).x(THREADS);
        let scale = WindowsSpec {
            grid: [n.div_ceil(THREADS), 1, 1],
            steps: 1,
            windows: vec![
                Window::new(0, column).rows(rows, pitch),
                diagonal(1),
                Window::new(2, column).rows(rows, pitch),
            ],
            ..WindowsSpec::default()
        };
        let work = Work {
            flops: n,
            read: 32 * n,
            write: 32 * n,
        };
        let pattern = PatternSpec::windows(THREADS as u32, scale);
        b.launch("gram-schmidt-2", &[a, r], &[q], pattern, work)?;
        // A thread a column j > k: r[k][j] = sum over i of q[i][k] a[i][j], then a[i][j] -= q[i][k] r[k][j].
        let right = n - k - 1;
        if right == 0 {
            continue;
        }
        let piece = Axis::new(THREADS * 4, pitch).x(THREADS * 4).from((k + 1) * 4);
        let first = Axis::new(1, n).step(1);
        let second = Axis::new(1, n).at(-(n as i64)).step(1);
        let update = WindowsSpec {
            grid: [n.div_ceil(THREADS), 1, 1],
            steps: 2 * steps,
            windows: vec![
                Window::new(0, column).rows(first, pitch).in_steps(0, steps),
                Window::new(1, piece).rows(first, pitch).in_steps(0, steps),
                Window::new(0, column)
                    .rows(second, pitch)
                    .in_steps(steps, 2 * steps),
                Window::new(1, piece)
                    .rows(second, pitch)
                    .in_steps(steps, 2 * steps),
                Window::new(2, piece)
                    .rows(Axis::new(1, n).at(k as i64), pitch)
                    .in_steps(0, steps),
                Window::new(3, piece)
                    .rows(second, pitch)
                    .in_steps(steps, 2 * steps),
            ],
            ..WindowsSpec::default()
        };
        let work = Work {
            flops: 4 * n * right,
            read: 8 * n * right,
            write: 4 * n * right,
        };
        let pattern = PatternSpec::windows(THREADS as u32, update);
        b.launch("gram-schmidt-3", &[q, a], &[r, a], pattern, work)?;
    }
    Ok(())
}
