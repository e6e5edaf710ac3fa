//! Root complex, IOMMU, copies with their fixed costs, zero-copy, interrupts: against measured rows.

use sim_core::Time;
use sim_core::push::Direction::{DeviceToHost, HostToDevice};
use sim_pcie::LinkConfig;
use sim_pcie::config::{Arbiter, CompletionPolicy, Generation};
use sim_pcie::packet::Kind;
use sim_pcie::protocol::{
    Credit, Errors, HostOptions, IotlbOptions, NoRecord, PortOptions, Protocol, Purpose, Recorder, Sink,
    Stepping,
};

fn link<S: Sink>(config: &LinkConfig, credit: Credit, host: HostOptions, sink: S) -> Protocol<S> {
    let mut ports = [PortOptions::new(config, true), PortOptions::new(config, false)];
    ports[0].credits[0] = credit;
    Protocol::with_sink(config, ports, host, Errors::default(), sink).unwrap()
}

/// GB/s host to device and device to host while both are busy.
fn both_ways(config: &LinkConfig, credit: Credit, reads: Option<u32>, both: (bool, bool)) -> (f64, f64) {
    let mut link = link(config, credit, HostOptions::default(), Recorder::default());
    link.limit_reads(reads, None);
    if both.0 {
        link.read(Time::ZERO, 0, 4 << 20);
    }
    if both.1 {
        link.write(Time::ZERO, 0, 4 << 20);
    }
    link.run(Stepping::Periods).unwrap();
    // Up to the end of the direction that ends first.
    let last = |kind| link.deliveries().iter().rfind(|d| d.kind == kind).map(|d| d.time);
    let until = [last(Kind::CplD), last(Kind::MWr)]
        .into_iter()
        .flatten()
        .min()
        .unwrap();
    let rate = |kind| {
        let bytes: u64 = link
            .deliveries()
            .iter()
            .filter(|d| d.kind == kind && d.time <= until)
            .map(|d| d.payload)
            .sum();
        bytes as f64 / until.as_ns_f64()
    };
    (rate(Kind::CplD), rate(Kind::MWr))
}

/// Measured (M13): an A100 alone copies 25 to 26 GB/s each way; both ways at once 12 to 13 and 24. Writes that
/// drain at 24 GB/s fill the posted buffer of the root port; every read waits behind them.
#[test]
fn writes_in_front_of_reads_halve_the_a100() {
    let config = LinkConfig {
        completions: CompletionPolicy::Mixed { rcb: 2, of: 3 },
        rc_write: Some(24_500_000_000),
        ..LinkConfig::default()
    };
    let credit = Credit {
        headers: Some(160), // fitted, with scaled flow control
        data: Some(1280),
    };
    let reads = Some(30); // fitted: 15 KiB in flight
    let alone = (
        both_ways(&config, credit, reads, (true, false)).0,
        both_ways(&config, credit, reads, (false, true)).1,
    );
    let both = both_ways(&config, credit, reads, (true, true));
    println!("A100: alone {alone:.1?}, both {both:.1?} GB/s");
    assert!(
        (25.0..27.0).contains(&alone.0) && (24.0..26.5).contains(&alone.1),
        "{alone:?}"
    );
    assert!(
        (12.0..14.0).contains(&both.0) && (23.0..25.0).contains(&both.1),
        "{both:?}"
    );
}

/// Measured (M04b): RTX 4090 on a client host, 23.6 / 20.8 alone, 23.7 / 13.2 together: a budget that reads take
/// first because more of them wait.
#[test]
fn a_shared_budget_slows_the_writes_of_the_rtx_4090() {
    let config = LinkConfig {
        rc_total: Some(37_000_000_000),
        rc_write: Some(20_800_000_000),
        arbiter: Arbiter::NonPostedFirst,
        ..LinkConfig::default()
    };
    let credit = Credit {
        headers: Some(64),
        data: Some(1024),
    };
    let both = both_ways(&config, credit, None, (true, true));
    println!("RTX 4090: both {both:.1?} GB/s");
    assert!(
        (22.0..24.5).contains(&both.0) && (11.5..15.0).contains(&both.1),
        "{both:?}"
    );
}

/// Measured (pcie-bench, Haswell, 4 KiB IOMMU pages): random reads of 64 B, GB/s by window: 256 KiB 4.08, 1 MiB
/// 2.00, 64 MiB 1.26; of 512 B: 6.88, 6.87, 6.83.
#[test]
fn iotlb_reach_decides_random_reads() {
    let config = LinkConfig {
        generation: Generation::Gen3,
        lanes: 8,
        completions: CompletionPolicy::Max,
        tags: 64,
        ..LinkConfig::default()
    };
    let rate = |window: u64, bytes: u64| {
        let host = HostOptions {
            iotlb: Some(IotlbOptions::default()),
            ..HostOptions::default()
        };
        let mut link = link(&config, Credit::default(), host, NoRecord);
        let mut random = sim_core::rng::Stream::new(1, "window");
        let reads = 20_000;
        for _ in 0..reads {
            link.read(Time::ZERO, random.below(window / bytes) * bytes, bytes);
        }
        link.run(Stepping::Packets).unwrap();
        (reads * bytes) as f64 / link.now().as_ns_f64()
    };
    let small = [256 << 10, 1 << 20, 64 << 20].map(|window| rate(window, 64));
    let large = [256 << 10, 1 << 20, 64 << 20].map(|window| rate(window, 512));
    println!("64 B: {small:.2?}, 512 B: {large:.2?} GB/s");
    assert!(small[0] > 4.0, "no misses within reach: {small:?}");
    assert!(
        (1.4..2.2).contains(&small[1]) && (1.15..1.4).contains(&small[2]),
        "{small:?}"
    );
    assert!(large.iter().all(|rate| (6.3..7.25).contains(rate)), "{large:?}");
}

/// Measured: fixed cost of copies back to back in a stream 2.6 us host to device, 1.4 to 2.0 us device to host.
#[test]
fn fixed_costs_of_copies() {
    let config = LinkConfig {
        generation: Generation::Gen3,
        ..LinkConfig::default()
    };
    for (direction, least, most) in [(HostToDevice, 1.8, 2.9), (DeviceToHost, 1.2, 2.1)] {
        let mut link = link(&config, Credit::default(), HostOptions::default(), NoRecord);
        for _ in 0..10 {
            link.copy(Time::ZERO, direction, 0, 4096);
        }
        link.run(Stepping::Periods).unwrap();
        let done = link.copies_done();
        assert_eq!(done.len(), 10);
        let alone = done[0].time.as_us_f64();
        let each = (done[9].time - done[0].time).as_us_f64() / 9.0;
        println!("{direction:?} 4 KiB: first after {alone:.2} us, then every {each:.2} us");
        assert!((least..most).contains(&alone), "{alone}");
        assert!(each < alone);
    }
}

#[test]
fn an_interrupt_comes_behind_the_writes_it_announces() {
    let config = LinkConfig::default();
    let credit = Credit {
        headers: Some(2),
        data: None,
    };
    let mut link = link(&config, credit, HostOptions::default(), Recorder::default());
    link.write(Time::ZERO, 0, 4096);
    link.interrupt(Time::ZERO);
    link.mmio_read(Time::ZERO, 0x40, 4);
    link.zero_copy_write(Time::ZERO, 1 << 20, 256, 32);
    link.run(Stepping::Periods).unwrap();
    let all: Vec<_> = link.deliveries().iter().collect();
    let place = |purpose| all.iter().rposition(|d| d.purpose == purpose).unwrap();
    assert!(place(Purpose::Interrupt) > place(Purpose::CopyWrite));
    // The SMs do not wait for the copy engine; the register read passes blocked writes.
    assert!(place(Purpose::ZeroCopyWrite) < place(Purpose::CopyWrite));
    assert!(place(Purpose::MmioRead) < place(Purpose::CopyWrite));
}

/// Published rule: a read request never passes a posted write, so without posted credits it waits too.
#[test]
fn reads_wait_behind_writes_without_credits() {
    let config = LinkConfig::default();
    let credit = Credit {
        headers: Some(1),
        data: None,
    };
    let first_read = |writes: u64| {
        let mut link = link(&config, credit, HostOptions::default(), Recorder::default());
        if writes > 0 {
            link.write(Time::ZERO, 0, writes * 128);
        }
        link.read(Time::ZERO, 0, 64);
        link.run(Stepping::Periods).unwrap();
        link.deliveries()
            .iter()
            .find(|d| d.kind == Kind::MRd)
            .unwrap()
            .time
    };
    let (alone, behind) = (first_read(0), first_read(2));
    assert!(behind > alone + Time::from_ns(100), "{alone} {behind}");
}
