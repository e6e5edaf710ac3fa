//! Multigrid: V-cycles for a plane Poisson problem.

use super::bench::{Array, Bench, Tiling, Work};
use super::{Entry, param};
use crate::pattern::{PatternSpec, Window, WindowsSpec};
use crate::program::ProgramError;

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 1] = [Entry {
    name: "multigrid",
    summary: "V-cycles of a plane Poisson solver: smooth, residual, restrict, prolong",
    params: &[
        param("n", "rows and columns of the finest grid", 4096, 16, 1 << 18),
        param("steps", "V-cycles", 4, 1, 1 << 12),
    ],
    sized: false,
    build: multigrid,
}];

/// Grids are halved down to fewer points a side than this.
const COARSEST: u64 = 16;
/// Smoothing sweeps before and after each coarse correction (red and black in one launch).
const SWEEPS: u32 = 2;

/// Unknowns, right side and residual of a level.
#[derive(Clone, Copy)]
struct Level {
    side: u64,
    u: Array,
    f: Array,
    r: Array,
}

fn launch(
    b: &mut Bench,
    name: &str,
    reads: &[Array],
    writes: &[Array],
    (tiles, windows): (Tiling, Vec<Window>),
    flops: u64,
) -> Result<(), ProgramError> {
    let spec = WindowsSpec {
        grid: tiles.grid(),
        steps: 1,
        windows,
        ..WindowsSpec::default()
    };
    let sum = |arrays: &[Array]| arrays.iter().map(|a| a.bytes).sum();
    let work = Work {
        flops: flops * tiles.rows * tiles.columns,
        read: sum(reads),
        write: sum(writes),
    };
    b.launch(name, reads, writes, PatternSpec::windows(256, spec), work)
}

fn smooth(b: &mut Bench, level: &Level) -> Result<(), ProgramError> {
    let tiles = Tiling::new(level.side, level.side, 32, 8);
    for _ in 0..SWEEPS {
        let windows = vec![
            tiles.window(0, [1; 4]),
            tiles.window(1, [0; 4]),
            tiles.interior(2, 1),
        ];
        launch(
            b,
            "multigrid-smooth",
            &[level.u, level.f],
            &[level.u],
            (tiles, windows),
            6,
        )?;
    }
    Ok(())
}

fn multigrid(b: &mut Bench) -> Result<(), ProgramError> {
    let mut levels = Vec::new();
    let mut side = b.param("n");
    while side >= COARSEST {
        let bytes = u128::from(side) * u128::from(side) * 4;
        let finest = levels.is_empty();
        let u = if finest { b.input(bytes)? } else { b.output(bytes)? };
        let f = if finest { b.input(bytes)? } else { b.output(bytes)? };
        let r = b.output(bytes)?;
        levels.push(Level { side, u, f, r });
        side /= 2;
    }
    for _ in 0..b.param("steps") {
        for pair in levels.windows(2) {
            let (fine, coarse) = (&pair[0], &pair[1]);
            smooth(b, fine)?;
            let tiles = Tiling::new(fine.side, fine.side, 32, 8);
            let windows = vec![
                tiles.window(0, [1; 4]),
                tiles.window(1, [0; 4]),
                tiles.window(2, [0; 4]),
            ];
            launch(
                b,
                "multigrid-residual",
                &[fine.u, fine.f],
                &[fine.r],
                (tiles, windows),
                6,
            )?;
            // A coarse tile reads twice as many fine rows and columns; its unknowns start from 0.
            let half = Tiling::new(coarse.side, coarse.side, 32, 8);
            let under = Tiling::new(fine.side, fine.side, 64, 16);
            let windows = vec![
                under.window(0, [1; 4]),
                half.window(1, [0; 4]),
                half.window(2, [0; 4]),
            ];
            launch(
                b,
                "multigrid-restrict",
                &[fine.r],
                &[coarse.f, coarse.u],
                (half, windows),
                10,
            )?;
        }
        if let Some(coarsest) = levels.last() {
            smooth(b, coarsest)?;
        }
        for pair in levels.windows(2).rev() {
            let (fine, coarse) = (&pair[0], &pair[1]);
            let tiles = Tiling::new(fine.side, fine.side, 32, 8);
            let over = Tiling::new(coarse.side, coarse.side, 16, 4);
            let windows = vec![
                over.window(0, [1; 4]),
                tiles.window(1, [0; 4]),
                tiles.window(2, [0; 4]),
            ];
            launch(
                b,
                "multigrid-prolong",
                &[coarse.u, fine.u],
                &[fine.u],
                (tiles, windows),
                4,
            )?;
            smooth(b, fine)?;
        }
    }
    Ok(())
}
