//! Kernels of deep learning that go over whole tensors: element-wise, reduction, embedding, optimizer.

use super::bench::{Bench, Work};
use super::{Entry, param};
use crate::pattern::{Axis, PatternSpec, Touch, Walk, Window, WindowsSpec};
use crate::program::ProgramError;

/// Threads of an element-wise block and the bytes it covers (PyTorch's vectorised kernels: 128 threads of
/// four floats).
const THREADS: u32 = 128;
const BLOCK: u64 = 128 * 16;
/// Chunk of PyTorch's multi-tensor kernels: 65,536 floats by 512 threads of four floats a loop.
const CHUNK: u64 = 65_536 * 4;
const CHUNK_THREADS: u32 = 512;
const CHUNK_STEPS: u32 = 32;

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 5] = [
    Entry {
        name: "element-wise",
        summary: "y = f(x), PyTorch's vectorised kernel",
        params: &[],
        sized: true,
        build: element_wise,
    },
    Entry {
        name: "reduction",
        summary: "sum of a tensor: blocks stride over it, then one block adds their sums",
        params: &[param("blocks", "blocks of the first pass", 1024, 1, 1 << 20)],
        sized: true,
        build: reduction,
    },
    Entry {
        name: "embedding",
        summary: "rows of a table picked at random",
        params: &[
            param("n", "rows of the table", 1 << 20, 1, 1 << 36),
            param("m", "floats of a row", 128, 1, 1 << 20),
            param("lookups", "rows picked", 1 << 16, 1, 1 << 36),
        ],
        sized: false,
        build: embedding,
    },
    Entry {
        name: "embedding-backward",
        summary: "gradients added to random rows of a table",
        params: &[
            param("n", "rows of the table", 1 << 20, 1, 1 << 36),
            param("m", "floats of a row", 128, 1, 1 << 20),
            param("lookups", "rows picked", 1 << 16, 1, 1 << 36),
        ],
        sized: false,
        build: embedding_backward,
    },
    Entry {
        name: "adam",
        summary: "one fused multi-tensor Adam step: parameters, gradients, two moments",
        params: &[param("n", "tensors of array_size", 8, 1, 1 << 16)],
        sized: true,
        build: adam,
    },
];

fn element_wise(b: &mut Bench) -> Result<(), ProgramError> {
    let n = b.options().array_bytes;
    let (x, y) = (b.input(u128::from(n))?, b.output(u128::from(n))?);
    let own = |operand| Window::new(operand, Axis::new(BLOCK, n).x(BLOCK)).warp(512);
    let spec = WindowsSpec {
        grid: [n.div_ceil(BLOCK), 1, 1],
        steps: 1,
        windows: vec![own(0), own(1)],
        ..WindowsSpec::default()
    };
    let work = Work {
        flops: n / 4,
        read: n,
        write: n,
    };
    b.launch(
        "element-wise",
        &[x],
        &[y],
        PatternSpec::windows(THREADS, spec),
        work,
    )
}

fn reduction(b: &mut Bench) -> Result<(), ProgramError> {
    /// 512 threads of four floats, four loads in flight.
    const STEP: u64 = 512 * 16 * 4;
    let n = b.options().array_bytes;
    let blocks = b.param("blocks").min(n.div_ceil(STEP));
    let x = b.input(u128::from(n))?;
    let (sums, result) = (b.output(u128::from(blocks) * 4)?, b.output(4)?);
    let stride = blocks * STEP;
    let steps = n.div_ceil(stride).min(u64::from(u32::MAX)) as u32;
    let spec = WindowsSpec {
        grid: [blocks, 1, 1],
        steps,
        windows: vec![
            Window::new(0, Axis::new(STEP, n).x(STEP).step(stride)).warp(512),
            Window::new(1, Axis::new(4, blocks * 4).x(4)).in_steps(steps - 1, steps),
        ],
        ..WindowsSpec::default()
    };
    let work = Work {
        flops: n / 4,
        read: n,
        write: blocks * 4,
    };
    b.launch(
        "reduction-1",
        &[x],
        &[sums],
        PatternSpec::windows(512, spec),
        work,
    )?;
    let last = WindowsSpec {
        grid: [1, 1, 1],
        steps: 1,
        windows: vec![
            Window::new(0, Axis::new(blocks * 4, blocks * 4)),
            Window::new(1, Axis::new(4, 4)),
        ],
        ..WindowsSpec::default()
    };
    let work = Work {
        flops: blocks,
        read: blocks * 4,
        write: 4,
    };
    b.launch(
        "reduction-2",
        &[sums],
        &[result],
        PatternSpec::windows(512, last),
        work,
    )
}

/// Blocks of 256 threads, a warp for each of 8 rows.
const ROWS: u64 = 8;

fn rows(operand: u32, count: u64, row: u64) -> Window {
    Window::new(operand, Axis::new(ROWS * row, count * row).x(ROWS * row)).warp(512)
}

fn picked(operand: u32, row: u64, atomic: bool) -> Touch {
    Touch {
        atomic,
        lanes: 1,
        ..Touch::new(operand, ROWS, row, row, (0, 1))
    }
}

fn embedding(b: &mut Bench) -> Result<(), ProgramError> {
    let (n, row, lookups) = (b.param("n"), b.param("m") * 4, b.param("lookups"));
    let table = b.input(u128::from(n) * u128::from(row))?;
    let indices = b.input(u128::from(lookups) * 8)?;
    let out = b.output(u128::from(lookups) * u128::from(row))?;
    let spec = WindowsSpec {
        grid: [lookups.div_ceil(ROWS), 1, 1],
        steps: 2,
        windows: vec![
            rows(1, lookups, 8).in_steps(0, 1),
            rows(2, lookups, row).in_steps(1, 2),
        ],
        touches: vec![Touch {
            steps: (1, 2),
            ..picked(0, row, false)
        }],
        seed: b.options().seed,
    };
    let work = Work {
        flops: 0,
        read: lookups * (row + 8),
        write: lookups * row,
    };
    b.launch(
        "embedding",
        &[table, indices],
        &[out],
        PatternSpec::windows(256, spec),
        work,
    )
}

fn embedding_backward(b: &mut Bench) -> Result<(), ProgramError> {
    let (n, row, lookups) = (b.param("n"), b.param("m") * 4, b.param("lookups"));
    let gradient = b.input(u128::from(lookups) * u128::from(row))?;
    let indices = b.input(u128::from(lookups) * 8)?;
    let table = b.input(u128::from(n) * u128::from(row))?;
    let spec = WindowsSpec {
        grid: [lookups.div_ceil(ROWS), 1, 1],
        steps: 1,
        windows: vec![rows(0, lookups, row), rows(1, lookups, 8)],
        touches: vec![picked(2, row, true)],
        seed: b.options().seed,
    };
    let work = Work {
        flops: lookups * row / 4,
        read: lookups * (row + 8),
        write: lookups * 2 * row,
    };
    b.launch(
        "embedding-backward",
        &[gradient, indices],
        &[table],
        PatternSpec::windows(256, spec),
        work,
    )
}

fn adam(b: &mut Bench) -> Result<(), ProgramError> {
    let (tensors, bytes) = (b.param("n"), b.options().array_bytes);
    let mut lists = [const { Vec::new() }; 4];
    for _ in 0..tensors {
        for list in &mut lists {
            list.push(b.input(u128::from(bytes))?);
        }
    }
    let [parameters, gradients, first, second] = lists;
    let reads = [&parameters[..], &gradients, &first, &second].concat();
    let writes = [&parameters[..], &first, &second].concat();
    let walk = Walk::Lists {
        chunk: CHUNK,
        steps: CHUNK_STEPS,
        lists: 4,
        stores: 3,
    };
    let total = tensors * bytes;
    let work = Work {
        flops: total / 4 * 12,
        read: 4 * total,
        write: 3 * total,
    };
    let pattern = PatternSpec::new(CHUNK_THREADS, walk);
    b.launch("adam", &reads, &writes, pattern, work)
}
