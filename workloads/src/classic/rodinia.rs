//! Grid codes of Rodinia: hotspot, pathfinder, srad.

use super::bench::{Bench, Tiling, Work};
use super::{Entry, param};
use crate::pattern::{Axis, PatternSpec, Window, WindowsSpec};
use crate::program::ProgramError;

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 3] = [
    Entry {
        name: "hotspot",
        summary: "heat on a chip: tiles with a halo, two time steps a launch (Rodinia)",
        params: &[
            param("n", "rows and columns", 1024, 16, 1 << 20),
            param("steps", "time steps", 8, 2, 1 << 16),
        ],
        sized: false,
        build: hotspot,
    },
    Entry {
        name: "pathfinder",
        summary: "cheapest path through a grid, ten rows a launch (Rodinia)",
        params: &[
            param("n", "rows", 200, 2, 1 << 24),
            param("m", "columns", 50_000, 32, 1 << 30),
        ],
        sized: false,
        build: pathfinder,
    },
    Entry {
        name: "srad",
        summary: "speckle-reducing anisotropic diffusion, two launches an iteration (Rodinia)",
        params: &[
            param("n", "rows and columns", 1024, 16, 1 << 20),
            param("steps", "iterations", 4, 1, 1 << 16),
        ],
        sized: false,
        build: srad,
    },
];

/// Pyramid height 2: a block of 16 x 16 threads yields 12 x 12 cells. Seven blocks of 219 instructions
/// and their registers fit an SM (simulator log of the `UVMSmart` artifact).
fn hotspot(b: &mut Bench) -> Result<(), ProgramError> {
    const CELLS: u64 = 12;
    const HALO: u64 = 2;
    let (n, steps) = (b.param("n"), b.param("steps"));
    let bytes = u128::from(n) * u128::from(n) * 4;
    let (mut from, mut to) = (b.input(bytes)?, b.input(bytes)?);
    let power = b.input(bytes)?;
    let tiles = Tiling::new(n, n, CELLS, CELLS);
    for _ in 0..steps / HALO {
        // A warp has two rows of 16.
        let loads = |operand| tiles.window(operand, [HALO; 4]);
        let spec = WindowsSpec {
            grid: tiles.grid(),
            steps: 1,
            windows: vec![loads(0), loads(1), tiles.window(2, [0; 4]).warp(2 * CELLS * 4)],
            ..WindowsSpec::default()
        };
        let work = Work {
            flops: 15 * HALO * n * n,
            read: 8 * n * n,
            write: 4 * n * n,
        };
        let pattern = PatternSpec {
            blocks_per_sm: Some(7),
            ..PatternSpec::windows(256, spec)
        };
        b.launch("hotspot", &[from, power], &[to], pattern, work)?;
        (from, to) = (to, from);
    }
    Ok(())
}

/// Pyramid height 10: a block of 256 threads yields 236 columns.
fn pathfinder(b: &mut Bench) -> Result<(), ProgramError> {
    const HEIGHT: u64 = 10;
    const THREADS: u64 = 256;
    const COLUMNS: u64 = THREADS - 2 * HEIGHT;
    let (rows, columns) = (b.param("n") - 1, b.param("m"));
    let line = columns * 4;
    let (mut from, mut to) = (b.input(u128::from(line))?, b.output(u128::from(line))?);
    let wall = b.input(u128::from(rows) * u128::from(line))?;
    let halo = Axis::new(THREADS * 4, line)
        .at(-((HEIGHT * 4) as i64))
        .x(COLUMNS * 4);
    for first in (0..rows).step_by(HEIGHT as usize) {
        let height = HEIGHT.min(rows - first);
        let steps = height as u32;
        let spec = WindowsSpec {
            grid: [columns.div_ceil(COLUMNS), 1, 1],
            steps,
            windows: vec![
                Window::new(0, halo).in_steps(0, 1),
                Window::new(1, halo).rows(Axis::new(1, rows).at(first as i64).step(1), line),
                Window::new(2, Axis::new(COLUMNS * 4, line).x(COLUMNS * 4)).in_steps(steps - 1, steps),
            ],
            ..WindowsSpec::default()
        };
        let work = Work {
            flops: 3 * height * columns,
            read: line * (height + 1),
            write: line,
        };
        let pattern = PatternSpec::windows(THREADS as u32, spec);
        b.launch("pathfinder", &[from, wall], &[to], pattern, work)?;
        (from, to) = (to, from);
    }
    Ok(())
}

/// The statistics that the host takes of a corner of the image before each iteration are left out: they
/// are reads of managed memory by the CPU. All six arrays are managed.
fn srad(b: &mut Bench) -> Result<(), ProgramError> {
    let (n, steps) = (b.param("n"), b.param("steps"));
    let bytes = u128::from(n) * u128::from(n) * 4;
    let image = b.input(bytes)?;
    let (c, east, west) = (b.output(bytes)?, b.output(bytes)?, b.output(bytes)?);
    let (north, south) = (b.output(bytes)?, b.output(bytes)?);
    let tiles = Tiling::new(n, n, 16, 16);
    let points = n * n;
    for _ in 0..steps {
        let mut windows = vec![tiles.window(0, [1; 4])];
        windows.extend((1..6).map(|operand| tiles.window(operand, [0; 4])));
        let spec = WindowsSpec {
            grid: tiles.grid(),
            steps: 1,
            windows,
            ..WindowsSpec::default()
        };
        let work = Work {
            flops: 30 * points,
            read: 4 * points,
            write: 20 * points,
        };
        let pattern = PatternSpec::windows(256, spec);
        b.launch("srad-1", &[image], &[c, east, west, north, south], pattern, work)?;
        let mut windows = vec![tiles.window(0, [0; 4]), tiles.window(1, [0, 1, 0, 1])];
        windows.extend((2..7).map(|operand| tiles.window(operand, [0; 4])));
        let spec = WindowsSpec {
            grid: tiles.grid(),
            steps: 1,
            windows,
            ..WindowsSpec::default()
        };
        let work = Work {
            flops: 10 * points,
            read: 24 * points,
            write: 4 * points,
        };
        let pattern = PatternSpec::windows(256, spec);
        b.launch(
            "srad-2",
            &[image, c, north, south, west, east],
            &[image],
            pattern,
            work,
        )?;
        b.sync();
    }
    Ok(())
}
