//! Micro-benchmarks: kernels whose access order is known exactly, as the literature runs them.
//!
//! Each is a program: managed arrays, CPU initialisation if asked for, one iteration with its launches.

use std::str::FromStr;
use std::sync::Arc;

use sim_core::Time;
use sim_core::pages::PAGE_BYTES;

use crate::classic::whole_ns;
use crate::math::Math;
use crate::pattern::{PatternSpec, SweepOrder, Walk};
use crate::program::{Op, Piece, Program, ProgramError};

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
    /// The name in configurations.
    pub fn name(self) -> &'static str {
        MicroKind::NAMES
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("", |(name, _)| name)
    }

    /// What it does, in one line.
    pub const fn summary(self) -> &'static str {
        match self {
            MicroKind::VectorAddOneBlock => {
                "y = x + y by one block of 256 threads that strides over the arrays"
            }
            MicroKind::VectorAdd => "y = x + y, one thread an element, 256 threads a block",
            MicroKind::CyclicScan => "out += a for each of several arrays in turn, pass after pass",
            MicroKind::StreamTriad => {
                "a = b + s c over doubles, 640 x 256 threads that stride over the arrays"
            }
            MicroKind::StreamTriadPerElement => {
                "a = b + s c over doubles, one thread an element, 1,024 threads a block"
            }
            MicroKind::Regular => "thread i reads page i, 64 threads a block",
            MicroKind::Random => "thread i reads page perm(i), 64 threads a block",
            MicroKind::PageStride => "65,536 threads walk pieces of two arrays page by page",
            MicroKind::Gemm => "C = A B with square matrices of floats in tiles of 128 x 128",
        }
    }

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
    /// The CPU writes the arrays first; otherwise the GPU touches them first.
    pub cpu_init: bool,
    /// Duration of one kernel with everything resident, if it is known; else the roofline's.
    pub kernel_time: Option<Time>,
    /// Chooses the order of a random kernel.
    pub seed: u64,
}

/// A program that is being recorded.
struct Builder<'a> {
    micro: &'a Micro,
    setup: Vec<Op>,
    launches: Vec<Op>,
    bytes: u64,
    next: u32,
}

impl Builder<'_> {
    /// An array; its tensor.
    fn array(&mut self) -> u32 {
        let t = self.next;
        self.next += 1;
        self.setup.push(Op::Alloc { t, n: self.bytes });
        if self.micro.cpu_init {
            let w = vec![Piece(t, 0, self.bytes)];
            self.setup.push(Op::Cpu {
                w,
                write: true,
                concurrent: false,
            });
        }
        t
    }

    /// A launch that reads and writes so many bytes.
    fn launch(
        &mut self,
        reads: &[u32],
        writes: &[u32],
        (threads, walk): (u32, Walk),
        flops: u64,
        traffic: (u64, u64),
    ) {
        let whole = |tensors: &[u32]| tensors.iter().map(|t| Piece(*t, 0, self.bytes)).collect();
        let pattern = PatternSpec {
            // The tiles of a product are loaded ahead of their use; all others wait for their loads.
            waits: !matches!(walk, Walk::Gemm { .. }),
            ..PatternSpec::new(threads, walk)
        };
        self.launches.push(Op::Kernel {
            name: Arc::from(self.micro.kind.name()),
            r: whole(reads),
            w: whole(writes),
            flops,
            math: Math::Fp32,
            rb: traffic.0,
            wb: traffic.1,
            nk: 1,
            sparse: false,
            stream: 0,
            ns: self.micro.kernel_time.map(whole_ns),
            pattern: Some(Arc::new(pattern)),
        });
    }

    /// Grid-stride sweep by `blocks` blocks of `threads` threads, `element` bytes each.
    fn grid_stride(&self, blocks: u64, threads: u32, element: u64) -> (u32, Walk) {
        let stride = blocks * u64::from(threads) * element;
        let steps = self.bytes.div_ceil(stride).clamp(1, u64::from(u32::MAX)) as u32;
        let walk = Walk::Lockstep {
            blocks,
            steps,
            grid_stride: true,
        };
        (threads, walk)
    }

    /// One thread an element.
    fn per_element(&self, threads: u32, element: u64) -> (u32, Walk) {
        let walk = Walk::Lockstep {
            blocks: self.bytes.div_ceil(u64::from(threads) * element).max(1),
            steps: 1,
            grid_stride: false,
        };
        (threads, walk)
    }
}

/// The program of a micro-benchmark, one iteration: each launch (of each array, for a cyclic scan) once.
/// A benchmark waits for one launch before it times the next.
///
/// # Errors
/// An impossible parameter.
pub fn program(micro: &Micro) -> Result<Program, ProgramError> {
    let wrong = |key, value: u64, accepted| ProgramError::Parameter {
        key,
        value: value.to_string(),
        accepted,
    };
    if micro.array_bytes < PAGE_BYTES || micro.array_bytes > 1 << 46 {
        return Err(wrong("array_size", micro.array_bytes, "4 KiB to 64 TiB"));
    }
    if micro.arrays == 0 {
        return Err(wrong("arrays", 0, "at least 1"));
    }
    let n = micro.array_bytes;
    let mut b = Builder {
        micro,
        setup: Vec::new(),
        launches: Vec::new(),
        bytes: n.next_multiple_of(PAGE_BYTES),
        next: 0,
    };
    match micro.kind {
        MicroKind::VectorAddOneBlock | MicroKind::VectorAdd => {
            let (x, y) = (b.array(), b.array());
            let walk = if micro.kind == MicroKind::VectorAdd {
                b.per_element(256, 4)
            } else {
                b.grid_stride(1, 256, 4)
            };
            b.launch(&[x, y], &[y], walk, n / 4, (2 * n, n));
        }
        MicroKind::StreamTriad | MicroKind::StreamTriadPerElement => {
            let (dest, left, right) = (b.array(), b.array(), b.array());
            let walk = if micro.kind == MicroKind::StreamTriad {
                b.grid_stride(640, 256, 8)
            } else {
                b.per_element(1024, 8)
            };
            b.launch(&[left, right], &[dest], walk, 2 * n / 8, (2 * n, n));
        }
        MicroKind::CyclicScan => {
            let arrays: Vec<u32> = (0..micro.arrays).map(|_| b.array()).collect();
            let out = b.array();
            for array in arrays {
                let walk = b.grid_stride(256, 256, 8);
                b.launch(&[array, out], &[out], walk, n / 8, (2 * n, n));
            }
        }
        MicroKind::Regular | MicroKind::Random => {
            let array = b.array();
            let pages = b.bytes / PAGE_BYTES;
            let walk = Walk::Sweep {
                blocks: pages.div_ceil(64),
                steps: 1,
                order: if micro.kind == MicroKind::Regular {
                    SweepOrder::Ascending
                } else {
                    SweepOrder::Shuffled
                },
                seed: micro.seed,
                pages_per_thread: 0,
            };
            b.launch(&[array], &[], (64, walk), 0, (pages * 32, 0));
        }
        MicroKind::PageStride => {
            let (input, output) = (b.array(), b.array());
            let pages = b.bytes / PAGE_BYTES;
            let pages_per_thread = pages.div_ceil(65_536);
            let walk = Walk::Sweep {
                blocks: 256,
                steps: u32::try_from(pages_per_thread)
                    .map_err(|_| wrong("array_size", n, "up to 2^32 pages for each of 65,536 threads"))?,
                order: SweepOrder::Chunked,
                seed: 0,
                pages_per_thread,
            };
            b.launch(&[input], &[output], (256, walk), 0, (pages * 32, pages * 32));
        }
        MicroKind::Gemm => {
            let (left, right, result) = (b.array(), b.array(), b.array());
            let side = (n / 4).isqrt();
            let walk = Walk::Gemm {
                batch: 1,
                m: side,
                n: side,
                k: side,
                element: 4,
            };
            let flops = 2.0 * (side as f64).powi(3);
            b.launch(&[left, right], &[result], (256, walk), flops as u64, (2 * n, n));
        }
    }
    b.setup.push(Op::Sync {});
    b.launches.push(Op::Sync {});
    Ok(Program {
        name: micro.kind.name().to_owned(),
        setup: b.setup,
        iterations: vec![b.launches],
    })
}
