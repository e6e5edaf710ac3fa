//! Hold model of the event queue (pop one, schedule one) at a constant number of pending events,
//! against the standard binary heap and an indexed heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sim_core::Time;
use sim_core::scheduler::Scheduler;

/// Delays are drawn outside the measured loop.
const DELAYS: usize = 1 << 16;
const HOLDS: u64 = 100_000;

/// An event of the size that the simulator routes.
type Event = [u64; 3];

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Uniform in 0..2 us.
fn uniform() -> Vec<u64> {
    let mut state = 1;
    (0..DELAYS).map(|_| splitmix(&mut state) % 2_048_000).collect()
}

/// 90 % whole link symbols within 64 ns, 10 % host delays of whole microseconds up to 50: many ties.
fn bimodal() -> Vec<u64> {
    let mut state = 2;
    (0..DELAYS)
        .map(|_| {
            let x = splitmix(&mut state);
            if x.is_multiple_of(10) {
                (x >> 8) % 50 * 1_024_000
            } else {
                (x >> 8) % 64 * 1024
            }
        })
        .collect()
}

fn hold(c: &mut Criterion) {
    for (name, delays) in [("uniform", uniform()), ("bimodal", bimodal())] {
        let mut group = c.benchmark_group(format!("hold/{name}"));
        group.throughput(Throughput::Elements(HOLDS));
        group.sample_size(20);
        for pending in [100usize, 10_000, 1_000_000] {
            group.bench_function(BenchmarkId::new("scheduler", pending), |b| {
                let mut queue = Scheduler::<Event>::new();
                for i in 0..pending {
                    queue.at(Time(delays[i % DELAYS]), [i as u64; 3]);
                }
                let mut at = 0;
                b.iter(|| {
                    for _ in 0..HOLDS {
                        let (_, event) = queue.pop().unwrap();
                        queue.after(Time(delays[at % DELAYS]), black_box(event));
                        at += 1;
                    }
                });
            });
            group.bench_function(BenchmarkId::new("timers", pending), |b| {
                let mut queue = Scheduler::<Event>::new();
                for i in 0..pending {
                    queue.timer_at(Time(delays[i % DELAYS]), [i as u64; 3]);
                }
                let mut at = 0;
                b.iter(|| {
                    for _ in 0..HOLDS {
                        let (_, event) = queue.pop().unwrap();
                        queue.timer_after(Time(delays[at % DELAYS]), black_box(event));
                        at += 1;
                    }
                });
            });
            group.bench_function(BenchmarkId::new("binary-heap", pending), |b| {
                let mut queue = BinaryHeap::<Reverse<(u64, u64, Event)>>::new();
                for i in 0..pending {
                    queue.push(Reverse((delays[i % DELAYS], i as u64, [i as u64; 3])));
                }
                let mut at = pending;
                b.iter(|| {
                    for _ in 0..HOLDS {
                        let Reverse((now, _, event)) = queue.pop().unwrap();
                        queue.push(Reverse((now + delays[at % DELAYS], at as u64, black_box(event))));
                        at += 1;
                    }
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, hold);
criterion_main!(benches);
