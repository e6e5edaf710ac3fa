//! Random lookups: warps, pointer chase, updates, cross sections.

use super::bench::{Bench, Work};
use super::{Entry, param};
use crate::pattern::{Axis, PatternSpec, Place, SweepOrder, Touch, Walk, Window, WindowsSpec};
use crate::program::ProgramError;
use sim_core::pages::PAGE_BYTES;

/// Bytes of a memory sector: the least that moves.
const SECTOR: u64 = 32;

/// The kernels of this file.
pub(super) const CATALOG: [Entry; 5] = [
    Entry {
        name: "random-warp",
        summary: "each warp reads 128 bytes of a random piece, as often as the array has 128 bytes",
        params: &[
            param("stride", "bytes of a piece", 4096, 128, 1 << 30),
            param("blocks", "blocks of 128 threads", 2048, 1, 1 << 30),
        ],
        sized: true,
        build: random_warp,
    },
    Entry {
        name: "pointer-chase",
        summary: "one thread follows a list through all pages in random order",
        params: &[],
        sized: true,
        build: pointer_chase,
    },
    Entry {
        name: "gups",
        summary: "random 8-byte updates of a table (HPCC RandomAccess)",
        params: &[
            param("lookups", "updates", 1 << 22, 1, 1 << 40),
            param("blocks", "blocks of 256 threads", 1024, 1, 1 << 30),
        ],
        sized: true,
        build: gups,
    },
    Entry {
        name: "random-access",
        summary: "every 100th thread copies a random float of a table (UVMSmart's ra)",
        params: &[param("n", "elements of each array", 1 << 20, 256, 1 << 38)],
        sized: false,
        build: random_access,
    },
    Entry {
        name: "xsbench",
        summary: "cross-section lookups: bisection of a union grid, then a row of each nuclide (XSBench-like)",
        params: &[
            param("lookups", "lookups, one a thread", 1 << 18, 1, 1 << 36),
            param("m", "nuclides", 68, 1, 1 << 12),
            param("n", "energies of each nuclide", 11_303, 2, 1 << 28),
            param("k", "nuclides of a lookup", 16, 1, 1 << 12),
        ],
        sized: false,
        build: xsbench,
    },
];

fn random_warp(b: &mut Bench) -> Result<(), ProgramError> {
    const WARPS: u64 = 4;
    let (stride, blocks) = (b.param("stride"), b.param("blocks"));
    let bytes = b.options().array_bytes;
    let array = b.input(u128::from(bytes))?;
    let reads = bytes.div_ceil(128);
    let steps = reads.div_ceil(blocks * WARPS).min(u64::from(u32::MAX)) as u32;
    // A warp touches one place with all its lanes.
    let touch = Touch {
        place: Place::Fresh,
        lanes: 1,
        ..Touch::new(0, WARPS, stride, 128, (0, steps))
    };
    let spec = WindowsSpec {
        grid: [blocks, 1, 1],
        steps,
        touches: vec![touch],
        seed: b.options().seed,
        ..WindowsSpec::default()
    };
    let work = Work {
        flops: reads * 32,
        read: reads * 128,
        write: 0,
    };
    b.launch(
        "random-warp",
        &[array],
        &[],
        PatternSpec::windows(128, spec),
        work,
    )
}

fn pointer_chase(b: &mut Bench) -> Result<(), ProgramError> {
    let array = b.input(u128::from(b.options().array_bytes))?;
    let pages = array.bytes.div_ceil(PAGE_BYTES);
    let walk = Walk::Sweep {
        blocks: 1,
        steps: u32::try_from(pages)
            .map_err(|_| ProgramError::Builtin("pointer-chase: more than 2^32 pages".to_owned()))?,
        order: SweepOrder::Shuffled,
        seed: b.options().seed,
        pages_per_thread: 0,
    };
    let work = Work {
        read: pages * SECTOR,
        ..Work::default()
    };
    b.launch("pointer-chase", &[array], &[], PatternSpec::new(1, walk), work)
}

fn gups(b: &mut Bench) -> Result<(), ProgramError> {
    const THREADS: u64 = 256;
    let (updates, blocks) = (b.param("lookups"), b.param("blocks"));
    let table = b.input(u128::from(b.options().array_bytes))?;
    let steps = updates.div_ceil(blocks * THREADS).min(u64::from(u32::MAX)) as u32;
    let touch = |operand| Touch {
        place: Place::Fresh,
        ..Touch::new(operand, THREADS, 8, 8, (0, steps))
    };
    let spec = WindowsSpec {
        grid: [blocks, 1, 1],
        steps,
        touches: vec![touch(0), touch(1)],
        seed: b.options().seed,
        ..WindowsSpec::default()
    };
    let work = Work {
        flops: updates,
        read: updates * SECTOR,
        write: updates * SECTOR,
    };
    b.launch(
        "gups",
        &[table],
        &[table],
        PatternSpec::windows(THREADS as u32, spec),
        work,
    )
}

fn random_access(b: &mut Bench) -> Result<(), ProgramError> {
    const THREADS: u64 = 256;
    const EVERY: u64 = 100;
    let n = b.param("n");
    let bytes = u128::from(n) * 4;
    let (input, table, output) = (b.input(bytes)?, b.input(bytes)?, b.output(bytes)?);
    let active = |operand, granule, steps| Touch {
        rate: (THREADS, EVERY),
        // The active threads are in different warps.
        lanes: 1,
        ..Touch::new(operand, 1, granule, 4, steps)
    };
    // The input is read in order; its value is the place in the table and in the output.
    let spec = WindowsSpec {
        grid: [n.div_ceil(THREADS), 1, 1],
        steps: 2,
        touches: vec![
            Touch {
                place: Place::Ascending,
                ..active(0, 4 * EVERY, (0, 1))
            },
            active(1, 4, (1, 2)),
            active(2, 4, (1, 2)),
        ],
        seed: b.options().seed,
        ..WindowsSpec::default()
    };
    let lookups = n.div_ceil(EVERY);
    let work = Work {
        flops: lookups,
        read: 2 * lookups * SECTOR,
        write: lookups * SECTOR,
    };
    b.launch(
        "random-access",
        &[input, table],
        &[output],
        PatternSpec::windows(THREADS as u32, spec),
        work,
    )
}

/// Sizes: `XSBench`'s small problem has 68 nuclides of 11,303 energies; a material has 15.5 nuclides on
/// average there (`Materials.c`: nuclides of each material times the probability of the material).
fn xsbench(b: &mut Bench) -> Result<(), ProgramError> {
    const THREADS: u64 = 256;
    /// An energy and five cross sections, doubles.
    const POINT: u64 = 48;
    let (lookups, nuclides, energies, each) = (b.param("lookups"), b.param("m"), b.param("n"), b.param("k"));
    let union = nuclides * energies;
    let grid = b.input(u128::from(union) * 8)?;
    let index = b.input(u128::from(union) * u128::from(nuclides) * 4)?;
    let points = b.input(u128::from(union) * u128::from(POINT))?;
    let out = b.output(u128::from(lookups) * 40)?;
    let bisection = u64::BITS - union.leading_zeros();
    let steps = bisection + 1 + each as u32;
    let last = steps - 1;
    let spec = WindowsSpec {
        grid: [lookups.div_ceil(THREADS), 1, 1],
        steps,
        windows: vec![
            Window::new(3, Axis::new(THREADS * 40, lookups * 40).x(THREADS * 40)).in_steps(last, steps),
        ],
        touches: vec![
            Touch {
                place: Place::Bisect,
                ..Touch::new(0, THREADS, 8, 8, (0, bisection))
            },
            // The row of the union grid's place; a lookup reads one index of it for each nuclide.
            Touch::new(
                1,
                THREADS,
                nuclides * 4,
                each.min(nuclides) * 4,
                (bisection, bisection + 1),
            ),
            // Two neighbouring points of a nuclide.
            Touch {
                stream: 1,
                place: Place::Fresh,
                ..Touch::new(2, THREADS, POINT, 2 * POINT, (bisection + 1, steps))
            },
        ],
        seed: b.options().seed,
    };
    let per_lookup = SECTOR * u64::from(bisection) + SECTOR * (each * 4).div_ceil(SECTOR) + each * 4 * SECTOR;
    let work = Work {
        flops: lookups * each * 30,
        read: lookups * per_lookup,
        write: lookups * 40,
    };
    b.launch(
        "xsbench",
        &[grid, index, points],
        &[out],
        PatternSpec::windows(THREADS as u32, spec),
        work,
    )
}
