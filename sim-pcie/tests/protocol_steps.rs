//! The data-link protocol stepped by packets is the protocol stepped by slots, and keeps its promises.

use proptest::prelude::*;
use sim_core::Time;
use sim_pcie::LinkConfig;
use sim_pcie::config::{AckPolicy, Arbiter, CompletionPolicy, Generation};
use sim_pcie::packet::Kind;
use sim_pcie::protocol::{Credit, Errors, PortOptions, Protocol, Side, Stepping};

#[derive(Clone, Debug)]
struct Scenario {
    config: LinkConfig,
    ports: [PortOptions; 2],
    errors: Errors,
    writes: Vec<(u64, u64, u64)>,
    reads: Vec<(u64, u64, u64)>,
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let link = (
        prop::sample::select(Generation::ALL.to_vec()),
        prop::sample::select(vec![1u32, 2, 4, 8, 16]),
        (7u32..10).prop_map(|bits| 1u32 << bits),
        prop::sample::select(vec![64u32, 128]),
        any::<bool>(),
        // Often whole slots, so that things happen at the same time.
        prop_oneof![0u64..200_000, (0u64..48).prop_map(|n| n * 4160)],
        prop_oneof![0u64..500_000, (0u64..120).prop_map(|n| n * 4160)],
        prop_oneof![Just(1u32), Just(3), Just(256)],
    );
    let flow = (
        any::<bool>(),
        prop::option::of((80u32..500).prop_map(|n| n * 4)),
        prop::option::of(1u32..9),
        prop::option::of(32u32..129),
        prop::option::of(1u32..5),
        prop_oneof![0u64..50_000, (0u64..12).prop_map(|n| n * 4160)],
        1u64..3,
        prop::option::of(1500u64..6000),
        (any::<bool>(), any::<bool>()),
    );
    let arbiter = prop::sample::select(vec![
        Arbiter::RoundRobin,
        Arbiter::PostedFirst,
        Arbiter::NonPostedFirst,
    ]);
    let side = || any::<bool>().prop_map(|up| if up { Side::Up } else { Side::Down });
    let errors = (
        prop::collection::vec((side(), 0u16..12, 0u8..3), 0..4),
        prop::collection::vec((side(), 1u64..8), 0..2),
        prop::option::weighted(0.2, (1e-6f64..1e-5, any::<u64>())),
    );
    let job = || (0u64..3_000_000, 0u64..4096, 1u64..3000);
    let jobs = (
        prop::collection::vec(job(), 0..4),
        prop::collection::vec(job(), 0..4),
    );
    (link, flow, arbiter, errors, jobs).prop_map(|(link, flow, arbiter, errors, jobs)| {
        let (generation, lanes, mps, rcb, max, one_way, host_read, tags) = link;
        let (timer, skp, headers, data, reads, drain, update_after, retry, relaxed) = flow;
        let flits = generation == Generation::Gen6;
        let skp = skp.map(|symbols: u32| symbols + if flits { 1024 } else { 0 });
        let config = LinkConfig {
            generation,
            lanes,
            mps,
            write_tlp: mps,
            rcb,
            completions: if max {
                CompletionPolicy::Max
            } else {
                CompletionPolicy::Rcb
            },
            one_way: Time(one_way),
            host_read: Time(host_read),
            tags,
            arbiter,
            skp: skp.is_some(),
            skp_interval: skp,
            ack: if timer {
                AckPolicy::Timer
            } else {
                AckPolicy::Immediate
            },
            drain: Time(drain),
            ..LinkConfig::default()
        };
        let mut ports = [PortOptions::new(&config, true), PortOptions::new(&config, false)];
        ports[0].credits = [
            Credit { headers, data },
            Credit {
                headers: reads,
                data: None,
            },
            Credit::default(),
        ];
        for port in &mut ports {
            port.update_after = update_after;
            port.retry_bytes = retry;
            port.retrain = 100_000;
            (port.relaxed_completions, port.relaxed_writes) = relaxed;
            // Longer than any round trip, so that it runs out only when something was lost.
            port.replay_timer = Some(4_000_000);
        }
        let sorted = |mut jobs: Vec<(u64, u64, u64)>| {
            jobs.sort_unstable();
            jobs
        };
        let errors = if flits {
            Errors::default()
        } else {
            Errors {
                corrupt: errors.0,
                lose: errors.1,
                bit_errors: errors.2,
            }
        };
        Scenario {
            config,
            ports,
            errors,
            writes: sorted(jobs.0),
            reads: sorted(jobs.1),
        }
    })
}

fn run(s: &Scenario, stepping: Stepping) -> Protocol {
    let mut link = Protocol::with_options(&s.config, s.ports.clone(), s.errors.clone()).unwrap();
    for &(at, address, bytes) in &s.writes {
        link.write(Time(at), address, bytes);
    }
    for &(at, address, bytes) in &s.reads {
        link.read(Time(at), address, bytes);
    }
    link.run(stepping).unwrap();
    link
}

proptest! {
    #[test]
    fn packets_are_slots(s in scenario()) {
        let slow = run(&s, Stepping::Slots);
        for stepping in [Stepping::Packets, Stepping::Periods] {
        let fast = run(&s, stepping);
        prop_assert_eq!(fast.deliveries(), slow.deliveries());
        prop_assert_eq!(fast.trace(), slow.trace());
        for side in Side::BOTH {
            prop_assert_eq!(fast.counters(side), slow.counters(side));
        }
        }
    }

    #[test]
    fn every_packet_once_and_in_order(s in scenario()) {
        let link = run(&s, Stepping::Packets);
        for side in Side::BOTH {
            let sequences: Vec<_> = link.deliveries().iter().filter(|d| d.side == side).map(|d| d.sequence).collect();
            prop_assert_eq!(&sequences, &(0..sequences.len() as u16).collect::<Vec<_>>());
            let mut end = Time::ZERO;
            let symbol = s.config.slot_ticks() * s.config.slots_per_symbol();
            for entry in link.trace().iter().filter(|e| e.side == side && e.start < e.end) {
                if s.config.generation == Generation::Gen6 {
                    break; // flits follow each other whatever is in them
                }
                prop_assert!(entry.start >= end, "overlap on a wire");
                prop_assert!(entry.start == end || entry.start.0 % symbol == 0, "start after idle off a symbol");
                end = entry.end;
            }
        }
        let moved = |kind| -> u64 { link.deliveries().iter().filter(|d| d.kind == kind).map(|d| d.payload).sum() };
        let asked = |jobs: &[(u64, u64, u64)]| -> u64 { jobs.iter().map(|j| j.2).sum() };
        prop_assert_eq!(moved(Kind::MWr), asked(&s.writes));
        prop_assert_eq!(moved(Kind::MRd), asked(&s.reads));
        prop_assert_eq!(moved(Kind::CplD), asked(&s.reads));
    }
}

/// Ten data credits: behind a write of 128 bytes (eight credits) only one of 32 fits. It may go only if it is
/// relaxed; the interrupt behind all of them never goes first.
#[test]
fn relaxed_writes_pass_writes_without_credit() {
    let config = LinkConfig {
        skp: false,
        ..LinkConfig::default()
    };
    let order = |relaxed_writes: bool| {
        let mut ports = [PortOptions::new(&config, true), PortOptions::new(&config, false)];
        ports[0].relaxed_writes = relaxed_writes;
        ports[0].credits[0] = Credit {
            headers: None,
            data: Some(10),
        };
        let mut link = Protocol::with_options(&config, ports, Errors::default()).unwrap();
        link.write(Time::ZERO, 0, 512);
        // While the first waits for its credits to come back.
        link.zero_copy_write(Time::from_ns(50), 1 << 20, 64, 32);
        link.interrupt(Time::from_ns(50));
        link.run(Stepping::Packets).unwrap();
        let sizes: Vec<u64> = link.deliveries().iter().map(|d| d.payload).collect();
        (sizes, link.deliveries().last().unwrap().time)
    };
    let ((strict, strict_end), (relaxed, relaxed_end)) = (order(false), order(true));
    assert_eq!(strict, [128, 128, 32, 128, 32, 128, 4]);
    assert_eq!(relaxed, [128, 32, 128, 32, 128, 128, 4]);
    assert!(relaxed_end <= strict_end);
}
