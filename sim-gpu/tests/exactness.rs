//! The fast path equals the stepped reference, and everything is accounted for.
//!
//! A small stand-in for the driver serves faults: at an interrupt it takes the entries that are
//! there, maps their pages, takes others away when too many are mapped, and replays.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use proptest::prelude::*;
use sim_core::Time;
use sim_core::access::{Access, AccessKind, AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::{Page, PageMask};
use sim_core::push::{Cause, ChannelKind, Direction, Method, Push, Ticket};
use sim_gpu::gpu::CopyRecord;
use sim_gpu::params::Exactness;
use sim_gpu::{Gpu, GpuEvent, GpuParams, KernelId, Launch, Port};

/// Blocks sweep two ranges in order, each several steps; the second range is written.
#[derive(Clone, Debug)]
struct Sweep {
    read: u64,
    write: u64,
    pages: u64,
    blocks: u64,
    steps: u32,
    warps: u16,
}

impl Sweep {
    fn page(&self, block: u64, step: u32) -> u64 {
        let item = block * u64::from(self.steps) + u64::from(step);
        item * self.pages / (self.blocks * u64::from(self.steps))
    }
}

impl AccessPattern for Sweep {
    fn blocks(&self) -> u64 {
        self.blocks
    }
    fn steps(&self) -> u32 {
        self.steps
    }
    fn step(&self, block: u64, step: u32, out: &mut StepAccesses) {
        let page = self.page(block, step);
        let access = |base: u64, kind| Access {
            first: Page(base + page),
            pages: 1,
            warps: self.warps,
            kind,
        };
        out.loads.push(access(self.read, AccessKind::Read));
        out.stores.push(access(self.write, AccessKind::Write));
    }
    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        (from..self.blocks).find(|&block| {
            (0..self.steps).any(|step| {
                let page = self.page(block, step);
                [self.read, self.write].iter().any(|base| {
                    mapped
                        .first_unmapped(Page(base + page), Page(base + page + 1))
                        .is_some()
                })
            })
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Gpu(u8, u32, u64),
    Interrupt,
    Transfer(Direction),
}

fn code(event: GpuEvent) -> Event {
    match event {
        GpuEvent::Channel(kind) => Event::Gpu(0, kind as u32, 0),
        GpuEvent::Kernel { index, generation } => Event::Gpu(1, index, generation),
        GpuEvent::Start { stream } => Event::Gpu(2, stream, 0),
        GpuEvent::Replay => Event::Gpu(3, 0, 0),
    }
}

fn decode(kind: u8, index: u32, generation: u64) -> GpuEvent {
    match kind {
        0 => GpuEvent::Channel(sim_gpu::channel::KINDS[index as usize]),
        1 => GpuEvent::Kernel { index, generation },
        2 => GpuEvent::Start { stream: index },
        _ => GpuEvent::Replay,
    }
}

#[derive(Default)]
struct World {
    heap: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    completed: Vec<Ticket>,
    log: Vec<(Time, String)>,
    link_free: BTreeMap<Direction, Time>,
}

impl World {
    fn push(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, event)));
    }
}

impl Port for World {
    fn schedule(&mut self, at: Time, event: GpuEvent) {
        self.push(at, code(event));
    }
    fn next_event(&self) -> Time {
        self.heap.peek().map_or(Time::MAX, |Reverse((at, _, _))| *at)
    }
    fn transfer(&mut self, direction: Direction, bytes: u64, _address: u64, now: Time) {
        let free = self.link_free.entry(direction).or_default();
        let end = (*free).max(now) + Time::from_ns(bytes / 20);
        *free = end;
        self.push(end, Event::Transfer(direction));
    }
    fn interrupt(&mut self, at: Time) {
        self.push(at, Event::Interrupt);
    }
    fn push_completed(&mut self, ticket: Ticket, now: Time) {
        self.completed.push(ticket);
        self.log.push((now, format!("{ticket:?}")));
    }
    fn kernel_finished(&mut self, kernel: KernelId, now: Time) {
        self.log.push((now, format!("{kernel:?}")));
    }
    fn copied(&mut self, record: CopyRecord) {
        self.log.push((record.end, format!("{record:?}")));
    }
}

fn params(exactness: Exactness, hit_under_fault: bool, sms: u32, outstanding: u32) -> GpuParams {
    GpuParams {
        sms,
        sms_per_utlb: 2,
        utlb_outstanding_faults: outstanding,
        hit_under_fault,
        utlb_latency: Time::from_ns(20),
        l2_tlb_latency: Time::from_ns(80),
        page_walkers: 2,
        page_walk_latency: Time::from_ns(600),
        fault_emission_interval: Time::from_ns(14),
        fault_write_interval: Time::from_ns(2),
        fault_burst: 3,
        fault_order_seed: Some(7),
        fault_buffer_entries: 64,
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
        exactness,
    }
}

struct Result {
    log: Vec<(Time, String)>,
    end: Time,
    sm_time: (u128, u128),
    faults: (u64, u64),
    misses: u64,
    events: u64,
}

/// Runs the launches with at most `capacity` mapped pages; service takes `service`.
fn run(gpu: GpuParams, launches: &[Launch<Sweep>], capacity: u64, service: Time, batch: u64) -> Result {
    let mut gpu: Gpu<Sweep> = Gpu::new(gpu);
    let mut world = World::default();
    let mut mapped: Vec<Page> = Vec::new();
    let mut events = 0;
    for launch in launches {
        gpu.launch(launch.clone(), Time::ZERO, &mut world);
    }
    let mut now = Time::ZERO;
    while let Some(Reverse((at, _, event))) = world.heap.pop() {
        assert!(at >= now);
        now = at;
        events += 1;
        assert!(events < 3_000_000, "does not end");
        match event {
            Event::Gpu(kind, index, generation) => {
                gpu.handle(decode(kind, index, generation), now, &mut world);
            }
            Event::Transfer(direction) => gpu.transfer_done(direction, now, &mut world),
            Event::Interrupt => {
                let get = gpu.fault_put(now);
                let first = get - gpu_pending(&mut gpu, get, now);
                let end = get.min(first + batch);
                let mut pages: Vec<Page> = (first..end)
                    .map(|index| gpu.fault_entry(index, now).expect("written").page)
                    .collect();
                pages.retain(|page| !gpu.mapped(page.block()).contains(page.index()));
                pages.sort_unstable();
                pages.dedup();
                gpu.set_fault_get(get, now);
                let done = now + service;
                let mut unmaps = Vec::new();
                while mapped.len() as u64 + pages.len() as u64 > capacity && !mapped.is_empty() {
                    unmaps.push(mapped.remove(0));
                }
                let mut acquire = Vec::new();
                for page in unmaps {
                    let block = page.block();
                    let pages = PageMask::single(page.index());
                    submit(
                        &mut gpu,
                        &mut world,
                        ChannelKind::MemOps,
                        done,
                        vec![],
                        now,
                        vec![
                            Method::UnmapPtes {
                                block,
                                pages,
                                entries: 1,
                            },
                            Method::TlbInvalidate { targeted: Some(1) },
                        ],
                    );
                }
                for page in &pages {
                    acquire.push(submit(
                        &mut gpu,
                        &mut world,
                        ChannelKind::HostToDevice,
                        done,
                        vec![],
                        now,
                        vec![Method::Copy {
                            direction: Direction::HostToDevice,
                            cause: Cause::Coherence,
                            first: *page,
                            pages: 1,
                        }],
                    ));
                }
                let mut methods: Vec<Method> = pages
                    .iter()
                    .map(|page| Method::MapPtes {
                        block: page.block(),
                        pages: PageMask::single(page.index()),
                        entries: 1,
                    })
                    .collect();
                methods.push(Method::Replay);
                mapped.extend(pages);
                let push = Push {
                    channel: ChannelKind::MemOps,
                    submit: done,
                    acquire,
                    methods,
                    notify: true,
                };
                gpu.submit(push, now, &mut world);
            }
        }
        if !world.completed.is_empty() {
            world.completed.clear();
            gpu.interrupts_unmasked(now, &mut world);
        }
    }
    assert!(
        gpu.is_idle() && gpu.parked_requests() == 0,
        "requests are left: {:?}",
        gpu.awaited_pages()
    );
    gpu.accounting().settle(now);
    let accounting = gpu.accounting();
    let stalled = accounting.stalled.iter().sum::<u128>();
    assert_eq!(
        accounting.total(),
        u128::from(now.0) * u128::from(gpu.params().sms)
    );
    let accounting = gpu.accounting();
    // Stale wake-ups may come after the end of all work; they only add idle time.
    let sm_time = (accounting.computing, stalled);
    let end = world.log.iter().map(|(at, _)| *at).max().unwrap_or_default();
    Result {
        log: world.log,
        end,
        sm_time,
        faults: gpu.fault_entries(),
        misses: gpu.misses(),
        events,
    }
}

/// Entries between GET and PUT.
fn gpu_pending(gpu: &mut Gpu<Sweep>, put: u64, now: Time) -> u64 {
    let mut pending = 0;
    while pending < put && gpu.fault_entry(put - pending - 1, now).is_some() {
        pending += 1;
    }
    pending
}

fn submit(
    gpu: &mut Gpu<Sweep>,
    world: &mut World,
    channel: ChannelKind,
    submit: Time,
    acquire: Vec<Ticket>,
    now: Time,
    methods: Vec<Method>,
) -> Ticket {
    gpu.submit(
        Push {
            channel,
            submit,
            acquire,
            methods,
            notify: false,
        },
        now,
        world,
    )
}

fn sweep() -> impl Strategy<Value = Launch<Sweep>> {
    (
        0u64..40,
        0u64..40,
        1u64..60,
        1u64..300,
        1u32..4,
        1u16..5,
        1u32..4,
        1u64..400,
        0u32..2,
    )
        .prop_map(
            |(read, write, pages, blocks, steps, warps, per_sm, us, stream)| Launch {
                stream,
                pattern: Sweep {
                    read: 4096 + read,
                    write: 4200 + write,
                    pages,
                    blocks,
                    steps,
                    warps,
                },
                blocks_per_sm: per_sm,
                duration: Time::from_us(us) + Time(us % 7),
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn fast_equals_stepped(
        launches in prop::collection::vec(sweep(), 1..4),
        capacity in 12u64..300,
        service_us in 1u64..200,
        batch in 1u64..40,
        sms in 1u32..7,
        outstanding in 1u32..20,
        hit_under_fault in any::<bool>(),
    ) {
        let go = |exactness| {
            run(params(exactness, hit_under_fault, sms, outstanding), &launches, capacity, Time::from_us(service_us), batch)
        };
        let fast = go(Exactness::Fast);
        let stepped = go(Exactness::Stepped);
        let different = fast.log.iter().zip(&stepped.log).position(|(a, b)| a != b);
        if let Some(first) = different {
            prop_assert_eq!(&fast.log[first], &stepped.log[first], "entry {}", first);
        }
        prop_assert_eq!(fast.log.len(), stepped.log.len());
        prop_assert_eq!(fast.end, stepped.end);
        prop_assert_eq!(fast.sm_time, stepped.sm_time);
        prop_assert_eq!(fast.faults, stepped.faults);
        prop_assert_eq!(fast.misses, stepped.misses);
    }
}

#[test]
fn resident_kernel_takes_its_duration() {
    for (blocks, steps, per_sm) in [(1, 1, 1), (7, 3, 2), (1000, 1, 4), (999, 5, 3)] {
        let pattern = Sweep {
            read: 4096,
            write: 4200,
            pages: 50,
            blocks,
            steps,
            warps: 2,
        };
        let launch = Launch {
            stream: 0,
            pattern,
            blocks_per_sm: per_sm,
            duration: Time::from_us(500),
        };
        let gpu = params(Exactness::Fast, true, 4, 8);
        // The second launch finds every page mapped.
        let result = run(gpu, &[launch.clone(), launch], 1000, Time::from_us(10), 40);
        let finished: Vec<Time> = result
            .log
            .iter()
            .filter(|(_, what)| what.starts_with("KernelId"))
            .map(|(at, _)| *at)
            .collect();
        let second = finished[1] - finished[0] - Time::from_us(1);
        let error = second.0.abs_diff(Time::from_us(500).0);
        assert!(error <= 2, "{blocks} blocks: {second}");
        assert!(result.events > 4);
    }
}

#[test]
fn block_zero_of_the_address_space_is_like_any_other() {
    let pattern = Sweep {
        read: 0,
        write: 64,
        pages: 10,
        blocks: 10,
        steps: 1,
        warps: 1,
    };
    let launch = Launch {
        stream: 0,
        pattern,
        blocks_per_sm: 2,
        duration: Time::from_us(5),
    };
    let result = run(
        params(Exactness::Fast, true, 2, 8),
        &[launch],
        100,
        Time::from_us(10),
        40,
    );
    assert!(result.faults.0 >= 20 && result.misses >= 20);
}

/// A fault that finds the buffer full is lost until the next replay, however late the driver looks.
#[test]
fn what_finds_the_buffer_full_is_lost() {
    for exactness in [Exactness::Fast, Exactness::Stepped] {
        let mut gpu: Gpu<Sweep> = Gpu::new(params(exactness, true, 4, 128));
        let mut world = World::default();
        let launch = Launch {
            stream: 0,
            pattern: Sweep {
                read: 4096,
                write: 8192,
                pages: 100,
                blocks: 100,
                steps: 1,
                warps: 1,
            },
            blocks_per_sm: 25,
            duration: Time::from_us(100),
        };
        gpu.launch(launch, Time::ZERO, &mut world);
        let mut now = Time::ZERO;
        while let Some(Reverse((at, _, event))) = world.heap.pop() {
            if let Event::Gpu(kind, index, generation) = event {
                now = at;
                gpu.handle(decode(kind, index, generation), now, &mut world);
            }
        }
        assert_eq!(gpu.parked_requests(), 100);
        now += Time::from_us(100);
        let put = gpu.fault_put(now);
        assert_eq!(put, 63, "one entry less than the buffer has");
        gpu.set_fault_get(put, now);
        assert_eq!((gpu.fault_put(now), gpu.fault_entries()), (63, (63, 37)));
        gpu.handle(GpuEvent::Replay, now, &mut world);
        assert_eq!(gpu.fault_put(now + Time::from_us(100)), 63 + 63);
    }
}
