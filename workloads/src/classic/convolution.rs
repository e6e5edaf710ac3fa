//! Convolutions of networks: implicit products, and column buffers with a product a sample.

use super::bench::{Bench, Work};
use super::{Entry, Param, param};
use crate::pattern::{Axis, PatternSpec, Walk, Window, WindowsSpec};
use crate::program::ProgramError;

const SHAPE: [Param; 5] = [
    param("batch", "images", 32, 1, 1 << 16),
    param("m", "channels in", 64, 1, 1 << 16),
    param("k", "channels out", 64, 1, 1 << 16),
    param("n", "rows and columns of an image", 56, 1, 1 << 14),
    param("stride", "rows and columns of a filter, odd", 3, 1, 31),
];

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 2] = [
    Entry {
        name: "conv-implicit",
        summary: "convolution as an implicit product: tiles of filters and pixels, steps over channels",
        params: &SHAPE,
        sized: false,
        build: implicit,
    },
    Entry {
        name: "conv-im2col",
        summary: "convolution by column buffers: im2col, then a product, for one image after another",
        params: &SHAPE,
        sized: false,
        build: im2col,
    },
];

/// Filters and pixels of a tile.
const TILE: u64 = 128;
/// Elements of the inner dimension that a step covers (as in products).
const STEP: u64 = 128;

struct Shape {
    batch: u64,
    channels: u64,
    filters: u64,
    side: u64,
    window: u64,
}

impl Shape {
    fn of(b: &Bench) -> Result<Shape, ProgramError> {
        let shape = Shape {
            batch: b.param("batch"),
            channels: b.param("m"),
            filters: b.param("k"),
            side: b.param("n"),
            window: b.param("stride"),
        };
        if shape.window.is_multiple_of(2) {
            return Err(ProgramError::Builtin(format!(
                "workload.param.stride = {}: rows and columns of a filter; accepted: odd numbers",
                shape.window
            )));
        }
        Ok(shape)
    }

    /// Bytes of one channel of one image.
    fn map(&self) -> u64 {
        self.side * self.side * 4
    }

    /// Multiply-adds twice, for one image.
    fn flops(&self) -> u64 {
        2 * self.filters * self.channels * self.window * self.window * self.side * self.side
    }
}

fn implicit(b: &mut Bench) -> Result<(), ProgramError> {
    let s = Shape::of(b)?;
    let (map, row, taps) = (s.map(), s.side * 4, s.window * s.window);
    let image = |channels: u64| u128::from(s.batch) * u128::from(channels) * u128::from(map);
    let x = b.input(image(s.channels))?;
    let filter = s.channels * taps * 4;
    let w = b.input(u128::from(s.filters) * u128::from(filter))?;
    let y = b.output(image(s.filters))?;
    // A tile takes whole rows of the image.
    let rows = TILE.div_ceil(s.side).min(s.side);
    let channels = STEP.div_ceil(taps).min(s.channels);
    let steps = s.channels.div_ceil(channels) as u32;
    let halo = s.window / 2;
    // Whole rows of an image lie together: columns are bytes of a channel, rows channels or filters,
    // planes images.
    let pixels = Axis::new((rows + 2 * halo) * row, map)
        .at(-((halo * row) as i64))
        .y(rows * row);
    let images = Axis::new(1, s.batch).z(1);
    let windows = vec![
        Window::new(0, pixels)
            .rows(Axis::new(channels, s.channels).step(channels), map)
            .planes(images, s.channels * map),
        Window::new(
            1,
            Axis::new(channels * taps * 4, filter).step(channels * taps * 4),
        )
        .rows(Axis::new(TILE, s.filters).x(TILE), filter),
        Window::new(2, Axis::new(rows * row, map).y(rows * row))
            .rows(Axis::new(TILE, s.filters).x(TILE), map)
            .planes(images, s.filters * map)
            .in_steps(steps - 1, steps),
    ];
    let spec = WindowsSpec {
        grid: [s.filters.div_ceil(TILE), s.side.div_ceil(rows), s.batch],
        steps,
        windows,
        ..WindowsSpec::default()
    };
    let work = Work {
        flops: s.batch * s.flops(),
        read: x.bytes + w.bytes,
        write: y.bytes,
    };
    // The next tiles are loaded ahead of their use.
    let pattern = PatternSpec {
        waits: false,
        ..PatternSpec::windows(256, spec)
    };
    b.launch("conv-implicit", &[x, w], &[y], pattern, work)
}

/// PyTorch's native path: for each image a column buffer, then filters times columns.
fn im2col(b: &mut Bench) -> Result<(), ProgramError> {
    const THREADS: u64 = 512;
    let s = Shape::of(b)?;
    let (map, taps) = (s.map(), s.window * s.window);
    let x = b.input(u128::from(s.batch) * u128::from(s.channels) * u128::from(map))?;
    let w = b.input(u128::from(s.filters) * u128::from(s.channels * taps) * 4)?;
    let y = b.output(u128::from(s.batch) * u128::from(s.filters) * u128::from(map))?;
    let columns = b.output(u128::from(s.channels * taps) * u128::from(map))?;
    let pixels = s.side * s.side;
    let halo = (s.window / 2) * (s.side + 1);
    for image in 0..s.batch {
        // A thread a pixel of a channel writes the pixel's place in each of the channel's taps.
        let spec = WindowsSpec {
            grid: [pixels.div_ceil(THREADS), s.channels, 1],
            steps: 1,
            windows: vec![
                Window::new(
                    0,
                    Axis::new((THREADS + 2 * halo) * 4, map)
                        .at(-((halo * 4) as i64))
                        .x(THREADS * 4),
                )
                .planes(
                    Axis::new(1, s.batch * s.channels)
                        .at((image * s.channels) as i64)
                        .y(1),
                    map,
                ),
                Window::new(1, Axis::new(THREADS * 4, map).x(THREADS * 4))
                    .rows(Axis::new(taps, s.channels * taps).y(taps), map),
            ],
            ..WindowsSpec::default()
        };
        let work = Work {
            flops: 0,
            read: s.channels * map,
            write: columns.bytes,
        };
        let pattern = PatternSpec::windows(THREADS as u32, spec);
        b.launch("conv-im2col", &[x], &[columns], pattern, work)?;
        let walk = Walk::Gemm {
            batch: 1,
            m: s.filters,
            n: pixels,
            k: s.channels * taps,
            element: 4,
        };
        let work = Work {
            flops: s.flops(),
            read: w.bytes + columns.bytes,
            write: s.filters * map,
        };
        let pattern = PatternSpec {
            waits: false,
            ..PatternSpec::new(256, walk)
        };
        // The product of an image goes to its part of the result.
        b.launch_part(
            "conv-gemm",
            &[w, columns],
            (y, image * s.filters * map, s.filters * map),
            pattern,
            work,
        )?;
    }
    Ok(())
}
