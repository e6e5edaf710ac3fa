//! Records a kernel's program: arrays, launches, waits.

use std::sync::Arc;

use sim_core::Time;
use sim_core::pages::PAGE_BYTES;
use sim_core::time::TICKS_PER_NS;

use super::{Entry, Options};
use crate::math::Math;
use crate::pattern::{Axis, PatternSpec, Window};
use crate::program::{Op, Piece, Program, ProgramError};

/// Launches of an iteration, at most: each is kept in memory.
const MOST_LAUNCHES: usize = 1 << 17;
/// FLOPs that take as long as `threads` threads of `tenths` / 10 instructions each: peak FLOPs count two an
/// instruction (a fused multiply-add). For kernels that are bound by issue slots; their instructions are
/// those that the `UVMSmart` artifact's simulator counts (PTX).
pub fn issue_bound(threads: u64, tenths: u64) -> u64 {
    threads * tenths / 5
}

/// A duration as programs have it: whole nanoseconds, at least one.
pub fn whole_ns(time: Time) -> u64 {
    (time.0.div_ceil(TICKS_PER_NS)).max(1)
}

/// Bytes of an array, at most.
const MOST_BYTES: u128 = 1 << 46;

/// An array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    tensor: u32,
    /// Its bytes.
    pub bytes: u64,
}

/// Floating point operations and bytes of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Operations.
    pub flops: u64,
    /// Bytes read from memory.
    pub read: u64,
    /// Bytes written.
    pub write: u64,
}

/// A program that is being recorded.
#[derive(Debug)]
pub struct Bench<'a> {
    entry: &'static Entry,
    options: &'a Options,
    setup: Vec<Op>,
    ops: Vec<Op>,
    next: u32,
}

impl<'a> Bench<'a> {
    pub(super) fn new(entry: &'static Entry, options: &'a Options) -> Bench<'a> {
        Bench {
            entry,
            options,
            setup: Vec::new(),
            ops: Vec::new(),
            next: 0,
        }
    }

    /// What was asked for.
    pub fn options(&self) -> &Options {
        self.options
    }

    /// A parameter of the kernel's list.
    pub fn param(&self, name: &str) -> u64 {
        let default = || {
            let param = self.entry.params.iter().find(|param| param.name == name);
            param.map_or(0, |param| param.default)
        };
        self.options.params.get(name).copied().unwrap_or_else(default)
    }

    /// An array that the GPU fills: nothing touches it before.
    ///
    /// # Errors
    /// It is too large.
    pub fn output(&mut self, bytes: u128) -> Result<Array, ProgramError> {
        if bytes == 0 || bytes > MOST_BYTES {
            return Err(ProgramError::Builtin(format!(
                "{}: an array of {bytes} bytes; accepted: 1 byte to 64 TiB",
                self.entry.name
            )));
        }
        let array = Array {
            tensor: self.next,
            bytes: bytes as u64,
        };
        self.next += 1;
        self.setup.push(Op::Alloc {
            t: array.tensor,
            n: array.bytes.next_multiple_of(PAGE_BYTES),
        });
        Ok(array)
    }

    /// An array that the CPU writes first, if CPU initialisation is on.
    ///
    /// # Errors
    /// It is too large.
    pub fn input(&mut self, bytes: u128) -> Result<Array, ProgramError> {
        let array = self.output(bytes)?;
        if self.options.cpu_init {
            self.setup.push(Op::Cpu {
                w: vec![Piece(array.tensor, 0, array.bytes)],
                write: true,
                concurrent: false,
            });
        }
        Ok(array)
    }

    /// A launch.
    ///
    /// # Errors
    /// A pattern that cannot be simulated; too many launches.
    pub fn launch(
        &mut self,
        name: &str,
        reads: &[Array],
        writes: &[Array],
        pattern: PatternSpec,
        work: Work,
    ) -> Result<(), ProgramError> {
        let pieces = |arrays: &[Array]| arrays.iter().map(|a| Piece(a.tensor, 0, a.bytes)).collect();
        self.record(name, pieces(reads), pieces(writes), pattern, work)
    }

    /// A launch that writes a part (array, offset, bytes) of an array.
    ///
    /// # Errors
    /// As [`launch`](Bench::launch).
    pub fn launch_part(
        &mut self,
        name: &str,
        reads: &[Array],
        (array, offset, bytes): (Array, u64, u64),
        pattern: PatternSpec,
        work: Work,
    ) -> Result<(), ProgramError> {
        let reads = reads.iter().map(|a| Piece(a.tensor, 0, a.bytes)).collect();
        let write = vec![Piece(array.tensor, offset, bytes)];
        self.record(name, reads, write, pattern, work)
    }

    fn record(
        &mut self,
        name: &str,
        r: Vec<Piece>,
        w: Vec<Piece>,
        pattern: PatternSpec,
        work: Work,
    ) -> Result<(), ProgramError> {
        let wrong =
            |what: String| ProgramError::Builtin(format!("{}: kernel {name}: {what}", self.entry.name));
        pattern.check(r.len(), w.len()).map_err(wrong)?;
        if self.ops.len() >= MOST_LAUNCHES {
            return Err(wrong(format!(
                "the iteration launches more; accepted: up to {MOST_LAUNCHES} launches"
            )));
        }
        self.ops.push(Op::Kernel {
            name: Arc::from(name),
            r,
            w,
            flops: work.flops,
            math: Math::Fp32,
            rb: work.read,
            wb: work.write,
            nk: 1,
            sparse: false,
            stream: 0,
            ns: self.options.kernel_time.map(whole_ns),
            pattern: Some(Arc::new(pattern)),
        });
        Ok(())
    }

    /// The host waits.
    pub fn sync(&mut self) {
        self.ops.push(Op::Sync {});
    }

    pub(super) fn finish(mut self) -> Program {
        if self.ops.last() != Some(&Op::Sync {}) {
            self.sync();
        }
        Program {
            name: self.entry.name.to_owned(),
            setup: self.setup,
            iterations: vec![self.ops],
        }
    }
}

/// A row-major matrix of 4-byte elements that a two-dimensional grid covers tile by tile.
#[derive(Clone, Copy, Debug)]
pub struct Tiling {
    /// Columns of the matrix.
    pub columns: u64,
    /// Rows.
    pub rows: u64,
    /// Elements from one row to the next.
    pub pitch: u64,
    /// Columns of a tile.
    pub width: u64,
    /// Rows of a tile.
    pub height: u64,
}

impl Tiling {
    /// A matrix without padding.
    pub const fn new(rows: u64, columns: u64, width: u64, height: u64) -> Tiling {
        Tiling {
            columns,
            rows,
            pitch: columns,
            width,
            height,
        }
    }

    /// The grid that covers it.
    pub const fn grid(&self) -> [u64; 3] {
        [
            self.columns.div_ceil(self.width),
            self.rows.div_ceil(self.height),
            1,
        ]
    }

    /// The tile of a block with `halo` more elements: left, right, above, below; clipped to the matrix.
    pub fn window(&self, operand: u32, halo: [u64; 4]) -> Window {
        let [left, right, up, down] = halo;
        let columns = Axis::new((self.width + left + right) * 4, self.columns * 4)
            .at(-(left as i64) * 4)
            .x(self.width * 4);
        let rows = Axis::new(self.height + up + down, self.rows)
            .at(-(up as i64))
            .y(self.height);
        Window::new(operand, columns).rows(rows, self.pitch * 4)
    }

    /// The tile without the elements at a border of `edge`.
    pub fn interior(&self, operand: u32, edge: u64) -> Window {
        let mut window = self.window(operand, [0; 4]);
        window.columns.low = (edge * 4) as i64;
        window.columns.high -= (edge * 4) as i64;
        window.rows.low = edge as i64;
        window.rows.high -= edge as i64;
        window
    }
}
