//! Stencils over grids of floats.

use super::bench::{Array, Bench, Tiling, Work};
use super::{Entry, param};
use crate::pattern::{Axis, PatternSpec, Window, WindowsSpec};
use crate::program::ProgramError;

/// Threads of a block: 32 x 8 (PolyBench/GPU).
const THREADS: u32 = 256;

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 4] = [
    Entry {
        name: "2dconv",
        summary: "3 x 3 convolution of a matrix (PolyBench)",
        params: &[param("n", "rows and columns", 1024, 3, 1 << 20)],
        sized: false,
        build: convolution,
    },
    Entry {
        name: "stencil-2d",
        summary: "5-point Jacobi sweeps between two matrices",
        params: &[
            param("n", "rows and columns", 8192, 3, 1 << 20),
            param("steps", "sweeps", 10, 1, 1 << 16),
        ],
        sized: false,
        build: jacobi,
    },
    Entry {
        name: "stencil-3d",
        summary: "7-point Jacobi sweeps, blocks march along z (Parboil)",
        params: &[
            param("n", "points along x and y", 512, 3, 1 << 16),
            param("m", "points along z", 64, 3, 1 << 16),
            param("steps", "sweeps", 10, 1, 1 << 16),
        ],
        sized: false,
        build: parboil,
    },
    Entry {
        name: "gauss-seidel",
        summary: "red-black sweeps in place, two launches each",
        params: &[
            param("n", "rows and columns", 8192, 3, 1 << 20),
            param("steps", "sweeps", 10, 1, 1 << 16),
        ],
        sized: false,
        build: gauss_seidel,
    },
];

/// One launch of a plane stencil: windows of a 32 x 8 tiling.
fn plane(
    b: &mut Bench,
    name: &str,
    reads: &[Array],
    writes: &[Array],
    tiles: &Tiling,
    windows: Vec<Window>,
    flops: u64,
) -> Result<(), ProgramError> {
    let spec = WindowsSpec {
        grid: tiles.grid(),
        steps: 1,
        windows,
        ..WindowsSpec::default()
    };
    let bytes = tiles.rows * tiles.columns * 4;
    let work = Work {
        flops,
        read: bytes * reads.len() as u64,
        write: bytes * writes.len() as u64,
    };
    b.launch(name, reads, writes, PatternSpec::windows(THREADS, spec), work)
}

fn convolution(b: &mut Bench) -> Result<(), ProgramError> {
    let n = b.param("n");
    let bytes = u128::from(n) * u128::from(n) * 4;
    let (a, out) = (b.input(bytes)?, b.output(bytes)?);
    let tiles = Tiling::new(n, n, 32, 8);
    let windows = vec![tiles.window(0, [1; 4]), tiles.interior(1, 1)];
    plane(b, "2dconv", &[a], &[out], &tiles, windows, 17 * n * n)
}

fn jacobi(b: &mut Bench) -> Result<(), ProgramError> {
    let (n, steps) = (b.param("n"), b.param("steps"));
    let bytes = u128::from(n) * u128::from(n) * 4;
    let (mut from, mut to) = (b.input(bytes)?, b.input(bytes)?);
    let tiles = Tiling::new(n, n, 32, 8);
    for _ in 0..steps {
        let windows = vec![tiles.window(0, [1; 4]), tiles.interior(1, 1)];
        plane(b, "stencil-2d", &[from], &[to], &tiles, windows, 5 * n * n)?;
        (from, to) = (to, from);
    }
    Ok(())
}

fn gauss_seidel(b: &mut Bench) -> Result<(), ProgramError> {
    let (n, steps) = (b.param("n"), b.param("steps"));
    let bytes = u128::from(n) * u128::from(n) * 4;
    let (u, f) = (b.input(bytes)?, b.input(bytes)?);
    let tiles = Tiling::new(n, n, 32, 8);
    for _ in 0..steps {
        for colour in ["gauss-seidel-red", "gauss-seidel-black"] {
            // Every line of memory holds points of both colours.
            let windows = vec![
                tiles.window(0, [1; 4]),
                tiles.interior(1, 1),
                tiles.interior(2, 1),
            ];
            plane(b, colour, &[u, f], &[u], &tiles, windows, 3 * n * n)?;
        }
    }
    Ok(())
}

/// Grid 8 x 128 of 32 x 4 threads for 512 x 512: each thread has two places along x.
fn parboil(b: &mut Bench) -> Result<(), ProgramError> {
    let (n, depth, steps) = (b.param("n"), b.param("m"), b.param("steps"));
    let bytes = u128::from(n) * u128::from(n) * u128::from(depth) * 4;
    let (mut from, mut to) = (b.input(bytes)?, b.input(bytes)?);
    let tiles = Tiling::new(n, n, 64, 4);
    let plane = n * n * 4;
    let marches = (depth - 2) as u32;
    let points = n * n * (depth - 2);
    for _ in 0..steps {
        // Step k makes plane k + 1: it loads plane k + 2 anew; the first step loads three planes.
        let first = tiles
            .window(0, [1; 4])
            .planes(Axis::new(2, depth), plane)
            .in_steps(0, 1);
        let ahead = tiles
            .window(0, [1; 4])
            .planes(Axis::new(1, depth).at(2).step(1), plane);
        let made = tiles
            .interior(1, 1)
            .planes(Axis::new(1, depth).at(1).step(1), plane);
        let spec = WindowsSpec {
            grid: tiles.grid(),
            steps: marches,
            windows: vec![first, ahead, made],
            ..WindowsSpec::default()
        };
        let work = Work {
            flops: 8 * points,
            read: 4 * points,
            write: 4 * points,
        };
        b.launch(
            "stencil-3d",
            &[from],
            &[to],
            PatternSpec::windows(128, spec),
            work,
        )?;
        (from, to) = (to, from);
    }
    Ok(())
}
