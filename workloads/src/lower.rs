//! From an op of a program to a kernel of a GPU: class, grid, occupancy, duration.

use std::sync::Arc;

use sim_core::Time;
use sim_core::access::AccessPattern;
use sim_core::pages::ByteRange;

use crate::class::{Class, class_of};
use crate::math::{Math, Rates};
use crate::pattern::{Gather, Gemm, KernelPattern, Lists, Lockstep, PatternSpec, Prepared, TensorList};

/// What lowering has to know of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuShape {
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Threads resident on an SM.
    pub max_threads_per_sm: u32,
    /// Blocks resident on an SM.
    pub max_blocks_per_sm: u32,
    /// Peak floating point rates.
    pub rates: Rates,
    /// Peak memory bandwidth, bytes/s.
    pub hbm_bytes_per_s: f64,
    /// Share of the peak floating point rate that kernels reach.
    pub efficiency_flops: f64,
    /// Share of the peak bandwidth that kernels reach.
    pub efficiency_bytes: f64,
    /// The shortest kernel, launch included.
    pub min_kernel_time: Time,
    /// A load that misses every cache.
    pub load_latency: Time,
}

impl GpuShape {
    /// Resident blocks per SM of a kernel with `threads` threads a block.
    pub fn blocks_per_sm(&self, threads: u32) -> u32 {
        (self.max_threads_per_sm / threads.max(1)).clamp(1, self.max_blocks_per_sm)
    }

    /// The time that `blocks` blocks take which each wait `steps` times for their loads, if nothing else
    /// holds them up: waves of resident blocks, `blocks_per_sm` on an SM, times the latency of their loads.
    pub fn latency_bound(&self, blocks: u64, steps: u32, blocks_per_sm: u32) -> Time {
        let resident = u64::from(self.sms) * u64::from(blocks_per_sm);
        let waits = blocks.div_ceil(resident.max(1)).saturating_mul(u64::from(steps));
        Time(self.load_latency.0.saturating_mul(waits))
    }

    /// Roofline duration: FLOPs and bytes against the peaks times their efficiency, and at least the
    /// shortest kernel for each of `launches`.
    pub fn duration(&self, math: Math, flops: f64, bytes: f64, launches: u32) -> Time {
        let compute = flops / (self.rates.of(math) * self.efficiency_flops);
        let memory = bytes / (self.hbm_bytes_per_s * self.efficiency_bytes);
        Time::from_secs_f64(compute.max(memory)).max(self.min_kernel_time.times(u64::from(launches.max(1))))
    }
}

/// A kernel ready to be launched.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Name of its op.
    pub name: Arc<str>,
    /// What it touches.
    pub pattern: KernelPattern,
    /// Resident blocks per SM.
    pub blocks_per_sm: u32,
    /// Duration with everything resident.
    pub duration: Time,
    /// Its class is in the table.
    pub known_class: bool,
}

/// One op with its operands at their addresses.
#[derive(Clone, Debug)]
pub struct PlacedOp<'a> {
    /// Name.
    pub name: &'a Arc<str>,
    /// Ranges read.
    pub reads: Vec<ByteRange>,
    /// Ranges written.
    pub writes: Vec<ByteRange>,
    /// Floating point operations.
    pub flops: u64,
    /// Their arithmetic.
    pub math: Math,
    /// Bytes really read.
    pub read_bytes: u64,
    /// Bytes really written.
    pub write_bytes: u64,
    /// Kernels that the op launches.
    pub launches: u32,
    /// Only `read_bytes` of the first range are touched, scattered.
    pub sparse: bool,
    /// Recorded duration.
    pub duration: Option<Time>,
}

/// Threads of an element-wise block, and elements of 4 bytes that one covers (PyTorch's vectorised
/// element-wise kernels: 128 threads, 4 elements each).
const ELEMENTWISE_THREADS: u32 = 128;
const ELEMENTWISE_BYTES: u64 = 512 * 4;
/// Chunk of the foreach kernels: 65,536 elements, 512 threads of 4 elements a loop.
const FOREACH_BYTES: u64 = 65_536 * 4;
const FOREACH_THREADS: u32 = 512;
const FOREACH_STEPS: u32 = 32;
/// Threads of a block of a matrix product (128 x 128 tile).
const GEMM_THREADS: u32 = 256;

/// Turns an op into a kernel.
pub fn lower(op: &PlacedOp<'_>, gpu: &GpuShape) -> Kernel {
    let class = class_of(op.name);
    let duration = op.duration.map_or_else(
        || {
            gpu.duration(
                op.math,
                op.flops as f64,
                op.read_bytes as f64 + op.write_bytes as f64,
                op.launches,
            )
        },
        // A kernel has to end after it begins.
        |recorded| recorded.max(Time::from_ns(1)),
    );
    let (pattern, threads) = match class {
        Class::Gemm => gemm(op).map_or_else(
            || elementwise(op),
            |gemm| (KernelPattern::Gemm(gemm), GEMM_THREADS),
        ),
        Class::Optimizer => lists(op).map_or_else(
            || elementwise(op),
            |lists| (KernelPattern::Lists(lists), FOREACH_THREADS),
        ),
        Class::Gather => gather(op).map_or_else(
            || elementwise(op),
            |g| (KernelPattern::Gather(g), ELEMENTWISE_THREADS),
        ),
        _ => elementwise(op),
    };
    Kernel {
        name: Arc::clone(op.name),
        blocks_per_sm: gpu.blocks_per_sm(threads),
        pattern,
        duration,
        known_class: class != Class::Unknown,
    }
}

/// Turns an op whose program says how it walks over its ranges into a kernel.
///
/// Its duration is the recorded one; else the roofline's, and where its steps wait for their loads at least
/// their latency.
pub fn lower_pattern(
    spec: &PatternSpec,
    op: &PlacedOp<'_>,
    graph: Option<&Arc<Prepared>>,
    gpu: &GpuShape,
) -> Kernel {
    let Some(pattern) = spec.place(&op.reads, &op.writes, graph) else {
        return lower(op, gpu);
    };
    let resident = gpu.blocks_per_sm(spec.threads);
    let blocks_per_sm = spec
        .blocks_per_sm
        .map_or(resident, |most| resident.min(most.max(1)));
    let bytes = op.read_bytes as f64 + op.write_bytes as f64;
    let mut duration = gpu.duration(op.math, op.flops as f64, bytes, op.launches);
    if spec.waits {
        duration = duration.max(gpu.latency_bound(pattern.blocks(), pattern.steps(), blocks_per_sm));
    }
    if let Some(recorded) = op.duration {
        duration = recorded.max(Time::from_ns(1));
    }
    Kernel {
        name: Arc::clone(op.name),
        pattern,
        blocks_per_sm,
        duration,
        known_class: true,
    }
}

fn elementwise(op: &PlacedOp<'_>) -> (KernelPattern, u32) {
    let largest = op
        .reads
        .iter()
        .chain(&op.writes)
        .map(|range| range.bytes)
        .max()
        .unwrap_or(0);
    let pattern = Lockstep {
        reads: op.reads.clone(),
        writes: op.writes.clone(),
        blocks: largest.div_ceil(ELEMENTWISE_BYTES).max(1),
        steps: 1,
        warps: (ELEMENTWISE_THREADS / 32) as u16,
        grid_stride: false,
    };
    (KernelPattern::Lockstep(pattern), ELEMENTWISE_THREADS)
}

/// The dimensions of a product from the sizes of its operands: K = sqrt(A B / C), M = A / K, N = B / K
/// per product; the FLOPs give the number of products. `None` if that does not come out whole.
#[allow(clippy::many_single_char_names)] // the names of the dimensions
fn gemm(op: &PlacedOp<'_>) -> Option<Gemm> {
    let element = op.math.element_bytes();
    let c = *op.writes.first()?;
    let conv = op.name.starts_with("convolution");
    let mut operands: Vec<ByteRange> = op.reads.clone();
    // A bias or the previous value of C is not a factor.
    let mut also_read = Vec::new();
    while operands.len() > 2 {
        let extra = operands.iter().position(|range| *range == c).or_else(|| {
            operands
                .iter()
                .enumerate()
                .min_by_key(|(_, range)| range.bytes)
                .map(|(i, _)| i)
        })?;
        also_read.push(operands.remove(extra));
    }
    let [x, y] = operands[..] else { return None };
    // A convolution's product is weights times columns; its recorded order is columns, weights.
    let (a, b) = if conv { (y, x) } else { (x, y) };
    let elements = |range: ByteRange| (range.bytes / element) as f64;
    let (ea, eb, ec) = (elements(a), elements(b), elements(c));
    let volume = op.flops as f64 / 2.0;
    if ea < 1.0 || eb < 1.0 || ec < 1.0 || volume < 1.0 {
        return None;
    }
    let batch = (ea * eb * ec / (volume * volume)).round().max(1.0);
    let k = (ea * eb / (ec * batch)).sqrt();
    let (m, n) = (ea / (k * batch), eb / (k * batch));
    let whole = |x: f64| (x - x.round()).abs() < 1e-6 * x && x >= 1.0;
    if !(whole(k) && whole(m) && whole(n)) || ((batch * m * n * k) - volume).abs() > 1e-6 * volume {
        return None;
    }
    let k = k.round() as u64;
    Some(Gemm {
        a,
        b,
        c,
        also_read,
        batch: batch as u64,
        m: m.round() as u64,
        n: n.round() as u64,
        k,
        element,
        steps: Gemm::steps_for(k),
    })
}

/// Splits the read ranges into lists as long as the written one.
fn lists(op: &PlacedOp<'_>) -> Option<Lists> {
    let write = TensorList::new(op.writes.clone());
    let mut reads = Vec::new();
    let mut list = Vec::new();
    let mut bytes = 0;
    for range in &op.reads {
        bytes += range.bytes;
        list.push(*range);
        if bytes == write.bytes() {
            reads.push(TensorList::new(std::mem::take(&mut list)));
            bytes = 0;
        }
    }
    if !list.is_empty() || write.bytes() == 0 {
        return None;
    }
    let warps = (FOREACH_THREADS / 32) as u16;
    Some(Lists {
        reads,
        writes: vec![write],
        chunk_bytes: FOREACH_BYTES,
        steps: FOREACH_STEPS,
        warps,
    })
}

/// Scattered rows of the largest range of the sparse side.
fn gather(op: &PlacedOp<'_>) -> Option<Gather> {
    if !op.sparse {
        return None;
    }
    let scatter = op.name.contains("backward");
    let side = if scatter { &op.writes } else { &op.reads };
    let (place, table) = side
        .iter()
        .copied()
        .enumerate()
        .max_by_key(|(_, range)| range.bytes)?;
    let (mut reads, mut writes) = (op.reads.clone(), op.writes.clone());
    if scatter { &mut writes } else { &mut reads }.remove(place);
    let touched = if scatter { op.write_bytes } else { op.read_bytes };
    let others: u64 = if scatter { &writes } else { &reads }
        .iter()
        .map(|range| range.bytes)
        .sum();
    let (KernelPattern::Lockstep(swept), _) = elementwise(&PlacedOp {
        reads,
        writes,
        ..op.clone()
    }) else {
        return None;
    };
    // A row is at least what one block of 128 threads moves at a time.
    let rows = touched.saturating_sub(others).div_ceil(ELEMENTWISE_BYTES).max(1);
    let rows_per_block = rows.div_ceil(swept.blocks()).min(256) as u32;
    Some(Gather {
        swept,
        table,
        rows_per_block,
        scatter,
        seed: op.flops ^ table.start,
    })
}
