//! The fault path against the worked examples of its description: merging (3.4), batches (3.9),
//! copy sizes, victim order (7.2), and the chain of an oversubscribed batch (7.7).

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sim_core::Time;
use sim_core::access::AccessKind;
use sim_core::fault::FaultEntry;
use sim_core::pages::{BLOCK_BYTES, ByteRange, PAGE_BYTES, Page, VaBlock};
use sim_core::push::{CHANNELS, Cause, ChannelKind, Direction, Method, Push, Ticket};
use sim_host::fetch::Batch;
use sim_host::params::ReplayPolicy;
use sim_host::{Device, DriverParams, HostCost, UvmDriver};

const BASE: u64 = 0x7000_0000_0000;

/// A GPU that wants pages one set after another: it writes an entry for every wanted page without
/// PTE, carries pushes out at once, and retries at each replay.
#[derive(Default)]
struct Fake {
    wanted: Vec<Page>,
    entries: Vec<FaultEntry>,
    get: u64,
    mapped: BTreeSet<Page>,
    pushes: Vec<(Ticket, Push)>,
    counts: [u64; CHANNELS],
    wake: Option<Time>,
    completed: Vec<Ticket>,
    copies: Vec<(Direction, Cause, u32)>,
}

impl Fake {
    fn raise(&mut self, at: Time) {
        self.wanted.retain(|page| !self.mapped.contains(page));
        for (index, page) in self.wanted.iter().enumerate() {
            let utlb = (index % 7) as u16;
            let access = AccessKind::Read;
            self.entries.push(FaultEntry {
                page: *page,
                access,
                utlb,
                instance: 0,
                raised: at,
            });
        }
    }
}

impl Device for Fake {
    fn fault_put(&mut self, _at: Time) -> u64 {
        self.entries.len() as u64
    }
    fn fault_entry(&mut self, index: u64, _at: Time) -> Option<FaultEntry> {
        assert!(index >= self.get, "a released entry is read");
        self.entries.get(index as usize).copied()
    }
    fn set_fault_get(&mut self, index: u64, _at: Time) {
        assert!(
            index >= self.get && index <= self.entries.len() as u64,
            "GET passes PUT"
        );
        self.get = index;
    }
    fn submit(&mut self, push: Push) -> Ticket {
        let count = &mut self.counts[push.channel as usize];
        *count += 1;
        let ticket = Ticket {
            channel: push.channel,
            value: *count,
        };
        for acquired in &push.acquire {
            assert!(
                acquired.value <= self.counts[acquired.channel as usize],
                "acquires a later push"
            );
        }
        for method in &push.methods {
            match *method {
                Method::MapPtes { block, pages, .. } | Method::MapShared { block, pages, .. } => {
                    self.mapped.extend(pages.iter().map(|index| block.page(index)));
                }
                Method::UnmapPtes { block, pages, .. } => {
                    for index in pages.iter() {
                        assert!(
                            self.mapped.remove(&block.page(index)),
                            "unmaps what is not mapped"
                        );
                    }
                }
                Method::Copy {
                    direction,
                    cause,
                    pages,
                    ..
                } => self.copies.push((direction, cause, pages)),
                Method::Replay => self.raise(push.submit),
                Method::Memset { .. } | Method::TlbInvalidate { .. } => {}
            }
        }
        if push.notify {
            self.completed.push(ticket);
        }
        self.pushes.push((ticket, push));
        ticket
    }
    fn wake_at(&mut self, at: Time) {
        assert!(self.wake.is_none(), "two continuations");
        self.wake = Some(at);
    }
}

fn driver(params: DriverParams, chunks: u64, blocks: u64, on_cpu: bool) -> (UvmDriver, Fake) {
    let mut driver = UvmDriver::new(params, HostCost::zero(), chunks).expect("valid");
    let mut device = Fake::default();
    let range = ByteRange {
        start: BASE,
        bytes: blocks * BLOCK_BYTES,
    };
    driver
        .managed_alloc(range, Time::ZERO, &mut device)
        .expect("free addresses");
    if on_cpu {
        driver
            .cpu_touch(range, true, Time::ZERO, &mut device)
            .expect("managed");
    }
    (driver, device)
}

/// Raises faults on `pages` and lets the driver work until all have been mapped.
fn serve(driver: &mut UvmDriver, device: &mut Fake, pages: &[Page]) {
    device.wanted = pages.to_vec();
    device.raise(Time::ZERO);
    let mut now = Time::ZERO;
    for _ in 0..100_000 {
        if !driver.interrupt_masked() {
            if device.entries.len() as u64 == device.get {
                assert!(
                    device.wanted.iter().all(|page| device.mapped.contains(page)),
                    "a request is left"
                );
                return;
            }
            driver.interrupt(now, device);
        }
        if let Some(at) = device.wake.take() {
            now = now.max(at);
            driver.wake(now, device);
        }
        for ticket in std::mem::take(&mut device.completed) {
            driver.push_complete(ticket, now, device);
        }
        driver.check_invariants().expect("invariants hold");
    }
    panic!("the driver does not come to an end");
}

fn page(block: u64, index: usize) -> Page {
    VaBlock(BASE / BLOCK_BYTES + block).page(index)
}

#[test]
fn merging_follows_the_two_candidates() {
    use AccessKind::{Read, Write};
    type Entry = (u16, u64, AccessKind);
    type Kept = (Entry, u32);
    let cases: Vec<(Vec<Entry>, Vec<Kept>)> = vec![
        (
            vec![(1, 0, Read), (1, 0, Read), (2, 0, Read)],
            vec![((1, 0, Read), 3)],
        ),
        (
            vec![(1, 0, Read), (2, 1, Read), (1, 0, Read), (2, 1, Read)],
            vec![((1, 0, Read), 2), ((2, 1, Read), 2)],
        ),
        (
            vec![(1, 0, Read), (1, 1, Read), (1, 0, Read)],
            vec![((1, 0, Read), 1), ((1, 1, Read), 1), ((1, 0, Read), 1)],
        ),
        (vec![(1, 0, Read), (1, 0, Write)], vec![((1, 0, Write), 2)]),
        (
            vec![(1, 0, Read), (2, 0, Write)],
            vec![((1, 0, Read), 1), ((2, 0, Write), 1)],
        ),
        (vec![(1, 0, Write), (2, 0, Read)], vec![((1, 0, Write), 2)]),
        (
            vec![(1, 0, Read), (1, 0, Write), (2, 0, Write)],
            vec![((1, 0, Write), 2), ((2, 0, Write), 1)],
        ),
        (
            vec![(1, 0, Read), (1, 0, Write), (2, 0, Read)],
            vec![((1, 0, Write), 2)],
        ),
    ];
    for (input, expected) in cases {
        let mut batch = Batch::default();
        for (utlb, page, access) in &input {
            let entry = FaultEntry {
                page: Page(*page),
                access: *access,
                utlb: *utlb,
                instance: 0,
                raised: Time::ZERO,
            };
            batch.add(&entry, true);
        }
        assert_eq!(batch.raw as usize, input.len());
        let kept: Vec<(Entry, u32)> = batch
            .faults
            .iter()
            .filter(|fault| !fault.filtered)
            .map(|fault| ((fault.utlb, fault.page.0, fault.access), fault.instances))
            .collect();
        assert_eq!(kept, expected, "{input:?}");
    }
}

#[test]
fn the_rest_of_the_snapshot_is_discarded_and_comes_back() {
    let params = DriverParams {
        prefetch_enable: false,
        ..DriverParams::default()
    };
    let (mut driver, mut device) = driver(params, 1000, 700, true);
    let pages: Vec<Page> = (0..700).map(|block| page(block, 0)).collect();
    serve(&mut driver, &mut device, &pages);
    let stats = driver.stats();
    assert_eq!((stats.batches, stats.raw_faults), (3, 700));
    assert_eq!(device.entries.len(), 700 + 444 + 188);
    assert_eq!(stats.discarded_entries, 444 + 188);
}

#[test]
fn an_ascending_touch_makes_the_recorded_copies() {
    let (mut driver, mut device) = driver(DriverParams::default(), 10, 1, true);
    for index in 0..512 {
        serve(&mut driver, &mut device, &[page(0, index)]);
    }
    let kib: Vec<u64> = device
        .copies
        .iter()
        .map(|(_, _, pages)| u64::from(*pages) * PAGE_BYTES / 1024)
        .collect();
    assert_eq!(kib, [4, 60, 4, 60, 4, 124, 4, 252, 4, 508, 4, 1020]);
    assert!(
        device
            .copies
            .iter()
            .step_by(2)
            .all(|copy| copy.1 == Cause::Coherence)
    );
    assert!(
        device
            .copies
            .iter()
            .skip(1)
            .step_by(2)
            .all(|copy| copy.1 == Cause::Prefetch)
    );
    assert_eq!(driver.stats().block_services, 6);
}

#[test]
fn victims_go_by_last_service() {
    let (mut driver, mut device) = driver(DriverParams::default(), 3, 5, true);
    for block in 0..3 {
        serve(&mut driver, &mut device, &[page(block, 0)]);
    }
    // Block 0 is served again, block 1 is now the one served longest ago.
    serve(&mut driver, &mut device, &[page(0, 100)]);
    serve(&mut driver, &mut device, &[page(3, 0)]);
    assert!(!driver.is_resident(page(1, 0)) && driver.is_resident(page(0, 0)));
    // An access that hits tells the driver nothing: block 2 goes next.
    serve(&mut driver, &mut device, &[page(4, 0)]);
    assert!(!driver.is_resident(page(2, 0)) && driver.is_resident(page(0, 0)));
    assert_eq!(driver.stats().evictions, 2);
    // Clean pages were copied back: the 64 KiB that had come of block 1 and of block 2.
    let out: u32 = device
        .copies
        .iter()
        .filter(|c| c.0 == Direction::DeviceToHost)
        .map(|c| c.2)
        .sum();
    assert_eq!(out, 32);
}

#[test]
fn evictions_and_migrations_of_a_batch_form_one_chain() {
    use ChannelKind::{DeviceToHost, HostToDevice, MemOps};
    let (mut driver, mut device) = driver(DriverParams::default(), 2, 4, true);
    serve(&mut driver, &mut device, &[page(0, 0), page(1, 0)]);
    device.pushes.clear();
    serve(&mut driver, &mut device, &[page(2, 0), page(3, 0)]);
    let kinds: Vec<ChannelKind> = device.pushes.iter().map(|(_, push)| push.channel).collect();
    let one = [MemOps, DeviceToHost, HostToDevice, MemOps];
    assert_eq!(kinds, [&one[..], &one[..], &[MemOps]].concat());
    let needs = |index: usize, on: usize| {
        let ticket = device.pushes[on].0;
        device.pushes[index]
            .1
            .acquire
            .iter()
            .any(|a| a.channel == ticket.channel && a.value >= ticket.value)
    };
    assert!(needs(1, 0), "the copy out waits for the unmap");
    assert!(needs(2, 1), "the copy in waits for the copy out of its chunk");
    assert!(needs(3, 2), "the map waits for the copy in");
    // The second unmap is behind the first map in the MEMOPS channel, so the second copy out comes
    // after the first copy in: no overlap inside a batch.
    assert_eq!(device.pushes[4].1.channel, MemOps);
    assert!(needs(5, 4));
}

#[test]
fn the_copy_of_cuda_memcpy_is_the_users() {
    let (mut driver, mut device) = driver(DriverParams::default(), 4, 2, false);
    let range = ByteRange {
        start: BASE + PAGE_BYTES,
        bytes: BLOCK_BYTES,
    };
    let (_, last) = driver
        .copy_to_device(range, Time::ZERO, &mut device)
        .expect("managed");
    assert!(last.is_some());
    let total: u32 = device.copies.iter().map(|copy| copy.2).sum();
    assert_eq!(total, 512);
    assert!(device.copies.iter().all(|copy| copy.1 == Cause::User));
    driver.check_invariants().expect("invariants hold");
}

#[test]
fn freed_memory_is_not_written_back_and_can_be_had_again() {
    let (mut driver, mut device) = driver(DriverParams::default(), 2, 2, false);
    serve(&mut driver, &mut device, &[page(0, 0), page(1, 0)]);
    let range = ByteRange {
        start: BASE,
        bytes: 2 * BLOCK_BYTES,
    };
    driver
        .managed_free(range, Time::ZERO, &mut device)
        .expect("managed");
    assert_eq!(driver.chunks_in_use(), 0);
    assert!(driver.managed_free(range, Time::ZERO, &mut device).is_err());
    driver
        .managed_alloc(range, Time::ZERO, &mut device)
        .expect("free addresses");
    let memsets = |device: &Fake| {
        device
            .pushes
            .iter()
            .filter(|(_, p)| p.channel == ChannelKind::GpuInternal)
            .count()
    };
    assert_eq!(memsets(&device), 0, "fresh chunks are zero");
    serve(&mut driver, &mut device, &[page(0, 0)]);
    assert_eq!(memsets(&device), 1, "a chunk that was freed has to be zeroed");
    assert!(device.copies.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_request_is_mapped_in_the_end(
        rounds in prop::collection::vec(prop::collection::vec((0u64..12, 0usize..512), 1..40), 1..12),
        chunks in 12u64..20,
        policy in prop::sample::select(vec![
            ReplayPolicy::Block, ReplayPolicy::Batch, ReplayPolicy::BatchFlush, ReplayPolicy::Once,
        ]),
        batch in 1u32..40,
        on_cpu in any::<bool>(),
        eviction in prop::sample::select(sim_host::eviction::NAMES.to_vec()),
        prefetch in prop::sample::select(sim_host::prefetch::NAMES.to_vec()),
    ) {
        let params = DriverParams {
            fault_batch_count: batch,
            fault_replay_policy: policy,
            eviction_policy: eviction.parse().expect("a name"),
            prefetch_policy: prefetch.parse().expect("a name"),
            ..DriverParams::default()
        };
        let (mut driver, mut device) = driver(params, chunks, 30, on_cpu);
        let mut shift = 0;
        for round in rounds {
            let mut pages: Vec<Page> = round.iter().map(|(block, index)| page((block + shift) % 30, *index)).collect();
            pages.dedup();
            serve(&mut driver, &mut device, &pages);
            shift += 5;
        }
        let stats = driver.stats();
        let mut by: BTreeMap<(Direction, Cause), u64> = BTreeMap::new();
        for (direction, cause, pages) in &device.copies {
            *by.entry((*direction, *cause)).or_default() += u64::from(*pages);
        }
        let of = |key| by.get(&key).copied().unwrap_or_default();
        let arrived = of((Direction::HostToDevice, Cause::Coherence)) + of((Direction::HostToDevice, Cause::Prefetch));
        prop_assert_eq!(arrived + stats.populated_pages, stats.demand_pages + stats.prefetched_pages);
        prop_assert_eq!(of((Direction::DeviceToHost, Cause::Eviction)), stats.evicted_pages);
        prop_assert_eq!(stats.raw_faults + stats.discarded_entries, device.entries.len() as u64);
        prop_assert!(driver.chunks_in_use() <= chunks);
    }
}
