//! Softmax, layer and batch normalisation.

use super::bench::{Array, Bench, Work};
use super::{Entry, param};
use crate::pattern::{Axis, PatternSpec, Window, WindowsSpec};
use crate::program::ProgramError;

/// A row up to so many bytes stays in shared memory between its passes (48 KiB without opting in).
const KEPT: u64 = 48 << 10;

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 3] = [
    Entry {
        name: "softmax",
        summary: "softmax of rows, a block each; rows too long for shared memory are read twice",
        params: &[
            param("n", "rows", 1 << 14, 1, 1 << 36),
            param("m", "columns", 4096, 1, 1 << 20),
        ],
        sized: false,
        build: softmax,
    },
    Entry {
        name: "layer-norm",
        summary: "layer normalisation of rows, a block each",
        params: &[
            param("n", "rows", 1 << 14, 1, 1 << 36),
            param("m", "columns", 4096, 1, 1 << 20),
        ],
        sized: false,
        build: layer_norm,
    },
    Entry {
        name: "batch-norm",
        summary: "batch normalisation in training: a block a channel takes statistics over the batch, then a sweep",
        params: &[
            param("batch", "images", 32, 1, 1 << 16),
            param("m", "channels", 256, 1, 1 << 16),
            param("n", "pixels of a channel", 56 * 56, 1, 1 << 28),
        ],
        sized: false,
        build: batch_norm,
    },
];

/// A block a row: operand 0 read, the last one written.
fn row_windows(n: u64, row: u64, out: u32) -> (u32, Vec<Window>) {
    let steps = 1 + u32::from(row > KEPT);
    let own = |operand| {
        Window::new(operand, Axis::new(row, row))
            .rows(Axis::new(1, n).x(1), row)
            .warp(512)
    };
    (steps, vec![own(0), own(out).in_steps(steps - 1, steps)])
}

/// The work of two sweeps over rows of which `steps` read.
fn row_work(n: u64, row: u64, steps: u32, flops: u64) -> Work {
    Work {
        flops: n * row / 4 * flops,
        read: n * row * u64::from(steps),
        write: n * row,
    }
}

pub(super) fn softmax_rows(b: &mut Bench, n: u64, m: u64, x: Array, y: Array) -> Result<(), ProgramError> {
    let (steps, windows) = row_windows(n, m * 4, 1);
    let spec = WindowsSpec {
        grid: [n, 1, 1],
        steps,
        windows,
        ..WindowsSpec::default()
    };
    let work = row_work(n, m * 4, steps, 5);
    b.launch("softmax", &[x], &[y], PatternSpec::windows(256, spec), work)
}

fn softmax(b: &mut Bench) -> Result<(), ProgramError> {
    let (n, m) = (b.param("n"), b.param("m"));
    let bytes = u128::from(n) * u128::from(m) * 4;
    let (x, y) = (b.input(bytes)?, b.output(bytes)?);
    softmax_rows(b, n, m, x, y)
}

fn layer_norm(b: &mut Bench) -> Result<(), ProgramError> {
    let (n, m) = (b.param("n"), b.param("m"));
    let row = m * 4;
    let bytes = u128::from(n) * u128::from(row);
    let (x, y) = (b.input(bytes)?, b.output(bytes)?);
    let (scale, shift) = (b.input(u128::from(row))?, b.input(u128::from(row))?);
    let (mean, deviation) = (b.output(u128::from(n) * 4)?, b.output(u128::from(n) * 4)?);
    let (steps, mut windows) = row_windows(n, row, 3);
    let last = (steps - 1, steps);
    for operand in [1, 2] {
        windows.push(
            Window::new(operand, Axis::new(row, row))
                .warp(512)
                .in_steps(last.0, last.1),
        );
    }
    for operand in [4, 5] {
        windows.push(Window::new(operand, Axis::new(4, n * 4).x(4)).in_steps(last.0, last.1));
    }
    let spec = WindowsSpec {
        grid: [n, 1, 1],
        steps,
        windows,
        ..WindowsSpec::default()
    };
    let work = row_work(n, row, steps, 8);
    b.launch(
        "layer-norm",
        &[x, scale, shift],
        &[y, mean, deviation],
        PatternSpec::windows(256, spec),
        work,
    )
}

/// PyTorch's native kernels for NCHW: statistics by a block a channel, which walks over the batch with
/// strides of all channels; then the transformation, element-wise.
fn batch_norm(b: &mut Bench) -> Result<(), ProgramError> {
    let (batch, channels, pixels) = (b.param("batch"), b.param("m"), b.param("n"));
    let map = pixels * 4;
    let bytes = u128::from(batch) * u128::from(channels) * u128::from(map);
    let (x, y) = (b.input(bytes)?, b.output(bytes)?);
    let (mean, variance) = (
        b.output(u128::from(channels) * 4)?,
        b.output(u128::from(channels) * 4)?,
    );
    let steps = batch as u32;
    let statistic = |operand| Window::new(operand, Axis::new(4, channels * 4).x(4));
    let spec = WindowsSpec {
        grid: [channels, 1, 1],
        steps,
        windows: vec![
            Window::new(0, Axis::new(map, map))
                .rows(Axis::new(1, channels).x(1), map)
                .planes(Axis::new(1, batch).step(1), channels * map),
            statistic(1).in_steps(steps - 1, steps),
            statistic(2).in_steps(steps - 1, steps),
        ],
        ..WindowsSpec::default()
    };
    let all = batch * channels * map;
    let work = Work {
        flops: all,
        read: all,
        write: channels * 8,
    };
    b.launch(
        "batch-norm-statistics",
        &[x],
        &[mean, variance],
        PatternSpec::windows(512, spec),
        work,
    )?;
    // A block for each channel of each image.
    let own = |operand| {
        Window::new(operand, Axis::new(map, map))
            .rows(Axis::new(1, batch * channels).x(1).y(channels), map)
            .warp(512)
    };
    let spec = WindowsSpec {
        grid: [channels, batch, 1],
        steps: 1,
        windows: vec![own(0), statistic(1), statistic(2), own(3)],
        ..WindowsSpec::default()
    };
    let work = Work {
        flops: all / 2,
        read: all,
        write: all,
    };
    b.launch(
        "batch-norm-transform",
        &[x, mean, variance],
        &[y],
        PatternSpec::windows(512, spec),
        work,
    )
}
