//! PyTorch execution traces (Chakra host traces), schemas 1.0.1 to 1.1.1: ops in order with the tensors
//! they take and return; with a Kineto trace of the same run also durations.
//!
//! Tensors are storages. Their ids are addresses, used again after a free: a storage begins a new life at
//! every op that returns it without having taken it, and a life ends at its last use. An op runs a kernel
//! if it touches a tensor of the device, is neither view nor allocation, and none of its children runs one.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::builder::{Builder, NewKernel, Tensor};
use super::kineto::{self, WorkKind};
use super::lenient::{Dims, Int};
use super::operands::{flops, is_in_place, is_view};
use super::source::{self, Limits, TOO_MANY};
use super::{ImportError, Imported};
use crate::class::multiplies;
use crate::math::Math;
use crate::program::Piece;

const FORMAT: &str = "a PyTorch execution trace (Chakra host trace)";

/// Inputs or outputs: a plain list in schema 1.0.1, an object later.
#[derive(Default)]
struct Values {
    storages: Vec<Storage>,
    shapes: Dims,
    types: Types,
}

/// Arithmetic of products of operands of these types: the first type below single precision decides.
#[derive(Clone, Copy, Default)]
struct Types(Math);

impl<'de> Deserialize<'de> for Types {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn of(value: &Value) -> Option<Math> {
            match value {
                Value::String(name) if name.contains("BFloat16") => Some(Math::Bf16),
                Value::String(name) if name.contains("Half") => Some(Math::Fp16),
                Value::Array(items) => items.iter().find_map(of),
                _ => None,
            }
        }
        Value::deserialize(deserializer).map(|value| Types(of(&value).unwrap_or_default()))
    }
}

/// A tensor of the device: its storage and the bytes of it that the view covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Storage {
    id: u64,
    offset: u64,
    bytes: u64,
}

/// Collects the tensors of a value: `[tensor, storage, offset, numel, itemsize, device]`, lists nest.
fn collect(value: &Value, out: &mut Vec<Storage>, depth: u32) {
    let Value::Array(items) = value else { return };
    if let [_, storage, offset, numel, item, device] = items.as_slice()
        && let (Some(id), Some(offset), Some(numel), Some(item), Some(device)) = (
            storage.as_u64(),
            offset.as_u64(),
            numel.as_u64(),
            item.as_u64(),
            device.as_str(),
        )
    {
        let bytes = numel.checked_mul(item).filter(|bytes| *bytes < 1 << 50);
        let offset = offset.checked_mul(item).filter(|offset| *offset < 1 << 50);
        // "meta" is the device of recordings without a GPU.
        let on_device = device.starts_with("cuda") || device.starts_with("meta");
        if let (true, Some(bytes @ 1..), Some(offset)) = (on_device, bytes, offset) {
            out.push(Storage { id, offset, bytes });
        }
        return;
    }
    if depth < 16 {
        for item in items {
            collect(item, out, depth + 1);
        }
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Values;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("values of a node")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Values, A::Error> {
                let mut values = Values::default();
                while let Some(value) = seq.next_element::<Value>()? {
                    collect(&value, &mut values.storages, 0);
                }
                Ok(values)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Values, A::Error> {
                let mut values = Values::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "values" => {
                            for value in map.next_value::<Vec<Value>>()? {
                                collect(&value, &mut values.storages, 0);
                            }
                        }
                        "shapes" => values.shapes = map.next_value()?,
                        "types" => values.types = map.next_value()?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(values)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[derive(Deserialize)]
struct Attribute {
    #[serde(default)]
    name: String,
    #[serde(default)]
    value: Value,
}

#[derive(Deserialize)]
struct RawNode {
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(default)]
    parent: Int,
    #[serde(default)]
    ctrl_deps: Int,
    #[serde(default)]
    inputs: Values,
    #[serde(default)]
    input_shapes: Dims,
    #[serde(default)]
    input_types: Types,
    #[serde(default)]
    outputs: Values,
    #[serde(default)]
    rf_id: Int,
    #[serde(default)]
    attrs: Vec<Attribute>,
}

#[derive(Clone, Debug)]
struct Node {
    id: u64,
    name: String,
    parent: u64,
    record: Option<i64>,
    /// Made by a compiler: a kernel whatever its name.
    compiled: bool,
    inputs: Vec<Storage>,
    outputs: Vec<Storage>,
    shapes: Vec<Vec<u64>>,
    /// Arithmetic of its FLOPs.
    math: Math,
}

#[derive(Default)]
struct Trace {
    schema: String,
    nodes: Vec<Node>,
}

struct Nodes<'a>(&'a mut Vec<Node>, u64);

impl<'de> DeserializeSeed<'de> for Nodes<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Nodes<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of nodes")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(raw) = seq.next_element::<RawNode>()? {
            if self.0.len() as u64 >= self.1 {
                return Err(serde::de::Error::custom(format!("{TOO_MANY}nodes")));
            }
            let record = raw.rf_id.0.or_else(|| {
                let attribute = raw.attrs.iter().find(|attribute| attribute.name == "rf_id")?;
                attribute.value.as_i64()
            });
            let compiled = raw.attrs.iter().any(|attribute| {
                attribute.name == "kernel_backend"
                    && attribute.value.as_str().is_some_and(|text| !text.is_empty())
            });
            let parent = raw.ctrl_deps.0.or(raw.parent.0).unwrap_or(0);
            let shapes = if raw.inputs.shapes.0.is_empty() {
                raw.input_shapes.0
            } else {
                raw.inputs.shapes.0
            };
            let mut math = raw.inputs.types.0;
            if math.is_fp32() {
                math = raw.input_types.0;
            }
            if !multiplies(&raw.name) {
                math = Math::Fp32;
            }
            self.0.push(Node {
                math,
                id: raw.id,
                name: raw.name,
                parent: u64::from_ne_bytes(parent.to_ne_bytes()),
                record,
                compiled,
                inputs: raw.inputs.storages,
                outputs: raw.outputs.storages,
                shapes,
            });
        }
        Ok(())
    }
}

struct Whole<'a>(&'a mut Trace, u64);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with \"schema\" and \"nodes\"")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "schema" => self.0.schema = map.next_value()?,
                "nodes" => {
                    seen = true;
                    map.next_value_seed(Nodes(&mut self.0.nodes, self.1))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if seen {
            Ok(())
        } else {
            Err(serde::de::Error::custom("there are no \"nodes\""))
        }
    }
}

fn read(file: &Path, limits: &Limits) -> Result<Trace, ImportError> {
    let reader = source::open(file, limits)?;
    let mut trace = Trace::default();
    let mut json = serde_json::Deserializer::from_reader(reader);
    json.deserialize_map(Whole(&mut trace, limits.max_events))
        .and_then(|()| json.end())
        .map_err(|error| source::json_error(file, FORMAT, &error, limits))?;
    // Nodes are written when they return; ids are in order of their start.
    trace.nodes.sort_by_key(|node| node.id);
    Ok(trace)
}

/// Imports an execution trace, with the durations of a Kineto trace of the same run if there is one.
///
/// # Errors
/// Where a file breaks, and what to try.
pub fn import(file: &Path, kineto: Option<&Path>, limits: &Limits) -> Result<Imported, ImportError> {
    let trace = read(file, limits)?;
    let profile = kineto.map(|file| kineto::read(file, limits)).transpose()?;
    let leaves = acting(&trace.nodes);
    if !leaves.iter().any(|(_, runs)| *runs) {
        return Err(ImportError::Malformed {
            file: file.to_path_buf(),
            format: FORMAT,
            place: format!("{} nodes", trace.nodes.len()),
            what: "no op of them works on a tensor of a GPU; was the run on the CPU?".to_owned(),
        });
    }
    let durations = profile.as_ref().map(|profile| match_durations(&trace, profile));
    let lives = Lives::of(&leaves);
    let mut builder = Builder::new(&super::builder_name(file), FORMAT);
    let mut tensors: HashMap<usize, Tensor> = HashMap::new();
    let mut copies_in = 0_u64;
    let mut matched = 0_u64;
    for (at, life) in lives.all.iter().enumerate() {
        if life.before {
            tensors.insert(at, builder.alloc_before(life.bytes));
        }
    }
    let boundaries = iterations(&trace.nodes, &leaves);
    builder.iteration();
    for (place, (node, runs)) in leaves.iter().enumerate() {
        if boundaries.contains(&place) {
            builder.iteration();
        }
        for &life in lives.beginning_at(place) {
            let bytes = lives.all[life].bytes;
            tensors.insert(life, builder.alloc(bytes));
        }
        let pieces = |storages: &[Storage], outputs: bool| {
            let mut pieces: Vec<Piece> = Vec::new();
            for storage in storages {
                let Some(tensor) = lives
                    .at(place, storage.id, outputs)
                    .and_then(|life| tensors.get(&life))
                else {
                    continue;
                };
                let piece = Piece(*tensor, storage.offset, storage.bytes);
                if !pieces.contains(&piece) {
                    pieces.push(piece);
                }
            }
            pieces
        };
        if *runs {
            let reads = pieces(&node.inputs, false);
            let mut writes = pieces(&node.outputs, true);
            if writes.is_empty() && is_in_place(&node.name) {
                let list = node.name.contains("_foreach_") || node.name.contains("_fused_");
                writes.extend(reads.iter().take(if list { reads.len() } else { 1 }));
            }
            let timing = durations
                .as_ref()
                .and_then(|durations| durations.of.get(&node.id));
            if reads.is_empty()
                && (node.name == "aten::copy_" || node.name == "aten::_to_copy")
                && !writes.is_empty()
            {
                copies_in += 1;
                builder.copy_in(writes);
            } else if !(reads.is_empty() && writes.is_empty()) {
                matched += u64::from(timing.is_some());
                builder.kernel(NewKernel {
                    name: &node.name,
                    flops: flops(&node.name, &node.shapes),
                    math: node.math,
                    reads,
                    writes,
                    ns: timing.map(|(ns, _)| *ns),
                    stream: 0,
                    launches: timing.map_or(1, |(_, launches)| *launches),
                    ..NewKernel::default()
                });
            }
        }
        for &life in lives.ending_at(place) {
            if let Some(tensor) = tensors.get(&life) {
                builder.free(*tensor);
            }
        }
    }
    let kernels = builder.report().kernels;
    let report = builder.report();
    let mut fact = |name: &str, value: String| report.facts.push((name.to_owned(), value));
    fact("schema", trace.schema.clone());
    fact("nodes", trace.nodes.len().to_string());
    fact("ops on device tensors", leaves.len().to_string());
    fact(
        "  of these views and allocations",
        (leaves.len() as u64 - kernels - copies_in).to_string(),
    );
    fact("copies from the host", copies_in.to_string());
    fact("storages used for several tensors", lives.reused.to_string());
    if let Some(durations) = &durations {
        fact(
            "ops paired with the Kineto trace",
            format!("{} by {}", durations.paired, durations.how),
        );
        fact(
            "kernels with a recorded duration",
            format!("{matched} of {kernels}"),
        );
    }
    report.assumed.push(
        "a tensor lives from the op that returns it to its last use; one that is used first existed before"
            .to_owned(),
    );
    report.assumed.push(if boundaries.is_empty() {
        "all of it is one iteration on one stream".to_owned()
    } else {
        "an iteration ends with a profiler step or an optimizer step; all of it is on one stream".to_owned()
    });
    if profile.is_none() {
        report.missing.push(
            "durations: they come from FLOPs and bytes; add the Kineto trace of the same run".to_owned(),
        );
    } else if matched < kernels {
        report.missing.push(format!(
            "durations of {} kernels: they come from FLOPs and bytes",
            kernels - matched
        ));
    }
    builder.finish(file)
}

/// Can an op of this name run a kernel of its own?
fn may_run(node: &Node) -> bool {
    let name = node.name.as_str();
    if node.compiled || name.starts_with("nccl:") || name.starts_with("triton") {
        return true;
    }
    // Everything else that is an op has a namespace; ranges, autograd nodes and roots have none.
    let Some((space, op)) = name.split_once("::") else {
        return false;
    };
    let allocates = op.starts_with("empty") || op.starts_with("new_empty");
    // Without children these have found nothing to do.
    let idle = matches!(
        op,
        "to" | "contiguous" | "clone" | "item" | "zeros" | "ones" | "expand_as" | "pin_memory"
    );
    !(space.starts_with("autograd") || space.starts_with("profiler") || is_view(name) || allocates || idle)
}

/// The nodes that act on device tensors, in order, and which of them run kernels: the innermost ones that
/// can, and the leaves (views, allocations) that lie under none of these.
fn acting(nodes: &[Node]) -> Vec<(&Node, bool)> {
    let touches = |node: &Node| !(node.inputs.is_empty() && node.outputs.is_empty());
    let mut has_children = HashSet::new();
    let mut runs_inside = HashSet::new();
    let mut runs = vec![false; nodes.len()];
    // Children have larger ids than their parents.
    for (at, node) in nodes.iter().enumerate().rev() {
        runs[at] = !runs_inside.contains(&node.id) && may_run(node) && touches(node);
        if runs[at] || runs_inside.contains(&node.id) {
            runs_inside.insert(node.parent);
        }
        has_children.insert(node.parent);
    }
    let mut covered = HashSet::new();
    let mut acting = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let under = covered.contains(&node.parent);
        if under || runs[at] {
            covered.insert(node.id);
        }
        let leaf = !has_children.contains(&node.id);
        if !under && touches(node) && (runs[at] || leaf) {
            acting.push((node, runs[at]));
        }
    }
    acting
}

/// Places where a further iteration begins: at profiler steps, else after optimizer steps.
fn iterations(nodes: &[Node], acting: &[(&Node, bool)]) -> HashSet<usize> {
    let is_step = |node: &&Node| node.name.starts_with("ProfilerStep#");
    let steps: Vec<u64> = nodes.iter().filter(is_step).map(|node| node.id).collect();
    if steps.len() > 1 {
        // The first one begins the first iteration.
        return steps[1..]
            .iter()
            .map(|step| acting.partition_point(|(node, _)| node.id < *step))
            .filter(|place| (1..acting.len()).contains(place))
            .collect();
    }
    let mut inside = HashSet::new();
    for node in nodes {
        if node.name.starts_with("Optimizer.step#") || inside.contains(&node.parent) {
            inside.insert(node.id);
        }
    }
    acting
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| inside.contains(&pair[0].0.id) && !inside.contains(&pair[1].0.id))
        .map(|(at, _)| at + 1)
        .collect()
}

/// One life of a storage.
#[derive(Clone, Copy, Debug)]
struct Life {
    bytes: u64,
    first: usize,
    last: usize,
    before: bool,
}

/// The lives of all storages, by the places of leaf ops.
#[derive(Default)]
struct Lives {
    all: Vec<Life>,
    begins: HashMap<usize, Vec<usize>>,
    ends: HashMap<usize, Vec<usize>>,
    /// Per storage: its lives in order.
    of: HashMap<u64, Vec<usize>>,
    reused: u64,
}

impl Lives {
    fn of(leaves: &[(&Node, bool)]) -> Lives {
        let mut lives = Lives::default();
        for (place, (node, _)) in leaves.iter().enumerate() {
            let taken: HashSet<u64> = node.inputs.iter().map(|storage| storage.id).collect();
            for storage in &node.inputs {
                lives.touch(place, storage, false);
            }
            for storage in &node.outputs {
                lives.touch(place, storage, !taken.contains(&storage.id));
            }
        }
        for (at, life) in lives.all.iter().enumerate() {
            if !life.before {
                lives.begins.entry(life.first).or_default().push(at);
            }
            if !life.before {
                lives.ends.entry(life.last).or_default().push(at);
            }
        }
        lives.reused = lives.of.values().filter(|list| list.len() > 1).count() as u64;
        lives
    }

    fn touch(&mut self, place: usize, storage: &Storage, begins: bool) {
        let end = storage.offset + storage.bytes;
        let list = self.of.entry(storage.id).or_default();
        let current = list.last().copied();
        match current {
            // Two outputs of one op can be views of one new storage.
            Some(life) if !begins || self.all[life].first == place => {
                let life = &mut self.all[life];
                life.bytes = life.bytes.max(end);
                life.last = place;
            }
            _ => {
                list.push(self.all.len());
                self.all.push(Life {
                    bytes: end,
                    first: place,
                    last: place,
                    before: !begins,
                });
            }
        }
    }

    /// The life of a storage at a place: for an input the one before a new life that begins there.
    fn at(&self, place: usize, storage: u64, output: bool) -> Option<usize> {
        let list = self.of.get(&storage)?;
        list.iter()
            .rev()
            .find(|life| {
                let life = &self.all[**life];
                life.first < place || (life.first == place && (output || life.before))
            })
            .copied()
    }

    fn beginning_at(&self, place: usize) -> &[usize] {
        self.begins.get(&place).map_or(&[], Vec::as_slice)
    }

    fn ending_at(&self, place: usize) -> &[usize] {
        self.ends.get(&place).map_or(&[], Vec::as_slice)
    }
}

/// Durations of nodes.
struct Durations {
    /// By node: nanoseconds and launches.
    of: HashMap<u64, (u64, u32)>,
    paired: u64,
    how: &'static str,
}

/// Pairs nodes with host ops of the profile: by record function id where the names agree, else by
/// aligning the names in order of start (an execution trace covers a part of the profile).
fn match_durations(trace: &Trace, profile: &kineto::Trace) -> Durations {
    let links = kineto::link(profile);
    let mut work: HashMap<u32, (f64, u32)> = HashMap::new();
    for (link, piece) in links.of.iter().zip(&profile.work) {
        if let Some(op) = link.0
            && piece.kind == WorkKind::Kernel
        {
            let entry = work.entry(op).or_default();
            entry.0 += piece.duration;
            entry.1 += 1;
        }
    }
    let name = |op: usize| profile.names[profile.ops[op].name as usize].as_str();
    let by_record: HashMap<i64, usize> = profile
        .ops
        .iter()
        .enumerate()
        .filter_map(|(at, op)| Some((op.record?, at)))
        .collect();
    let mut pairs: Vec<(u64, usize)> = trace
        .nodes
        .iter()
        .filter_map(|node| {
            let op = *by_record.get(&node.record?)?;
            (name(op) == node.name).then_some((node.id, op))
        })
        .collect();
    let mut how = "record function id";
    if pairs.len() * 2 < trace.nodes.len() {
        how = "the order of names";
        let nodes: Vec<&Node> = trace
            .nodes
            .iter()
            .filter(|node| node.name.starts_with("aten::"))
            .collect();
        let ops: Vec<usize> = (0..profile.ops.len())
            .filter(|op| name(*op).starts_with("aten::"))
            .collect();
        let ours: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let theirs: Vec<&str> = ops.iter().map(|op| name(*op)).collect();
        pairs.clear();
        let changes = similar::capture_diff_slices(similar::Algorithm::Myers, &ours, &theirs);
        for change in changes {
            if let similar::DiffOp::Equal {
                old_index,
                new_index,
                len,
            } = change
            {
                pairs.extend((0..len).map(|i| (nodes[old_index + i].id, ops[new_index + i])));
            }
        }
    }
    let paired = pairs.len() as u64;
    let of = pairs
        .into_iter()
        .filter_map(|(node, op)| {
            let (us, launches) = work.get(&(op as u32))?;
            Some((node, ((us * 1000.0).round() as u64, *launches)))
        })
        .collect();
    Durations { of, paired, how }
}
