//! Micro-benchmarks: kernels whose access order is known exactly, as the literature runs them.
//!
//! Each is a list of host operations: managed arrays, CPU initialisation if asked for, launches.

use std::str::FromStr;
use std::sync::Arc;

use sim_core::Time;
use sim_core::access::AccessPattern;
use sim_core::pages::{BLOCK_BYTES, ByteRange, PAGE_BYTES};

use crate::lower::{GpuShape, Kernel};
use crate::pattern::{Gemm, KernelPattern, Lockstep, Order, Sweep};
use crate::program::ProgramError;
use crate::run::HostOp;

/// Which micro-benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MicroKind {
    /// y = x + y by one block of 256 threads that strides over the arrays.
    VectorAddOneBlock,
    /// y = x + y, one thread an element, 256 threads a block.
    VectorAdd,
    /// out += a for each of several arrays in turn, pass after pass, 256 x 256 threads.
    CyclicScan,
    /// a = b + s c over doubles, 640 x 256 threads that stride over the arrays.
    StreamTriad,
    /// a = b + s c over doubles, one thread an element, 1,024 threads a block.
    StreamTriadPerElement,
    /// Thread i reads page i, 64 threads a block.
    Regular,
    /// Thread i reads page perm(i), 64 threads a block.
    Random,
    /// 65,536 threads walk pieces of two arrays page by page.
    PageStride,
    /// C = A B with square matrices of floats.
    Gemm,
}

impl MicroKind {
    /// Names in configurations.
    pub const NAMES: [(&'static str, MicroKind); 9] = [
        ("vector-add-one-block", MicroKind::VectorAddOneBlock),
        ("vector-add", MicroKind::VectorAdd),
        ("cyclic-scan", MicroKind::CyclicScan),
        ("stream-triad", MicroKind::StreamTriad),
        ("stream-triad-per-element", MicroKind::StreamTriadPerElement),
        ("regular", MicroKind::Regular),
        ("random", MicroKind::Random),
        ("page-stride", MicroKind::PageStride),
        ("gemm", MicroKind::Gemm),
    ];
}

impl FromStr for MicroKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = MicroKind::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, kind)| *kind).ok_or_else(|| {
            let names: Vec<_> = MicroKind::NAMES.iter().map(|(name, _)| *name).collect();
            format!("unknown kernel {text:?}; accepted: {}", names.join(", "))
        })
    }
}

/// Parameters of a micro-benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Micro {
    /// Which.
    pub kind: MicroKind,
    /// Bytes of each array.
    pub array_bytes: u64,
    /// Arrays that a cyclic scan goes through.
    pub arrays: u32,
    /// Launches (of each array, for a cyclic scan: passes).
    pub launches: u32,
    /// The CPU writes the arrays first; otherwise the GPU touches them first.
    pub cpu_init: bool,
    /// Duration of one kernel with everything resident, if it is known; else the roofline's.
    pub kernel_time: Option<Time>,
    /// Chooses the order of a random kernel.
    pub seed: u64,
}

/// Bytes that the FP64 triad moves per element, and so on, are taken from the ranges themselves.
struct Builder<'a> {
    ops: Vec<HostOp>,
    gpu: &'a GpuShape,
    micro: &'a Micro,
    next: u64,
}

impl Builder<'_> {
    fn array(&mut self, bytes: u64) -> ByteRange {
        let range = ByteRange {
            start: self.next,
            bytes: bytes.next_multiple_of(PAGE_BYTES),
        };
        self.next += range.bytes.next_multiple_of(BLOCK_BYTES);
        self.ops.push(HostOp::ManagedAlloc(range));
        if self.micro.cpu_init {
            self.ops.push(HostOp::CpuTouch { range, write: true });
        }
        range
    }

    fn launch(&mut self, pattern: KernelPattern, threads: u32, flops: f64, bytes: f64) {
        let duration = self.micro.kernel_time.unwrap_or_else(|| {
            let roofline = self.gpu.duration(flops, bytes, 1);
            // The tiles of a product are loaded ahead of their use; all others wait for their loads.
            match pattern {
                KernelPattern::Gemm(_) => roofline,
                _ => roofline.max(self.gpu.latency_bound(pattern.blocks(), pattern.steps(), threads)),
            }
        });
        let kernel = Kernel {
            name: Arc::from(format!("{:?}", self.micro.kind)),
            pattern,
            blocks_per_sm: self.gpu.blocks_per_sm(threads),
            duration,
            known_class: true,
        };
        self.ops.push(HostOp::Launch { kernel, stream: 0 });
    }
}

/// Grid-stride sweep by `blocks` blocks of `threads` threads, `element` bytes each.
fn grid_stride(
    reads: Vec<ByteRange>,
    writes: Vec<ByteRange>,
    blocks: u64,
    threads: u32,
    element: u64,
) -> Lockstep {
    let bytes = reads
        .iter()
        .chain(&writes)
        .map(|range| range.bytes)
        .max()
        .unwrap_or(0);
    let stride = blocks * u64::from(threads) * element;
    let steps = bytes.div_ceil(stride).clamp(1, u64::from(u32::MAX)) as u32;
    Lockstep {
        reads,
        writes,
        blocks,
        steps,
        warps: (threads / 32) as u16,
        grid_stride: true,
    }
}

/// One thread an element.
fn per_element(reads: Vec<ByteRange>, writes: Vec<ByteRange>, threads: u32, element: u64) -> Lockstep {
    let bytes = reads
        .iter()
        .chain(&writes)
        .map(|range| range.bytes)
        .max()
        .unwrap_or(0);
    let blocks = bytes.div_ceil(u64::from(threads) * element).max(1);
    Lockstep {
        reads,
        writes,
        blocks,
        steps: 1,
        warps: (threads / 32) as u16,
        grid_stride: false,
    }
}

/// The host operations of a micro-benchmark; each launch is an iteration.
///
/// # Errors
/// An impossible parameter.
pub fn build(micro: &Micro, gpu: &GpuShape) -> Result<Vec<HostOp>, ProgramError> {
    let wrong = |key, value: u64, accepted| ProgramError::Parameter {
        key,
        value: value.to_string(),
        accepted,
    };
    if micro.array_bytes < PAGE_BYTES || micro.array_bytes > 1 << 46 {
        return Err(wrong("array_size", micro.array_bytes, "4 KiB to 64 TiB"));
    }
    if micro.launches == 0 {
        return Err(wrong("iterations", 0, "at least 1"));
    }
    if micro.arrays == 0 {
        return Err(wrong("arrays", 0, "at least 1"));
    }
    let n = micro.array_bytes;
    let mut b = Builder {
        ops: Vec::new(),
        gpu,
        micro,
        next: 0x7000_0000_0000,
    };
    let lockstep = KernelPattern::Lockstep;
    let n_f = n as f64;
    match micro.kind {
        MicroKind::VectorAddOneBlock | MicroKind::VectorAdd => {
            let (x, y) = (b.array(n), b.array(n));
            for i in 0..micro.launches {
                b.ops.push(HostOp::IterationStart(i));
                let pattern = if micro.kind == MicroKind::VectorAdd {
                    per_element(vec![x, y], vec![y], 256, 4)
                } else {
                    grid_stride(vec![x, y], vec![y], 1, 256, 4)
                };
                b.launch(lockstep(pattern), 256, n_f / 4.0, 3.0 * n_f);
            }
        }
        MicroKind::StreamTriad | MicroKind::StreamTriadPerElement => {
            let (dest, left, right) = (b.array(n), b.array(n), b.array(n));
            for i in 0..micro.launches {
                b.ops.push(HostOp::IterationStart(i));
                let (pattern, threads) = if micro.kind == MicroKind::StreamTriad {
                    (grid_stride(vec![left, right], vec![dest], 640, 256, 8), 256)
                } else {
                    (per_element(vec![left, right], vec![dest], 1024, 8), 1024)
                };
                b.launch(lockstep(pattern), threads, 2.0 * n_f / 8.0, 3.0 * n_f);
            }
        }
        MicroKind::CyclicScan => {
            let arrays: Vec<ByteRange> = (0..micro.arrays).map(|_| b.array(n)).collect();
            let out = b.array(n);
            for i in 0..micro.launches {
                b.ops.push(HostOp::IterationStart(i));
                for array in &arrays {
                    let pattern = grid_stride(vec![*array, out], vec![out], 256, 256, 8);
                    b.launch(lockstep(pattern), 256, n_f / 8.0, 3.0 * n_f);
                }
            }
        }
        MicroKind::Regular | MicroKind::Random => {
            let array = b.array(n);
            let pages = array.bytes / PAGE_BYTES;
            let order = if micro.kind == MicroKind::Regular {
                Order::Ascending
            } else {
                Order::Shuffled { seed: micro.seed }
            };
            for i in 0..micro.launches {
                b.ops.push(HostOp::IterationStart(i));
                let blocks = pages.div_ceil(64);
                let sweep = Sweep {
                    read: Some(array),
                    write: None,
                    blocks,
                    threads: 64,
                    steps: 1,
                    order,
                };
                b.launch(KernelPattern::Sweep(sweep), 64, 0.0, pages as f64 * 32.0);
            }
        }
        MicroKind::PageStride => {
            let (input, output) = (b.array(n), b.array(n));
            let pages = input.bytes / PAGE_BYTES;
            let pages_per_thread = pages.div_ceil(65_536);
            for i in 0..micro.launches {
                b.ops.push(HostOp::IterationStart(i));
                let steps = u32::try_from(pages_per_thread)
                    .map_err(|_| wrong("array_size", n, "up to 2^32 pages for each of 65,536 threads"))?;
                let sweep = Sweep {
                    read: Some(input),
                    write: Some(output),
                    blocks: 256,
                    threads: 256,
                    steps,
                    order: Order::Chunked { pages_per_thread },
                };
                b.launch(KernelPattern::Sweep(sweep), 256, 0.0, pages as f64 * 64.0);
            }
        }
        MicroKind::Gemm => {
            let (a, bb, c) = (b.array(n), b.array(n), b.array(n));
            let side = ((n / 4) as f64).sqrt().floor() as u64;
            for i in 0..micro.launches {
                b.ops.push(HostOp::IterationStart(i));
                let gemm = Gemm {
                    a,
                    b: bb,
                    c,
                    also_read: Vec::new(),
                    batch: 1,
                    m: side,
                    n: side,
                    k: side,
                    element: 4,
                    steps: Gemm::steps_for(side),
                };
                let flops = 2.0 * (side as f64).powi(3);
                b.launch(KernelPattern::Gemm(gemm), 256, flops, 3.0 * n_f);
            }
        }
    }
    b.ops.push(HostOp::Synchronize);
    Ok(b.ops)
}

/// Managed bytes of a micro-benchmark, every array rounded up to 2 MiB.
pub fn footprint_bytes(micro: &Micro) -> u64 {
    let arrays = match micro.kind {
        MicroKind::VectorAddOneBlock | MicroKind::VectorAdd | MicroKind::PageStride => 2,
        MicroKind::StreamTriad | MicroKind::StreamTriadPerElement | MicroKind::Gemm => 3,
        MicroKind::CyclicScan => u64::from(micro.arrays) + 1,
        MicroKind::Regular | MicroKind::Random => 1,
    };
    arrays * micro.array_bytes.next_multiple_of(BLOCK_BYTES)
}
