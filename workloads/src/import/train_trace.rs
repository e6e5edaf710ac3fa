//! Training traces (`uvm-train-trace/1`): allocations, frees and GPU ops of recorded PyTorch training.
//!
//! Addresses of the recording name tensors: an address belongs to the live allocation around it. Read
//! ranges larger than their allocation (tensors expanded with stride 0) are clipped to it.

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::{ImportError, Imported, Limits, builder, source};
use crate::class::multiplies;
use crate::math::Math;
use crate::program::{Checker, Op, Piece, Program, ProgramError};

const FORMAT: &str = "uvm-train-trace/1";

#[derive(Deserialize)]
struct Header {
    format: String,
    name: String,
    /// Type of autocast, as PyTorch names it.
    amp: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "k", rename_all = "lowercase")]
enum Line {
    Alloc { a: u64, n: u64 },
    Free { a: u64 },
    Seg {},
    Segfree {},
    Phase {},
    Iter { i: u32 },
    Op(Box<TraceOp>),
}

#[derive(Deserialize)]
struct TraceOp {
    name: String,
    #[serde(default)]
    r: Vec<(u64, u64)>,
    #[serde(default)]
    w: Vec<(u64, u64)>,
    #[serde(default)]
    flops: u64,
    rb: Option<u64>,
    wb: Option<u64>,
    nk: Option<u32>,
    #[serde(default)]
    sp: u8,
    #[serde(default)]
    h2d: u8,
}

/// What a conversion had to decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conversion {
    /// Ranges clipped to their allocation.
    pub clipped: u64,
    /// Ranges without bytes, left out.
    pub empty: u64,
}

#[derive(Default)]
struct Converter {
    /// Live allocations by address: (bytes, id).
    live: BTreeMap<u64, (u64, u32)>,
    next: u32,
    free_ids: Vec<u32>,
    names: HashMap<String, Arc<str>>,
    /// What autocast computes products in.
    amp: Math,
    report: Conversion,
}

impl Converter {
    fn pieces(&mut self, ranges: &[(u64, u64)]) -> Result<Vec<Piece>, String> {
        let mut pieces = Vec::with_capacity(ranges.len());
        for &(address, bytes) in ranges {
            if bytes == 0 {
                self.report.empty += 1;
                continue;
            }
            let (&start, &(size, id)) = self
                .live
                .range(..=address)
                .next_back()
                .filter(|(start, (size, _))| address - *start < *size)
                .ok_or_else(|| format!("address {address:#x} is in no live allocation"))?;
            let offset = address - start;
            if bytes > size - offset {
                self.report.clipped += 1;
            }
            pieces.push(Piece(id, offset, bytes.min(size - offset)));
        }
        Ok(pieces)
    }

    fn convert(&mut self, line: Line) -> Result<Option<Op>, String> {
        Ok(match line {
            Line::Alloc { a, n } => {
                let id = self.free_ids.pop().unwrap_or_else(|| {
                    self.next += 1;
                    self.next - 1
                });
                // The recording gives requested bytes; neighbours are told apart by them.
                if self.live.insert(a, (n, id)).is_some() {
                    return Err(format!("address {a:#x} is allocated twice"));
                }
                Some(Op::Alloc { t: id, n })
            }
            Line::Free { a } => {
                let (_, id) = self
                    .live
                    .remove(&a)
                    .ok_or_else(|| format!("address {a:#x} is freed, but not live"))?;
                self.free_ids.push(id);
                Some(Op::Free { t: id })
            }
            Line::Seg {} | Line::Segfree {} | Line::Phase {} => None,
            Line::Iter { i } => Some(Op::Iter { i }),
            Line::Op(op) => {
                let (r, w) = (self.pieces(&op.r)?, self.pieces(&op.w)?);
                let sum = |pieces: &[Piece]| {
                    pieces
                        .iter()
                        .fold(0_u64, |sum, piece| sum.saturating_add(piece.2))
                };
                if r.is_empty() && w.is_empty() {
                    None
                } else if op.h2d != 0 {
                    Some(Op::H2d { w })
                } else {
                    let name = self
                        .names
                        .entry(op.name)
                        .or_insert_with_key(|name| Arc::from(name.as_str()));
                    let math = if multiplies(name) { self.amp } else { Math::Fp32 };
                    let (rb, wb) = (op.rb.unwrap_or_else(|| sum(&r)), op.wb.unwrap_or_else(|| sum(&w)));
                    Some(Op::Kernel {
                        name: Arc::clone(name),
                        r,
                        w,
                        flops: op.flops,
                        math,
                        rb,
                        wb,
                        nk: op.nk.unwrap_or(1),
                        sparse: op.sp != 0,
                        stream: 0,
                        ns: None,
                        pattern: None,
                    })
                }
            }
        })
    }
}

/// Imports a training trace, plain or compressed.
///
/// # Errors
/// What is wrong, with file and line.
pub fn import(file: &Path, limits: &Limits) -> Result<Imported, ImportError> {
    let reader = source::open(file, limits)?;
    let (program, conversion) = convert(reader, &file.display().to_string())?;
    let mut report = builder::report_of(&program, FORMAT);
    if conversion.clipped > 0 {
        report.assumed.push(format!(
            "{} ranges were longer than their allocation (expanded tensors) and were cut",
            conversion.clipped
        ));
    }
    Ok(Imported { program, report })
}

/// Converts a training trace (already decompressed) into a program.
///
/// # Errors
/// What is wrong, with file and line.
pub fn convert(reader: impl BufRead, file: &str) -> Result<(Program, Conversion), ProgramError> {
    let mut converter = Converter::default();
    let mut checker = Checker::default();
    let mut program: Option<Program> = None;
    let mut number = 0;
    for text in reader.lines() {
        number += 1;
        let wrong = |what: String| ProgramError::Line {
            file: file.to_owned(),
            line: number,
            what,
        };
        let text = text.map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let Some(program) = &mut program else {
            let header: Header = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
            if header.format != FORMAT {
                return Err(wrong(format!("format {:?}; expected {FORMAT:?}", header.format)));
            }
            converter.amp = match header.amp.as_deref() {
                // The recorder writes "fp32" without autocast, and the type that autocast computes in otherwise.
                None | Some("" | "fp32" | "torch.float32") => Math::Fp32,
                Some("torch.bfloat16") => Math::Bf16,
                Some("torch.float16") => Math::Fp16,
                Some(other) => {
                    let accepted = "accepted: \"fp32\", \"torch.bfloat16\", \"torch.float16\"";
                    return Err(wrong(format!("amp {other:?}; {accepted}")));
                }
            };
            program = Some(Program {
                name: header.name,
                setup: Vec::new(),
                iterations: Vec::new(),
            });
            continue;
        };
        let line: Line = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let op = converter.convert(line).map_err(wrong)?;
        if let Some(op) = &op {
            checker.check(op).map_err(wrong)?;
        }
        match op {
            Some(Op::Iter { .. }) => program.iterations.push(Vec::new()),
            Some(op) => program
                .iterations
                .last_mut()
                .unwrap_or(&mut program.setup)
                .push(op),
            None => {}
        }
    }
    let wrong = |what: &str| ProgramError::Line {
        file: file.to_owned(),
        line: number,
        what: what.to_owned(),
    };
    match program {
        None => Err(wrong("the file is empty")),
        Some(program) if program.iterations.is_empty() => Err(wrong(
            "the trace ends without an iteration: a line {\"k\":\"iter\",\"i\":0} is missing",
        )),
        Some(program) => Ok((program, converter.report)),
    }
}
