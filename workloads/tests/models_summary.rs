//! Generated models against the recorded totals of 13 models at batch 1 and 16 (dl-models 2): FLOPs,
//! peak memory under PyTorch's caching allocator, bytes that are left after a step.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;
use workloads::allocator::CachingAllocator;
use workloads::model::{ModelSpec, Optimizer, Style, forward, generate};
use workloads::program::Op;

/// Relative difference, per cent.
fn off(ours: u64, recorded: u64) -> f64 {
    100.0 * (ours as f64 / recorded as f64 - 1.0)
}

/// Of the last iteration: peak of allocated bytes, reserved bytes, allocated bytes at its end.
fn memory(spec: &ModelSpec) -> (u64, u64, u64) {
    let program = generate(spec).unwrap();
    let mut allocator = CachingAllocator::default();
    let mut addresses = HashMap::new();
    let mut peak = 0;
    for ops in std::iter::once(&program.setup).chain(&program.iterations) {
        peak = allocator.allocated_bytes();
        for op in ops {
            match op {
                Op::Alloc { t, n } => {
                    addresses.insert(*t, allocator.malloc(*n, 0).unwrap());
                }
                Op::Free { t } => allocator.free(addresses.remove(t).expect("live")),
                _ => {}
            }
            peak = peak.max(allocator.allocated_bytes());
        }
    }
    (peak, allocator.reserved_bytes(), allocator.allocated_bytes())
}

#[test]
fn totals_are_those_of_the_recorded_runs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/models/summary.json");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: {} is not here", path.display());
        return;
    };
    let runs: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(runs.len() >= 25, "{}", runs.len());
    let (mut allocated, mut reserved, mut kept) = (0_f64, 0_f64, 0_f64);
    for run in &runs {
        let name = run["name"].as_str().unwrap();
        let number = |value: &Value| value.as_u64().unwrap();
        let spec = ModelSpec {
            batch: number(&run["batch"]),
            optimizer: Some(match run["optimizer"].as_str().unwrap() {
                "sgd" => Optimizer::Momentum,
                "adam" => Optimizer::Adam,
                "adamw" => Optimizer::AdamW,
                other => panic!("{name}: optimizer {other:?}"),
            }),
            iterations: 2,
            // The recorder held gradients, so none was added to in place.
            style: Style {
                adds_in_place: false,
                ..Style::default()
            },
            ..ModelSpec::new(&name.replace('_', "-"))
        };
        let tape = forward(&spec).unwrap();
        assert_eq!(tape.parameters(), number(&run["params"]), "{name}");
        assert_eq!(tape.flops(), number(&run["flops"]["fwd"]), "{name}");
        let (peak, segments, end) = memory(&spec);
        let last = &run["iters"][1];
        let (a, r, e) = (
            off(peak, number(&last["peak_allocated"])),
            off(segments, number(&last["peak_reserved"])),
            off(end, number(&last["allocated_end"])),
        );
        println!(
            "{name} at batch {}: allocated {a:+.2} %, reserved {r:+.2} %, kept {e:+.3} %",
            spec.batch
        );
        allocated = allocated.max(a.abs());
        reserved = reserved.max(r.abs());
        kept = kept.max(e.abs());
    }
    println!("worst: allocated {allocated:.2} %, reserved {reserved:.2} %, kept {kept:.3} %");
    assert!(allocated < 5.0 && reserved < 5.0 && kept < 5.0);
}
