//! A program under an allocator, on a GPU: the operations of the host, with addresses.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sim_core::Time;
use sim_core::pages::{BLOCK_BYTES, ByteRange, PAGE_BYTES};
use sim_core::tools::Processor;

use crate::allocator::{Allocator, AllocatorKind, AllocatorSpec, Backing};
use crate::graph;
use crate::lower::{GpuShape, Kernel, PlacedOp, lower, lower_pattern};
use crate::pattern::Walk;
use crate::program::MemAdvise;
use crate::program::Scheduled;
use crate::program::{Op, Piece, ProgramError, Schedule, Source};

/// What the host's thread does.
#[derive(Clone, Debug)]
pub enum HostOp {
    /// `cudaMallocManaged`.
    ManagedAlloc(ByteRange),
    /// `cudaFree` of a managed range.
    ManagedFree(ByteRange),
    /// `cudaMalloc`: device memory that never moves.
    DeviceAlloc(ByteRange),
    /// `cudaFree` of it.
    DeviceFree(ByteRange),
    /// Not a call: what a range holds matters (a kernel launched before writes it) or does not matter any
    /// more (its tensor is freed) once the kernels launched before have finished.
    Contents {
        /// Which bytes.
        range: ByteRange,
        /// They matter.
        live: bool,
    },
    /// A kernel launch.
    Launch {
        /// The kernel.
        kernel: Kernel,
        /// Its stream.
        stream: u32,
    },
    /// `cudaMemcpyAsync` from the host into managed memory.
    CopyToDevice(ByteRange),
    /// The CPU touches memory.
    CpuTouch {
        /// What it touches.
        range: ByteRange,
        /// It writes.
        write: bool,
        /// It does not wait for the kernels before it.
        concurrent: bool,
    },
    /// The host waits for the device.
    Synchronize,
    /// An iteration begins.
    IterationStart(u32),
    /// `cudaMemPrefetchAsync`.
    Prefetch {
        /// What moves.
        range: ByteRange,
        /// Where it goes.
        to: Processor,
        /// Its place is after what was launched before on this stream.
        stream: u32,
    },
    /// `cudaMemAdvise`.
    Advise {
        /// About what.
        range: ByteRange,
        /// What.
        advice: MemAdvise,
    },
    /// Discards contents.
    Discard {
        /// Of what.
        range: ByteRange,
        /// Mappings and residency on the GPU go, too.
        unmap: bool,
    },
}

impl HostOp {
    /// The call, as a user knows it.
    pub fn name(&self) -> &'static str {
        match self {
            HostOp::ManagedAlloc(_) => "cudaMallocManaged",
            HostOp::ManagedFree(_) | HostOp::DeviceFree(_) => "cudaFree",
            HostOp::DeviceAlloc(_) => "cudaMalloc",
            HostOp::Contents { .. } => "a note on contents",
            HostOp::Launch { .. } => "a kernel launch",
            HostOp::CopyToDevice(_) => "cudaMemcpyAsync",
            HostOp::CpuTouch { .. } => "a CPU access",
            HostOp::Synchronize => "cudaDeviceSynchronize",
            HostOp::IterationStart(_) => "an iteration mark",
            HostOp::Prefetch { .. } => "cudaMemPrefetchAsync",
            HostOp::Advise { .. } => "cudaMemAdvise",
            HostOp::Discard { .. } => "discard",
        }
    }

    /// The runtime's function behind it, as profilers name it; none for marks and plain accesses.
    pub fn runtime_call(&self) -> Option<&'static str> {
        match self {
            HostOp::CpuTouch { .. } | HostOp::IterationStart(_) | HostOp::Contents { .. } => None,
            HostOp::Launch { .. } => Some("cudaLaunchKernel"),
            HostOp::Discard { .. } => Some("cudaMemDiscardBatchAsync"),
            other => Some(other.name()),
        }
    }

    /// Does the host wait for all kernels before it?
    pub fn synchronises(&self) -> bool {
        matches!(
            self,
            HostOp::ManagedFree(_)
                | HostOp::DeviceFree(_)
                | HostOp::CopyToDevice(_)
                | HostOp::CpuTouch {
                    concurrent: false,
                    ..
                }
                | HostOp::Synchronize
        )
    }
}

/// A live tensor.
#[derive(Clone, Copy, Debug)]
struct Tensor {
    range: ByteRange,
    /// All of it has been written.
    written: bool,
}

/// The operations of a program under an allocator.
pub struct Run<'a> {
    schedule: Schedule<'a>,
    allocator: Allocator,
    gpu: GpuShape,
    /// Live tensors, by the run's id.
    tensors: HashMap<u32, Tensor>,
    on_device: bool,
    pending: VecDeque<HostOp>,
    backing: Vec<Backing>,
}

impl<'a> Run<'a> {
    /// `iterations` iterations of `program`.
    pub fn new(
        program: impl Into<Source<'a>>,
        allocator: &AllocatorSpec,
        iterations: u32,
        gpu: GpuShape,
    ) -> Run<'a> {
        Run {
            schedule: Schedule::new(program, iterations),
            allocator: Allocator::new(allocator),
            gpu,
            tensors: HashMap::new(),
            on_device: allocator.kind == AllocatorKind::Device,
            pending: VecDeque::new(),
            backing: Vec::new(),
        }
    }

    fn place(&self, pieces: &[Piece]) -> Vec<ByteRange> {
        pieces
            .iter()
            .filter_map(|piece| self.schedule.piece(piece))
            .filter_map(|(id, offset, bytes)| {
                self.tensors.get(&id).map(|tensor| ByteRange {
                    start: tensor.range.start + offset,
                    bytes,
                })
            })
            .collect()
    }

    fn flush_backing(&mut self) {
        let on_device = self.on_device;
        self.pending
            .extend(self.backing.drain(..).map(|backing| match backing {
                Backing::Allocate(range) if on_device => HostOp::DeviceAlloc(whole_pages(range)),
                Backing::Free(range) if on_device => HostOp::DeviceFree(whole_pages(range)),
                Backing::Allocate(range) => HostOp::ManagedAlloc(whole_pages(range)),
                Backing::Free(range) => HostOp::ManagedFree(whole_pages(range)),
            }));
    }

    /// What these pieces hold matters from now on.
    fn written(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            let Some((id, offset, bytes)) = self.schedule.piece(piece) else {
                continue;
            };
            let Some(tensor) = self.tensors.get_mut(&id).filter(|tensor| !tensor.written) else {
                continue;
            };
            tensor.written = offset == 0 && bytes >= tensor.range.bytes;
            let range = ByteRange {
                start: tensor.range.start + offset,
                bytes,
            };
            self.pending.push_back(HostOp::Contents { range, live: true });
        }
    }

    fn translate(&mut self, op: &Op) -> Result<(), ProgramError> {
        match op {
            Op::Kernel {
                name,
                r,
                w,
                flops,
                math,
                rb,
                wb,
                nk,
                sparse,
                stream,
                ns,
                pattern,
            } => {
                let placed = PlacedOp {
                    name,
                    reads: self.place(r),
                    writes: self.place(w),
                    flops: *flops,
                    math: *math,
                    read_bytes: *rb,
                    write_bytes: *wb,
                    launches: *nk,
                    sparse: *sparse,
                    duration: ns.map(Time::from_ns),
                };
                if placed.reads.is_empty() && placed.writes.is_empty() {
                    return Ok(());
                }
                // A piece that a repeated iteration has lost leaves the operands unnumbered.
                let whole = placed.reads.len() == r.len() && placed.writes.len() == w.len();
                let kernel = match pattern {
                    Some(spec) if whole => {
                        let graph = match &spec.walk {
                            Walk::Graph { graph, .. } => Some(graph::shared(graph)?),
                            _ => None,
                        };
                        lower_pattern(spec, &placed, graph.as_ref(), &self.gpu)
                    }
                    _ => lower(&placed, &self.gpu),
                };
                self.pending.push_back(HostOp::Launch {
                    kernel,
                    stream: *stream,
                });
                self.written(w);
            }
            Op::H2d { w } => {
                self.each(w, HostOp::CopyToDevice);
                self.written(w);
            }
            Op::Cpu { w, write, concurrent } => {
                self.each(w, |range| HostOp::CpuTouch {
                    range,
                    write: *write,
                    concurrent: *concurrent,
                });
                if *write {
                    self.written(w);
                }
            }
            Op::Prefetch { w, to, stream } => self.each(w, |range| HostOp::Prefetch {
                range,
                to: (*to).into(),
                stream: *stream,
            }),
            Op::Advise { w, advice, device } => self.each(w, |range| HostOp::Advise {
                range,
                advice: advice.about(*device),
            }),
            Op::Discard { w, unmap } => self.each(w, |range| HostOp::Discard { range, unmap: *unmap }),
            Op::Sync {} => self.pending.push_back(HostOp::Synchronize),
            Op::Alloc { .. } | Op::Free { .. } | Op::Iter { .. } => {}
        }
        Ok(())
    }

    fn each(&mut self, pieces: &[Piece], make: impl Fn(ByteRange) -> HostOp) {
        let ranges = self.place(pieces);
        self.pending.extend(ranges.into_iter().map(make));
    }
}

/// The whole pages of a range that starts on a page.
fn whole_pages(range: ByteRange) -> ByteRange {
    ByteRange {
        start: range.start,
        bytes: range.bytes.next_multiple_of(PAGE_BYTES),
    }
}

impl Iterator for Run<'_> {
    type Item = Result<HostOp, ProgramError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(op) = self.pending.pop_front() {
                return Some(Ok(op));
            }
            let next = match self.schedule.next()? {
                Ok(next) => next,
                Err(error) => return Some(Err(error)),
            };
            match next {
                Scheduled::Alloc(id, bytes) => match self.allocator.allocate(bytes, &mut self.backing) {
                    Ok(address) => {
                        let range = ByteRange {
                            start: address,
                            bytes,
                        };
                        self.tensors.insert(
                            id,
                            Tensor {
                                range,
                                written: false,
                            },
                        );
                        self.flush_backing();
                    }
                    Err(error) => return Some(Err(error.into())),
                },
                Scheduled::Free(id) => {
                    if let Some(Tensor { range, .. }) = self.tensors.remove(&id) {
                        self.pending.push_back(HostOp::Contents { range, live: false });
                        self.allocator.free(range.start, &mut self.backing);
                        self.flush_backing();
                    }
                }
                Scheduled::Other(op) => {
                    if let Err(error) = self.translate(&op) {
                        return Some(Err(error));
                    }
                }
                Scheduled::Iteration(i) => return Some(Ok(HostOp::IterationStart(i))),
            }
        }
    }
}

/// What a run needs, without running it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Peak of the managed bytes live at once, each range rounded up to 2 MiB.
    pub peak_bytes: u64,
    /// Kernels launched.
    pub kernels: u64,
    /// Bytes that the kernels read and write.
    pub kernel_bytes: u64,
    /// Managed ranges allocated.
    pub allocations: u64,
}

/// Footprint and totals of `iterations` iterations under an allocator whose memory is not limited.
///
/// # Errors
/// An allocation that fails, or a file that cannot be read any more.
pub fn footprint<'a>(
    program: impl Into<Source<'a>>,
    allocator: &AllocatorSpec,
    iterations: u32,
) -> Result<Footprint, ProgramError> {
    let mut allocator = Allocator::new(&AllocatorSpec {
        capacity: None,
        ..allocator.clone()
    });
    let mut addresses = HashMap::new();
    let mut backing = Vec::new();
    let mut result = Footprint::default();
    let mut live = 0;
    for op in Schedule::new(program, iterations) {
        match op? {
            Scheduled::Alloc(id, bytes) => {
                addresses.insert(id, allocator.allocate(bytes, &mut backing)?);
            }
            Scheduled::Free(id) => {
                if let Some(address) = addresses.remove(&id) {
                    allocator.free(address, &mut backing);
                }
            }
            Scheduled::Other(op) => {
                if let Op::Kernel { rb, wb, .. } = &*op {
                    result.kernels += 1;
                    result.kernel_bytes = result.kernel_bytes.saturating_add(rb.saturating_add(*wb));
                }
            }
            Scheduled::Iteration(_) => {}
        }
        for change in backing.drain(..) {
            let rounded = |range: ByteRange| range.bytes.next_multiple_of(BLOCK_BYTES);
            match change {
                Backing::Allocate(range) => {
                    result.allocations += 1;
                    live += rounded(range);
                    result.peak_bytes = result.peak_bytes.max(live);
                }
                Backing::Free(range) => live -= rounded(range),
            }
        }
    }
    Ok(result)
}

/// A name shared by kernels.
pub type Name = Arc<str>;
