//! Jumping whole periods gives what stepping every packet gives, to the last record.

use proptest::prelude::*;
use sim_core::Time;
use sim_core::push::Direction;
use sim_pcie::LinkConfig;
use sim_pcie::config::{AckPolicy, CompletionPolicy, Generation};
use sim_pcie::protocol::{
    Credit, Errors, HostOptions, NoRecord, PortOptions, Protocol, Recorder, Side, Sink, Stepping,
};

#[derive(Clone, Debug)]
struct Mix {
    config: LinkConfig,
    ports: [PortOptions; 2],
    host: HostOptions,
    errors: Errors,
    limits: (Option<u32>, Option<u32>),
    /// What, when, address, bytes.
    jobs: Vec<(u8, u64, u64, u64)>,
}

fn mixes() -> impl Strategy<Value = Mix> {
    let link = (
        prop::sample::select(Generation::ALL.to_vec()),
        prop::sample::select(vec![1u32, 2, 4, 8, 16]),
        (7u32..10).prop_map(|bits| 1u32 << bits),
        prop_oneof![
            Just(CompletionPolicy::Rcb),
            Just(CompletionPolicy::Max),
            (0u32..4).prop_map(|rcb| CompletionPolicy::Mixed { rcb, of: 3 })
        ],
        (0u64..48).prop_map(|n| n * 1664),
        (0u64..120).prop_map(|n| n * 4160),
        prop_oneof![Just(1u32), Just(3), 4u32..40, Just(256)],
        any::<bool>(),
        prop::option::weighted(0.3, (80u32..1500).prop_map(|n| n * 4)),
    );
    let flow = (
        prop::option::of(1u32..65),
        prop::option::of(32u32..1025),
        prop::option::of(1u32..65),
        0u64..50_000,
        1u64..3,
        prop::option::weighted(0.3, 1500u64..16_384),
        prop::option::weighted(
            0.3,
            prop::sample::select(vec![8_000_000_000u64, 12_800_000_000, 24_000_000_000]),
        ),
        prop::option::weighted(0.2, prop::sample::select(vec![16_000_000_000u64, 32_000_000_000])),
        any::<bool>(),
        prop_oneof![Just((0u32, 1u32)), Just((1, 2)), Just((1, 1))],
        (any::<bool>(), any::<bool>()),
    );
    let errors = prop::option::weighted(0.3, (1e-8f64..1e-6, any::<u64>()));
    let limits = (prop::option::of(1u32..40), prop::option::of(1u32..40));
    let bytes = prop_oneof![1u64..40_000, 100_000u64..1_000_000];
    let at = prop_oneof![Just(0u64), 0u64..60_000_000];
    let jobs = prop::collection::vec((0u8..9, at, 0u64..40_000, bytes), 1..5);
    (link, flow, errors, limits, jobs).prop_map(|(link, flow, bits, limits, jobs)| {
        let (generation, lanes, mps, completions, one_way, host_read, tags, timer, skp) = link;
        let (
            headers,
            data,
            reads,
            drain,
            update_after,
            retry,
            rc_write,
            rc_total,
            behind,
            dram_reads,
            relaxed,
        ) = flow;
        let flits = generation == Generation::Gen6;
        let skp = skp.map(|symbols| symbols + if flits { 1024 } else { 0 });
        let config = LinkConfig {
            generation,
            lanes,
            mps,
            write_tlp: mps,
            completions,
            one_way: Time(one_way),
            host_read: Time(host_read),
            tags,
            skp: skp.is_some(),
            skp_interval: skp,
            ack: if timer {
                AckPolicy::Timer
            } else {
                AckPolicy::Immediate
            },
            drain: Time(drain),
            rc_write,
            rc_total,
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
            port.replay_timer = Some(6_000_000);
            (port.relaxed_completions, port.relaxed_writes) = relaxed;
        }
        Mix {
            config,
            ports,
            host: HostOptions {
                reads_behind_writes: behind,
                dram_reads,
                ..HostOptions::default()
            },
            errors: Errors {
                bit_errors: bits.filter(|_| !flits),
                ..Errors::default()
            },
            limits,
            jobs,
        }
    })
}

fn play<S: Sink>(mix: &Mix, stepping: Stepping, sink: S) -> Protocol<S> {
    let (ports, errors) = (mix.ports.clone(), mix.errors.clone());
    let mut link = Protocol::with_sink(&mix.config, ports, mix.host, errors, sink).unwrap();
    link.limit_reads(mix.limits.0, mix.limits.1);
    for &(what, at, address, bytes) in &mix.jobs {
        let at = Time(at);
        match what {
            0 | 1 => link.write(at, address, bytes),
            2 | 3 => link.read(at, address, bytes),
            4 => link.zero_copy_read(at, address, bytes, 128),
            5 => link.zero_copy_write(at, address, bytes, 32),
            6 => {
                link.interrupt(at);
                link.mmio_read(at, address, 4);
                link.doorbell(at, 8);
            }
            7 => {
                link.copy(at, Direction::HostToDevice, address, bytes);
            }
            _ => {
                link.copy(at, Direction::DeviceToHost, address, bytes);
            }
        }
    }
    link.run(stepping).unwrap();
    link
}

/// Runs a mix both ways; how many periods were jumped over.
fn compare(mix: &Mix) -> Result<u64, TestCaseError> {
    let slow = play(mix, Stepping::Packets, Recorder::default());
    let fast = play(mix, Stepping::Periods, Recorder::default());
    let silent = play(mix, Stepping::Periods, NoRecord);
    for (n, (a, b)) in fast.trace().iter().zip(slow.trace()).enumerate() {
        prop_assert_eq!(a, b, "record {} of {}", n, slow.trace().len());
    }
    prop_assert_eq!(fast.trace().len(), slow.trace().len());
    prop_assert!(fast.deliveries() == slow.deliveries(), "deliveries differ");
    prop_assert_eq!(fast.copies_done(), slow.copies_done());
    for side in Side::BOTH {
        prop_assert_eq!(fast.counters(side), slow.counters(side));
        prop_assert_eq!(silent.counters(side), slow.counters(side));
    }
    prop_assert_eq!(fast.now(), slow.now());
    prop_assert_eq!(silent.now(), slow.now());
    prop_assert_eq!(silent.copies_done(), slow.copies_done());
    Ok(fast.skipped().0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn periods_are_packets(mix in mixes()) {
        compare(&mix)?;
    }
}

/// Many mixes, as many as `LINK_MIXES` says; prints how many it ran, in how many of them a jump was made, and in
/// how many small ones every slot was looked at too.
#[test]
fn many_mixes() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let cases: u32 = std::env::var("LINK_MIXES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(200);
    let mut runner = TestRunner::deterministic();
    let (mut jumped, mut periods, mut slots) = (0, 0, 0);
    for _ in 0..cases {
        let mix = mixes().new_tree(&mut runner).unwrap().current();
        let skipped = compare(&mix).unwrap_or_else(|error| panic!("{error}: {mix:?}"));
        jumped += u32::from(skipped > 0);
        periods += skipped;
        // A slot of a narrow, slow link is 16 ns, of a wide, fast one 63 ps.
        let (bytes, last) = mix
            .jobs
            .iter()
            .fold((0, 0), |(bytes, last), job| (bytes + job.3, last.max(job.1)));
        if bytes < 40_000 && last < 2_000_000 {
            let (all, packets) = (Stepping::Slots, Stepping::Packets);
            let (all, packets) = (
                play(&mix, all, Recorder::default()),
                play(&mix, packets, Recorder::default()),
            );
            assert!(
                all.trace() == packets.trace() && all.deliveries() == packets.deliveries(),
                "{mix:?}"
            );
            slots += 1;
        }
    }
    println!("{cases} scenarios, {jumped} with jumps over {periods} periods, {slots} by slots, all equal");
    assert!(jumped > cases / 10, "the jumps were hardly tested");
}

#[test]
fn a_long_copy_is_few_steps() {
    let gen4 =
        [(false, 0), (false, 2), (true, 0), (true, 2)].map(|(skp, what)| (Generation::Gen4, skp, what));
    let gen6 = [(Generation::Gen6, false, 0), (Generation::Gen6, true, 2)];
    for (generation, skp, what) in gen4.into_iter().chain(gen6) {
        let config = LinkConfig {
            generation,
            skp,
            ..LinkConfig::default()
        };
        let mix = Mix {
            ports: [PortOptions::new(&config, true), PortOptions::new(&config, false)],
            config,
            host: HostOptions::default(),
            errors: Errors::default(),
            limits: (None, None),
            jobs: vec![(what, 0, 0, 100_000_000_000)],
        };
        let start = std::time::Instant::now();
        let link = play(&mix, Stepping::Periods, NoRecord);
        let (skipped, ticks) = link.skipped();
        println!(
            "{generation:?}, skp {skp}, {}: 100 GB in {:?}, {:.3} GB/s, {skipped} periods of {} ns jumped",
            if what == 0 { "writes" } else { "reads" },
            start.elapsed(),
            100e9 / link.now().as_ns_f64(),
            ticks / skipped.max(1) / 1024
        );
        let side = if what == 0 { Side::Up } else { Side::Down };
        assert_eq!(link.counters(side).payload, 100_000_000_000);
        assert!(ticks > link.now().0 / 100 * 99, "hardly anything was jumped over");
    }
}
