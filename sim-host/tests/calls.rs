//! Accesses of the CPU, explicit migration, advice and discards (uvm-driver 9, 10).

use std::collections::BTreeSet;

use proptest::prelude::*;
use sim_core::Time;
use sim_core::access::AccessKind;
use sim_core::fault::FaultEntry;
use sim_core::pages::{BLOCK_BYTES, ByteRange, PAGE_BYTES, Page, VaBlock};
use sim_core::push::{CHANNELS, Cause, Direction, Method, Push, Sharing, Ticket};
use sim_core::tools::{MapRemoteCause, Processor};
use sim_host::{Advice, CpuAccess, CpuProgress, Device, DriverParams, HostCost, HostError, UvmDriver};

const BASE: u64 = 0x7000_0000_0000;

/// A GPU that carries pushes out at once and has one list of wanted accesses.
#[derive(Default)]
struct Fake {
    wanted: Vec<(Page, AccessKind)>,
    entries: Vec<FaultEntry>,
    owned: BTreeSet<Page>,
    remote: BTreeSet<Page>,
    read_only: BTreeSet<Page>,
    counts: [u64; CHANNELS],
    wake: Option<Time>,
    timers: BTreeSet<Time>,
    completed: Vec<Ticket>,
    copies: Vec<(Direction, Cause, u32)>,
    remote_causes: Vec<(MapRemoteCause, u32)>,
}

impl Fake {
    fn hits(&self, page: Page, kind: AccessKind) -> bool {
        self.owned.contains(&page)
            || self.remote.contains(&page)
            || kind <= AccessKind::Read && self.read_only.contains(&page)
    }

    fn raise(&mut self) {
        let wanted = std::mem::take(&mut self.wanted);
        self.wanted = wanted.into_iter().filter(|(p, k)| !self.hits(*p, *k)).collect();
        for (page, access) in &self.wanted {
            self.entries.push(FaultEntry {
                page: *page,
                access: *access,
                utlb: 0,
                instance: 0,
                raised: Time::ZERO,
            });
        }
    }

    fn moved(&self, direction: Direction, cause: Cause) -> u32 {
        let of = self.copies.iter().filter(|c| c.0 == direction && c.1 == cause);
        of.map(|c| c.2).sum()
    }
}

impl Device for Fake {
    fn fault_put(&mut self, _at: Time) -> u64 {
        self.entries.len() as u64
    }
    fn fault_entry(&mut self, index: u64, _at: Time) -> Option<FaultEntry> {
        self.entries.get(index as usize).copied()
    }
    fn set_fault_get(&mut self, _index: u64, _at: Time) {}
    fn submit(&mut self, push: Push) -> Ticket {
        let count = &mut self.counts[push.channel as usize];
        *count += 1;
        let ticket = Ticket {
            channel: push.channel,
            value: *count,
        };
        for method in &push.methods {
            match *method {
                Method::MapPtes { block, pages, .. } => {
                    self.owned.extend(pages.iter().map(|i| block.page(i)));
                }
                Method::MapShared {
                    block,
                    pages,
                    sharing,
                    ..
                } => {
                    if let Sharing::Remote(cause) = sharing {
                        self.remote_causes.push((cause, pages.count()));
                    }
                    let pages = pages.iter().map(|i| block.page(i));
                    match sharing {
                        Sharing::Remote(_) => self.remote.extend(pages),
                        Sharing::ReadOnly => self.read_only.extend(pages),
                    }
                }
                Method::UnmapPtes { block, pages, .. } => {
                    for page in pages.iter().map(|i| block.page(i)) {
                        let sets = [&mut self.owned, &mut self.remote, &mut self.read_only];
                        let had = sets.into_iter().filter_map(|set| set.take(&page)).count();
                        assert_eq!(had, 1, "a page has one mapping when it loses it");
                    }
                }
                Method::Copy {
                    direction,
                    cause,
                    pages,
                    ..
                } => self.copies.push((direction, cause, pages)),
                Method::Replay => self.raise(),
                Method::Memset { .. } | Method::TlbInvalidate { .. } => {}
            }
        }
        if push.notify {
            self.completed.push(ticket);
        }
        ticket
    }
    fn wake_at(&mut self, at: Time) {
        self.wake = Some(at);
    }
    fn timer_at(&mut self, at: Time) {
        self.timers.insert(at);
    }
}

struct Machine {
    driver: UvmDriver,
    device: Fake,
    now: Time,
    /// Between two things that happen.
    step: Time,
}

fn range(first: u64, pages: u64) -> ByteRange {
    ByteRange {
        start: BASE + first * PAGE_BYTES,
        bytes: pages * PAGE_BYTES,
    }
}

fn page(index: u64) -> Page {
    Page(BASE / PAGE_BYTES + index)
}

/// For a clock that stands still.
fn still() -> DriverParams {
    let mut params = DriverParams::default();
    params.thrashing.enable = false;
    params
}

impl Machine {
    fn new(params: DriverParams, chunks: u64, blocks: u64) -> Machine {
        let mut device = Fake::default();
        let mut driver = UvmDriver::new(params, HostCost::zero(), chunks).expect("valid");
        let all = range(0, blocks * 512);
        driver
            .managed_alloc(all, Time::ZERO, &mut device)
            .expect("free addresses");
        Machine {
            driver,
            device,
            now: Time::ZERO,
            step: Time::ZERO,
        }
    }

    /// Time stands still: with thrashing mitigation, all moves would be close.
    fn plain(blocks: u64) -> Machine {
        Machine::new(still(), 8, blocks)
    }

    /// Time goes on, and pins expire.
    fn tick(&mut self) {
        self.advance_to(self.now + self.step);
    }

    fn advance_to(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(at) = self.device.timers.pop_first() {
            if at > self.now {
                self.device.timers.insert(at);
                break;
            }
            self.driver.timer(self.now, &mut self.device);
            self.complete();
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.driver.check_invariants().expect("invariants hold");
    }

    /// The GPU accesses pages until all have hit.
    fn gpu(&mut self, accesses: &[(u64, AccessKind)]) {
        self.device.wanted = accesses.iter().map(|(p, k)| (page(*p), *k)).collect();
        self.device.raise();
        for _ in 0..100_000 {
            if self.device.wanted.is_empty() && !self.driver.interrupt_masked() {
                return;
            }
            self.tick();
            self.driver.interrupt(self.now, &mut self.device);
            if self.device.wake.take().is_some() {
                self.driver.wake(self.now, &mut self.device);
            }
            self.complete();
            self.settle();
        }
        panic!("an access never hits");
    }

    fn complete(&mut self) {
        for ticket in std::mem::take(&mut self.device.completed) {
            self.driver.push_complete(ticket, self.now, &mut self.device);
        }
    }

    /// The CPU accesses pages; how often it waited.
    fn cpu(&mut self, range: ByteRange, write: bool) -> u32 {
        let mut access = CpuAccess::new(range, write);
        let mut waits = 0;
        loop {
            self.tick();
            let progress = self.driver.cpu_access(&mut access, self.now, &mut self.device);
            self.settle();
            match progress.expect("managed") {
                CpuProgress::Done(_) => return waits,
                CpuProgress::Wait(..) => waits += 1,
                CpuProgress::Throttled(until) => {
                    assert!(until > self.now, "it would go on at once");
                    self.advance_to(until);
                }
            }
            self.complete();
        }
    }

    fn advise(&mut self, range: ByteRange, advice: Advice) {
        self.tick();
        let device = &mut self.device;
        self.driver
            .advise(range, advice, self.now, device)
            .expect("managed");
        self.settle();
    }

    fn prefetch(&mut self, range: ByteRange, to: Processor) {
        self.tick();
        let device = &mut self.device;
        self.driver
            .prefetch(range, to, self.now, device)
            .expect("managed");
        self.settle();
    }
}

use AccessKind::{Read, Write};
use Direction::{DeviceToHost, HostToDevice};

#[test]
fn the_cpu_takes_a_block_back_up_the_ladder() {
    let mut m = Machine::plain(1);
    m.prefetch(range(0, 512), Processor::Gpu);
    assert_eq!(m.driver.stats().populated_pages, 512);
    let waits = m.cpu(range(0, 512), false);
    // Six faults: 64K, 64K, 128K, 256K, 512K, 1M (uvm-driver 5.3), each a copy that the CPU waits for.
    assert_eq!((waits, m.driver.stats().cpu_faults), (6, 6));
    let pages: Vec<u32> = m.device.copies.iter().map(|c| c.2).collect();
    assert_eq!(pages, [1, 15, 1, 15, 1, 31, 1, 63, 1, 127, 1, 255]);
    assert_eq!(m.device.moved(DeviceToHost, Cause::Coherence), 6);
    assert!(m.device.owned.is_empty());
    // The chunk stays with the block, and is the first to go.
    assert_eq!(m.driver.chunks_in_use(), 1);
    assert_eq!(m.cpu(range(0, 512), true), 0, "it is mapped now");
}

#[test]
fn a_migration_moves_whole_blocks_and_prefetches_nothing() {
    let mut m = Machine::plain(3);
    m.cpu(range(0, 3 * 512), true);
    m.prefetch(range(100, 1000), Processor::Gpu);
    assert_eq!(
        m.device.copies,
        [
            (HostToDevice, Cause::User, 412),
            (HostToDevice, Cause::User, 512),
            (HostToDevice, Cause::User, 76)
        ]
    );
    assert_eq!(m.device.owned.len(), 1000);
    m.prefetch(range(100, 1000), Processor::Cpu);
    assert_eq!(m.device.moved(DeviceToHost, Cause::User), 1000);
    assert!(m.device.owned.is_empty());
}

#[test]
fn read_mostly_pages_are_copied_and_a_write_ends_it() {
    let mut m = Machine::plain(1);
    m.advise(range(0, 512), Advice::ReadMostly(true));
    m.cpu(range(0, 512), true);
    m.gpu(&[(5, Read)]);
    assert_eq!((m.device.read_only.len(), m.device.owned.len()), (16, 0));
    assert_eq!(m.cpu(range(0, 16), false), 0, "the CPU keeps its copy");
    // A write of the GPU leaves it the only one.
    m.gpu(&[(5, Write)]);
    assert!(m.device.owned.contains(&page(5)) && m.device.read_only.len() == 15);
    assert_eq!(m.cpu(range(5, 1), false), 1, "the CPU has to get it back");
    // A write of the CPU drops the GPU's copy, and nothing is copied.
    let copies = m.device.copies.len();
    m.cpu(range(6, 1), true);
    assert!(!m.device.read_only.contains(&page(6)));
    assert_eq!(m.device.copies.len(), copies);
    m.advise(range(0, 512), Advice::ReadMostly(false));
    assert!(m.device.read_only.is_empty());
    m.gpu(&[(7, Read), (6, Write)]);
    assert!(m.device.owned.contains(&page(7)));
}

#[test]
fn a_write_ends_copies_that_the_gpu_does_not_map() {
    let mut m = Machine::plain(1);
    m.gpu(&[(5, Read)]);
    m.advise(range(0, 512), Advice::ReadMostly(true));
    // The migration leaves a copy on the device, and no mapping of it.
    m.prefetch(range(0, 512), Processor::Cpu);
    assert!(m.device.owned.is_empty() && m.driver.is_resident(page(5)));
    m.gpu(&[(5, Write)]);
    assert!(m.device.owned.contains(&page(5)));
    assert_eq!(m.cpu(range(5, 1), false), 1, "the CPU has lost its copy");
}

#[test]
fn copies_are_not_written_back_by_an_eviction() {
    let mut m = Machine::new(still(), 1, 2);
    m.advise(range(0, 512), Advice::ReadMostly(true));
    m.cpu(range(0, 1024), true);
    m.gpu(&[(0, Read)]);
    m.gpu(&[(512, Read)]);
    assert_eq!(m.driver.stats().evictions, 1);
    assert_eq!(m.device.moved(DeviceToHost, Cause::Eviction), 0);
}

#[test]
fn preferred_on_the_host_means_remote_access() {
    let mut m = Machine::plain(1);
    m.advise(range(0, 256), Advice::PreferredLocation(Some(Processor::Cpu)));
    m.gpu(&[(3, Read), (300, Write)]);
    assert!(m.device.remote.contains(&page(3)));
    assert_eq!(m.driver.stats().remote_pages, 1, "no neighbours are fetched");
    assert_eq!(m.device.remote_causes, [(MapRemoteCause::Policy, 1)]);
    assert!(m.device.owned.contains(&page(300)) && !m.device.owned.contains(&page(3)));
    // An explicit migration moves it all the same.
    m.prefetch(range(0, 256), Processor::Gpu);
    assert!(m.device.remote.is_empty() && m.device.owned.contains(&page(3)));
}

#[test]
fn accessed_by_maps_at_once_and_after_each_move() {
    let mut m = Machine::plain(1);
    m.cpu(range(0, 256), true);
    m.advise(range(0, 512), Advice::AccessedBy(Processor::Gpu));
    assert_eq!(m.device.remote.len(), 256);
    m.cpu(range(256, 256), true);
    assert_eq!(m.device.remote.len(), 512);
    assert_eq!(m.device.remote_causes, [(MapRemoteCause::Policy, 256); 2]);
    m.prefetch(range(0, 512), Processor::Gpu);
    assert_eq!((m.device.remote.len(), m.device.owned.len()), (0, 512));
    m.prefetch(range(0, 512), Processor::Cpu);
    assert_eq!((m.device.remote.len(), m.device.owned.len()), (512, 0));
    assert_eq!(m.driver.stats().batches, 0, "without one fault");
}

#[test]
fn discarded_pages_are_evicted_first_and_for_free() {
    let mut m = Machine::new(still(), 2, 3);
    m.prefetch(range(0, 1024), Processor::Gpu);
    m.driver
        .discard(range(512, 512), false, Time::ZERO, &mut m.device)
        .expect("managed");
    m.settle();
    // Block 0 was served longer ago, but block 1 is discarded.
    m.gpu(&[(1024, Read)]);
    assert_eq!(m.driver.stats().evictions, 1);
    assert!(m.driver.is_resident(page(0)) && !m.driver.is_resident(page(512)));
    assert!(m.device.copies.is_empty());
    m.driver
        .discard(range(0, 512), true, Time::ZERO, &mut m.device)
        .expect("managed");
    m.settle();
    assert!(!m.driver.is_resident(page(0)) && !m.device.owned.contains(&page(0)));
}

#[test]
fn host_memory_runs_out() {
    let params = DriverParams {
        host_memory: Some(BLOCK_BYTES),
        ..still()
    };
    let mut m = Machine::new(params, 2, 4);
    m.cpu(range(0, 512), true);
    assert_eq!(m.driver.failure(), None);
    m.cpu(range(512, 1), true);
    let expected = HostError::HostMemory {
        limit: BLOCK_BYTES,
        bytes: 2 * BLOCK_BYTES,
        block: VaBlock(BASE / BLOCK_BYTES + 1).address(),
    };
    assert_eq!(m.driver.failure(), Some(expected));
}

#[test]
fn hints_on_other_memory_are_refused() {
    let mut m = Machine::plain(1);
    let away = range(4096, 1);
    let not_managed = HostError::NotManaged {
        start: away.start,
        bytes: away.bytes,
    };
    let advice = Advice::ReadMostly(true);
    let results = [
        m.driver.advise(away, advice, Time::ZERO, &mut m.device).err(),
        m.driver
            .prefetch(away, Processor::Gpu, Time::ZERO, &mut m.device)
            .err(),
        m.driver.discard(away, true, Time::ZERO, &mut m.device).err(),
    ];
    assert!(results.iter().all(|e| e.as_ref() == Some(&not_managed)));
    let own = range(8192, 512);
    m.driver
        .device_alloc(own, Time::ZERO, &mut m.device)
        .expect("room");
    let refused = m.driver.advise(own, advice, Time::ZERO, &mut m.device);
    assert!(matches!(refused, Err(HostError::DeviceOnly { .. })));
}

#[derive(Clone, Debug)]
enum Call {
    Gpu(Vec<(u64, bool)>),
    Cpu(u64, u64, bool),
    Prefetch(u64, u64, bool),
    Advise(u64, u64, Advice),
    Discard(u64, u64, bool),
    Wait(Time),
}

/// Calls on the first pages, and a bit beyond.
fn calls(pages: u64) -> impl Strategy<Value = Call> {
    let place = || prop::sample::select(vec![Processor::Cpu, Processor::Gpu]);
    let piece = || (0..pages * 3 / 4, 1..pages / 4);
    prop_oneof![
        prop::collection::vec((0..pages, any::<bool>()), 1..20).prop_map(Call::Gpu),
        (piece(), any::<bool>()).prop_map(|((a, n), w)| Call::Cpu(a, n, w)),
        (piece(), any::<bool>()).prop_map(|((a, n), w)| Call::Prefetch(a, n, w)),
        (piece(), any::<bool>()).prop_map(|((a, n), w)| Call::Discard(a, n, w)),
        (piece(), any::<bool>()).prop_map(|((a, n), on)| Call::Advise(a, n, Advice::ReadMostly(on))),
        (piece(), prop::option::of(place())).prop_map(|((a, n), at)| Call::Advise(
            a,
            n,
            Advice::PreferredLocation(at)
        )),
        (piece(), place()).prop_map(|((a, n), p)| Call::Advise(a, n, Advice::AccessedBy(p))),
        (piece(), place()).prop_map(|((a, n), p)| Call::Advise(a, n, Advice::NotAccessedBy(p))),
    ]
}

/// Mostly touches of two pages by both processors, so that they thrash.
fn contention() -> impl Strategy<Value = Call> {
    prop_oneof![
        20 => (0u64..2, any::<bool>()).prop_map(|touch| Call::Gpu(vec![touch])),
        20 => (0u64..2, any::<bool>()).prop_map(|(page, write)| Call::Cpu(page, 1, write)),
        1 => calls(40),
        1 => (1u64..200_000).prop_map(|us| Call::Wait(Time::from_us(us))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("PROPTEST_CASES").map_or(100, |n| n.parse().expect("a number")), ..ProptestConfig::default() })]
    /// Whatever the program does, every access is served in the end and every invariant holds.
    #[test]
    fn any_order_of_calls(calls in prop::collection::vec(calls(4000), 1..25), chunks in 8u64..10, step in 1u64..400) {
        let m = carry_out(calls, chunks, Time::from_us(step));
        prop_assert!(m.driver.chunks_in_use() <= chunks);
    }

    /// The same where CPU and GPU meet on every page: throttling, pins.
    #[test]
    fn any_order_of_touches_of_few_pages(calls in prop::collection::vec(contention(), 1..300), step in 1u64..100) {
        let m = carry_out(calls, 8, Time::from_us(step));
        let seen = m.driver.stats().thrashing;
        prop_assert!(seen.unpins <= seen.pins_cpu + seen.pins_gpu);
        prop_assert!(seen.detections > 0 || seen.pins_cpu == 0);
    }
}

fn carry_out(calls: Vec<Call>, chunks: u64, step: Time) -> Machine {
    let mut m = Machine::new(DriverParams::default(), chunks, 12);
    m.step = step;
    for call in calls {
        match call {
            Call::Gpu(list) => {
                let list: Vec<_> = list
                    .iter()
                    .map(|(p, w)| (*p, if *w { Write } else { Read }))
                    .collect();
                m.gpu(&list);
            }
            Call::Cpu(a, n, write) => {
                m.cpu(range(a, n), write);
            }
            Call::Prefetch(a, n, gpu) => {
                m.prefetch(range(a, n), if gpu { Processor::Gpu } else { Processor::Cpu });
            }
            Call::Advise(a, n, advice) => m.advise(range(a, n), advice),
            Call::Wait(time) => m.advance_to(m.now + time),
            Call::Discard(a, n, unmap) => {
                m.driver
                    .discard(range(a, n), unmap, m.now, &mut m.device)
                    .expect("managed");
                m.settle();
            }
        }
    }
    m
}
