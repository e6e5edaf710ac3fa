//! Wall time of transfers on the link.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use sim_core::Time;
use sim_core::push::Direction::{DeviceToHost, HostToDevice};
use sim_pcie::config::{CompletionPolicy, Generation};
use sim_pcie::protocol::{Errors, HostOptions, NoRecord, PortOptions, Protocol, Stepping};
use sim_pcie::{Exactness, Link, LinkConfig, Transfer};
use std::hint::black_box;

/// One transfer after another, each submitted 1 us after the last one ended.
fn lone(c: &mut Criterion) {
    let mut group = c.benchmark_group("lone");
    for (direction, name) in [(HostToDevice, "h2d"), (DeviceToHost, "d2h")] {
        for bytes in [4 << 10, 64 << 10, 2 << 20] {
            let mut link = Link::new(LinkConfig::default()).unwrap();
            let (mut now, mut done) = (Time::ZERO, Vec::new());
            group.bench_function(format!("{name}/{} KiB", bytes >> 10), |b| {
                b.iter(|| {
                    link.submit(
                        now,
                        Transfer {
                            direction,
                            bytes,
                            address: 0,
                        },
                    );
                    let end = link.next_event().unwrap();
                    done.clear();
                    link.advance(end, &mut done);
                    now = end + Time::from_us(1);
                });
            });
        }
    }
    group.finish();
}

/// Both directions always busy with transfers of 64 KiB and 2 MiB.
fn overlap(c: &mut Criterion) {
    let mut group = c.benchmark_group("overlap");
    for bytes in [64u64 << 10, 2 << 20] {
        group.throughput(Throughput::Bytes(2 * bytes));
        for mixed in [false, true] {
            let completions = if mixed {
                CompletionPolicy::Mixed { rcb: 4, of: 5 }
            } else {
                CompletionPolicy::Rcb
            };
            let mut link = Link::new(LinkConfig {
                completions,
                ..LinkConfig::default()
            })
            .unwrap();
            let (mut now, mut done) = (Time::ZERO, Vec::new());
            group.bench_function(
                format!("{} KiB{}", bytes >> 10, if mixed { " mixed" } else { "" }),
                |b| {
                    b.iter(|| {
                        for direction in [HostToDevice, DeviceToHost] {
                            link.submit(
                                now,
                                Transfer {
                                    direction,
                                    bytes,
                                    address: 0,
                                },
                            );
                        }
                        done.clear();
                        while let Some(end) = link.next_event() {
                            link.advance(end, &mut done);
                            now = end;
                        }
                    });
                },
            );
        }
    }
    group.finish();
}

/// 100 GB in one stream of 2 MiB transfers, by bursts.
fn stream(c: &mut Criterion) {
    let mut group = c.benchmark_group("100 GB");
    group.sample_size(10);
    for (direction, name) in [(HostToDevice, "h2d"), (DeviceToHost, "d2h")] {
        group.bench_function(name, |b| {
            b.iter_batched(
                || Link::new(LinkConfig::default()).unwrap(),
                |mut link| {
                    let (mut now, mut done) = (Time::ZERO, Vec::new());
                    for _ in 0..100_000_000_000u64 / (2 << 20) {
                        link.submit(
                            now,
                            Transfer {
                                direction,
                                bytes: 2 << 20,
                                address: 0,
                            },
                        );
                        now = link.next_event().unwrap();
                        done.clear();
                        link.advance(now, &mut done);
                    }
                    black_box(now)
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// Packet-by-packet stepping, per TLP (completions of 64 B and their requests; writes of 128 B).
fn stepped(c: &mut Criterion) {
    let mut group = c.benchmark_group("stepped");
    for (direction, name, tlps) in [(HostToDevice, "h2d", 9u64), (DeviceToHost, "d2h", 4)] {
        let bytes = 1 << 20;
        group.throughput(Throughput::Elements(bytes / 512 * tlps));
        let config = LinkConfig {
            generation: Generation::Gen4,
            ..LinkConfig::default()
        };
        let mut link = Link::with_exactness(config, Exactness::Stepped).unwrap();
        let (mut now, mut done) = (Time::ZERO, Vec::new());
        group.bench_function(name, |b| {
            b.iter(|| {
                link.submit(
                    now,
                    Transfer {
                        direction,
                        bytes,
                        address: 0,
                    },
                );
                now = link.next_event().unwrap();
                done.clear();
                link.advance(now, &mut done);
            });
        });
    }
    group.finish();
}

/// The data-link protocol: every packet, ACK and credit update stepped, per TLP; and 100 GB by periods.
fn protocol(c: &mut Criterion) {
    let mut group = c.benchmark_group("protocol");
    let run = |bytes, read: bool, stepping, skp, generation| {
        let config = LinkConfig {
            skp,
            generation,
            ..LinkConfig::default()
        };
        let ports = [PortOptions::new(&config, true), PortOptions::new(&config, false)];
        let (host, errors) = (HostOptions::default(), Errors::default());
        let mut link = Protocol::with_sink(&config, ports, host, errors, NoRecord).unwrap();
        if read {
            link.read(Time::ZERO, 0, bytes);
        } else {
            link.write(Time::ZERO, 0, bytes);
        }
        link.run(stepping).unwrap();
        black_box(link.now())
    };
    for (read, name, tlps) in [(true, "h2d", 9u64), (false, "d2h", 4)] {
        group.throughput(Throughput::Elements((1 << 20) / 512 * tlps));
        group.bench_function(format!("{name} stepped"), |b| {
            b.iter(|| run(1 << 20, read, Stepping::Packets, false, Generation::Gen4));
        });
        group.throughput(Throughput::Bytes(100_000_000_000));
        group.bench_function(format!("{name} 100 GB by periods"), |b| {
            b.iter(|| run(100_000_000_000, read, Stepping::Periods, false, Generation::Gen4));
        });
    }
    group.sample_size(10);
    for generation in [Generation::Gen4, Generation::Gen5, Generation::Gen6] {
        let number = generation.number();
        group.bench_function(
            format!("h2d 100 GB with SKP, generation {number}, by periods"),
            |b| {
                b.iter(|| run(100_000_000_000, true, Stepping::Periods, true, generation));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, lone, overlap, stream, stepped, protocol);
criterion_main!(benches);
