//! Wall time of the caching allocator: one element is one allocation and one free.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use workloads::allocator::caching::Options;
use workloads::allocator::caching::device::DeviceMemory;
use workloads::allocator::{Backing, CachingAllocator};

const TENSORS: usize = 4096;
const LIVE: usize = 256;

/// Sizes spread over both pools: 2^9 to 2^25 bytes, uniform in the exponent.
fn sizes() -> Vec<u64> {
    let mut state = 1_u64;
    (0..TENSORS)
        .map(|_| {
            // Knuth's 64-bit linear congruential generator; its high bits.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let exponent = 9 + (state >> 59) / 2;
            (1 << exponent) + (state >> 40) % (1 << exponent)
        })
        .collect()
}

/// `LIVE` tensors are live, the oldest is freed; once through all sizes.
fn round(allocator: &mut CachingAllocator, sizes: &[u64], backing: &mut Vec<Backing>) {
    let mut live = [0; LIVE];
    for (i, bytes) in sizes.iter().enumerate() {
        let slot = &mut live[i % LIVE];
        allocator.free(*slot);
        *slot = allocator.malloc(*bytes, 0).unwrap_or_default();
    }
    for address in live {
        allocator.free(address);
    }
    backing.clear();
    allocator.drain_backing(backing);
}

fn malloc_free(c: &mut Criterion) {
    let sizes = sizes();
    let mut group = c.benchmark_group("malloc and free");
    group.throughput(Throughput::Elements(TENSORS as u64));
    for (name, conf, memory) in [
        ("default", "", DeviceMemory::managed(None)),
        ("max_split", "max_split_size_mb:20", DeviceMemory::managed(None)),
        (
            "roundup",
            "roundup_power2_divisions:4",
            DeviceMemory::managed(None),
        ),
        (
            "expandable",
            "expandable_segments:True",
            DeviceMemory::device(16 << 30),
        ),
    ] {
        let options = Options::parse(conf).unwrap_or_default();
        let (mut allocator, mut backing) = (CachingAllocator::new(options, memory), Vec::new());
        group.bench_function(name, |b| {
            b.iter(|| round(&mut allocator, black_box(&sizes), &mut backing));
        });
    }
    // One size over and over: what a training loop does most.
    let mut allocator = CachingAllocator::default();
    let same = vec![6_u64 << 20; TENSORS];
    let mut backing = Vec::new();
    group.bench_function("one size", |b| {
        b.iter(|| round(&mut allocator, black_box(&same), &mut backing));
    });
    group.finish();
}

criterion_group!(benches, malloc_free);
criterion_main!(benches);
