//! Bursts in closed form give the same completions and counters as packet-by-packet stepping.

use proptest::prelude::*;
use sim_core::Time;
use sim_core::push::Direction;
use sim_pcie::config::{Arbiter, CompletionPolicy, DllpModel, Generation};
use sim_pcie::naive;
use sim_pcie::{Completion, Exactness, Link, LinkConfig, LinkStats, Transfer};

fn config() -> impl Strategy<Value = LinkConfig> {
    let power = |low: u32, high: u32| (low..=high).prop_map(|bits| 1u32 << bits);
    let shape = (
        prop::sample::select(Generation::ALL.to_vec()),
        power(0, 4),
        power(7, 10),
        power(7, 12),
        power(6, 7),
        prop_oneof![1u32..9, Just(32), Just(256), Just(768)],
        prop::sample::select(vec![32u32, 64]),
        any::<bool>(),
    );
    let timing = (
        prop_oneof![
            Just(75 * 1024u64),
            0u64..200_000,
            (0u64..48).prop_map(|n| n * 4160)
        ],
        prop_oneof![
            Just(350 * 1024u64),
            0u64..800_000,
            (0u64..190).prop_map(|n| n * 4160)
        ],
        any::<bool>(),
        prop::option::of((160u32..1500).prop_map(|n| n * 4)),
        any::<bool>(),
        prop::sample::select(vec![
            Arbiter::RoundRobin,
            Arbiter::PostedFirst,
            Arbiter::NonPostedFirst,
        ]),
    );
    let policy = prop_oneof![
        Just(CompletionPolicy::Rcb),
        Just(CompletionPolicy::Max),
        (0u32..5, 5u32..9).prop_map(|(rcb, of)| CompletionPolicy::Mixed { rcb, of }),
    ];
    let rate = || prop::option::weighted(0.15, 1_000_000_000u64..60_000_000_000);
    let limits = (
        prop::option::weighted(0.2, 1u32..80),
        prop::option::weighted(0.2, 64u32..1100),
        0u64..60_000,
        (rate(), rate(), rate()),
    );
    (shape, timing, policy, limits, any::<bool>()).prop_map(|(shape, timing, completions, limits, small)| {
        let (generation, lanes, mps, mrrs, rcb, tags, address_bits, ecrc) = shape;
        let (one_way, host_read, skp, interval, dllp, arbiter) = timing;
        let interval = if generation == Generation::Gen6 {
            interval.map(|i| i + 1024)
        } else {
            interval
        };
        LinkConfig {
            generation,
            lanes,
            mps,
            mrrs,
            rcb,
            tags,
            address_bits,
            ecrc,
            write_tlp: if small { 128 } else { mps },
            completions,
            one_way: Time(one_way),
            host_read: Time(host_read),
            skp,
            skp_interval: interval,
            dllp: if dllp { DllpModel::Cadence } else { DllpModel::None },
            arbiter,
            posted_headers: limits.0,
            posted_data: limits.1,
            drain: Time(limits.2),
            rc_write: limits.3.0,
            rc_read: limits.3.1,
            rc_total: limits.3.2,
            ..LinkConfig::default()
        }
    })
}

#[derive(Clone, Copy, Debug)]
struct Step {
    gap: u64,
    transfer: Transfer,
    advance: bool,
}

fn steps(most: u64) -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![1u64..5000, (1u64..40).prop_map(|n| n * 4096), 1u64..most];
    let address = prop_oneof![3 => Just(0u64), 1 => 0u64..4096];
    let gap = prop_oneof![Just(0u64), 0u64..3_000_000, 0u64..60_000_000];
    let step =
        (gap, any::<bool>(), bytes, address, any::<bool>()).prop_map(|(gap, up, bytes, address, advance)| {
            let direction = if up {
                Direction::DeviceToHost
            } else {
                Direction::HostToDevice
            };
            Step {
                gap,
                transfer: Transfer {
                    direction,
                    bytes,
                    address,
                },
                advance,
            }
        });
    prop::collection::vec(step, 1..12)
}

fn play(config: &LinkConfig, exactness: Exactness, steps: &[Step]) -> (Vec<Completion>, LinkStats) {
    let mut link = Link::with_exactness(config.clone(), exactness).unwrap();
    let (mut now, mut done) = (Time::ZERO, Vec::new());
    for step in steps {
        now += Time(step.gap);
        if step.advance {
            link.advance(now, &mut done);
        }
        link.submit(now, step.transfer);
    }
    while let Some(next) = link.next_event() {
        link.advance(next, &mut done);
        now = now.max(next);
    }
    (done, link.stats(now + Time::from_us(3)))
}

proptest! {
    #![proptest_config(ProptestConfig { ..ProptestConfig::default() })]

    #[test]
    fn fast_is_stepped(config in config(), steps in steps(400_000)) {
        let stepped = play(&config, Exactness::Stepped, &steps);
        let fast = play(&config, Exactness::Fast, &steps);
        prop_assert_eq!(stepped.0.len(), steps.len());
        prop_assert_eq!(fast, stepped);
    }

    /// Long reads with few tags, small reads before them, interrupted by writes at any moment.
    #[test]
    fn streams_are_stepped(
        config in config(),
        tags in 4u32..100,
        mrrs in 7u32..10,
        before in prop::collection::vec((1u64..600, 0u64..4096), 0..80),
        bytes in 100_000u64..600_000,
        after in prop::collection::vec((0u64..20_000_000, any::<bool>(), 1u64..9000), 1..6),
    ) {
        let unlimited = LinkConfig { posted_headers: None, posted_data: None, rc_write: None, rc_read: None, rc_total: None, ..config };
        let completions = if tags % 2 == 0 { CompletionPolicy::Rcb } else { CompletionPolicy::Max };
        let config = LinkConfig { tags, mrrs: 1 << mrrs, lanes: 16, completions, ..unlimited };
        let step = |gap, up, bytes, address| {
            let direction = if up { Direction::DeviceToHost } else { Direction::HostToDevice };
            Step { gap, transfer: Transfer { direction, bytes, address }, advance: bytes % 2 == 0 }
        };
        let mut steps: Vec<_> = before.into_iter().map(|(bytes, address)| step(0, false, bytes, address)).collect();
        steps.push(step(0, false, bytes, 0));
        steps.extend(after.into_iter().map(|(gap, up, bytes)| step(gap, up, bytes, 0)));
        let stepped = play(&config, Exactness::Stepped, &steps);
        prop_assert_eq!(play(&config, Exactness::Fast, &steps), stepped);
    }

    /// And stepping by packets is stepping by slots, with code of its own.
    #[test]
    fn packets_are_slots(config in config(), steps in steps(6_000)) {
        let mut now = Time::ZERO;
        let mut budget = 60_000;
        let steps: Vec<_> = steps.into_iter().map(|s| {
            let bytes = s.transfer.bytes.min(budget / 8 + 1);
            budget -= bytes;
            Step { gap: s.gap / 20, transfer: Transfer { bytes, ..s.transfer }, ..s }
        }).collect();
        let transfers: Vec<_> = steps.iter().map(|s| {
            now += Time(s.gap);
            (now, s.transfer)
        }).collect();
        let (done, stats) = naive::simulate(&config, &transfers).unwrap();
        for exactness in [Exactness::Stepped, Exactness::Fast] {
            let ours = play(&config, exactness, &steps);
            prop_assert_eq!(&ours.0, &done);
            for (a, b) in [(ours.1.up, stats.up), (ours.1.down, stats.down)] {
                prop_assert_eq!((a.tlps, a.dllps, a.wire_bytes, a.payload_bytes, a.busy), (b.tlps, b.dllps, b.wire_bytes, b.payload_bytes, b.busy));
            }
        }
    }

    /// The lower generations differ from the higher ones only by a factor of two of every time.
    #[test]
    fn twice_the_rate_halves_every_time(config in config(), steps in steps(50_000), generation in 0usize..2) {
        // Ordered sets are due at fixed symbol counts, so they scale too.
        let scale = |config: &LinkConfig, shift: u32, generation| LinkConfig {
            generation,
            one_way: Time(config.one_way.0 >> 2 << shift),
            host_read: Time(config.host_read.0 >> 2 << shift),
            drain: Time(config.drain.0 >> 2 << shift),
            rc_write: None,
            rc_read: None,
            rc_total: None,
            skp_interval: config.skp_interval.map(|i| i.max(320)),
            ..config.clone()
        };
        let gaps = |shift: u32| -> Vec<Step> {
            steps.iter().map(|s| Step { gap: s.gap >> 2 << shift, ..*s }).collect()
        };
        let (slow, fast) = (Generation::ALL[2 + generation], Generation::ALL[3 + generation]);
        let a = play(&scale(&config, 1, slow), Exactness::Fast, &gaps(1));
        let b = play(&scale(&config, 0, fast), Exactness::Fast, &gaps(0));
        let halves: Vec<_> = a.0.iter().map(|c| (c.id, c.time.0 / 2, c.time.0 % 2)).collect();
        let times: Vec<_> = b.0.iter().map(|c| (c.id, c.time.0, 0)).collect();
        prop_assert_eq!(halves, times);
    }

    /// More tags never delay a single stream.
    #[test]
    fn more_tags_never_hurt(config in config(), bytes in 1u64..300_000, address in 0u64..4096) {
        let transfer = Transfer { direction: Direction::HostToDevice, bytes, address };
        let step = [Step { gap: 0, transfer, advance: false }];
        // Without ordered sets: a request that comes earlier can meet one that it would have missed.
        let config = LinkConfig { skp: false, ..config };
        let few = play(&config, Exactness::Fast, &step).0[0].time;
        let many = play(&LinkConfig { tags: config.tags * 2, ..config }, Exactness::Fast, &step).0[0].time;
        prop_assert!(many <= few);
    }
}
