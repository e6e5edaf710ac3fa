//! What is kept of a trace, read as a stream of events.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::lenient::{Dims, Id, Int, Real};
use super::super::operands::{bytes, element_bytes, outputs};
use super::super::source::{self, Limits, TOO_MANY};
use super::{FORMAT, ImportError};

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
    #[serde(default, rename = "Sequence number")]
    sequence: Int,
    #[serde(default, rename = "Fwd thread id")]
    forward_thread: Int,
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
pub struct HostOp {
    pub name: u32,
    pub thread: Id,
    pub start: f64,
    pub end: f64,
    pub external: Option<i64>,
    pub record: Option<i64>,
    /// Dimensions of its inputs, and bytes of their elements.
    pub inputs: Vec<(Vec<u64>, u64)>,
    /// What it makes anew, as far as its name and shapes tell: bytes.
    pub outputs: Vec<u64>,
    pub autograd: Option<Autograd>,
}

/// An op's place in autograd's order: an op of the backward pass has the number of that of the forward pass
/// whose gradient it computes. Ops of the forward pass that need no gradient share the number of the next that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Autograd {
    pub number: i64,
    pub backward: bool,
}

/// Work on the device.
#[derive(Clone, Debug)]
pub struct Work {
    pub name: u32,
    pub kind: WorkKind,
    pub start: f64,
    pub duration: f64,
    pub stream: Id,
    pub correlation: Option<i64>,
    pub external: Option<i64>,
    pub bytes: u64,
    pub device: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    Kernel,
    CopyIn,
    Copy,
    Set,
}

/// A call of the runtime.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub correlation: i64,
    pub thread: Id,
    pub start: f64,
    pub waits: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub time: f64,
    pub thread: Id,
    pub bytes: i64,
    pub address: Option<i64>,
    device: Option<i64>,
}

/// What is kept of a trace.
#[derive(Default)]
pub struct Trace {
    pub names: Vec<String>,
    pub ops: Vec<HostOp>,
    pub work: Vec<Work>,
    pub calls: Vec<Call>,
    pub memory: Vec<Memory>,
    /// Starts of profiler steps.
    pub steps: Vec<f64>,
    optimizer_ends: Vec<f64>,
    /// The steps are taken from the optimizer.
    pub steps_assumed: bool,
    pub events: u64,
    pub devices: BTreeMap<i64, u64>,
    pub other_devices: u64,
    pub device_name: Option<String>,
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
                    autograd: args.sequence.0.map(|number| Autograd {
                        number,
                        // Its thread is named only where it is another's gradient.
                        backward: args.forward_thread.0.is_some_and(|thread| thread > 0),
                    }),
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
pub fn read(file: &Path, limits: &Limits) -> Result<Trace, ImportError> {
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
