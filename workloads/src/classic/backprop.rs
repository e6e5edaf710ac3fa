//! Training of a two-layer network on one sample (Rodinia's backprop).

use super::bench::{Bench, Work};
use super::{Entry, param};
use crate::pattern::{Axis, PatternSpec, Window, WindowsSpec};
use crate::program::ProgramError;

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 1] = [Entry {
    name: "backprop",
    summary: "forward and weight update of a layer of 16 units (Rodinia)",
    params: &[param("n", "inputs, a multiple of 16", 131_056, 16, 1 << 30)],
    sized: false,
    build: backprop,
}];

/// Units of the hidden layer; a block has 16 x 16 threads for 16 inputs.
const HIDDEN: u64 = 16;

fn backprop(b: &mut Bench) -> Result<(), ProgramError> {
    let n = b.param("n");
    if !n.is_multiple_of(HIDDEN) {
        return Err(ProgramError::Builtin(format!(
            "workload.param.n = {n}: backprop takes inputs in groups of 16; accepted: multiples of 16"
        )));
    }
    let blocks = n / HIDDEN;
    // One more of everything: the bias.
    let weights = (u128::from(n) + 1) * u128::from(HIDDEN + 1) * 4;
    let inputs = b.input((u128::from(n) + 1) * 4)?;
    let w1 = b.input(weights)?;
    let w2 = b.input(weights)?;
    let previous = b.input(weights)?;
    let delta = b.input(u128::from(HIDDEN + 1) * 4)?;
    let partial = b.output(u128::from(blocks) * u128::from(HIDDEN) * 4)?;
    // Thread (x, y) of block k has weight 272 k + 17 y + x + 18: a block's weights lie together.
    let own = |operand| {
        let row = (HIDDEN + 1) * 4;
        let axis = Axis::new(HIDDEN * row - 4, (n + 1) * row)
            .at((row + 4) as i64)
            .x(HIDDEN * row);
        Window::new(operand, axis)
    };
    let line = |operand, at: u64, extent: u64| {
        Window::new(
            operand,
            Axis::new(HIDDEN * 4, extent * 4)
                .at((at * 4) as i64)
                .x(HIDDEN * 4),
        )
    };
    let threads = (HIDDEN * HIDDEN) as u32;
    let traffic = 4 * n * HIDDEN;
    let forward = WindowsSpec {
        grid: [1, blocks, 1],
        steps: 1,
        windows: vec![
            along_y(line(0, 1, n + 1)),
            along_y(own(1)),
            along_y(own(2)),
            along_y(line(3, 0, n)),
        ],
        ..WindowsSpec::default()
    };
    let work = Work {
        flops: 2 * n * HIDDEN,
        read: traffic + 4 * n,
        write: traffic + 4 * n,
    };
    let pattern = PatternSpec::windows(threads, forward);
    b.launch("backprop-forward", &[inputs, w1], &[w1, partial], pattern, work)?;
    b.sync();
    let adjust = WindowsSpec {
        grid: [1, blocks, 1],
        steps: 1,
        windows: vec![
            Window::new(0, Axis::new(HIDDEN * 4, (HIDDEN + 1) * 4).at(4)),
            along_y(line(1, 1, n + 1)),
            along_y(own(2)),
            along_y(own(3)),
            along_y(own(4)),
            along_y(own(5)),
        ],
        ..WindowsSpec::default()
    };
    let work = Work {
        flops: 5 * n * HIDDEN,
        read: 2 * traffic + 4 * n,
        write: 2 * traffic,
    };
    let pattern = PatternSpec::windows(threads, adjust);
    b.launch(
        "backprop-adjust",
        &[delta, inputs, previous, w2],
        &[w2, previous],
        pattern,
        work,
    )
}

/// Rodinia's grid is one block wide: what advances along x advances along y.
fn along_y(mut window: Window) -> Window {
    (window.columns.x, window.columns.y) = (0, window.columns.x);
    window
}
