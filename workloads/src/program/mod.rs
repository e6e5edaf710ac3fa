//! Programs: what the host does, independent of allocator and GPU. The `.uvmprog` format.
//!
//! JSON Lines, plain, `.gz` or `.zst`. The first line is the header:
//!
//! ```json
//! {"format":"uvmprog/1","name":"gpt2","iterations":6}
//! ```
//!
//! Every further line is one operation, in program order:
//!
//! | `op` | fields | meaning |
//! | --- | --- | --- |
//! | `alloc` | `t`, `n` | tensor `t` of `n` bytes is allocated |
//! | `free` | `t` | it is freed |
//! | `kernel` | `name`, `r`, `w`, `flops`, `math`, `rb`, `wb`, `nk`, `sparse`, `stream`, `ns`, `pattern` | a kernel: ranges `[tensor, offset, bytes]` read and written, work, launches, recorded duration |
//! | `h2d` | `w` | the host copies into these ranges (`cudaMemcpyAsync`) |
//! | `cpu` | `w`, `write`, `concurrent` | the CPU touches these ranges, after the kernels before it or (`concurrent`) beside them |
//! | `sync` | | the host waits for the device |
//! | `iter` | `i` | iteration `i` begins (0, 1, 2, ...); what comes before the first is the setup |
//! | `prefetch` | `w`, `to`, `stream` | `cudaMemPrefetchAsync` of these ranges `to` `"gpu"` (default) or `"cpu"`, in order with the kernels of `stream` (0) |
//! | `advise` | `w`, `advice`, `device` | `cudaMemAdvise`: `advice` as CUDA names it (`cudaMemAdviseSetReadMostly`, ...), about `device` `"gpu"` (default) or `"cpu"` |
//! | `discard` | `w`, `unmap` | contents do not matter any more; with `unmap`, GPU mappings and residency go, too |
//!
//! `math` is the arithmetic of the FLOPs: `"fp32"` (default), `"tf32"`, `"bf16"` or `"fp16"`, which chooses the GPU's rate
//! and the size of a matrix product's elements. `pattern` says how the kernel walks over its ranges where the class of its name does not; see
//! [`PatternSpec`] for its fields.
//!
//! A tensor id names at most one live tensor at a time. A program that runs for more iterations than
//! it has goes on with its iterations from the second one on, over and over
//! (see [`Schedule`](crate::program::Schedule)).

mod check;
mod hints;
mod ids;
mod lines;
mod reader;
mod schedule;
mod stored;
mod writer;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::math::Math;
use crate::pattern::PatternSpec;

pub(crate) use check::Checker;
pub use hints::{AdviceName, MemAdvise, Place};
pub use reader::{open, open_keeping, parse, read};
pub use schedule::{Schedule, Scheduled};
pub use stored::{Recording, Source, Stored};
pub use writer::{save, write};

/// The format that this version reads and writes.
pub const FORMAT: &str = "uvmprog/1";

/// A piece of a tensor: id, offset, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece(pub u32, pub u64, pub u64);

// serde hands over references.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(n: &u64) -> bool {
    *n == 0
}
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero32(n: &u32) -> bool {
    *n == 0
}
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_one(n: &u32) -> bool {
    *n == 1
}
fn one() -> u32 {
    1
}
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(b: &bool) -> bool {
    !*b
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub enum Op {
    /// A tensor is allocated.
    Alloc {
        /// Its id.
        t: u32,
        /// Bytes.
        n: u64,
    },
    /// A tensor is freed.
    Free {
        /// Its id.
        t: u32,
    },
    /// A kernel is launched.
    Kernel {
        /// Name of the op: decides how it walks over its ranges.
        name: Arc<str>,
        /// Ranges read.
        r: Vec<Piece>,
        /// Ranges written.
        w: Vec<Piece>,
        /// Floating point operations.
        #[serde(default, skip_serializing_if = "is_zero")]
        flops: u64,
        /// Arithmetic of these operations.
        #[serde(default, skip_serializing_if = "Math::is_fp32")]
        math: Math,
        /// Bytes really read.
        rb: u64,
        /// Bytes really written.
        wb: u64,
        /// Kernels that the op launches; 0 for a copy or memset.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        nk: u32,
        /// Only `rb` (or `wb`) bytes of the largest range are touched, scattered.
        #[serde(default, skip_serializing_if = "is_false")]
        sparse: bool,
        /// In-order queue.
        #[serde(default, skip_serializing_if = "is_zero32")]
        stream: u32,
        /// Duration with everything resident, nanoseconds, as recorded; without it, from work and bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ns: Option<u64>,
        /// How it walks over its ranges, if not as the class of its name does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pattern: Option<Arc<PatternSpec>>,
    },
    /// The host copies into ranges.
    H2d {
        /// Ranges written.
        w: Vec<Piece>,
    },
    /// The CPU touches ranges.
    Cpu {
        /// Ranges touched.
        w: Vec<Piece>,
        /// It writes.
        #[serde(default)]
        write: bool,
        /// Beside the kernels launched before, not after them.
        #[serde(default, skip_serializing_if = "is_false")]
        concurrent: bool,
    },
    /// The host waits for the device.
    Sync {},
    /// An iteration begins.
    Iter {
        /// Its number.
        i: u32,
    },
    /// `cudaMemPrefetchAsync`.
    Prefetch {
        /// Ranges.
        w: Vec<Piece>,
        /// Where they go.
        #[serde(default)]
        to: Place,
        /// In order with the kernels of this stream.
        #[serde(default, skip_serializing_if = "is_zero32")]
        stream: u32,
    },
    /// `cudaMemAdvise`.
    Advise {
        /// Ranges.
        w: Vec<Piece>,
        /// What.
        advice: AdviceName,
        /// About which processor.
        #[serde(default)]
        device: Place,
    },
    /// Discards contents.
    Discard {
        /// Ranges.
        w: Vec<Piece>,
        /// GPU mappings and residency go, too.
        #[serde(default, skip_serializing_if = "is_false")]
        unmap: bool,
    },
}

/// A whole program.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Before the first iteration.
    pub setup: Vec<Op>,
    /// Iterations, in order.
    pub iterations: Vec<Vec<Op>>,
}

/// A program that cannot be read or does not make sense.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// The file cannot be opened or read.
    #[error("{file}: {source}")]
    Io {
        /// File.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error("{file}:{line}: {what}")]
    Line {
        /// File.
        file: String,
        /// Line, from 1.
        line: u64,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// An allocation fails.
    #[error(transparent)]
    Alloc(#[from] crate::allocator::AllocError),
    /// A graph cannot be made or read.
    #[error(transparent)]
    Graph(#[from] crate::graph::GraphError),
    /// A built-in program cannot be made: key, value and what is accepted.
    #[error("{0}")]
    Builtin(String),
    /// A parameter of a built-in program is impossible.
    #[error("workload.{key} = {value}: {accepted}")]
    Parameter {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What is accepted.
        accepted: &'static str,
    },
}
