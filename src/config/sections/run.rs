//! `[study]`, `[hardware]`, `[memory]`, `[workload]`, `[engine]`: what is run, and how.

use sim_core::Time;
use sim_core::units::Bytes;

use crate::config::schema::{Field, section};
use crate::config::value::{Kind, Value};

section! {
    /// Name and seed: `[study]`.
    StudySection {
        /// Name of the study; names its output folder.
        name ("study.name"): String = Kind::Text;
        /// Seed of every random stream.
        seed ("study.seed"): u64 = Kind::Int { min: 0, max: i64::MAX as u64 };
    }
}

section! {
    /// Hardware profiles: `[hardware]`.
    HardwareSection {
        /// GPU profile: a name of `uvmsim profiles`, or the path of a TOML file.
        gpu ("hardware.gpu"): String = Kind::Text;
        /// Link profile: a name or a path.
        link ("hardware.link"): String = Kind::Text;
        /// Host profile: a name or a path.
        host ("hardware.host"): String = Kind::Text;
    }
}

/// Device memory for managed data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// The memory of the GPU less what is reserved.
    Device,
    /// Enough for everything.
    Unlimited,
    /// That much.
    Bytes(Bytes),
}

impl Field for Capacity {
    const REQUIRED: bool = true;
    fn from_value(value: Option<&Value>) -> Option<Self> {
        match value? {
            Value::Word("unlimited") => Some(Capacity::Unlimited),
            Value::Word(_) => Some(Capacity::Device),
            Value::Bytes(bytes) => Some(Capacity::Bytes(*bytes)),
            _ => None,
        }
    }
}

section! {
    /// Memory for managed data: `[memory]`.
    MemorySection {
        /// Footprint / device memory available to managed data: 1.25 means that the footprint is 125 % of
        /// the memory. Excludes `memory.capacity`.
        oversubscription ("memory.oversubscription", "none"): Option<f64> =
            Kind::Ratio { min: 0.0, max: 1e6, inclusive: false };
        /// Device memory available to managed data. `device`: the memory of the GPU less
        /// `memory.reserved`; `unlimited`: enough for everything.
        capacity ("memory.capacity", "device", "unlimited"): Capacity =
            Kind::Bytes { min: 2 << 20, max: 1 << 44, power_of_two: false };
        /// Device memory that managed data cannot use when the capacity is `device`: context, page
        /// tables, other allocations.
        reserved ("memory.reserved"): Bytes = Kind::Bytes { min: 0, max: 1 << 44, power_of_two: false };
        /// Device memory that other allocations hold and never give back, on top of `memory.reserved`: how
        /// experimenters make a GPU smaller than it is. Needs the capacity `device`.
        pinned ("memory.pinned"): Bytes = Kind::Bytes { min: 0, max: 1 << 44, power_of_two: false };
        /// Size of one of the allocations that make up `memory.pinned`. Each starts a root chunk of its own,
        /// so that pieces below 2 MiB take more from managed data than they hold.
        pinned_piece ("memory.pinned_piece"): Bytes = Kind::Bytes { min: 4 << 10, max: 1 << 44, power_of_two: false };
    }
}

section! {
    /// What is run: `[workload]`.
    WorkloadSection {
        /// A recorded or generated program, a `.uvmprog` file; searched beside the config, then in the
        /// current folder.
        program ("workload.program", "none"): Option<String> = Kind::Text;
        /// A built-in kernel, instead of a program; `uvmsim workload` lists them.
        kernel ("workload.kernel", "none"): Option<String> = Kind::Choice(super::super::KERNELS);
        /// Placement of tensors: the PyTorch caching allocator over managed memory; one managed
        /// allocation per tensor; a pool, the caching allocator that frees cached segments before it
        /// oversubscribes; plain device memory, which can run out; ideal, everything resident.
        allocator ("workload.allocator"): String =
            Kind::Choice(&["pytorch-caching", "per-tensor", "pool", "device", "ideal"]);
        /// Options of the caching allocator, as in PYTORCH_CUDA_ALLOC_CONF.
        allocator_conf ("workload.allocator_conf", "none"): Option<String> = Kind::Text;
        /// Share of device memory that the caching allocator may reserve
        /// (set_per_process_memory_fraction).
        memory_fraction ("workload.memory_fraction", "none"): Option<f64> =
            Kind::Ratio { min: 0.0, max: 1.0, inclusive: false };
        /// Iterations of the program, or launches of the kernel (passes, for a cyclic scan).
        iterations ("workload.iterations"): u32 = Kind::Int { min: 1, max: 1_000_000 };
        /// Bytes of each array of the kernel, for kernels whose size is not a parameter of their own.
        array_size ("workload.array_size"): Bytes = Kind::Bytes { min: 4096, max: 1 << 44, power_of_two: false };
        /// Arrays that a cyclic scan goes through.
        arrays ("workload.arrays"): u32 = Kind::Int { min: 1, max: 1_000_000 };
        /// Does the CPU write the kernel's arrays first? If not, the GPU touches them first.
        cpu_init ("workload.cpu_init"): bool = Kind::Bool;
        /// Is every array of the kernel moved to the GPU first (`cudaMemPrefetchAsync`)?
        prefetch ("workload.prefetch"): bool = Kind::Bool;
        /// Advice on every array of the kernel, before anything touches it (`cudaMemAdvise`).
        advice ("workload.advice", "none"): Option<String> = Kind::Choice(crate::config::ADVICE);
        /// Duration of one launch of the kernel with everything resident; `roofline`: from its operations
        /// and bytes.
        kernel_time ("workload.kernel_time", "roofline"): Option<Time> = Kind::TIME;
        /// Edge list that a graph kernel runs on, a text file of `from to [length]` lines or a Matrix
        /// Market file, plain or gzip; searched beside the config, then in the current folder.
        graph ("workload.graph", "none"): Option<String> = Kind::Text;
    }
}

/// Kinds of the parameters: each kernel has its own range.
const NUMBER: Kind = Kind::Int { min: 0, max: 1 << 40 };

section! {
    /// Parameters of the kernel: `[workload.param]`. Each kernel has some of them, with defaults of its
    /// own; `uvmsim workload NAME` lists them.
    ParamSection {
        /// Parameter n of the kernel: elements, rows, vertices.
        n ("workload.param.n", "default"): Option<u64> = NUMBER;
        /// Parameter m of the kernel: columns, channels.
        m ("workload.param.m", "default"): Option<u64> = NUMBER;
        /// Parameter k of the kernel: the inner dimension, filters.
        k ("workload.param.k", "default"): Option<u64> = NUMBER;
        /// Time steps, sweeps or iterations within one iteration of the program.
        steps ("workload.param.steps", "default"): Option<u64> = NUMBER;
        /// Thread blocks.
        blocks ("workload.param.blocks", "default"): Option<u64> = NUMBER;
        /// Bytes between neighbouring accesses; side of a filter.
        stride ("workload.param.stride", "default"): Option<u64> = NUMBER;
        /// Logarithm of the points or vertices.
        scale ("workload.param.scale", "default"): Option<u64> = NUMBER;
        /// Edges for each vertex of a generated graph.
        degree ("workload.param.degree", "default"): Option<u64> = NUMBER;
        /// Lookups or updates.
        lookups ("workload.param.lookups", "default"): Option<u64> = NUMBER;
        /// Images or sequences.
        batch ("workload.param.batch", "default"): Option<u64> = NUMBER;
        /// Heads of an attention.
        heads ("workload.param.heads", "default"): Option<u64> = NUMBER;
    }
}

impl ParamSection {
    /// Those that are given.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("n", self.n),
            ("m", self.m),
            ("k", self.k),
            ("steps", self.steps),
            ("blocks", self.blocks),
            ("stride", self.stride),
            ("scale", self.scale),
            ("degree", self.degree),
            ("lookups", self.lookups),
            ("batch", self.batch),
            ("heads", self.heads),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}

section! {
    /// How the simulation runs: `[engine]`. No key of it changes a result.
    EngineSection {
        /// `fast` skips ahead where nothing can happen; `stepped` is the reference it must equal.
        exact ("engine.exact"): String = Kind::Choice(&["fast", "stepped"]);
        /// Check the invariants of the driver after every batch instead of at the end.
        check ("engine.check"): bool = Kind::Bool;
    }
}
