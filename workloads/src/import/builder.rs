//! Putting a program together while reading a recording.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::{ImportError, Imported, Report};
use crate::math::Math;
use crate::pattern::PatternSpec;
use crate::program::{Op, Piece, Program};

/// A tensor of a program.
pub(super) type Tensor = u32;

/// The program so far, and what its report will say.
pub(super) struct Builder {
    program: Program,
    /// Tensors that were there before everything else.
    before: Vec<Op>,
    sizes: HashMap<Tensor, u64>,
    next: Tensor,
    names: HashMap<String, Arc<str>>,
    streams: BTreeSet<u32>,
    live: u64,
    setup_bytes: u64,
    peak: u64,
    /// Tensors that die after their last use.
    unfreed: HashSet<Tensor>,
    report: Report,
}

/// One kernel to be added.
#[derive(Default)]
pub(super) struct NewKernel<'a> {
    pub name: &'a str,
    pub reads: Vec<Piece>,
    pub writes: Vec<Piece>,
    pub flops: u64,
    /// Arithmetic of these.
    pub math: Math,
    /// Recorded duration.
    pub ns: Option<u64>,
    pub stream: u32,
    pub sparse: bool,
    pub launches: u32,
    /// Bytes really read and written, where less than the pieces have.
    pub traffic: Option<(u64, u64)>,
    /// Which blocks touch what, where it is known.
    pub pattern: Option<PatternSpec>,
}

impl Builder {
    pub fn new(name: &str, format: &'static str) -> Builder {
        Builder {
            program: Program {
                name: name.to_owned(),
                setup: Vec::new(),
                iterations: Vec::new(),
            },
            before: Vec::new(),
            sizes: HashMap::new(),
            next: 0,
            names: HashMap::new(),
            streams: BTreeSet::new(),
            live: 0,
            setup_bytes: 0,
            peak: 0,
            unfreed: HashSet::new(),
            report: Report {
                format,
                ..Report::default()
            },
        }
    }

    pub fn report(&mut self) -> &mut Report {
        &mut self.report
    }

    fn push(&mut self, op: Op) {
        self.program
            .iterations
            .last_mut()
            .unwrap_or(&mut self.program.setup)
            .push(op);
    }

    fn tensor(&mut self, bytes: u64) -> Tensor {
        let id = self.next;
        self.next += 1;
        self.sizes.insert(id, bytes);
        self.report.tensors += 1;
        self.report.tensor_bytes = self.report.tensor_bytes.saturating_add(bytes);
        id
    }

    /// A tensor of at least one byte comes to life.
    pub fn alloc(&mut self, bytes: u64) -> Tensor {
        let n = bytes.max(1);
        let t = self.tensor(n);
        self.live = self.live.saturating_add(n);
        self.peak = self.peak.max(self.live);
        self.push(Op::Alloc { t, n });
        t
    }

    /// A tensor that comes to life now and dies after its last use.
    pub fn alloc_until_last_use(&mut self, bytes: u64) -> Tensor {
        let t = self.alloc(bytes);
        self.unfreed.insert(t);
        t
    }

    /// A tensor that was there before everything else.
    pub fn alloc_before(&mut self, bytes: u64) -> Tensor {
        let n = bytes.max(1);
        let t = self.tensor(n);
        self.setup_bytes = self.setup_bytes.saturating_add(n);
        self.before.push(Op::Alloc { t, n });
        t
    }

    /// It dies.
    pub fn free(&mut self, t: Tensor) {
        if let Some(bytes) = self.sizes.remove(&t) {
            self.live = self.live.saturating_sub(bytes);
            self.push(Op::Free { t });
        }
    }

    /// Its size, while it is live.
    pub fn size(&self, t: Tensor) -> Option<u64> {
        self.sizes.get(&t).copied()
    }

    /// All of a live tensor.
    pub fn whole(&self, t: Tensor) -> Option<Piece> {
        self.size(t).map(|bytes| Piece(t, 0, bytes))
    }

    /// An iteration begins.
    pub fn iteration(&mut self) {
        self.program.iterations.push(Vec::new());
    }

    /// Has an iteration begun?
    pub fn in_iteration(&self) -> bool {
        !self.program.iterations.is_empty()
    }

    /// The host waits for the device.
    pub fn sync(&mut self) {
        self.push(Op::Sync {});
    }

    /// The host copies into device memory.
    pub fn copy_in(&mut self, pieces: Vec<Piece>) {
        if !pieces.is_empty() {
            self.push(Op::H2d { w: pieces });
        }
    }

    /// The CPU touches memory.
    pub fn cpu(&mut self, pieces: Vec<Piece>, write: bool) {
        if !pieces.is_empty() {
            self.push(Op::Cpu {
                w: pieces,
                write,
                concurrent: false,
            });
        }
    }

    /// A kernel runs.
    pub fn kernel(&mut self, kernel: NewKernel<'_>) {
        let name = self
            .names
            .entry(kernel.name.to_owned())
            .or_insert_with_key(|name| Arc::from(name.as_str()));
        let name = Arc::clone(name);
        let sum = |pieces: &[Piece]| {
            pieces
                .iter()
                .fold(0_u64, |sum, piece| sum.saturating_add(piece.2))
        };
        let whole = (sum(&kernel.reads), sum(&kernel.writes));
        let (rb, wb) = kernel.traffic.unwrap_or(whole);
        self.report.kernels += 1;
        self.report.kernel_bytes = self.report.kernel_bytes.saturating_add(rb.saturating_add(wb));
        self.report.kernel_ns = self.report.kernel_ns.saturating_add(kernel.ns.unwrap_or(0));
        self.streams.insert(kernel.stream);
        self.push(Op::Kernel {
            name,
            r: kernel.reads,
            w: kernel.writes,
            flops: kernel.flops,
            math: kernel.math,
            rb,
            wb,
            nk: kernel.launches.max(1),
            sparse: kernel.sparse,
            stream: kernel.stream,
            ns: kernel.ns,
            pattern: kernel.pattern.map(Arc::new),
        });
    }

    /// The program with its report; `file` is for messages.
    ///
    /// # Errors
    /// The recording contradicts itself, so that its program is not valid.
    pub fn finish(mut self, file: &Path) -> Result<Imported, ImportError> {
        if self.program.iterations.is_empty() {
            // What there is becomes the one iteration; tensors from before stay in the setup.
            let setup = std::mem::take(&mut self.program.setup);
            self.program.iterations.push(setup);
        }
        self.before.append(&mut self.program.setup);
        self.program.setup = self.before;
        if !self.unfreed.is_empty() {
            free_after_last_use(&mut self.program, &self.unfreed);
            // The frees were not there when the peak was counted.
            self.peak = report_of(&self.program, self.report.format).peak_bytes;
            self.setup_bytes = 0;
        }
        self.report.iterations = self.program.iterations.len() as u64;
        self.report.streams = self.streams.len() as u64;
        self.report.peak_bytes = self.peak.saturating_add(self.setup_bytes);
        self.program.check().map_err(|what| ImportError::Malformed {
            file: file.to_path_buf(),
            format: self.report.format,
            place: "the program made from it".to_owned(),
            what: format!("{what}; was the recording cut or changed?"),
        })?;
        Ok(Imported {
            program: self.program,
            report: self.report,
        })
    }
}

/// Frees each of these tensors after the last operation that touches it.
fn free_after_last_use(program: &mut Program, tensors: &HashSet<Tensor>) {
    let mut seen: HashSet<Tensor> = HashSet::new();
    let lists = std::iter::once(&mut program.setup).chain(&mut program.iterations);
    for list in lists.collect::<Vec<_>>().into_iter().rev() {
        let mut backwards = Vec::with_capacity(list.len());
        for op in std::mem::take(list).into_iter().rev() {
            let touched: Vec<Tensor> = match &op {
                Op::Alloc { t, .. } => vec![*t],
                Op::Kernel { r, w, .. } => r.iter().chain(w).map(|piece| piece.0).collect(),
                Op::H2d { w } | Op::Cpu { w, .. } => w.iter().map(|piece| piece.0).collect(),
                _ => Vec::new(),
            };
            for t in touched {
                if tensors.contains(&t) && seen.insert(t) {
                    backwards.push(Op::Free { t });
                }
            }
            backwards.push(op);
        }
        backwards.reverse();
        *list = backwards;
    }
}

/// Totals of a program that came about elsewhere.
pub(super) fn report_of(program: &Program, format: &'static str) -> Report {
    let mut report = Report {
        format,
        iterations: program.iterations.len() as u64,
        ..Report::default()
    };
    let mut sizes = HashMap::new();
    let mut streams = BTreeSet::new();
    let mut live = 0_u64;
    for op in program.setup.iter().chain(program.iterations.iter().flatten()) {
        match op {
            Op::Alloc { t, n } => {
                report.tensors += 1;
                report.tensor_bytes = report.tensor_bytes.saturating_add(*n);
                live = live.saturating_add(*n);
                report.peak_bytes = report.peak_bytes.max(live);
                sizes.insert(*t, *n);
            }
            Op::Free { t } => live = live.saturating_sub(sizes.remove(t).unwrap_or(0)),
            Op::Kernel {
                rb,
                wb,
                nk,
                stream,
                ns,
                ..
            } => {
                report.kernels += u64::from(*nk);
                report.kernel_bytes = report.kernel_bytes.saturating_add(rb.saturating_add(*wb));
                report.kernel_ns = report.kernel_ns.saturating_add(ns.unwrap_or(0));
                streams.insert(*stream);
            }
            _ => {}
        }
    }
    report.streams = streams.len() as u64;
    report
}
