//! Re-fault storms: many requests stay parked while replays let none or one of them hit. What a replay
//! costs should depend on what has changed, not on what is parked.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use sim_core::Time;
use sim_core::access::{Access, AccessKind, AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::{Page, PageMask};
use sim_core::push::{Direction, Ticket};
use sim_gpu::gpu::CopyRecord;
use sim_gpu::params::Exactness;
use sim_gpu::{Gpu, GpuEvent, GpuParams, KernelId, Launch, Port};

const SMS: u32 = 108;
/// Thread blocks of one SM.
const RESIDENT: u32 = 32;

/// Each warp of each thread block reads a page of its own.
#[derive(Debug)]
struct Scattered {
    blocks: u64,
    warps: u16,
}

impl Scattered {
    fn pages(&self, block: u64) -> (Page, Page) {
        let first = block * u64::from(self.warps);
        (Page(first), Page(first + u64::from(self.warps)))
    }
}

impl AccessPattern for Scattered {
    fn blocks(&self) -> u64 {
        self.blocks
    }
    fn steps(&self) -> u32 {
        1
    }
    fn step(&self, block: u64, _step: u32, out: &mut StepAccesses) {
        let (first, end) = self.pages(block);
        out.loads.extend((first.0..end.0).map(|page| Access {
            first: Page(page),
            pages: 1,
            warps: 1,
            kind: AccessKind::Read,
        }));
    }
    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        (from..self.blocks).find(|block| {
            let (first, end) = self.pages(*block);
            mapped.first_unmapped(first, end).is_some()
        })
    }
}

/// Events are carried out in the order in which they are asked for; their times do not matter here.
#[derive(Default)]
struct World {
    events: std::collections::VecDeque<(Time, GpuEvent)>,
}

impl Port for World {
    fn schedule(&mut self, at: Time, event: GpuEvent) {
        self.events.push_back((at, event));
    }
    fn next_event(&self) -> Time {
        self.events.iter().map(|(at, _)| *at).min().unwrap_or(Time::MAX)
    }
    fn transfer(&mut self, _direction: Direction, _bytes: u64, _address: u64, _now: Time) {}
    fn interrupt(&mut self, _at: Time) {}
    fn push_completed(&mut self, _ticket: Ticket, _now: Time) {}
    fn kernel_finished(&mut self, _kernel: KernelId, _now: Time) {}
    fn copied(&mut self, _record: CopyRecord) {}
}

fn params() -> GpuParams {
    GpuParams {
        sms: SMS,
        sms_per_utlb: 1,
        utlb_outstanding_faults: 256,
        hit_under_fault: true,
        utlb_latency: Time::from_ns(20),
        l2_tlb_latency: Time::from_ns(80),
        page_walkers: 16,
        page_walk_latency: Time::from_ns(500),
        fault_emission_interval: Time::from_ns(14),
        fault_write_interval: Time::from_ns(2),
        fault_burst: 3,
        fault_order_seed: Some(7),
        fault_buffer_entries: 5120,
        replay_latency: Time::from_ns(500),
        launch_gap: Time::from_us(1),
        h2d_copy_fixed: Time::from_ns(1200),
        d2h_copy_fixed: Time::from_ns(900),
        push_overhead: Time::from_ns(300),
        memset_fixed: Time::from_us(1),
        memset_bytes_per_s: 1_000_000_000_000,
        pte_write: Time::from_ns(30),
        tlb_invalidate: Time::from_ns(100),
        tlb_invalidate_all: Time::from_ns(900),
        exactness: Exactness::Fast,
    }
}

struct Storm {
    gpu: Gpu<Scattered>,
    world: World,
    now: Time,
    /// The next page that is mapped.
    next: u64,
}

impl Storm {
    /// All thread blocks that fit have missed with each warp.
    fn new(warps: u16) -> Storm {
        let mut storm = Storm {
            gpu: Gpu::new(params()),
            world: World::default(),
            now: Time::ZERO,
            next: 0,
        };
        let launch = Launch {
            pattern: Scattered {
                blocks: u64::from(SMS * RESIDENT) * 1000,
                warps,
            },
            stream: 0,
            blocks_per_sm: RESIDENT,
            duration: Time::from_us(500),
        };
        storm.gpu.launch(launch, storm.now, &mut storm.world);
        storm.settle();
        storm
    }

    fn settle(&mut self) {
        while let Some((at, event)) = self.world.events.pop_front() {
            self.now = self.now.max(at);
            self.gpu.handle(event, self.now, &mut self.world);
        }
    }

    /// Maps some pages, discards the entries as the driver's flush does, and replays.
    fn replay(&mut self, pages: u64) {
        for _ in 0..pages {
            let page = Page(self.next);
            self.next += 1;
            self.gpu.map_now(page.block(), PageMask::single(page.index()));
        }
        self.now += Time::from_us(50);
        let put = self.gpu.fault_put(self.now);
        self.gpu.set_fault_get(put, self.now);
        self.gpu.handle(GpuEvent::Replay, self.now, &mut self.world);
        self.settle();
    }
}

/// The cost of one replay by what is parked and by how many pages it finds mapped.
fn replay(c: &mut Criterion) {
    for pages in [0, 1, 16] {
        let mut group = c.benchmark_group(format!("replay/{pages} pages mapped"));
        for warps in [1, 2, 4, 8] {
            let mut storm = Storm::new(warps);
            let parked = storm.gpu.parked_requests();
            group.bench_function(BenchmarkId::from_parameter(format!("{parked} parked")), |b| {
                b.iter(|| storm.replay(pages));
            });
        }
    }
}

criterion_group!(benches, replay);
criterion_main!(benches);
