//! Workloads of the G10 artifact as this project converted them (`g10-workload-v1`): the tensors and
//! kernels of one training iteration, with measured times.

use crate::math::Math;
use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;

use super::builder::{Builder, NewKernel};
use super::source::{self, Limits};
use super::{ImportError, Imported};

const FORMAT: &str = "a G10 workload (g10-workload-v1)";

#[derive(Deserialize)]
struct File {
    meta: Meta,
    tensors: Vec<TensorRow>,
    kernels: Vec<KernelRow>,
}

#[derive(Deserialize)]
struct Meta {
    format: String,
    model: String,
    batch_size: u64,
}

#[derive(Deserialize)]
struct TensorRow {
    id: u64,
    bytes: u64,
    global: bool,
    #[serde(default)]
    first_use: Option<u64>,
    #[serde(default)]
    last_use: Option<u64>,
}

#[derive(Deserialize)]
struct KernelRow {
    id: u64,
    name: String,
    duration_us: f64,
    inputs: Vec<u64>,
    outputs: Vec<u64>,
    #[serde(default)]
    flops: Option<u64>,
}

/// Imports a workload.
///
/// # Errors
/// Where the file breaks.
pub fn import(file: &Path, limits: &Limits) -> Result<Imported, ImportError> {
    let reader = source::open(file, limits)?;
    let data: File =
        serde_json::from_reader(reader).map_err(|error| source::json_error(file, FORMAT, &error, limits))?;
    let malformed = |place: String, what: String| ImportError::Malformed {
        file: file.to_path_buf(),
        format: FORMAT,
        place,
        what,
    };
    if data.meta.format != "g10-workload-v1" {
        let what = format!("{:?}; accepted: \"g10-workload-v1\"", data.meta.format);
        return Err(malformed("meta.format".to_owned(), what));
    }
    let name = format!("{}-bs{}", data.meta.model, data.meta.batch_size);
    let mut builder = Builder::new(&name, FORMAT);
    let kernels = data.kernels.len() as u64;
    // By number: where it begins and ends; global tensors live across iterations.
    let mut tensors = Vec::with_capacity(data.tensors.len());
    let (mut begins, mut ends) = (
        vec![Vec::new(); data.kernels.len()],
        vec![Vec::new(); data.kernels.len()],
    );
    for (at, row) in data.tensors.iter().enumerate() {
        let place = || format!("tensors[{at}]");
        if row.id != at as u64 {
            return Err(malformed(place(), format!("id {} is not its position", row.id)));
        }
        if row.bytes == 0 || row.bytes > 1 << 50 {
            return Err(malformed(place(), format!("{} bytes", row.bytes)));
        }
        tensors.push(None);
        if row.global {
            tensors[at] = Some(builder.alloc_before(row.bytes));
            continue;
        }
        let (Some(first), Some(last)) = (row.first_use, row.last_use) else {
            continue;
        };
        if first > last || last >= kernels {
            return Err(malformed(
                place(),
                format!("used from kernel {first} to {last} of {kernels}"),
            ));
        }
        begins[first as usize].push(at);
        ends[last as usize].push(at);
    }
    builder.iteration();
    let mut cold = 0_u64;
    for (at, row) in data.kernels.iter().enumerate() {
        let place = || format!("kernels[{at}]");
        if row.id != at as u64 {
            return Err(malformed(place(), format!("id {} is not its position", row.id)));
        }
        if !(row.duration_us.is_finite() && (0.0..1e12).contains(&row.duration_us)) {
            return Err(malformed(place(), format!("duration_us = {}", row.duration_us)));
        }
        for &tensor in &begins[at] {
            tensors[tensor] = Some(builder.alloc(data.tensors[tensor].bytes));
        }
        let pieces = |list: &[u64]| {
            let mut seen = HashSet::new();
            let mut pieces = Vec::with_capacity(list.len());
            for id in list.iter().filter(|id| seen.insert(**id)) {
                let tensor = tensors.get(*id as usize).copied().flatten();
                let piece = tensor.and_then(|tensor| builder.whole(tensor)).ok_or_else(|| {
                    let what = format!("tensor {id} is not there, or not live at this kernel");
                    malformed(place(), what)
                })?;
                pieces.push(piece);
            }
            Ok::<_, ImportError>(pieces)
        };
        let (reads, writes) = (pieces(&row.inputs)?, pieces(&row.outputs)?);
        cold += u64::from(row.duration_us > 50_000.0);
        builder.kernel(NewKernel {
            name: &row.name,
            reads,
            writes,
            flops: row.flops.unwrap_or(0),
            math: Math::Fp32,
            ns: Some((row.duration_us * 1000.0).round() as u64),
            launches: 1,
            ..NewKernel::default()
        });
        for &tensor in &ends[at] {
            if let Some(tensor) = tensors[tensor] {
                builder.free(tensor);
            }
        }
    }
    let report = builder.report();
    report.facts.push(("model".to_owned(), name));
    report
        .assumed
        .push("a tensor lives from its first to its last use; global ones always".to_owned());
    report
        .assumed
        .push("sizes are rounded up to 4 KiB, as the artifact has them".to_owned());
    if cold > 0 {
        report.assumed.push(format!(
            "{cold} kernels take more than 50 ms: the artifact timed single cold runs, often far above what a GPU needs"
        ));
    }
    builder.finish(file)
}
