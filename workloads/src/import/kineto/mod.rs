//! PyTorch profiler (Kineto) traces: kernels with durations, the ops that launched them, and what memory
//! the allocator handed out.
//!
//! The order of the program is that of the host: allocations, frees and launches by their times. What
//! a kernel touches is inferred: inputs by the shapes of its op, matched by size to live tensors, those
//! that the forward op of a gradient used and then the most recent first; outputs are what the op allocated
//! and left alive, or without memory events what its name and shapes say; in-place ops write their inputs.
//! An input that matches nothing existed before the recording.

mod links;
mod live;
mod trace;

use std::collections::HashMap;
use std::path::Path;

use live::{LiveSet, Saved};

pub(super) use links::{Links, link};
pub(super) use trace::{Trace, WorkKind, read};

use super::builder::{Builder, NewKernel, Tensor};
use super::lenient::Id;
use super::operands::{bytes, flops, is_in_place};
use super::source::Limits;
use super::{ImportError, Imported};
use crate::math::Math;
use crate::program::Piece;

const FORMAT: &str = "a PyTorch profiler (Kineto) trace";

/// One thing that the host did.
#[derive(Clone, Copy)]
enum Step {
    Iteration,
    Memory(usize),
    Work(usize),
    Wait,
}

/// Imports a trace.
///
/// # Errors
/// Where the file breaks, and what to try.
pub fn import(file: &Path, limits: &Limits) -> Result<Imported, ImportError> {
    let trace = read(file, limits)?;
    if trace.work.is_empty() && trace.memory.is_empty() {
        return Err(ImportError::Malformed {
            file: file.to_path_buf(),
            format: FORMAT,
            place: format!("{} events", trace.events),
            what: "none of them is work of a GPU; profile with ProfilerActivity.CUDA".to_owned(),
        });
    }
    let links = link(&trace);
    let stem = super::builder_name(file);

    // Everything that the host did, by time.
    let mut steps: Vec<(f64, u8, Step)> = Vec::new();
    steps.extend(trace.steps.iter().map(|time| (*time, 0, Step::Iteration)));
    steps.extend((0..trace.memory.len()).map(|at| (trace.memory[at].time, 1, Step::Memory(at))));
    steps.extend((0..trace.work.len()).map(|at| (links.of[at].1, 2, Step::Work(at))));
    steps.extend(
        trace
            .calls
            .iter()
            .filter(|call| call.waits)
            .map(|call| (call.start, 3, Step::Wait)),
    );
    steps.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));

    let mut reconstruction = Reconstruction {
        kept: links::kept_by_op(&trace, &links),
        inferring: trace.memory.is_empty(),
        trace: &trace,
        links: &links,
        builder: Builder::new(&stem, FORMAT),
        live: LiveSet::default(),
        saved: Saved::default(),
        allocated: HashMap::new(),
        made: HashMap::new(),
        streams: HashMap::new(),
        counts: Counts::default(),
    };
    for (_, _, step) in steps {
        match step {
            Step::Iteration => {
                reconstruction.saved.clear();
                reconstruction.builder.iteration();
            }
            Step::Wait => {
                if reconstruction.builder.in_iteration() {
                    reconstruction.builder.sync();
                }
            }
            Step::Memory(at) => reconstruction.memory(at),
            Step::Work(at) => reconstruction.work(at),
        }
    }
    let Reconstruction {
        mut builder,
        live,
        counts,
        ..
    } = reconstruction;
    describe(&mut builder, &trace, &links, &live, &counts);
    builder.finish(file)
}

/// The program so far, and what is known of its tensors.
struct Reconstruction<'a> {
    trace: &'a Trace,
    links: &'a Links,
    /// By op: its allocations that outlived it.
    kept: HashMap<u32, Vec<usize>>,
    /// There are no memory events: what ops make follows from their names and shapes.
    inferring: bool,
    builder: Builder,
    live: LiveSet,
    saved: Saved,
    /// By memory event.
    allocated: HashMap<usize, Tensor>,
    /// By op, where that is inferred.
    made: HashMap<u32, Vec<Tensor>>,
    streams: HashMap<Id, u32>,
    counts: Counts,
}

impl Reconstruction<'_> {
    /// Memory is handed out or taken back.
    fn memory(&mut self, at: usize) {
        let event = self.trace.memory[at];
        let bytes = event.bytes.unsigned_abs();
        if event.bytes > 0 {
            let tensor = self.builder.alloc(bytes);
            self.live.add(tensor, bytes);
            if let Some(address) = event.address {
                self.live.by_address.insert(address, tensor);
            }
            self.allocated.insert(at, tensor);
            return;
        }
        let found = match event.address {
            Some(address) => self.live.by_address.remove(&address),
            None => self.live.youngest(bytes),
        };
        if let Some(tensor) = found {
            self.live
                .remove(tensor, self.builder.size(tensor).unwrap_or(bytes));
            self.builder.free(tensor);
        } else {
            self.counts.frees_of_older += 1;
        }
    }

    /// A kernel, copy or fill is launched.
    fn work(&mut self, at: usize) {
        let work = &self.trace.work[at];
        let next = self.streams.len() as u32;
        let stream = *self.streams.entry(work.stream).or_insert(next);
        let id = self.links.of[at].0;
        let op = id.map(|id| &self.trace.ops[id as usize]);
        if work.kind == WorkKind::CopyIn {
            let bytes = work.bytes.max(1);
            let tensor = self.live.find_or_before(&mut self.builder, bytes, &[], 0);
            let size = self.builder.size(tensor).unwrap_or(bytes);
            self.builder.copy_in(vec![Piece(tensor, 0, bytes.min(size))]);
            self.counts.copies_in += 1;
            return;
        }
        let name = self.trace.names[op.map_or(work.name, |op| op.name) as usize].as_str();
        let mut writes = id.map_or_else(Vec::new, |id| self.outputs(id, work.kind));
        let inputs = op.map_or(&[][..], |op| op.inputs.as_slice());
        let mut reads = self.inputs(at, name, inputs, &writes);
        if writes.is_empty() && is_in_place(name) {
            let list = name.contains("_foreach_") || name.contains("_fused_");
            writes.extend(reads.iter().take(if list { reads.len() } else { 1 }));
        }
        if work.kind == WorkKind::Set && writes.is_empty() && work.bytes > 0 {
            let tensor = self.live.find_or_before(&mut self.builder, work.bytes, &[], 0);
            writes.push(Piece(tensor, 0, work.bytes));
        }
        if reads.is_empty() && writes.is_empty() {
            // The time counts all the same.
            let page = self.live.older(&mut self.builder, 4096, 0);
            reads.push(Piece(page, 0, 4096));
            self.counts.without_operands += 1;
        } else {
            let tensors = |pieces: &[Piece]| pieces.iter().map(|piece| piece.0).collect::<Vec<_>>();
            self.saved
                .keep(self.links.autograd[at], &tensors(&reads), &tensors(&writes));
        }
        let dims: Vec<Vec<u64>> = inputs.iter().map(|(dims, _)| dims.clone()).collect();
        self.builder.kernel(NewKernel {
            name,
            reads,
            writes,
            flops: flops(name, &dims),
            math: Math::Fp32,
            ns: Some((work.duration * 1000.0).round() as u64),
            stream,
            launches: 1,
            ..NewKernel::default()
        });
    }

    /// What an op makes: its allocations that outlive it, or what its name and shapes say.
    fn outputs(&mut self, id: u32, kind: WorkKind) -> Vec<Piece> {
        if !self.inferring || kind != WorkKind::Kernel {
            let kept = self.kept.get(&id).into_iter().flatten();
            return kept
                .filter_map(|event| self.builder.whole(*self.allocated.get(event)?))
                .collect();
        }
        let made = self.made.entry(id).or_insert_with(|| {
            let outputs = self.trace.ops[id as usize].outputs.iter();
            outputs
                .map(|bytes| {
                    let tensor = self.builder.alloc_until_last_use(*bytes);
                    self.live.add(tensor, bytes.next_multiple_of(512));
                    self.counts.inferred += 1;
                    self.counts.inferred_bytes += bytes;
                    tensor
                })
                .collect()
        });
        made.iter()
            .filter_map(|tensor| self.builder.whole(*tensor))
            .collect()
    }

    /// What a kernel reads, by the shapes of its op; not what the op has just made.
    fn inputs(&mut self, at: usize, name: &str, inputs: &[(Vec<u64>, u64)], writes: &[Piece]) -> Vec<Piece> {
        let sizes: Vec<u64> = inputs
            .iter()
            .filter_map(|(dims, element)| bytes(dims, *element))
            .collect();
        let mut taken: Vec<Tensor> = writes.iter().map(|write| write.0).collect();
        let place = self.links.autograd[at];
        let known = self.saved.inputs(place, name, &sizes, &self.builder, &taken);
        // The most recent ones are not those that are known to be other inputs.
        taken.extend(known.iter().flatten());
        let mut seen: HashMap<u64, usize> = HashMap::new();
        let mut reads = Vec::with_capacity(sizes.len());
        for (&bytes, known) in sizes.iter().zip(known) {
            let nth = seen.entry(bytes).or_default();
            let tensor = known.unwrap_or_else(|| {
                let found = self.live.find_or_before(&mut self.builder, bytes, &taken, *nth);
                taken.push(found);
                found
            });
            *nth += 1;
            let size = self.builder.size(tensor).unwrap_or(bytes);
            reads.push(Piece(tensor, 0, bytes.min(size)));
        }
        reads
    }
}

#[derive(Default)]
struct Counts {
    frees_of_older: u64,
    copies_in: u64,
    without_operands: u64,
    inferred: u64,
    inferred_bytes: u64,
}

fn describe(builder: &mut Builder, trace: &Trace, links: &Links, live: &LiveSet, counts: &Counts) {
    let with_shapes = trace.ops.iter().any(|op| !op.inputs.is_empty());
    let report = builder.report();
    let mut fact = |name: &str, value: String| report.facts.push((name.to_owned(), value));
    fact("events", trace.events.to_string());
    if let Some(name) = &trace.device_name {
        fact("device", name.clone());
    }
    fact("host ops", trace.ops.len().to_string());
    fact("memory events of the GPU", trace.memory.len().to_string());
    fact("copies from the host", counts.copies_in.to_string());
    fact("work linked to its op by its call", links.by_call.to_string());
    fact("work linked by external id", links.by_id.to_string());
    let mut assume = |count: u64, what: String| {
        if count > 0 {
            report.assumed.push(what);
        }
    };
    assume(
        1,
        "what a kernel reads: tensors of its op's input sizes, for gradients those that the forward op used, else the \
         most recent first; what it writes: what its op allocated and kept, or its inputs if it works in place"
            .to_owned(),
    );
    assume(
        live.before_count,
        format!(
            "{} tensors of {} bytes existed before the recording: inputs that match nothing allocated in it",
            live.before_count, live.before_bytes
        ),
    );
    assume(
        counts.inferred,
        format!(
            "{} tensors of {} bytes are what ops make by their names and shapes (there are no memory events); each lives until its last use",
            counts.inferred, counts.inferred_bytes
        ),
    );
    assume(
        counts.without_operands,
        format!(
            "{} kernels whose operands are not known touch one page and keep their time",
            counts.without_operands
        ),
    );
    assume(
        links.without,
        format!(
            "{} kernels and copies belong to no op and go by their own name",
            links.without
        ),
    );
    assume(
        trace.other_devices,
        format!(
            "one device is simulated, that with the most work: {} kernels, copies and fills of {} others are left out",
            trace.other_devices,
            trace.devices.len().saturating_sub(1)
        ),
    );
    if trace.steps_assumed {
        report.assumed.push(
            "an iteration ends with its optimizer step: there is no ProfilerStep annotation".to_owned(),
        );
    } else if trace.steps.is_empty() {
        report
            .assumed
            .push("all of it is one iteration: there is no ProfilerStep annotation".to_owned());
    }
    let mut miss = |missing: bool, what: &str| {
        if missing {
            report.missing.push(what.to_owned());
        }
    };
    miss(
        !with_shapes,
        "input shapes (record_shapes=True): what kernels read is not known",
    );
    miss(
        trace.memory.is_empty(),
        "memory events (profile_memory=True): what ops allocate and how long it lives is not known",
    );
    miss(
        !trace.memory.is_empty() && trace.memory.iter().all(|event| event.address.is_none()),
        "addresses of memory events (PyTorch 2.0 and later): frees are matched by size",
    );
    miss(
        trace.work.is_empty(),
        "kernels: nothing runs on a GPU in this recording",
    );
    if counts.frees_of_older > 0 {
        report.missing.push(format!(
            "{} frees of tensors that were allocated before the recording",
            counts.frees_of_older
        ));
    }
}
