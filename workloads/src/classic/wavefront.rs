//! Needleman-Wunsch (Rodinia's nw): anti-diagonals of tiles, one launch each.

use super::bench::{Bench, Work};
use super::{Entry, param};
use crate::pattern::{Axis, PatternSpec, Window, WindowsSpec};
use crate::program::ProgramError;

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 1] = [Entry {
    name: "nw",
    summary: "alignment of two sequences, a launch for each anti-diagonal of 16 x 16 tiles (Rodinia)",
    params: &[param(
        "n",
        "length of the sequences, a multiple of 16",
        1024,
        16,
        1 << 18,
    )],
    sized: false,
    build: nw,
}];

const TILE: u64 = 16;

fn nw(b: &mut Bench) -> Result<(), ProgramError> {
    let n = b.param("n");
    if !n.is_multiple_of(TILE) {
        return Err(ProgramError::Builtin(format!(
            "workload.param.n = {n}: nw works in tiles of 16; accepted: multiples of 16"
        )));
    }
    let side = n + 1;
    let bytes = u128::from(side) * u128::from(side) * 4;
    let (reference, items) = (b.input(bytes)?, b.input(bytes)?);
    let tiles = n / TILE;
    for i in 1..=tiles {
        diagonal(b, "nw-upper-left", side, i, (0, i - 1), [reference, items])?;
    }
    for i in (1..tiles).rev() {
        diagonal(
            b,
            "nw-lower-right",
            side,
            i,
            (tiles - i, tiles - 1),
            [reference, items],
        )?;
    }
    Ok(())
}

/// `blocks` tiles from tile (X, Y) = `first` on, each one to the right of and above the one before.
fn diagonal(
    b: &mut Bench,
    name: &str,
    side: u64,
    blocks: u64,
    first: (u64, u64),
    [reference, items]: [super::bench::Array; 2],
) -> Result<(), ProgramError> {
    let columns = |from: u64, count: u64| {
        Axis::new(count * 4, side * 4)
            .at(((first.0 * TILE + from) * 4) as i64)
            .x(TILE * 4)
    };
    let rows = |from: u64, count: u64| Axis {
        x: -(TILE as i64),
        ..Axis::new(count, side).at((first.1 * TILE + from) as i64)
    };
    let window = |operand, c, r| Window::new(operand, c).rows(r, side * 4).warp(64);
    let spec = WindowsSpec {
        grid: [blocks, 1, 1],
        steps: 1,
        windows: vec![
            window(0, columns(1, TILE), rows(1, TILE)),
            // The corner and the north edge, then the west edge.
            window(1, columns(0, TILE + 1), rows(0, 1)),
            window(1, columns(0, 1), rows(1, TILE)),
            window(2, columns(1, TILE), rows(1, TILE)),
        ],
        ..WindowsSpec::default()
    };
    let cells = blocks * TILE * TILE;
    let work = Work {
        flops: 5 * cells,
        // Each word of the west edge is in a sector of its own.
        read: 4 * cells + blocks * (TILE * 4 + TILE * 32),
        write: 4 * cells,
    };
    let pattern = PatternSpec::windows(TILE as u32, spec);
    b.launch(name, &[reference, items], &[items], pattern, work)
}
