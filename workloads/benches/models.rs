//! Wall time of the model generators: one element is one operation of the program.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use workloads::model::{ModelSpec, generate};

fn models(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("generate");
    for name in ["resnet50", "gpt2", "gpt2-xl"] {
        let spec = ModelSpec {
            iterations: 1,
            ..ModelSpec::new(name)
        };
        let ops = generate(&spec).map_or(0, |program| {
            program.iterations.iter().map(Vec::len).sum::<usize>()
        });
        group.throughput(Throughput::Elements(ops as u64));
        group.bench_function(name, |bencher| bencher.iter(|| generate(black_box(&spec))));
    }
    group.finish();
}

criterion_group!(benches, models);
criterion_main!(benches);
