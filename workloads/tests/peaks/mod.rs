//! Memory of a program under PyTorch's allocator.

use std::collections::HashMap;

use workloads::allocator::CachingAllocator;
use workloads::program::{Op, Program};

/// Peaks of the last iteration under PyTorch's allocator: allocated and reserved bytes; kernels and FLOPs of
/// that iteration.
pub fn peaks(program: &Program) -> (u64, u64, u64, u64) {
    let mut allocator = CachingAllocator::default();
    let mut addresses = HashMap::new();
    let mut run = |ops: &[Op]| {
        let (mut peak, mut kernels, mut flops) = (allocator.allocated_bytes(), 0, 0);
        for op in ops {
            match op {
                Op::Alloc { t, n } => {
                    addresses.insert(*t, allocator.malloc(*n, 0).unwrap());
                }
                Op::Free { t } => allocator.free(addresses.remove(t).expect("live")),
                Op::Kernel { nk, flops: work, .. } => {
                    kernels += u64::from(*nk);
                    flops += work;
                }
                _ => {}
            }
            peak = peak.max(allocator.allocated_bytes());
        }
        (peak, allocator.reserved_bytes(), kernels, flops)
    };
    run(&program.setup);
    let mut last = (0, 0, 0, 0);
    for iteration in &program.iterations {
        last = run(iteration);
    }
    last
}
