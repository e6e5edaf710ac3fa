//! Streams and strides: nothing is used twice.

use super::bench::{Bench, Work};
use super::{Entry, param};
use crate::pattern::{Axis, PatternSpec, Window, WindowsSpec};
use crate::program::ProgramError;

/// Threads of a block.
const THREADS: u64 = 256;

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 3] = [
    Entry {
        name: "add-vectors",
        summary: "y += x, floats, one thread an element (UVMSmart's AddVectors)",
        params: &[param("n", "elements", 1 << 20, 1, 1 << 40)],
        sized: false,
        build: add_vectors,
    },
    Entry {
        name: "triad-f32",
        summary: "z = 3 x + y, floats, one thread an element (UVMSmart's StreamTriad)",
        params: &[param("n", "elements", 1 << 20, 1, 1 << 40)],
        sized: false,
        build: triad,
    },
    Entry {
        name: "strided",
        summary: "thread i reads and writes the float at i x stride bytes",
        params: &[param(
            "stride",
            "bytes between neighbouring threads",
            4096,
            4,
            1 << 30,
        )],
        sized: true,
        build: strided,
    },
];

/// One thread an element of 4 bytes.
fn elements(operand: u32, n: u64) -> Window {
    Window::new(operand, Axis::new(THREADS * 4, n * 4).x(THREADS * 4))
}

fn add_vectors(b: &mut Bench) -> Result<(), ProgramError> {
    let n = b.param("n");
    let (x, y) = (b.input(u128::from(n) * 4)?, b.input(u128::from(n) * 4)?);
    let spec = WindowsSpec {
        grid: [n.div_ceil(THREADS), 1, 1],
        steps: 1,
        windows: [0, 1, 2].map(|operand| elements(operand, n)).to_vec(),
        ..WindowsSpec::default()
    };
    let work = Work {
        flops: n,
        read: 8 * n,
        write: 4 * n,
    };
    b.launch(
        "add-vectors",
        &[x, y],
        &[y],
        PatternSpec::windows(THREADS as u32, spec),
        work,
    )
}

fn triad(b: &mut Bench) -> Result<(), ProgramError> {
    let n = b.param("n");
    let bytes = u128::from(n) * 4;
    let (x, y, z) = (b.input(bytes)?, b.input(bytes)?, b.output(bytes)?);
    let spec = WindowsSpec {
        grid: [n.div_ceil(THREADS), 1, 1],
        steps: 1,
        windows: [0, 1, 2].map(|operand| elements(operand, n)).to_vec(),
        ..WindowsSpec::default()
    };
    let work = Work {
        flops: 2 * n,
        read: 8 * n,
        write: 4 * n,
    };
    b.launch(
        "triad",
        &[x, y],
        &[z],
        PatternSpec::windows(THREADS as u32, spec),
        work,
    )
}

fn strided(b: &mut Bench) -> Result<(), ProgramError> {
    let stride = b.param("stride");
    let bytes = b.options().array_bytes;
    let array = b.input(u128::from(bytes))?;
    let n = bytes.div_ceil(stride);
    let rows = Axis::new(THREADS, n).x(THREADS);
    let window = |operand| Window::new(operand, Axis::new(4, 4)).rows(rows, stride);
    let spec = WindowsSpec {
        grid: [n.div_ceil(THREADS), 1, 1],
        steps: 1,
        windows: vec![window(0), window(1)],
        ..WindowsSpec::default()
    };
    // A sector of 32 bytes is the least that memory moves.
    let moved = n * stride.clamp(4, 32);
    let work = Work {
        flops: n,
        read: moved,
        write: moved,
    };
    b.launch(
        "strided",
        &[array],
        &[array],
        PatternSpec::windows(THREADS as u32, spec),
        work,
    )
}
