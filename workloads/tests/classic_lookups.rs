//! Kernels whose places are drawn: how many, where, and that they are the same every time.

mod launches;

use std::collections::{BTreeMap, BTreeSet};

use launches::{ARRAY_BYTES, launches, pages};
use sim_core::access::{AccessPattern, StepAccesses};
use workloads::Kernel;

fn steps(kernel: &Kernel, mut see: impl FnMut(u64, u32, &StepAccesses)) {
    let mut out = StepAccesses::default();
    for block in 0..kernel.pattern.blocks() {
        for step in 0..kernel.pattern.steps() {
            out.clear();
            kernel.pattern.step(block, step, &mut out);
            see(block, step, &out);
        }
    }
}

#[test]
fn every_warp_reads_one_place() {
    let made = launches("random-warp", &[("blocks", 16)]);
    let mut counts = BTreeMap::new();
    let mut all = 0_u64;
    steps(&made.kernels[0], |_, _, out| {
        assert!(out.stores.is_empty());
        let warps: u64 = out.loads.iter().map(|a| u64::from(a.warps)).sum();
        assert_eq!(warps, 4);
        for access in &out.loads {
            assert_eq!(access.pages, 1);
            *counts.entry(access.first.0).or_insert(0_u64) += u64::from(access.warps);
        }
        all += warps;
    });
    // As many reads as the array has 128 bytes, rounded up to whole steps of 64 warps.
    assert_eq!(all, ARRAY_BYTES.div_ceil(128).next_multiple_of(64));
    // Evenly over the 489 pages: chi-square with 488 degrees of freedom, five standard deviations.
    let expected = all as f64 / 489.0;
    let drawn = (made.arrays[0].start / 4096..made.arrays[0].start / 4096 + 489)
        .map(|page| counts.get(&page).copied().unwrap_or(0));
    let chi: f64 = drawn.map(|n| (n as f64 - expected).powi(2) / expected).sum();
    assert!((chi - 488.0).abs() < 5.0 * (2.0_f64 * 488.0).sqrt(), "{chi}");
}

#[test]
fn the_chase_visits_every_page_once() {
    let made = launches("pointer-chase", &[]);
    let mut order = Vec::new();
    steps(&made.kernels[0], |_, _, out| {
        assert_eq!(out.loads.len(), 1);
        order.push(out.loads[0].first.0);
    });
    let distinct: BTreeSet<u64> = order.iter().copied().collect();
    assert_eq!((order.len(), distinct.len()), (489, 489));
    let ascending = order.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
    assert!(ascending < 10, "{ascending} of 488 steps go to the next page");
}

#[test]
fn updates_store_where_they_load() {
    let made = launches("gups", &[("lookups", 8192), ("blocks", 4)]);
    assert_eq!(made.kernels[0].pattern.steps(), 8);
    let mut all = BTreeSet::new();
    steps(&made.kernels[0], |_, _, out| {
        let loads: Vec<_> = out.loads.iter().map(|a| (a.first, a.warps)).collect();
        let stores: Vec<_> = out.stores.iter().map(|a| (a.first, a.warps)).collect();
        assert_eq!(loads, stores);
        all.extend(out.loads.iter().flat_map(pages));
    });
    assert_eq!(all.len(), 489);
}

/// A bisection starts in the middle, goes to the quarters, and ends at the place whose row it reads.
#[test]
fn cross_sections_are_bisected() {
    let (nuclides, energies, each) = (8, 4096, 3);
    let shape = [("lookups", 512), ("m", nuclides), ("n", energies), ("k", each)];
    let made = launches("xsbench", &shape);
    let union = nuclides * energies;
    let bisection = 16;
    assert_eq!(made.kernels[0].pattern.steps(), bisection + 1 + each as u32);
    let page = |array: usize, byte: u64| (made.arrays[array].start + byte) / 4096;
    let mut narrowed: BTreeSet<u64> = BTreeSet::new();
    steps(&made.kernels[0], |block, step, out| {
        let found: BTreeSet<u64> = out.loads.iter().flat_map(pages).collect();
        let warps: u64 = out
            .loads
            .iter()
            .map(|a| u64::from(a.warps) * u64::from(a.pages))
            .sum();
        match step {
            // All eight warps at one place, then at two.
            0 => assert_eq!(
                (found, warps),
                (BTreeSet::from([page(0, union / 2 * 8)]), 8),
                "{block}"
            ),
            1 => assert_eq!(
                found,
                BTreeSet::from([page(0, union / 4 * 8), page(0, union / 4 * 3 * 8)])
            ),
            s if s == bisection - 1 => {
                // Bytes of an energy and of its row of indices: 8 and 32, pages in the ratio 4.
                narrowed = found.iter().map(|p| p - page(0, 0)).collect();
            }
            s if s == bisection => {
                for p in found {
                    let row = p - page(1, 0);
                    let near = row / 4;
                    assert!(narrowed.contains(&near), "row page {row} of {narrowed:?}");
                }
            }
            s if s > bisection => {
                let range = page(2, 0)..=page(2, union * 48);
                assert!(found.iter().all(|p| range.contains(p)));
            }
            _ => {}
        }
    });
}

#[test]
fn rows_of_a_table() {
    let (rows, floats, lookups) = (5000, 300, 1000);
    let shape = [("n", rows), ("m", floats), ("lookups", lookups)];
    for (name, table, scatter) in [("embedding", 0, false), ("embedding-backward", 2, true)] {
        let made = launches(name, &shape);
        let range = made.arrays[table];
        let mut picked = 0_u64;
        steps(&made.kernels[0], |_, _, out| {
            let side = if scatter { &out.stores } else { &out.loads };
            for access in side.iter().filter(|a| {
                a.first.address() + 4095 >= range.start && a.first.address() < range.start + range.bytes
            }) {
                // A row of 1,200 bytes lies in one or two pages.
                assert!(access.pages <= 2);
                picked += u64::from(access.warps);
            }
        });
        assert_eq!(picked, lookups, "{name}");
    }
}
