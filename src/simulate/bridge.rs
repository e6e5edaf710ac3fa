//! From sections to a machine and a program, and through the simulation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sim_core::Time;
use sim_core::pages::BLOCK_BYTES;
use workloads::allocator::{AllocatorKind, AllocatorSpec, Options};
use workloads::builtin::Builtin;
use workloads::model::{ModelError, ModelSpec, Style};
use workloads::program::{AdviceName, Op, Piece, Place, Recording};
use workloads::{GpuShape, HostOp, Program, ProgramError, Run};

use super::plan::plan;
use super::{CopyRow, Progress, RunResult, Simulate, SimulateError, figures};
use crate::config::sections::{Capacity, WorkloadSection};
use crate::config::{ResolvedConfig, Sections, pinned};
use crate::system::{Machine, Probe, SimError, System};

/// Root chunks beyond the footprint where memory is unlimited: the driver asks for 64 at a time.
const SPARE_CHUNKS: u64 = 128;

/// The end of simulated time, 13 days: beyond it the link's clock stands still.
const HORIZON: Time = Time(1 << 60);

/// The simulator; keeps programs that it has read.
#[derive(Debug, Default)]
pub struct Simulator {
    programs: Mutex<BTreeMap<PathBuf, Arc<Recording>>>,
}

/// What is run.
enum Work {
    Program(Arc<Recording>, AllocatorSpec),
}

#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` wants
fn input(error: impl ToString) -> SimulateError {
    SimulateError::Input(error.to_string())
}

impl From<SimError> for SimulateError {
    fn from(error: SimError) -> Self {
        match error {
            SimError::Invariant { .. } | SimError::Deadlock { .. } => {
                SimulateError::Internal(error.to_string())
            }
            _ => SimulateError::Input(error.to_string()),
        }
    }
}

impl Simulator {
    fn program(&self, path: &Path) -> Result<Arc<Recording>, SimulateError> {
        // Held while reading, so that no two threads read the same program.
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = programs.get(path) {
            return Ok(program.clone());
        }
        let program = Arc::new(workloads::program::open(path).map_err(|error| match error {
            ProgramError::Io { file, source } => input(format!(
                "workload.program: {file}: {}",
                crate::config::document::describe_io(&source)
            )),
            other => input(format!("workload.program: {other}")),
        })?);
        programs.insert(path.to_path_buf(), program.clone());
        Ok(program)
    }

    fn work(&self, config: &ResolvedConfig) -> Result<Work, SimulateError> {
        let workload = &config.workload;
        if let Some(path) = config.program_path() {
            return Ok(Work::Program(self.program(&path)?, allocator(workload)?));
        }
        if let Some(spec) = model_spec(config) {
            let program = spec
                .and_then(|spec| workloads::model::generate(&spec))
                .map_err(input)?;
            return Ok(Work::Program(Arc::new(program.into()), allocator(workload)?));
        }
        let Some(kernel) = &workload.kernel else {
            return Err(input(
                "nothing to run: give workload.program, workload.model or workload.kernel",
            ));
        };
        let builtin =
            Builtin::find(kernel).ok_or_else(|| input(format!("workload.kernel: no kernel {kernel:?}")))?;
        let mut program = builtin
            .program(&kernel_options(config), workload.arrays)
            .map_err(input)?;
        hints(&mut program, workload);
        Ok(Work::Program(
            Arc::new(program.into()),
            AllocatorKind::PerTensor.into(),
        ))
    }
}

/// Iterations of a generated model that differ: the first one makes the optimizer's state, and a program
/// goes on with its later iterations over and over.
const MODEL_ITERATIONS: u32 = 3;

/// The built-in model of `[workload]`, if one is named.
pub(crate) fn model_spec(config: &ResolvedConfig) -> Option<Result<ModelSpec, ModelError>> {
    let model = &config.model;
    // The choices of the keys are the names of the types.
    let mut spec = ModelSpec {
        name: model.model.clone()?,
        batch: model.batch_size,
        sequence: model.sequence,
        image: model.image,
        precision: model.precision.parse().unwrap_or_default(),
        optimizer: model.optimizer.as_deref().and_then(|name| name.parse().ok()),
        implementation: model.optimizer_kernels.parse().unwrap_or_default(),
        checkpointing: model.checkpointing,
        accumulation: model.accumulation,
        zero_grad: model.zero_grad.parse().unwrap_or_default(),
        task: model.task.parse().unwrap_or_default(),
        tokens: model.tokens,
        iterations: config.workload.iterations.min(MODEL_ITERATIONS),
        sequences: Vec::new(),
        style: Style {
            convolution: model.convolution.parse().unwrap_or_default(),
            attention: model.attention.parse().unwrap_or_default(),
            composed: model.composed,
            dropout: model.dropout,
            targets: model.targets.parse().unwrap_or_default(),
            classes: model.classes,
            relu_inplace: model.relu_inplace,
            conv_bias: model.conv_bias,
            shortcut_clone: model.shortcut_clone,
            ..Style::default()
        },
    };
    let read = spec.read_sequences(model.sequences.as_deref().unwrap_or_default());
    Some(read.map(|()| spec))
}

/// Adds what `[workload]` says about the arrays of a kernel: advice after each allocation, migration at
/// the end of the setup.
fn hints(program: &mut Program, workload: &WorkloadSection) {
    let advice = match workload.advice.as_deref() {
        Some("read-mostly") => Some((AdviceName::SetReadMostly, Place::Gpu)),
        Some("preferred-location-gpu") => Some((AdviceName::SetPreferredLocation, Place::Gpu)),
        Some("preferred-location-cpu") => Some((AdviceName::SetPreferredLocation, Place::Cpu)),
        Some("accessed-by-gpu") => Some((AdviceName::SetAccessedBy, Place::Gpu)),
        Some("accessed-by-cpu") => Some((AdviceName::SetAccessedBy, Place::Cpu)),
        _ => None,
    };
    let mut arrays = Vec::new();
    let mut setup = Vec::with_capacity(program.setup.len());
    for op in std::mem::take(&mut program.setup) {
        let array = match op {
            Op::Alloc { t, n } => Some(Piece(t, 0, n)),
            _ => None,
        };
        setup.push(op);
        if let (Some(array), Some((advice, device))) = (array, advice) {
            let w = vec![array];
            setup.push(Op::Advise { w, advice, device });
        }
        arrays.extend(array);
    }
    if workload.prefetch && !arrays.is_empty() {
        setup.push(Op::Prefetch {
            w: arrays,
            to: Place::Gpu,
            stream: 0,
        });
    }
    program.setup = setup;
}

/// What a built-in kernel is made from.
pub(crate) fn kernel_options(config: &ResolvedConfig) -> workloads::classic::Options {
    let workload = &config.workload;
    workloads::classic::Options {
        params: config
            .param
            .given()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        graph: config.graph_path().map(|path| path.display().to_string()),
        array_bytes: workload.array_size.0,
        cpu_init: workload.cpu_init,
        kernel_time: workload.kernel_time,
        seed: config.study.seed,
    }
}

/// The allocator of `[workload]`, with its options; its memory is not limited yet.
fn allocator(workload: &WorkloadSection) -> Result<AllocatorSpec, SimulateError> {
    let kind: AllocatorKind = workload.allocator.parse().map_err(input)?;
    let conf = workload.allocator_conf.as_deref().unwrap_or_default();
    let mut options =
        Options::parse(conf).map_err(|error| input(format!("workload.allocator_conf: {error}")))?;
    options.memory_fraction = workload.memory_fraction.or(options.memory_fraction);
    if kind == AllocatorKind::PerTensor && options != Options::default() {
        return Err(input(
            "workload.allocator_conf and workload.memory_fraction are of the caching allocator; \
             workload.allocator = \"per-tensor\" does not use it",
        ));
    }
    if options.expandable_segments && kind != AllocatorKind::Device {
        return Err(input(
            "workload.allocator_conf: expandable_segments cannot be backed by managed memory; \
             it needs workload.allocator = \"device\"",
        ));
    }
    if options.expandable_segments && !options.large_segment.is_multiple_of(BLOCK_BYTES) {
        return Err(input(
            "workload.allocator_conf: with expandable_segments, large_segment_size_mb has to be even: device \
             memory is mapped in pieces of 2 MiB",
        ));
    }
    Ok(AllocatorSpec {
        kind,
        options,
        capacity: None,
    })
}

impl Simulate for Simulator {
    fn simulate(
        &self,
        config: &ResolvedConfig,
        records: bool,
        progress: &mut dyn Progress,
    ) -> Result<RunResult, SimulateError> {
        self.simulate_probed(config, records, progress, None)
    }
}

impl Simulator {
    /// Runs `config` to its end while `probe` hears what happens; the result is the same without it.
    ///
    /// # Errors
    /// Those of [`Simulate::simulate`].
    pub fn simulate_probed(
        &self,
        config: &ResolvedConfig,
        records: bool,
        progress: &mut dyn Progress,
        probe: Option<&mut dyn Probe>,
    ) -> Result<RunResult, SimulateError> {
        let work = self.work(config)?;
        let gpu = gpu_shape(config);
        let (footprint, kernels) = match &work {
            Work::Program(program, allocator) => {
                let totals =
                    workloads::footprint(&**program, allocator, config.workload.iterations).map_err(input)?;
                (totals.peak_bytes, Some(totals.kernels))
            }
        };
        let capacity = match &work {
            Work::Program(_, spec) if spec.kind == AllocatorKind::Ideal => None,
            Work::Program(..) => capacity(config, footprint),
        };
        let machine = machine(config, footprint, capacity, records)?;
        let mut heard = Heard { progress, kernels };
        let mut system = System::new(&machine, probe)?;
        let planned = machine.driver.needs_plan();
        let finished = match work {
            Work::Program(program, allocator) => {
                let spec = AllocatorSpec {
                    capacity,
                    ..allocator
                };
                if planned {
                    let ops = Run::new(&*program, &spec, config.workload.iterations, gpu);
                    system.set_plan(plan(within_horizon(ops, config), gpu.sms).map_err(input)?);
                }
                let ops = Run::new(&*program, &spec, config.workload.iterations, gpu);
                system.run(within_horizon(ops, config), &mut heard)?
            }
        };
        if finished.outcome.simulated >= HORIZON {
            return Err(input(format!(
                "the run takes {:.0}, longer than the 13 days that a simulation can cover",
                finished.outcome.simulated
            )));
        }
        let summary = figures::summary(config, &finished.outcome, footprint, capacity);
        let copies = finished
            .copies
            .unwrap_or_default()
            .iter()
            .map(CopyRow::from)
            .collect();
        Ok(RunResult {
            summary,
            batches: finished.batches,
            copies,
        })
    }
}

/// The operations of a program, until its kernels alone take it past the end of simulated time.
fn within_horizon(
    ops: impl Iterator<Item = Result<HostOp, ProgramError>>,
    config: &Sections,
) -> impl Iterator<Item = Result<HostOp, ProgramError>> {
    let iterations = config.workload.iterations;
    let gap = config.gpu.launch_gap.0;
    let mut ticks = 0u64;
    ops.map(move |op| {
        if let Ok(HostOp::Launch { kernel, .. }) = &op {
            ticks = ticks.saturating_add(kernel.duration.0).saturating_add(gap);
            if ticks >= HORIZON.0 {
                return Err(ProgramError::Parameter {
                    key: "iterations",
                    value: iterations.to_string(),
                    accepted: "the kernels take longer than the 13 days that a simulation can cover; \
                               are the times and rates right?",
                });
            }
        }
        op
    })
}

/// Passes progress on, with the total.
struct Heard<'a> {
    progress: &'a mut dyn Progress,
    kernels: Option<u64>,
}

impl crate::system::Progress for Heard<'_> {
    fn update(&mut self, simulated: Time, kernels: u64) {
        self.progress.update(simulated, kernels, self.kernels);
    }
}

impl From<&sim_gpu::gpu::CopyRecord> for CopyRow {
    fn from(record: &sim_gpu::gpu::CopyRecord) -> Self {
        CopyRow {
            start: record.start,
            end: record.end,
            direction: record.direction,
            cause: record.cause,
            first_page: record.first.0,
            pages: record.pages,
        }
    }
}

fn gpu_shape(config: &Sections) -> GpuShape {
    let gpu = &config.gpu;
    GpuShape {
        sms: gpu.sms,
        max_threads_per_sm: gpu.max_threads_per_sm,
        max_blocks_per_sm: gpu.max_blocks_per_sm,
        rates: workloads::math::Rates {
            fp32: gpu.fp32,
            tf32: gpu.tf32,
            bf16: gpu.bf16,
            fp16: gpu.fp16,
        },
        hbm_bytes_per_s: gpu.hbm_bandwidth.0 as f64,
        efficiency_flops: gpu.efficiency_flops,
        efficiency_bytes: gpu.efficiency_bytes,
        min_kernel_time: gpu.min_kernel_time,
        load_latency: gpu.load_latency(),
    }
}

/// Device memory for managed data, bytes; `None`: unlimited.
fn capacity(config: &Sections, footprint: u64) -> Option<u64> {
    let memory = &config.memory;
    let bytes = match (memory.oversubscription, memory.capacity) {
        (Some(factor), _) => (footprint as f64 / factor) as u64,
        (None, Capacity::Bytes(bytes)) => bytes.0,
        (None, Capacity::Device) => {
            let held = memory.reserved.0.saturating_add(pinned::taken(memory));
            config.gpu.memory.0.saturating_sub(held)
        }
        (None, Capacity::Unlimited) => return None,
    };
    // Managed data lives in whole root chunks.
    Some((bytes / BLOCK_BYTES).max(1) * BLOCK_BYTES)
}

fn machine(
    config: &Sections,
    footprint: u64,
    capacity: Option<u64>,
    records: bool,
) -> Result<Machine, SimulateError> {
    let stepped = config.engine.exact == "stepped";
    let most = footprint / BLOCK_BYTES + SPARE_CHUNKS;
    Ok(Machine {
        gpu: config.gpu_params(),
        link: config.link_config(),
        link_exactness: if stepped {
            sim_pcie::Exactness::Stepped
        } else {
            sim_pcie::Exactness::Fast
        },
        driver: config.driver_params().map_err(input)?,
        cost: config.host_cost(),
        // More than the footprint needs changes nothing.
        device_chunks: capacity.map_or(most, |bytes| bytes / BLOCK_BYTES).min(most),
        launch_call: config.cost.launch_call,
        check: config.engine.check,
        keep_records: records,
    })
}
