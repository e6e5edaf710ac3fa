//! Coalesced faults serviced per second of wall time, driver alone: its device does nothing but count.
//!
//! Each case is one pass over a range; batches hold 256 entries of distinct pages.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sim_core::Time;
use sim_core::access::AccessKind;
use sim_core::fault::FaultEntry;
use sim_core::pages::{BLOCK_BYTES, ByteRange, PAGES_PER_BLOCK, Page};
use sim_core::push::{CHANNELS, Push, Ticket};
use sim_host::{Device, DriverParams, HostCost, UvmDriver};

const BASE: u64 = 0x7000_0000_0000;
const BLOCKS: u64 = 512;

/// Entry `n` faults on page `page(n)`; there are `entries` of them.
struct Source<F> {
    page: F,
    entries: u64,
    put: u64,
    counts: [u64; CHANNELS],
    wake: Option<Time>,
    completed: Option<Ticket>,
}

impl<F: Fn(u64) -> Page> Device for Source<F> {
    fn fault_put(&mut self, _at: Time) -> u64 {
        // No more than a batch is ever visible, so that nothing is discarded by a flush.
        self.put = (self.put + 256).min(self.entries);
        self.put
    }
    fn fault_entry(&mut self, index: u64, at: Time) -> Option<FaultEntry> {
        Some(FaultEntry {
            page: (self.page)(index),
            access: AccessKind::Write,
            utlb: (index % 108) as u16,
            instance: 0,
            raised: at,
        })
    }
    fn set_fault_get(&mut self, _index: u64, _at: Time) {}
    fn submit(&mut self, push: Push) -> Ticket {
        let count = &mut self.counts[push.channel as usize];
        *count += 1;
        let ticket = Ticket {
            channel: push.channel,
            value: *count,
        };
        if push.notify {
            self.completed = Some(ticket);
        }
        ticket
    }
    fn wake_at(&mut self, at: Time) {
        self.wake = Some(at);
    }
}

/// Services all entries; returns the coalesced faults.
fn serve(params: &DriverParams, chunks: u64, entries: u64, page: impl Fn(u64) -> Page) -> u64 {
    let mut driver = UvmDriver::new(params.clone(), HostCost::zero(), chunks).expect("in range");
    let mut device = Source {
        page,
        entries,
        put: 0,
        counts: [0; CHANNELS],
        wake: None,
        completed: None,
    };
    let range = ByteRange {
        start: BASE,
        bytes: BLOCKS * BLOCK_BYTES,
    };
    driver
        .managed_alloc(range, Time::ZERO, &mut device)
        .expect("free addresses");
    let mut now = Time::ZERO;
    while driver.stats().raw_faults < entries {
        if !driver.interrupt_masked() {
            driver.interrupt(now, &mut device);
        }
        if let Some(at) = device.wake.take() {
            now = at;
            driver.wake(now, &mut device);
        }
        if let Some(ticket) = device.completed.take() {
            driver.push_complete(ticket, now, &mut device);
        }
        driver.take_finished_batch();
    }
    driver.stats().coalesced_faults
}

fn services(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("coalesced faults");
    let first = Page::containing(BASE).0;
    let per_block = PAGES_PER_BLOCK as u64;
    let pages = BLOCKS * per_block;
    let none = DriverParams {
        prefetch_enable: false,
        ..DriverParams::default()
    };
    let tree = DriverParams::default();
    // Every page of every block in order, without prefetch: few blocks a batch.
    let ascending = move |n: u64| Page(first + n % pages);
    // One page in each of 512 blocks, then the next: every fault is a block service of its own.
    let striding = move |n: u64| Page(first + n % BLOCKS * per_block + n / BLOCKS % per_block);
    let cases: [(&str, &DriverParams, u64, u64, bool); 5] = [
        ("ascending, fits", &none, BLOCKS, pages, false),
        ("ascending, half fits", &none, BLOCKS / 2, 2 * pages, false),
        ("ascending, fits, tree", &tree, BLOCKS, pages, false),
        ("one a block, fits", &none, BLOCKS, 32 * BLOCKS, true),
        ("one a block, half fits", &none, BLOCKS / 2, 32 * BLOCKS, true),
    ];
    for (name, params, chunks, entries, stride) in cases {
        let run = || {
            if stride {
                serve(params, chunks, entries, striding)
            } else {
                serve(params, chunks, entries, ascending)
            }
        };
        group.throughput(Throughput::Elements(run()));
        group.bench_function(BenchmarkId::from_parameter(name), |bench| bench.iter(run));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(std::time::Duration::from_secs(2));
    targets = services
}
criterion_main!(benches);
