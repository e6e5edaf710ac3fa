//! Flit retry of generation 6.

use proptest::prelude::*;
use sim_core::Time;
use sim_pcie::LinkConfig;
use sim_pcie::config::Generation;
use sim_pcie::flit::{FlitLink, FlitOptions};
use sim_pcie::protocol::{Errors, PortOptions, Protocol, Stepping};

#[test]
fn packing_across_flits() {
    // Published example: 272 stream bytes per write; 1, 2, 10 and 1000 writes are 2, 3, 12 and 1153 flits.
    for (writes, flits) in [(1, 2), (2, 3), (10, 12), (1000, 1153)] {
        let mut link = FlitLink::new(FlitOptions::default()).unwrap();
        for _ in 0..writes {
            link.send(Time::ZERO, 272);
        }
        link.run();
        assert_eq!((link.count().new, link.count().replayed), (flits, 0));
        assert_eq!(
            *link.arrivals().last().unwrap(),
            Time::from_ns(2 * flits + 2 + 75)
        );
    }
}

#[test]
fn a_small_retry_buffer_throttles() {
    let last = |retry_flits| {
        let mut link = FlitLink::new(FlitOptions {
            retry_flits,
            ..FlitOptions::default()
        })
        .unwrap();
        for _ in 0..1000 {
            link.send(Time::ZERO, 272);
        }
        link.run();
        *link.arrivals().last().unwrap()
    };
    // Round trip: a flit of 2 ns, 77 ns, a flit, 77 ns: about 80 flits.
    assert_eq!(last(511), last(82));
    assert!(last(40).0 > last(511).0 * 19 / 10);
}

#[test]
fn errors_cost_a_round_trip_each() {
    let run = |flit_errors| {
        let mut link = FlitLink::new(FlitOptions {
            flit_errors,
            seed: 7,
            ..FlitOptions::default()
        })
        .unwrap();
        for _ in 0..20_000 {
            link.send(Time::ZERO, 272);
        }
        link.run();
        assert_eq!(link.arrivals().len(), 20_000);
        (link.arrivals().last().unwrap().as_ns_f64(), link.count())
    };
    let (clean, _) = run(0.0);
    let (dirty, count) = run(1e-3);
    assert!(count.bad > 5 && count.naks > 5 && count.replayed > 20 * count.naks);
    let each = (dirty - clean) / count.naks as f64;
    println!("{count:?}: {each:.1} ns per replay");
    assert!((100.0..250.0).contains(&each), "{each}");
}

/// The protocol model packs packets into flits as the flit link does.
#[test]
fn the_protocol_packs_alike() {
    for (lanes, mps) in [(16, 128), (16, 256), (4, 512), (1, 4096)] {
        let config = LinkConfig {
            generation: Generation::Gen6,
            lanes,
            mps,
            write_tlp: mps,
            skp: false,
            ..LinkConfig::default()
        };
        let mut link = Protocol::new(&config).unwrap();
        let mut flits = FlitLink::new(FlitOptions {
            lanes,
            ..FlitOptions::default()
        })
        .unwrap();
        // A burst, idle time, and another; each ready when a flit starts.
        for at in [Time::ZERO, Time::from_ns(1 << 20)] {
            link.write(at, 0, 300 * u64::from(mps));
            for _ in 0..300 {
                flits.send(at, u64::from(mps) + 16);
            }
        }
        link.run(Stepping::Periods).unwrap();
        flits.run();
        let arrivals: Vec<Time> = link.deliveries().iter().map(|d| d.time).collect();
        assert_eq!(arrivals, flits.arrivals(), "x{lanes}, {mps} B");
    }
}

#[test]
fn errors_in_flits_are_refused_by_name() {
    let config = LinkConfig {
        generation: Generation::Gen6,
        ..LinkConfig::default()
    };
    let ports = [PortOptions::new(&config, true), PortOptions::new(&config, false)];
    let errors = Errors {
        bit_errors: Some((1e-9, 1)),
        ..Errors::default()
    };
    let error = Protocol::with_options(&config, ports, errors).unwrap_err();
    assert!(
        error.to_string().starts_with("link.generation = 6 with errors"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn idle_jumps_change_nothing(
        lanes in prop::sample::select(vec![1u32, 2, 4, 8, 16]),
        one_way in 0u64..100_000, retry_flits in 1u32..100,
        flit_errors in prop_oneof![Just(0.0), 1e-4f64..0.1], seed: u64,
        packets in prop::collection::vec((0u64..200_000, 12u64..600), 1..60),
    ) {
        let options = FlitOptions { lanes, one_way: Time(one_way), retry_flits, flit_errors, seed, ..FlitOptions::default() };
        let (mut fast, mut slow) = (FlitLink::new(options).unwrap(), FlitLink::new(options).unwrap());
        let mut at = 0;
        for &(gap, bytes) in &packets {
            at += gap;
            for link in [&mut fast, &mut slow] {
                link.send(Time(at), bytes);
            }
        }
        fast.run();
        slow.run_every_flit();
        prop_assert_eq!(fast.arrivals(), slow.arrivals());
        prop_assert_eq!(fast.count(), slow.count());
        prop_assert_eq!(fast.arrivals().len(), packets.len());
        prop_assert!(fast.arrivals().is_sorted());
    }
}
