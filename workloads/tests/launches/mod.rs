//! Built-in kernels under one managed allocation per tensor: their arrays and launches.

use std::collections::{BTreeMap, BTreeSet};

use sim_core::Time;
use sim_core::access::{Access, AccessPattern, StepAccesses};
use sim_core::pages::ByteRange;
use workloads::allocator::{AllocatorKind, AllocatorSpec};
use workloads::classic::{self, Options};
use workloads::{GpuShape, HostOp, Kernel, Program, Run};

/// Bytes of the arrays of kernels that are sized by them.
#[allow(dead_code)]
pub const ARRAY_BYTES: u64 = 2_000_000;

/// An A100.
#[allow(dead_code)] // each test file uses some
pub const GPU: GpuShape = GpuShape {
    sms: 108,
    max_threads_per_sm: 2048,
    max_blocks_per_sm: 32,
    rates: workloads::math::Rates::uniform(19.5e12),
    hbm_bytes_per_s: 1555e9,
    efficiency_flops: 1.0,
    efficiency_bytes: 1.0,
    min_kernel_time: Time(0),
    load_latency: Time(0),
};

/// Arrays in the order of their allocation, launches in order.
pub struct Launches {
    /// Addresses.
    pub arrays: Vec<ByteRange>,
    /// Launches of one iteration.
    pub kernels: Vec<Kernel>,
}

/// One iteration of a program.
#[allow(dead_code)]
pub fn launches_of(program: &Program) -> Launches {
    let spec: AllocatorSpec = AllocatorKind::PerTensor.into();
    let mut made = Launches {
        arrays: Vec::new(),
        kernels: Vec::new(),
    };
    for op in Run::new(program, &spec, 1, GPU) {
        match op.unwrap() {
            HostOp::ManagedAlloc(range) => made.arrays.push(range),
            HostOp::Launch { kernel, .. } => made.kernels.push(kernel),
            _ => {}
        }
    }
    made
}

/// The program of a kernel.
#[allow(dead_code)]
pub fn program(name: &str, params: &[(&str, u64)]) -> Program {
    let params: BTreeMap<String, u64> = params.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
    let options = Options {
        params,
        array_bytes: ARRAY_BYTES,
        ..Options::default()
    };
    classic::program(classic::find(name).unwrap(), &options).unwrap()
}

/// One iteration of a kernel.
#[allow(dead_code)]
pub fn launches(name: &str, params: &[(&str, u64)]) -> Launches {
    launches_of(&program(name, params))
}

/// Blocks of a launch.
#[allow(dead_code)]
pub fn blocks_of(made: &Launches, which: usize) -> u64 {
    made.kernels[which].pattern.blocks()
}

/// The pages of an access.
pub fn pages(access: &Access) -> std::ops::Range<u64> {
    access.first.0..access.first.0 + u64::from(access.pages)
}

/// Loads and stores of one thread: array (in the order of allocation) and byte.
#[allow(dead_code)]
pub type Touch<'a> = &'a mut dyn FnMut(usize, u64);

/// Compares launch `which` of the kernel: `thread(block, loads, stores)` reports what all threads of a
/// block touch.
#[allow(dead_code)]
pub fn compare(made: &Launches, which: usize, thread: impl Fn(u64, Touch, Touch)) {
    let kernel = &made.kernels[which];
    let mut step = StepAccesses::default();
    for block in 0..kernel.pattern.blocks() {
        let (mut loads, mut stores) = (BTreeSet::new(), BTreeSet::new());
        thread(
            block,
            &mut |array, byte| {
                assert!(byte < made.arrays[array].bytes, "{} {array} {byte}", kernel.name);
                loads.insert((made.arrays[array].start + byte) / 4096);
            },
            &mut |array, byte| {
                assert!(byte < made.arrays[array].bytes, "{} {array} {byte}", kernel.name);
                stores.insert((made.arrays[array].start + byte) / 4096);
            },
        );
        let (mut found_loads, mut found_stores) = (BTreeSet::new(), BTreeSet::new());
        for s in 0..kernel.pattern.steps() {
            step.clear();
            kernel.pattern.step(block, s, &mut step);
            found_loads.extend(step.loads.iter().flat_map(pages));
            found_stores.extend(step.stores.iter().flat_map(pages));
        }
        assert_eq!(found_loads, loads, "{}: loads of block {block}", kernel.name);
        assert_eq!(found_stores, stores, "{}: stores of block {block}", kernel.name);
    }
}
