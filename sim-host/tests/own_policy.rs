//! Adding a policy of one's own, from outside the crate: most recently served first.
//!
//! Inside the crate the type would be a file in `sim-host/src/eviction/`, and its name one line of the
//! `registry!` there.

mod support;

use sim_core::pages::VaBlock;
use sim_host::eviction::EvictionPolicy;
use sim_host::pmm::ChunkId;
use sim_host::policy::View;
use sim_host::prefetch::Nothing;
use sim_host::{DriverParams, HostCost, UvmDriver};

/// Evicts the block that was served last.
#[derive(Debug, Default)]
struct MostRecent {
    last: Option<VaBlock>,
}

impl EvictionPolicy for MostRecent {
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId> {
        view.chunk(self.last?)
    }
    fn served(&mut self, block: VaBlock, _view: &View<'_>) {
        self.last = Some(block);
    }
}

fn driver(policy: impl EvictionPolicy + 'static) -> UvmDriver {
    let params = DriverParams::default();
    UvmDriver::with_policies(params, HostCost::zero(), 3, Box::new(policy), Box::new(Nothing)).expect("valid")
}

#[test]
fn a_policy_from_outside_decides() {
    let mut bench = support::Bench::new(driver(MostRecent::default()), 6);
    for block in 0..5 {
        bench.read(block, 0);
    }
    // 3 took the chunk of 2, and 4 that of 3.
    assert_eq!(bench.resident(6), [0, 1, 4]);
}

/// Names a chunk that does not exist, and wants everything gone.
#[derive(Debug)]
struct Wild;

impl EvictionPolicy for Wild {
    fn victim(&mut self, _view: &View<'_>) -> Option<ChunkId> {
        Some(ChunkId::MAX)
    }
    fn pre_evict(&mut self, _view: &View<'_>) -> Option<ChunkId> {
        Some(ChunkId::MAX)
    }
}

#[test]
fn a_wild_policy_breaks_nothing() {
    let mut bench = support::Bench::new(driver(Wild), 6);
    for block in 0..6 {
        bench.read(block, 0);
    }
    assert_eq!(bench.resident(6), [3, 4, 5], "the driver's own victims");
    assert!(bench.driver.stats().policy_refusals >= 3);
}
