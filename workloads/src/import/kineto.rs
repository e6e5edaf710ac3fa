//! PyTorch profiler (Kineto) traces: kernels with durations, the ops that launched them, and what memory
//! the allocator handed out.
//!
//! The order of the program is that of the host: allocations, frees and launches by their times. What
//! a kernel touches is inferred: inputs by the shapes of its op, matched by size to live tensors, the
//! most recent first; outputs are what the op allocated and left alive; in-place ops write their inputs.
//! An input that matches nothing existed before the recording.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::builder::{Builder, NewKernel, Tensor};
use super::lenient::{Dims, Id, Int, Real};
use super::operands::{bytes, element_bytes, flops, is_in_place, outputs};
use super::source::{self, Limits, TOO_MANY};
use super::{ImportError, Imported};
use crate::math::Math;
use crate::program::Piece;

const FORMAT: &str = "a PyTorch profiler (Kineto) trace";

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    cat: Option<String>,
    #[serde(default)]
    ph: Option<String>,
    #[serde(default)]
    ts: Real,
    #[serde(default)]
    dur: Real,
    #[serde(default)]
    tid: Id,
    #[serde(default)]
    args: Option<Args>,
}

#[derive(Default, Deserialize)]
struct Args {
    #[serde(default, rename = "External id", alias = "external id")]
    external: Int,
    #[serde(default)]
    correlation: Int,
    #[serde(default)]
    stream: Id,
    #[serde(default)]
    device: Int,
    #[serde(default)]
    bytes: Int,
    #[serde(default, rename = "Input Dims", alias = "Input dims")]
    dims: Dims,
    #[serde(default, rename = "Input type")]
    types: Types,
    #[serde(default, rename = "Record function id")]
    record: Int,
    #[serde(default, rename = "Bytes")]
    memory_bytes: Int,
    #[serde(default, rename = "Addr")]
    address: Int,
    #[serde(default, rename = "Device Type")]
    device_type: Int,
    #[serde(default, rename = "Device Id")]
    device_id: Int,
    #[serde(default, rename = "Concrete Inputs")]
    concrete: Types,
}

/// Names of types, or values of arguments; a list of tensors counts once per name in it.
#[derive(Default)]
struct Types(Vec<String>);

impl<'de> Deserialize<'de> for Types {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Types;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of types")
            }
            fn visit_str<E>(self, text: &str) -> Result<Types, E> {
                Ok(Types(vec![text.to_owned()]))
            }
            fn visit_unit<E>(self) -> Result<Types, E> {
                Ok(Types::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Types, A::Error> {
                let mut names = Vec::new();
                while let Some(Types(inner)) = seq.next_element()? {
                    names.extend(inner);
                }
                Ok(Types(names))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// An op of the host.
#[derive(Clone, Debug)]
pub(super) struct HostOp {
    pub name: u32,
    pub thread: Id,
    pub start: f64,
    pub end: f64,
    pub external: Option<i64>,
    pub record: Option<i64>,
    /// Dimensions of its inputs, and bytes of their elements.
    pub inputs: Vec<(Vec<u64>, u64)>,
    /// What it makes anew, as far as its name and shapes tell: bytes.
    outputs: Vec<u64>,
}

/// Work on the device.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub name: u32,
    pub kind: WorkKind,
    pub start: f64,
    pub duration: f64,
    pub stream: Id,
    pub correlation: Option<i64>,
    pub external: Option<i64>,
    pub bytes: u64,
    device: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKind {
    Kernel,
    CopyIn,
    Copy,
    Set,
}

/// A call of the runtime.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub correlation: i64,
    pub thread: Id,
    pub start: f64,
    pub waits: bool,
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    time: f64,
    thread: Id,
    bytes: i64,
    address: Option<i64>,
    device: Option<i64>,
}

/// What is kept of a trace.
#[derive(Default)]
pub(super) struct Trace {
    pub names: Vec<String>,
    pub ops: Vec<HostOp>,
    pub work: Vec<Work>,
    pub calls: Vec<Call>,
    memory: Vec<Memory>,
    /// Starts of profiler steps.
    steps: Vec<f64>,
    optimizer_ends: Vec<f64>,
    /// The steps are taken from the optimizer.
    steps_assumed: bool,
    events: u64,
    devices: BTreeMap<i64, u64>,
    other_devices: u64,
    device_name: Option<String>,
    interned: HashMap<String, u32>,
}

impl Trace {
    fn intern(&mut self, name: &str) -> u32 {
        if let Some(id) = self.interned.get(name) {
            return *id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.interned.insert(name.to_owned(), id);
        id
    }

    fn add(&mut self, event: Event) {
        self.events += 1;
        let name = event.name.as_deref().unwrap_or_default();
        let cat = event.cat.as_deref().unwrap_or_default();
        let args = event.args.unwrap_or_default();
        let (ts, dur) = (event.ts.0, event.dur.0);
        if !(ts.is_finite() && dur.is_finite()) {
            return;
        }
        let end = ts + dur.max(0.0);
        match (event.ph.as_deref().unwrap_or("X"), cat) {
            ("i" | "I", _) if name == "[memory]" => {
                if args.device_type.0 == Some(1)
                    && let Some(bytes) = args.memory_bytes.0
                {
                    self.memory.push(Memory {
                        time: ts,
                        thread: event.tid,
                        bytes,
                        address: args.address.0.filter(|address| *address != 0),
                        device: args.device_id.0,
                    });
                }
            }
            ("X", _) if name.starts_with("ProfilerStep#") && !cat.starts_with("gpu") => {
                self.steps.push(ts);
            }
            ("X", _) if name.starts_with("Optimizer.step#") && !cat.starts_with("gpu") => {
                self.optimizer_ends.push(end);
            }
            ("X", "cpu_op" | "Operator") => {
                let mut types = args.types.0.into_iter();
                let dims = args.dims.0;
                let element = types.as_slice().first().map_or(4, |name| element_bytes(name));
                let outputs = outputs(name, &dims, &lists(name, &args.concrete.0))
                    .iter()
                    .filter_map(|dims| bytes(dims, element))
                    .collect();
                let inputs = dims
                    .into_iter()
                    .map(|dims| {
                        let element = types.next().map_or(4, |name| element_bytes(&name));
                        (dims, element)
                    })
                    .filter(|(dims, _)| !dims.is_empty())
                    .collect();
                let name = self.intern(name);
                self.ops.push(HostOp {
                    name,
                    thread: event.tid,
                    start: ts,
                    end,
                    external: args.external.0,
                    record: args.record.0,
                    inputs,
                    outputs,
                });
            }
            ("X", "cuda_runtime" | "cuda_driver" | "Runtime") => {
                if let Some(correlation) = args.correlation.0 {
                    self.calls.push(Call {
                        correlation,
                        thread: event.tid,
                        start: ts,
                        waits: matches!(
                            name,
                            "cudaDeviceSynchronize"
                                | "cudaStreamSynchronize"
                                | "cudaEventSynchronize"
                                | "cuStreamSynchronize"
                                | "cuCtxSynchronize"
                        ),
                    });
                }
            }
            ("X", "kernel" | "Kernel" | "gpu_memcpy" | "Memcpy" | "gpu_memset" | "Memset") => {
                let kind = match cat {
                    "kernel" | "Kernel" => WorkKind::Kernel,
                    "gpu_memset" | "Memset" => WorkKind::Set,
                    _ if name.contains("HtoD") => WorkKind::CopyIn,
                    _ => WorkKind::Copy,
                };
                let device = args.device.0.unwrap_or(0);
                *self.devices.entry(device).or_default() += 1;
                let name = self.intern(name);
                self.work.push(Work {
                    name,
                    kind,
                    start: ts,
                    duration: dur.max(0.0),
                    stream: args.stream,
                    correlation: args.correlation.0,
                    external: args.external.0,
                    bytes: args.bytes.0.and_then(|bytes| bytes.try_into().ok()).unwrap_or(0),
                    device,
                });
            }
            _ => {}
        }
    }
}

/// The lists of numbers among the values of a convolution's arguments, by place; of other ops nothing.
fn lists(name: &str, concrete: &[String]) -> Vec<Vec<u64>> {
    if !name.contains("conv") {
        return Vec::new();
    }
    let list = |text: &String| {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let numbers = inner.unwrap_or_default().split(',');
        numbers.filter_map(|number| number.trim().parse().ok()).collect()
    };
    concrete.iter().take(16).map(list).collect()
}

/// Feeds events to a trace as they are read.
struct Events<'a> {
    trace: &'a mut Trace,
    limit: u64,
}

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of trace events")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(event) = seq.next_element::<Event>()? {
            if self.trace.events >= self.limit {
                return Err(serde::de::Error::custom(format!("{TOO_MANY}events")));
            }
            self.trace.add(event);
        }
        Ok(())
    }
}

/// The whole file: an object with the events, or only their list.
struct Whole<'a>(&'a mut Trace, u64);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with \"traceEvents\", or a list of events")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        Events {
            trace: self.0,
            limit: self.1,
        }
        .visit_seq(seq)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        #[derive(Deserialize)]
        struct DeviceProperties {
            #[serde(default)]
            name: Option<String>,
        }
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => map.next_value_seed(Events {
                    trace: self.0,
                    limit: self.1,
                })?,
                "deviceProperties" => {
                    let devices: Vec<DeviceProperties> = map.next_value()?;
                    self.0.device_name = devices.into_iter().next().and_then(|device| device.name);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Reads a trace.
pub(super) fn read(file: &Path, limits: &Limits) -> Result<Trace, ImportError> {
    let reader = source::open(file, limits)?;
    let mut trace = Trace::default();
    let mut json = serde_json::Deserializer::from_reader(reader);
    json.deserialize_any(Whole(&mut trace, limits.max_events))
        .and_then(|()| json.end())
        .map_err(|error| source::json_error(file, FORMAT, &error, limits))?;
    // One device is simulated: that with the most work, the first of equals.
    if trace.devices.len() > 1 {
        let most = trace.devices.values().copied().max().unwrap_or(0);
        let device = trace.devices.iter().find(|(_, work)| **work == most);
        if let Some((&device, _)) = device {
            trace.work.retain(|work| work.device == device);
            trace
                .memory
                .retain(|event| event.device.is_none_or(|other| other == device));
        }
        trace.other_devices = trace.devices.values().sum::<u64>() - most;
    }
    trace
        .ops
        .sort_by(|a, b| a.start.total_cmp(&b.start).then(b.end.total_cmp(&a.end)));
    trace.work.sort_by(|a, b| a.start.total_cmp(&b.start));
    trace.calls.sort_by(|a, b| a.start.total_cmp(&b.start));
    trace.memory.sort_by(|a, b| a.time.total_cmp(&b.time));
    trace.steps.sort_by(f64::total_cmp);
    trace.optimizer_ends.sort_by(f64::total_cmp);
    if trace.steps.is_empty() && trace.optimizer_ends.len() > 1 {
        // From the end of one optimizer step to that of the next; before the first one begins the first.
        trace.steps_assumed = true;
        let last = trace.work.last().map_or(f64::MIN, |work| work.start);
        trace.steps = std::iter::once(f64::MIN)
            .chain(trace.optimizer_ends.iter().copied())
            .filter(|time| *time < last)
            .collect();
    }
    Ok(trace)
}

/// Which op launched each piece of work, and when; and how many links of each kind there were.
pub(super) struct Links {
    /// By index of the work: its op and the time of its launch.
    pub of: Vec<(Option<u32>, f64)>,
    pub by_call: u64,
    pub by_id: u64,
    pub without: u64,
}

pub(super) fn link(trace: &Trace) -> Links {
    let calls: HashMap<i64, Call> = trace.calls.iter().map(|call| (call.correlation, *call)).collect();
    let by_external: HashMap<i64, u32> = (0..)
        .zip(&trace.ops)
        .filter_map(|(at, op)| Some((op.external?, at)))
        .collect();
    // The innermost op around each call: calls and ops of a thread in order of time, with a stack.
    let mut wanted: HashMap<Id, Vec<(f64, usize)>> = HashMap::new();
    let mut of: Vec<(Option<u32>, f64)> = Vec::with_capacity(trace.work.len());
    for (at, work) in trace.work.iter().enumerate() {
        let call = work.correlation.and_then(|correlation| calls.get(&correlation));
        of.push((None, call.map_or(work.start, |call| call.start)));
        if let Some(call) = call {
            wanted.entry(call.thread).or_default().push((call.start, at));
        }
    }
    let mut by_thread: HashMap<Id, Vec<u32>> = HashMap::new();
    for (at, op) in (0..).zip(&trace.ops) {
        by_thread.entry(op.thread).or_default().push(at);
    }
    let (mut by_call, mut by_id, mut without) = (0, 0, 0);
    for (thread, mut times) in wanted {
        times.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let ops = by_thread.get(&thread).map_or(&[][..], Vec::as_slice);
        let (mut next, mut stack) = (0, Vec::<u32>::new());
        for (time, work) in times {
            while let Some(&op) = ops.get(next).filter(|op| trace.ops[**op as usize].start <= time) {
                while stack
                    .last()
                    .is_some_and(|top| trace.ops[*top as usize].end <= trace.ops[op as usize].start)
                {
                    stack.pop();
                }
                stack.push(op);
                next += 1;
            }
            while stack
                .last()
                .is_some_and(|top| trace.ops[*top as usize].end < time)
            {
                stack.pop();
            }
            if let Some(op) = stack.last() {
                of[work].0 = Some(*op);
                by_call += 1;
            }
        }
    }
    for (at, work) in trace.work.iter().enumerate() {
        if of[at].0.is_none() {
            of[at].0 = work.external.and_then(|id| by_external.get(&id)).copied();
            if of[at].0.is_some() {
                by_id += 1;
            } else {
                without += 1;
            }
        }
    }
    Links {
        of,
        by_call,
        by_id,
        without,
    }
}

/// Live tensors, findable by address and by size.
#[derive(Default)]
struct LiveSet {
    by_address: HashMap<i64, Tensor>,
    /// Tensors by size, oldest first.
    by_size: BTreeMap<u64, Vec<Tensor>>,
    /// Those that existed before the recording.
    before: BTreeMap<u64, Vec<Tensor>>,
}

impl LiveSet {
    fn add(&mut self, tensor: Tensor, bytes: u64) {
        self.by_size.entry(bytes).or_default().push(tensor);
    }

    fn remove(&mut self, tensor: Tensor, bytes: u64) {
        if let Some(list) = self.by_size.get_mut(&bytes) {
            list.retain(|other| *other != tensor);
            if list.is_empty() {
                self.by_size.remove(&bytes);
            }
        }
    }

    /// The most recent tensor whose block a request of `bytes` would get: rounded to 512, or with the
    /// slack that unsplit blocks have, up to 1 MiB; `skip` are taken.
    fn find(&self, bytes: u64, skip: &[Tensor]) -> Option<Tensor> {
        let least = bytes.next_multiple_of(512);
        let most = if least > 1 << 20 { least + (1 << 20) } else { least };
        self.by_size
            .range(least..=most)
            .flat_map(|(_, list)| list.iter().rev())
            .find(|tensor| !skip.contains(tensor))
            .copied()
    }
}

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
    let mut builder = Builder::new(&stem, FORMAT);
    let mut live = LiveSet::default();
    let mut counts = Counts::default();

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

    // What each op allocated on its thread and did not free before its end.
    let kept = kept_by_op(&trace, &links);
    let mut tensor_of: HashMap<usize, Tensor> = HashMap::new();
    // Without memory events: what each op makes by its name and shapes.
    let inferring = trace.memory.is_empty();
    let mut made: HashMap<u32, Vec<Tensor>> = HashMap::new();
    let mut streams: HashMap<Id, u32> = HashMap::new();
    for (_, _, step) in steps {
        match step {
            Step::Iteration => builder.iteration(),
            Step::Wait => {
                if builder.in_iteration() {
                    builder.sync();
                }
            }
            Step::Memory(at) => {
                let event = trace.memory[at];
                let bytes = event.bytes.unsigned_abs();
                if event.bytes > 0 {
                    let tensor = builder.alloc(bytes);
                    live.add(tensor, bytes);
                    if let Some(address) = event.address {
                        live.by_address.insert(address, tensor);
                    }
                    tensor_of.insert(at, tensor);
                } else {
                    let found = match event.address {
                        Some(address) => live.by_address.remove(&address),
                        // Without addresses: the youngest of that size.
                        None => live.by_size.get(&bytes).and_then(|list| list.last()).copied(),
                    };
                    if let Some(tensor) = found {
                        live.remove(tensor, builder.size(tensor).unwrap_or(bytes));
                        builder.free(tensor);
                    } else {
                        counts.frees_of_older += 1;
                    }
                }
            }
            Step::Work(at) => {
                let work = &trace.work[at];
                let next = streams.len() as u32;
                let stream = *streams.entry(work.stream).or_insert(next);
                if work.kind == WorkKind::CopyIn {
                    let bytes = work.bytes.max(1);
                    let tensor = live
                        .find(bytes, &[])
                        .unwrap_or_else(|| before(&mut live, &mut builder, &mut counts, bytes, 0));
                    builder.copy_in(vec![Piece(
                        tensor,
                        0,
                        bytes.min(builder.size(tensor).unwrap_or(bytes)),
                    )]);
                    counts.copies_in += 1;
                    continue;
                }
                let op = links.of[at].0.map(|op| &trace.ops[op as usize]);
                let name = op.map_or_else(
                    || trace.names[work.name as usize].as_str(),
                    |op| trace.names[op.name as usize].as_str(),
                );
                let mut writes: Vec<Piece> = links.of[at]
                    .0
                    .and_then(|op| kept.get(&op))
                    .into_iter()
                    .flatten()
                    .filter_map(|event| tensor_of.get(event))
                    .filter_map(|tensor| builder.whole(*tensor))
                    .collect();
                let mut reads = Vec::new();
                if let Some(id) = links.of[at]
                    .0
                    .filter(|_| inferring && work.kind == WorkKind::Kernel)
                {
                    let made = made.entry(id).or_insert_with(|| {
                        let outputs = trace.ops[id as usize].outputs.iter();
                        outputs
                            .map(|bytes| builder.alloc_until_last_use(*bytes))
                            .collect()
                    });
                    for tensor in made.iter() {
                        let size = builder.size(*tensor).unwrap_or(1);
                        if !live.by_size.get(&size).is_some_and(|list| list.contains(tensor)) {
                            live.add(*tensor, size);
                            counts.inferred += 1;
                            counts.inferred_bytes += size;
                        }
                        writes.extend(builder.whole(*tensor));
                    }
                }
                // An input is not what the op has just made.
                let mut taken: Vec<Tensor> = writes.iter().map(|write| write.0).collect();
                let mut seen: HashMap<u64, usize> = HashMap::new();
                for (dims, element) in op.map_or(&[][..], |op| op.inputs.as_slice()) {
                    let Some(bytes) = bytes(dims, *element) else {
                        continue;
                    };
                    let nth = seen.entry(bytes).or_default();
                    let tensor = live
                        .find(bytes, &taken)
                        .unwrap_or_else(|| before(&mut live, &mut builder, &mut counts, bytes, *nth));
                    *nth += 1;
                    taken.push(tensor);
                    let size = builder.size(tensor).unwrap_or(bytes);
                    reads.push(Piece(tensor, 0, bytes.min(size)));
                }
                if writes.is_empty() && is_in_place(name) {
                    let list = name.contains("_foreach_") || name.contains("_fused_");
                    writes.extend(reads.iter().take(if list { reads.len() } else { 1 }));
                }
                if work.kind == WorkKind::Set && writes.is_empty() && work.bytes > 0 {
                    let tensor = live
                        .find(work.bytes, &[])
                        .unwrap_or_else(|| before(&mut live, &mut builder, &mut counts, work.bytes, 0));
                    writes.push(Piece(tensor, 0, work.bytes));
                }
                if reads.is_empty() && writes.is_empty() {
                    // The time counts all the same.
                    let page = before(&mut live, &mut builder, &mut counts, 4096, 0);
                    reads.push(Piece(page, 0, 4096));
                    counts.without_operands += 1;
                }
                let dims: Vec<Vec<u64>> = op
                    .map_or(&[][..], |op| op.inputs.as_slice())
                    .iter()
                    .map(|(dims, _)| dims.clone())
                    .collect();
                builder.kernel(NewKernel {
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
        }
    }
    describe(&mut builder, &trace, &links, &counts);
    Ok(builder.finish())
}

#[derive(Default)]
struct Counts {
    frees_of_older: u64,
    copies_in: u64,
    without_operands: u64,
    before: u64,
    before_bytes: u64,
    inferred: u64,
    inferred_bytes: u64,
}

/// The `nth` tensor of that size that existed before the recording.
fn before(live: &mut LiveSet, builder: &mut Builder, counts: &mut Counts, bytes: u64, nth: usize) -> Tensor {
    let list = live.before.entry(bytes).or_default();
    while list.len() <= nth {
        list.push(builder.alloc_before(bytes));
        counts.before += 1;
        counts.before_bytes += bytes;
    }
    list[nth]
}

/// By op: the indices of its allocations that were not freed before it ended.
fn kept_by_op(trace: &Trace, links: &Links) -> HashMap<u32, Vec<usize>> {
    let mut wanted: Vec<u32> = links.of.iter().filter_map(|link| link.0).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut by_thread: HashMap<Id, Vec<usize>> = HashMap::new();
    for (at, event) in trace.memory.iter().enumerate() {
        by_thread.entry(event.thread).or_default().push(at);
    }
    let mut kept = HashMap::new();
    for id in wanted {
        let op = &trace.ops[id as usize];
        let Some(events) = by_thread.get(&op.thread) else {
            continue;
        };
        let first = events.partition_point(|at| trace.memory[*at].time < op.start);
        let mut allocated: Vec<usize> = Vec::new();
        for &at in &events[first..] {
            let event = trace.memory[at];
            if event.time > op.end {
                break;
            }
            if event.bytes > 0 {
                allocated.push(at);
            } else if let Some(place) = allocated.iter().rposition(|other| {
                let other = trace.memory[*other];
                match (other.address, event.address) {
                    (Some(a), Some(b)) => a == b,
                    _ => other.bytes == -event.bytes,
                }
            }) {
                allocated.remove(place);
            }
        }
        if !allocated.is_empty() {
            kept.insert(id, allocated);
        }
    }
    kept
}

fn describe(builder: &mut Builder, trace: &Trace, links: &Links, counts: &Counts) {
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
        "what a kernel reads: tensors of its op's input sizes, the most recent first; what it writes: what its op \
         allocated and kept, or its inputs if it works in place"
            .to_owned(),
    );
    assume(
        counts.before,
        format!(
            "{} tensors of {} bytes existed before the recording: inputs that match nothing allocated in it",
            counts.before, counts.before_bytes
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
