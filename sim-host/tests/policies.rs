//! The decision of each policy on a case made by hand.

mod support;

use sim_core::access::AccessKind;
use sim_host::{DriverParams, HostCost, UvmDriver};
use support::{Bench, page, plan};

fn params(eviction: &str, prefetch: &str) -> DriverParams {
    DriverParams {
        eviction_policy: eviction.parse().expect("a name"),
        prefetch_policy: prefetch.parse().expect("a name"),
        ..DriverParams::default()
    }
}

fn bench(params: DriverParams, chunks: u64, blocks: u64) -> Bench {
    let driver = UvmDriver::new(params, HostCost::zero(), chunks).expect("valid");
    Bench::new(driver, blocks)
}

/// Which of blocks 0, 1, 2 is gone after 0, 1, 2, again 0, and 3 have been served with 3 chunks.
fn gone(params: DriverParams) -> Vec<u64> {
    let mut bench = bench(params, 3, 5);
    for (block, index) in [(0, 0), (1, 0), (2, 0), (0, 100), (3, 0)] {
        bench.read(block, index);
    }
    let left = bench.resident(3);
    (0..3).filter(|block| !left.contains(block)).collect()
}

#[test]
fn victims_by_service() {
    assert_eq!(gone(params("driver", "none")), [1], "served longest ago");
    assert_eq!(gone(params("fifo", "none")), [0], "allocated first");
    let spare = DriverParams {
        eviction_reserve: 34,
        ..params("reserve-lru", "none")
    };
    assert_eq!(gone(spare), [2], "the oldest of three is spared");
    let drawn = gone(params("random", "none"));
    assert_eq!(drawn.len(), 1);
    assert_eq!(
        gone(params("random", "none")),
        drawn,
        "the same seed draws the same"
    );
}

/// Residents after kernels that touch `uses` one block each, faulting where the block is not resident.
fn after(policy: &str, uses: &[u64], future: &[u64]) -> Vec<u64> {
    let mut bench = bench(params(policy, "none"), 3, 6);
    bench.driver.set_plan(plan(&[uses, future].concat(), false));
    for (kernel, block) in uses.iter().enumerate() {
        bench.kernel(kernel as u64);
        if !bench.driver.is_resident(page(*block, 0)) {
            bench.read(*block, 0);
        }
    }
    bench.resident(6)
}

#[test]
fn victims_by_use() {
    // The hit on 0 is seen by true LRU, not by the driver.
    assert_eq!(after("driver", &[0, 1, 2, 0, 3], &[]), [1, 2, 3]);
    assert_eq!(after("true-lru", &[0, 1, 2, 0, 3], &[]), [0, 2, 3]);
    // 0 and 1 have been used twice, 2 once.
    assert_eq!(after("lfu", &[0, 1, 2, 0, 1, 3], &[]), [0, 1, 3]);
    // 1 is used again last; then one that is never used again goes.
    assert_eq!(after("belady", &[0, 1, 2, 3], &[0, 2, 1]), [0, 2, 3]);
    assert_eq!(after("belady", &[0, 1, 2, 3], &[0, 1]), [0, 1, 3]);
}

#[test]
fn no_policy_misses_less_than_belady() {
    // Cyclic, and a mix with locality; one block a kernel, so that misses are exact.
    let cyclic: Vec<u64> = (0..40).map(|i| i % 5).collect();
    let mixed: Vec<u64> = (0..60).map(|i: u64| i * i % 7 % 6).collect();
    for uses in [cyclic, mixed] {
        let evictions = |policy: &str| {
            let mut bench = bench(params(policy, "none"), 3, 6);
            bench.driver.set_plan(plan(&uses, false));
            for (kernel, block) in uses.iter().enumerate() {
                bench.kernel(kernel as u64);
                if !bench.driver.is_resident(page(*block, 0)) {
                    bench.read(*block, 0);
                }
            }
            bench.driver.stats().evictions
        };
        let bound = evictions("belady");
        for policy in sim_host::eviction::NAMES {
            assert!(evictions(policy) >= bound, "{policy}");
        }
        assert!(evictions("driver") > bound);
    }
}

#[test]
fn pre_evictions_free_memory_ahead_of_need() {
    let mut tree = bench(params("tree-pre-evict", "none"), 4, 8);
    for block in 0..6 {
        tree.read(block, 0);
    }
    assert_eq!(tree.resident(8), [2, 3, 4, 5]);
    assert_eq!(tree.driver.stats().pre_evictions, 0);
    // 2 goes; of 0..4 only 3 is left, less than half: it goes too. Then 0..8 holds three of eight: 4
    // and 5 go as well, and 6 would if this batch had not served it.
    tree.read(6, 0);
    assert_eq!(tree.resident(8), [6]);
    assert_eq!(tree.driver.stats().pre_evictions, 3);

    let quarter = DriverParams {
        eviction_watermark: 25,
        ..params("watermark", "none")
    };
    let mut watermark = bench(quarter, 4, 8);
    for block in 0..6 {
        watermark.read(block, 0);
        assert!(watermark.driver.chunks_in_use() <= 3, "a quarter stays free");
    }
    assert_eq!(watermark.resident(8), [3, 4, 5]);
}

#[test]
fn pages_of_a_service() {
    let pages = |prefetch: &str| {
        let mut bench = bench(params("driver", prefetch), 4, 2);
        bench.read(0, 5);
        bench.pages(0)
    };
    assert_eq!(pages("none"), [5]);
    assert_eq!(pages("64k"), (0..16).collect::<Vec<_>>());
    assert_eq!(pages("tree"), (0..16).collect::<Vec<_>>());
    assert_eq!(pages("sequential-local"), (5..21).collect::<Vec<_>>());
    assert_eq!(pages("2m"), (0..512).collect::<Vec<_>>());
}

#[test]
fn a_steady_stride_goes_on_into_the_next_block() {
    let degree = DriverParams {
        prefetch_degree: 2,
        ..params("driver", "stride")
    };
    let mut bench = bench(degree, 4, 2);
    for index in [100, 300, 500] {
        bench.read(0, index);
    }
    assert_eq!(bench.pages(0), [100, 300, 500]);
    assert_eq!(bench.pages(1), [188, 388]);
}

#[test]
fn correlation_fetches_what_followed_last_time() {
    let chain = DriverParams {
        prefetch_window: 1,
        ..params("driver", "correlation")
    };
    let mut bench = bench(chain, 2, 4);
    for block in 0..4 {
        bench.read(block, 0);
    }
    assert_eq!(bench.resident(4), [2, 3]);
    bench.read(0, 0);
    assert_eq!(bench.resident(4), [0, 1]);
    assert_eq!(bench.driver.stats().ahead_blocks, 1);
}

#[test]
fn planned_fetches_before_any_fault() {
    for (prefetch, window, expected) in [
        ("planned", 1, vec![0, 1]),
        ("planned", 2, vec![0, 1, 2]),
        ("oracle", 1, vec![0, 1, 2]),
    ] {
        let ahead = DriverParams {
            prefetch_window: window,
            ..params("belady", prefetch)
        };
        let mut bench = bench(ahead, 3, 6);
        bench.driver.set_plan(plan(&[5, 0, 1, 2, 3], false));
        bench.kernel(1);
        assert_eq!(bench.resident(6), expected, "{prefetch} {window}");
        assert_eq!(bench.driver.stats().batches, 0);
    }
}

#[test]
fn clean_pages_are_dropped_where_stores_are_tracked() {
    let out = |track: bool, writes: bool, access: AccessKind| {
        let tracking = DriverParams {
            dirty_tracking: track,
            ..params("driver", "2m")
        };
        let mut bench = bench(tracking, 1, 2);
        bench.driver.set_plan(plan(&[0, 1], writes));
        bench.kernel(0);
        bench.fault(page(0, 0), access);
        bench.kernel(1);
        bench.read(1, 0);
        bench.device.pages_out
    };
    assert_eq!(out(false, false, AccessKind::Read), 512);
    assert_eq!(out(true, false, AccessKind::Read), 0);
    assert_eq!(
        out(true, false, AccessKind::Write),
        1,
        "a fault of a store tells the page"
    );
    assert_eq!(out(true, true, AccessKind::Read), 512, "the plan tells the block");
}

#[test]
fn names_and_ranges_are_checked() {
    let error = "beledy"
        .parse::<sim_host::eviction::Policy>()
        .expect_err("no name");
    assert!(error.to_string().contains("belady") && error.to_string().contains("eviction.policy"));
    let error = "tre".parse::<sim_host::prefetch::Policy>().expect_err("no name");
    assert!(error.to_string().contains("sequential-local"));
    for (params, key) in [
        (
            DriverParams {
                eviction_reserve: 100,
                ..DriverParams::default()
            },
            "eviction.reserve",
        ),
        (
            DriverParams {
                eviction_watermark: 51,
                ..DriverParams::default()
            },
            "eviction.watermark",
        ),
        (
            DriverParams {
                prefetch_degree: 0,
                ..DriverParams::default()
            },
            "prefetch.degree",
        ),
        (
            DriverParams {
                prefetch_window: 0,
                ..DriverParams::default()
            },
            "prefetch.window",
        ),
    ] {
        let error = UvmDriver::new(params, HostCost::zero(), 1).expect_err("out of range");
        assert!(error.to_string().contains(key), "{error}");
    }
}
