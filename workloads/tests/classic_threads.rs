//! The kernels against their definition: what every thread of every block touches, worked out from the
//! index formulas of the suites, has to be the pages that the block's pattern gives.

// The names of the suites' index formulas.
#![allow(clippy::many_single_char_names)]

mod launches;

use std::collections::BTreeSet;

use launches::{Launches, blocks_of, launches};
use sim_core::access::{AccessPattern, StepAccesses};

/// Loads and stores of one thread: array (in the order of allocation) and byte.
type Touch<'a> = &'a mut dyn FnMut(usize, u64);

/// Compares launch `which` of the kernel: `thread(block, loads, stores)` reports what all threads of a
/// block touch.
fn compare(made: &Launches, which: usize, thread: impl Fn(u64, Touch, Touch)) {
    let kernel = &made.kernels[which];
    let mut step = StepAccesses::default();
    for block in 0..kernel.pattern.blocks() {
        let (mut loads, mut stores) = (BTreeSet::new(), BTreeSet::new());
        thread(
            block,
            &mut |array, byte| {
                assert!(byte < made.arrays[array].bytes, "{} {array} {byte}", kernel.name);
                loads.insert((made.arrays[array].start + byte) / 4096);
            },
            &mut |array, byte| {
                assert!(byte < made.arrays[array].bytes, "{} {array} {byte}", kernel.name);
                stores.insert((made.arrays[array].start + byte) / 4096);
            },
        );
        let (mut found_loads, mut found_stores) = (BTreeSet::new(), BTreeSet::new());
        for s in 0..kernel.pattern.steps() {
            step.clear();
            kernel.pattern.step(block, s, &mut step);
            found_loads.extend(step.loads.iter().flat_map(launches::pages));
            found_stores.extend(step.stores.iter().flat_map(launches::pages));
        }
        assert_eq!(found_loads, loads, "{}: loads of block {block}", kernel.name);
        assert_eq!(found_stores, stores, "{}: stores of block {block}", kernel.name);
    }
}

#[test]
fn streams() {
    let n = 5000;
    let made = launches("triad-f32", &[("n", n)]);
    assert_eq!(blocks_of(&made, 0), 20);
    compare(&made, 0, |b, load, store| {
        for i in (b * 256..(b + 1) * 256).filter(|i| *i < n) {
            load(0, i * 4);
            load(1, i * 4);
            store(2, i * 4);
        }
    });
    let made = launches("add-vectors", &[("n", n)]);
    compare(&made, 0, |b, load, store| {
        for i in (b * 256..(b + 1) * 256).filter(|i| *i < n) {
            load(0, i * 4);
            load(1, i * 4);
            store(1, i * 4);
        }
    });
    let made = launches("strided", &[("stride", 3000)]);
    let bytes = launches::ARRAY_BYTES;
    compare(&made, 0, |b, load, store| {
        for at in (b * 256..(b + 1) * 256)
            .map(|i| i * 3000)
            .filter(|at| *at < bytes)
        {
            load(0, at);
            store(0, at);
        }
    });
}

#[test]
fn convolution_of_a_matrix() {
    let n = 192;
    let made = launches("2dconv", &[("n", n)]);
    let wide = n / 32;
    compare(&made, 0, |b, load, store| {
        for (i, j) in tile(b % wide, b / wide, (32, 8)) {
            if (1..n - 1).contains(&i) && (1..n - 1).contains(&j) {
                for (di, dj) in tile(0, 0, (3, 3)) {
                    load(0, ((i + di - 1) * n + j + dj - 1) * 4);
                }
                store(1, (i * n + j) * 4);
            }
        }
    });
}

/// Rows and columns of a tile: (i, j) of each cell.
fn tile(x: u64, y: u64, (width, height): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    (y * height..(y + 1) * height).flat_map(move |i| (x * width..(x + 1) * width).map(move |j| (i, j)))
}

#[test]
fn fdtd() {
    let n = 160;
    let made = launches("fdtd-2d", &[("n", n), ("steps", 2)]);
    assert_eq!(made.kernels.len(), 6);
    let wide = n / 32;
    let (fict, ex, ey, hz) = (0, 1, 2, 3);
    for t in 0..2 {
        compare(&made, 3 * t, |b, load, store| {
            for (i, j) in tile(b % wide, b / wide, (32, 8)) {
                // The threads of row 0 read only `fict`; the windows of the others reach over their rows.
                if i == 0 {
                    load(fict, t as u64 * 4);
                }
                load(hz, (i * n + j) * 4);
                if i > 0 {
                    load(hz, ((i - 1) * n + j) * 4);
                }
                load(ey, (i * n + j) * 4);
                store(ey, (i * n + j) * 4);
            }
        });
        compare(&made, 3 * t + 1, |b, load, store| {
            for (i, j) in tile(b % wide, b / wide, (32, 8)) {
                load(hz, (i * n + j) * 4);
                if j > 0 {
                    load(hz, (i * n + j - 1) * 4);
                    load(ex, (i * (n + 1) + j) * 4);
                    store(ex, (i * (n + 1) + j) * 4);
                }
            }
        });
        compare(&made, 3 * t + 2, |b, load, store| {
            for (i, j) in tile(b % wide, b / wide, (32, 8)) {
                load(ex, (i * (n + 1) + j + 1) * 4);
                load(ex, (i * (n + 1) + j) * 4);
                load(ey, ((i + 1) * n + j) * 4);
                load(ey, (i * n + j) * 4);
                load(hz, (i * n + j) * 4);
                store(hz, (i * n + j) * 4);
            }
        });
    }
}

#[test]
fn rodinia_grids() {
    let n = 100;
    let made = launches("hotspot", &[("n", n), ("steps", 4)]);
    let wide = n.div_ceil(12);
    for which in 0..2 {
        // T0 -> T1, then T1 -> T0.
        let (from, to) = [(0, 1), (1, 0)][which];
        compare(&made, which, |b, load, store| {
            let (x, y) = (b % wide * 12, b / wide * 12);
            for (i, j) in tile(0, 0, (16, 16)) {
                // The tile starts two cells to the left of and above its result.
                let (i, j) = ((y + i).wrapping_sub(2), (x + j).wrapping_sub(2));
                if i < n && j < n {
                    load(from, (i * n + j) * 4);
                    load(2, (i * n + j) * 4);
                    let inner = |at: u64, first: u64| (first..first + 12).contains(&at);
                    if inner(i, y) && inner(j, x) {
                        store(to, (i * n + j) * 4);
                    }
                }
            }
        });
    }
    let (rows, columns) = (26, 3000);
    let made = launches("pathfinder", &[("n", rows), ("m", columns)]);
    assert_eq!(made.kernels.len(), 3);
    compare(&made, 2, |b, load, store| {
        // The last five of 25 rows of wall; results 0 and 1 have changed places twice.
        for tx in 0..256 {
            let column = (236 * b + tx).wrapping_sub(10);
            if column < columns {
                load(0, column * 4);
                for row in 20..25 {
                    load(2, (row * columns + column) * 4);
                }
                if (10..246).contains(&tx) {
                    store(1, column * 4);
                }
            }
        }
    });
    let n = 96;
    let made = launches("srad", &[("n", n), ("steps", 1)]);
    let wide = n / 16;
    compare(&made, 0, |b, load, store| {
        for (i, j) in tile(b % wide, b / wide, (16, 16)) {
            for (i, j) in [
                (i, j),
                (i.saturating_sub(1), j),
                ((i + 1).min(n - 1), j),
                (i, j.saturating_sub(1)),
                (i, (j + 1).min(n - 1)),
            ] {
                load(0, (i * n + j) * 4);
            }
            (1..6).for_each(|array| store(array, (i * n + j) * 4));
        }
    });
    compare(&made, 1, |b, load, store| {
        for (i, j) in tile(b % wide, b / wide, (16, 16)) {
            for array in [0, 1, 2, 3, 4, 5] {
                load(array, (i * n + j) * 4);
            }
            load(1, ((i + 1).min(n - 1) * n + j) * 4);
            load(1, (i * n + (j + 1).min(n - 1)) * 4);
            store(0, (i * n + j) * 4);
        }
    });
}

#[test]
fn backprop() {
    let n = 640;
    let made = launches("backprop", &[("n", n)]);
    let (inputs, w1, w2, previous, delta, partial) = (0, 1, 2, 3, 4, 5);
    compare(&made, 0, |b, load, store| {
        for (y, x) in tile(0, 0, (16, 16)) {
            let weight = (272 * b + 17 * y + x + 18) * 4;
            load(inputs, (16 * b + y + 1) * 4);
            load(w1, weight);
            store(w1, weight);
            store(partial, (16 * b + y) * 4);
        }
    });
    compare(&made, 1, |b, load, store| {
        for (y, x) in tile(0, 0, (16, 16)) {
            let weight = (272 * b + 17 * y + x + 18) * 4;
            load(delta, (x + 1) * 4);
            load(inputs, (16 * b + y + 1) * 4);
            load(previous, weight);
            load(w2, weight);
            store(w2, weight);
            store(previous, weight);
        }
    });
}

#[test]
fn wavefront() {
    let (n, side) = (160, 161);
    let made = launches("nw", &[("n", n)]);
    assert_eq!(made.kernels.len(), 19);
    let visit = |x: u64, y: u64, load: Touch, store: Touch| {
        load(1, (16 * y * side + 16 * x) * 4);
        for k in 1..=16 {
            load(1, ((16 * y + k) * side + 16 * x) * 4);
            load(1, (16 * y * side + 16 * x + k) * 4);
            for l in 1..=16 {
                load(0, ((16 * y + k) * side + 16 * x + l) * 4);
                store(1, ((16 * y + k) * side + 16 * x + l) * 4);
            }
        }
    };
    for i in 1..=10_u64 {
        compare(&made, i as usize - 1, |b, load, store| {
            visit(b, i - 1 - b, load, store);
        });
    }
    for (which, i) in (1..10_u64).rev().enumerate() {
        compare(&made, 10 + which, |b, load, store| {
            visit(b + 10 - i, 9 - b, load, store);
        });
    }
}

#[test]
fn matrix_times_vector() {
    let n = 600;
    let made = launches("atax", &[("n", n)]);
    let (a, x, y, tmp) = (0, 1, 2, 3);
    assert_eq!(made.kernels[0].pattern.steps(), 75);
    compare(&made, 0, |b, load, store| {
        for i in (256 * b..256 * (b + 1)).filter(|i| *i < n) {
            for j in 0..n {
                load(a, (i * n + j) * 4);
                load(x, j * 4);
            }
            store(tmp, i * 4);
        }
    });
    assert_eq!(made.kernels[1].pattern.steps(), 600);
    compare(&made, 1, |b, load, store| {
        for j in (256 * b..256 * (b + 1)).filter(|j| *j < n) {
            for i in 0..n {
                load(a, (i * n + j) * 4);
                load(tmp, i * 4);
            }
            store(y, j * 4);
        }
    });
    let n = 40;
    let made = launches("gram-schmidt", &[("n", n)]);
    assert_eq!(made.kernels.len(), 3 * 40 - 1);
    let (a, r, q) = (0, 1, 2);
    let k = 7;
    let at = |i: u64, j: u64| (i * n + j) * 4;
    compare(&made, 3 * k as usize, |_, load, store| {
        (0..n).for_each(|i| load(a, at(i, k)));
        store(r, at(k, k));
    });
    compare(&made, 3 * k as usize + 1, |_, load, store| {
        load(r, at(k, k));
        (0..n).for_each(|i| {
            load(a, at(i, k));
            store(q, at(i, k));
        });
    });
    compare(&made, 3 * k as usize + 2, |_, load, store| {
        for j in k + 1..n {
            store(r, at(k, j));
            for i in 0..n {
                load(q, at(i, k));
                load(a, at(i, j));
                store(a, at(i, j));
            }
        }
    });
}

#[test]
fn transform() {
    let bits = 19;
    let n = 1_u64 << bits;
    let made = launches("fft", &[("scale", bits)]);
    assert_eq!(made.kernels.len(), 3);
    let mut s = 1;
    for (pass, radix) in [256, 256, 8].into_iter().enumerate() {
        let (from, to) = [(0, 1), (1, 0)][pass % 2];
        let mut seen = BTreeSet::new();
        compare(&made, pass, |b, load, store| {
            // Sixteen neighbouring j a block, in order.
            for j in 16 * b..16 * (b + 1) {
                for r in 0..radix {
                    load(from, (j + r * (n / radix)) * 8);
                    store(to, (j / s * s * radix + j % s + r * s) * 8);
                }
            }
        });
        // The formula itself writes every point once.
        for j in 0..n / radix {
            for r in 0..radix {
                seen.insert(j / s * s * radix + j % s + r * s);
            }
        }
        assert_eq!(seen.len() as u64, n);
        s *= radix;
    }
}

#[test]
fn networks() {
    let (rows, columns) = (50, 700);
    let made = launches("softmax", &[("n", rows), ("m", columns)]);
    compare(&made, 0, |b, load, store| {
        for j in 0..columns {
            load(0, (b * columns + j) * 4);
            store(1, (b * columns + j) * 4);
        }
    });
    let (batch, channels, pixels) = (3, 5, 900);
    let made = launches("batch-norm", &[("batch", batch), ("m", channels), ("n", pixels)]);
    compare(&made, 0, |c, load, store| {
        for b in 0..batch {
            (0..pixels).for_each(|p| load(0, ((b * channels + c) * pixels + p) * 4));
        }
        store(2, c * 4);
        store(3, c * 4);
    });
    compare(&made, 1, |block, load, store| {
        let c = block % channels;
        load(2, c * 4);
        load(3, c * 4);
        for p in 0..pixels {
            load(0, (block * pixels + p) * 4);
            store(1, (block * pixels + p) * 4);
        }
    });
    let (heads, n, k) = (6, 300, 64);
    let made = launches(
        "flash-attention",
        &[("batch", 2), ("heads", 3), ("n", n), ("k", k)],
    );
    compare(&made, 0, |block, load, store| {
        let (tile, head) = (block % 3, block / 3);
        assert!(head < heads);
        for row in 0..n {
            for c in 0..k {
                load(1, ((head * n + row) * k + c) * 4);
                load(2, ((head * n + row) * k + c) * 4);
                if row / 128 == tile {
                    load(0, ((head * n + row) * k + c) * 4);
                    store(3, ((head * n + row) * k + c) * 4);
                }
            }
        }
    });
    // 3 x 3 filters over images of 40 x 40: a tile has four rows.
    let shape = [("batch", 2), ("m", 6), ("k", 140), ("n", 40), ("stride", 3)];
    let made = launches("conv-implicit", &shape);
    compare(&made, 0, |block, load, store| {
        let (filters, rows, image) = (block % 2, block / 2 % 10, block / 20);
        for y in 4 * rows..4 * rows + 4 {
            for x in 0..40 {
                for c in 0..6 {
                    for dy in 0..3 {
                        let source = (y + dy).wrapping_sub(1);
                        if source < 40 {
                            load(0, (((image * 6 + c) * 40 + source) * 40 + x) * 4);
                        }
                    }
                }
                for f in (128 * filters..128 * (filters + 1)).filter(|f| *f < 140) {
                    store(2, (((image * 140 + f) * 40 + y) * 40 + x) * 4);
                }
            }
        }
        for f in (128 * filters..128 * (filters + 1)).filter(|f| *f < 140) {
            (0..54).for_each(|tap| load(1, (f * 54 + tap) * 4));
        }
    });
}
