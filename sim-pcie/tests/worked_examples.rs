//! Timings worked out by hand and by an independent slot-by-slot program, Gen3 x16 unless said otherwise:
//! one-way latency 75 ns, host latency 350 ns, 64-bit addresses, no ordered sets. Times in ticks.

use sim_core::Time;
use sim_core::push::Direction::{DeviceToHost, HostToDevice};
use sim_pcie::config::{AckPolicy, CompletionPolicy, DllpModel, Generation};
use sim_pcie::packet::Kind;
use sim_pcie::protocol::{Counters, Credit, Errors, PortOptions, Protocol, Sent, Side, Stepping};
use sim_pcie::{Link, LinkConfig, Transfer, nvlink};

const D: u64 = 76_800;
const BOTH: [Stepping; 2] = [Stepping::Packets, Stepping::Slots];

fn config(generation: Generation) -> LinkConfig {
    LinkConfig {
        generation,
        write_tlp: 256,
        completions: CompletionPolicy::Max,
        tags: 16384,
        skp: false,
        dllp: DllpModel::None,
        ack: AckPolicy::Immediate,
        ..LinkConfig::default()
    }
}

fn gen3() -> LinkConfig {
    config(Generation::Gen3)
}

/// Ports without replay timers, as the examples have them, changed by `change`.
fn ports(config: &LinkConfig, change: impl FnOnce(&mut [PortOptions; 2])) -> [PortOptions; 2] {
    let mut ports = [PortOptions::new(config, true), PortOptions::new(config, false)];
    for port in &mut ports {
        port.replay_timer = None;
    }
    change(&mut ports);
    ports
}

fn protocol(config: &LinkConfig, errors: Errors, change: impl FnOnce(&mut [PortOptions; 2])) -> Protocol {
    Protocol::with_options(config, ports(config, change), errors).unwrap()
}

fn arrivals(link: &Protocol, kind: Kind) -> Vec<u64> {
    link.deliveries()
        .iter()
        .filter(|d| d.kind == kind)
        .map(|d| d.time.0)
        .collect()
}

/// Completion time of one transfer on an idle transfer-level link.
fn alone(config: LinkConfig, direction: sim_core::push::Direction, bytes: u64) -> u64 {
    let mut link = Link::new(config).unwrap();
    link.submit(
        Time::ZERO,
        Transfer {
            direction,
            bytes,
            address: 0,
        },
    );
    link.next_event().unwrap().0
}

#[test]
fn example_1_one_write() {
    for (generation, ticks) in Generation::ALL
        .into_iter()
        .zip([71_680, 35_840, 18_200, 9_100, 4_550])
    {
        assert_eq!(alone(config(generation), DeviceToHost, 256), ticks + D);
    }
}

#[test]
fn example_2_a_page_read() {
    for (completions, count, first, last) in [
        (CompletionPolicy::Max, 16, 531_540, 800_640),
        (CompletionPolicy::Rcb, 64, 519_060, 863_040),
    ] {
        let config = LinkConfig {
            completions,
            ..gen3()
        };
        for stepping in BOTH {
            let mut link = protocol(&config, Errors::default(), |_| ());
            link.read(Time::ZERO, 0, 4096);
            link.run(stepping).unwrap();
            let times = arrivals(&link, Kind::CplD);
            assert_eq!(
                (times.len(), times[0], *times.last().unwrap()),
                (count, first, last)
            );
        }
        assert_eq!(alone(config, HostToDevice, 4096), last);
    }
}

// Example 3, an unaligned read, is tested beside the splitting functions.

#[test]
fn example_4_contention() {
    for stepping in BOTH {
        let run = |write: bool, read: bool| {
            let mut link = protocol(&gen3(), Errors::default(), |_| ());
            if write {
                link.write(Time::ZERO, 0, 65536);
            }
            if read {
                link.read(Time::ZERO, 0, 65536);
            }
            link.run(stepping).unwrap();
            let last = |kind| arrivals(&link, kind).last().copied();
            let bytes = Side::BOTH.map(|side| link.counters(side).wire_bytes);
            (last(Kind::MWr), last(Kind::CplD), bytes)
        };
        assert_eq!(run(true, false), (Some(4_736_000), None, [71_680, 2_048]));
        assert_eq!(run(false, true), (None, Some(5_106_240), [5_120, 71_680]));
        assert_eq!(
            run(true, true),
            (Some(5_060_480), Some(5_256_520), [76_800, 72_984])
        );
    }
}

#[test]
fn example_5_header_credits() {
    for (headers, last) in [
        (1, 46_492_520),
        (2, 23_202_240),
        (4, 11_565_680),
        (8, 5_764_560),
        (16, 2_898_320),
        (32, 1_541_120),
    ] {
        for stepping in BOTH {
            let config = LinkConfig {
                write_tlp: 64,
                ..gen3()
            };
            let mut link = protocol(&config, Errors::default(), |ports| {
                ports[0].credits[0] = Credit {
                    headers: Some(headers),
                    data: None,
                };
                ports[1].drain = 20_480;
            });
            link.write(Time::ZERO, 0, 256 * 64);
            link.run(stepping).unwrap();
            assert_eq!(
                arrivals(&link, Kind::MWr).last(),
                Some(&last),
                "{headers} headers"
            );
        }
    }
}

#[test]
fn example_6_ack_latency() {
    let config = LinkConfig {
        ack: AckPolicy::Timer,
        ..gen3()
    };
    for stepping in BOTH {
        let mut link = protocol(&config, Errors::default(), |_| ());
        link.write(Time::ZERO, 0, 256);
        link.run(stepping).unwrap();
        let ack = link.trace()[1];
        assert_eq!(
            (ack.sent, ack.start.0, ack.end.0),
            (Sent::Ack(0), 270_400, 270_920)
        );
    }
    // The buffer must hold what is sent in that time (5 348 bytes) and, because one ACK answers a whole timer
    // period, what comes until the next; one that holds less than the former throttles.
    let last = |bytes: u64| {
        let mut link = protocol(&config, Errors::default(), |ports| {
            ports[0].retry_bytes = Some(bytes);
        });
        link.write(Time::ZERO, 0, 1 << 16);
        link.run(Stepping::Packets).unwrap();
        *arrivals(&link, Kind::MWr).last().unwrap()
    };
    assert_eq!(last(2 * 5_600), 256 * 18_200 + D);
    assert!(last(5_040) > 256 * 18_200 + D);
}

#[test]
fn example_7_nak_and_replay() {
    for stepping in BOTH {
        let run = |corrupt| {
            let mut link = protocol(
                &gen3(),
                Errors {
                    corrupt,
                    ..Errors::default()
                },
                |_| (),
            );
            link.write(Time::ZERO, 0, 2560);
            link.run(stepping).unwrap();
            link
        };
        assert_eq!(arrivals(&run(vec![]), Kind::MWr).last(), Some(&258_800));
        let link = run(vec![(Side::Up, 3, 0)]);
        assert_eq!(arrivals(&link, Kind::MWr).last(), Some(&431_960));
        let order: Vec<_> = link.deliveries().iter().map(|d| d.sequence).collect();
        assert_eq!(order, (0..10).collect::<Vec<_>>());
        let (up, down) = (link.counters(Side::Up), link.counters(Side::Down));
        assert_eq!((up.tlps, up.replayed, up.delivered, down.naks), (17, 7, 10, 1));
        let nak = link.trace().iter().find(|e| e.sent == Sent::Nak(2)).unwrap();
        assert_eq!((nak.start.0, nak.end.0), (149_760, 150_280));
        let third = link.trace().iter().filter(|e| {
            e.sent
                == Sent::Tlp {
                    kind: Kind::MWr,
                    sequence: 3,
                }
        });
        assert_eq!(third.map(|e| e.start.0).collect::<Vec<_>>(), [54_600, 227_760]);
    }
}

#[test]
fn example_8_lost_ack() {
    for stepping in BOTH {
        let errors = Errors {
            lose: vec![(Side::Down, 1)],
            ..Errors::default()
        };
        let mut link = protocol(&gen3(), errors, |ports| ports[0].replay_timer = Some(504 * 1040));
        link.write(Time::ZERO, 0, 256);
        link.run(stepping).unwrap();
        let write = Sent::Tlp {
            kind: Kind::MWr,
            sequence: 0,
        };
        let trace: Vec<_> = link
            .trace()
            .iter()
            .map(|e| (e.sent, e.start.0, e.end.0))
            .collect();
        assert_eq!(
            trace,
            [
                (write, 0, 18_200),
                (Sent::Ack(0), 95_680, 96_200),
                (Sent::ReplayTimer, 542_360, 542_360),
                (write, 542_880, 561_080),
                (Sent::Ack(0), 638_560, 639_080),
            ]
        );
        assert_eq!(arrivals(&link, Kind::MWr), [95_000]);
    }
}

#[test]
fn example_9_ordered_sets() {
    for (generation, plain, with) in [
        (Generation::Gen3, 149_094_400, 149_502_600),
        (Generation::Gen4, 74_547_200, 74_751_300),
        (Generation::Gen5, 37_273_600, 37_375_650),
    ] {
        let time = |skp| {
            alone(
                LinkConfig {
                    skp,
                    ..config(generation)
                },
                DeviceToHost,
                2 << 20,
            ) - D
        };
        assert_eq!((time(false), time(true)), (plain, with));
    }
}

#[test]
fn example_10_tags() {
    let rows = [
        (
            Generation::Gen3,
            [
                35_460_720, 18_936_160, 18_934_080, 18_930_960, 18_924_200, 18_911_720,
            ],
        ),
        (
            Generation::Gen4,
            [34_137_320, 17_274_760, 9_723_320, 9_721_760, 9_718_380, 9_711_880],
        ),
        (
            Generation::Gen5,
            [33_442_600, 16_824_440, 8_623_260, 5_116_900, 5_115_210, 5_111_960],
        ),
    ];
    for (generation, expect) in rows {
        for (tags, last) in [8, 16, 32, 64, 128, 256].into_iter().zip(expect) {
            let config = LinkConfig {
                tags,
                ack: AckPolicy::Timer,
                ..config(generation)
            };
            let mut link = protocol(&config, Errors::default(), |_| ());
            link.read(Time::ZERO, 0, 262_144);
            link.run(Stepping::Packets).unwrap();
            assert_eq!(
                arrivals(&link, Kind::CplD).last(),
                Some(&last),
                "{generation:?}, {tags} tags"
            );
        }
    }
}

#[test]
fn example_11_flits() {
    for (writes, ns) in [(1, 4), (2, 6), (10, 24), (1000, 2306)] {
        assert_eq!(
            alone(config(Generation::Gen6), DeviceToHost, writes * 256) - D,
            ns * 1024
        );
    }
}

#[test]
fn example_12_nvlink() {
    let page = |generation, links, payload| {
        nvlink::NvLink {
            payload,
            ..nvlink::NvLink::new(generation, links)
        }
        .write_ns(4096)
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9 * b, "{a} {b}");
    near(page(nvlink::Generation::NvLink2, 1, 256), 174.08);
    near(page(nvlink::Generation::NvLink2, 1, 128), 184.32);
    near(page(nvlink::Generation::NvLink2, 3, 256), 4352.0 / 75.0);
    near(page(nvlink::Generation::NvLink3, 12, 256), 4352.0 / 300.0);
    near(page(nvlink::Generation::NvLink4, 18, 128), 10.24);
}

#[test]
fn lost_update_is_refreshed_and_replays_retrain() {
    let errors = Errors {
        corrupt: (0..5).map(|attempt| (Side::Up, 0, attempt)).collect(),
        ..Errors::default()
    };
    for stepping in BOTH {
        let mut link = protocol(&gen3(), errors.clone(), |ports| {
            ports[0].replay_timer = Some(504 * 1040);
            ports[0].retrain = 1024 * 1000;
        });
        link.write(Time::ZERO, 0, 256);
        link.run(stepping).unwrap();
        let Counters {
            tlps,
            delivered,
            retrains,
            ..
        } = link.counters(Side::Up);
        assert_eq!((tlps, delivered, retrains), (6, 1, 1));
    }
}

#[test]
fn credits_that_let_no_packet_through_are_an_error() {
    let with = |change: fn(&mut [PortOptions; 2])| {
        let mut ports = [PortOptions::new(&gen3(), true), PortOptions::new(&gen3(), false)];
        change(&mut ports);
        let link = Protocol::with_options(&gen3(), ports, Errors::default());
        link.unwrap_err().to_string()
    };
    assert_eq!(
        with(|p| p[0].credits[0].data = Some(8)),
        "device.posted.data = 8: allowed is 16 (the largest packet) to 32752, or infinite"
    );
    assert_eq!(
        with(|p| p[0].credits[1].headers = Some(0)),
        "device.non_posted.headers = 0: allowed is 1 to 2032, or infinite"
    );
    assert_eq!(
        with(|p| p[1].credits[2].data = Some(1)),
        "host.completion.data = 1: allowed is 16 (the largest packet) to 32752, or infinite"
    );
    assert_eq!(
        with(|p| p[0].retry_bytes = Some(10)),
        "device.retry_bytes = 10: allowed is at least 280, the largest packet"
    );
}

#[test]
fn a_deadlock_names_class_and_what_it_waits_for() {
    // A lost ACK without replay timer, and a retry buffer for one packet: the sender waits for ever.
    let errors = Errors {
        lose: vec![(Side::Down, 1)],
        ..Errors::default()
    };
    let mut link = protocol(&gen3(), errors, |ports| {
        ports[0].retry_bytes = Some(280);
        ports[0].replay_timer = None;
    });
    link.write(Time::ZERO, 0, 512);
    let deadlock = link.run(Stepping::Packets).unwrap_err();
    assert!(
        deadlock
            .to_string()
            .ends_with("; Up Posted waits for room in the retry buffer"),
        "{deadlock}"
    );
}

/// The even rate of data-link packets in the transfer-level model against each packet of the protocol: it
/// charges more, because it goes on after the last request has been answered, and at every ACK limit sends an
/// update.
#[test]
fn even_data_link_packets_are_near_the_protocol() {
    for generation in Generation::ALL.into_iter().take(5) {
        for (completions, bytes) in [
            (CompletionPolicy::Rcb, 1 << 20),
            (CompletionPolicy::Max, 1 << 20),
            (CompletionPolicy::Rcb, 1 << 16),
        ] {
            let config = LinkConfig {
                completions,
                tags: 256,
                ack: AckPolicy::Timer,
                dllp: DllpModel::Cadence,
                ..config(generation)
            };
            let mut link = protocol(&config, Errors::default(), |ports| {
                // Read requests need credits, so that the host sends updates.
                ports[0].credits[1] = Credit {
                    headers: Some(64),
                    data: None,
                };
                ports[1].update_after = 16;
            });
            link.read(Time::ZERO, 0, bytes);
            link.run(Stepping::Packets).unwrap();
            let exact = *arrivals(&link, Kind::CplD).last().unwrap() as f64;
            let error = alone(config, HostToDevice, bytes) as f64 / exact - 1.0;
            println!("{generation:?} {completions:?} {bytes}: {:+.3} %", 100.0 * error);
            assert!(error.abs() < 0.015);
        }
    }
}
