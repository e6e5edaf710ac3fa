//! FDTD-2D of `PolyBench`: three sweeps for each time step.

use super::bench::{Array, Bench, Tiling, Work};
use super::{Entry, param};
use crate::pattern::{Axis, PatternSpec, Window, WindowsSpec};
use crate::program::ProgramError;

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 1] = [Entry {
    name: "fdtd-2d",
    summary: "finite-difference time domain, three launches a time step (PolyBench)",
    params: &[
        param("n", "rows and columns", 1200, 2, 1 << 20),
        param("steps", "time steps", 5, 1, 1 << 16),
    ],
    sized: false,
    build: fdtd,
}];

/// Fields: ex is n x (n + 1), ey (n + 1) x n, hz n x n. Blocks of 32 x 8 threads, x fastest.
fn fdtd(b: &mut Bench) -> Result<(), ProgramError> {
    let (n, steps) = (b.param("n"), b.param("steps"));
    let long = u128::from(n) * (u128::from(n) + 1) * 4;
    let fict = b.input(u128::from(steps) * 4)?;
    let (ex, ey) = (b.input(long)?, b.input(long)?);
    let hz = b.input(u128::from(n) * u128::from(n) * 4)?;
    let tiles = Tiling::new(n, n, 32, 8);
    // ex has one column more than the threads work on.
    let wide = Tiling {
        columns: n + 1,
        pitch: n + 1,
        ..tiles
    };
    let tall = Tiling { rows: n + 1, ..tiles };
    // The last column or row of these is read by the third kernel only.
    let clip = |window: Window| Window {
        columns: Axis {
            high: (n * 4) as i64,
            ..window.columns
        },
        rows: Axis {
            high: n as i64,
            ..window.rows
        },
        ..window
    };
    let mut launch = |name: &str, reads: &[Array], writes: &[Array], windows: Vec<Window>| {
        let spec = WindowsSpec {
            grid: tiles.grid(),
            steps: 1,
            windows,
            ..WindowsSpec::default()
        };
        let points = n * n;
        let work = Work {
            flops: 5 * points,
            read: 4 * points * reads.iter().filter(|a| a.bytes > 4 * steps).count() as u64,
            write: 4 * points,
        };
        b.launch(name, reads, writes, PatternSpec::windows(256, spec), work)
    };
    for t in 0..steps {
        // ey[i][j] -= 0.5 (hz[i][j] - hz[i-1][j]); row 0 is fict[t] instead.
        let source = Window::new(0, Axis::new(4, steps * 4).at((t * 4) as i64)).rows(Axis::new(1, 1).y(1), 0);
        let windows = vec![
            source,
            tiles.window(1, [0, 0, 1, 0]),
            clip(tall.window(2, [0; 4])),
            clip(tall.window(3, [0; 4])),
        ];
        launch("fdtd-ey", &[fict, hz, ey], &[ey], windows)?;
        // ex[i][j] -= 0.5 (hz[i][j] - hz[i][j-1]) for j > 0.
        let inner = |operand| {
            let mut window = clip(wide.window(operand, [0; 4]));
            window.columns.low = 4;
            window
        };
        let windows = vec![tiles.window(0, [1, 0, 0, 0]), inner(1), inner(2)];
        launch("fdtd-ex", &[hz, ex], &[ex], windows)?;
        // hz[i][j] -= 0.7 (ex[i][j+1] - ex[i][j] + ey[i+1][j] - ey[i][j]).
        let windows = vec![
            wide.window(0, [0, 1, 0, 0]),
            tall.window(1, [0, 0, 0, 1]),
            tiles.window(2, [0; 4]),
            tiles.window(3, [0; 4]),
        ];
        launch("fdtd-hz", &[ex, ey, hz], &[hz], windows)?;
    }
    Ok(())
}
