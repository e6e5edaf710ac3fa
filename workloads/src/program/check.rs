//! What makes a program valid, wherever it comes from: a file, an importer, a generator.

use std::collections::HashMap;

use super::ids::IdSet;
use super::{Op, Piece, Program};

/// Bytes of a tensor, at most: 1 PiB.
const MAX_TENSOR: u64 = 1 << 50;
/// Bytes of all tensors that are live together, at most: 1 EiB, so that sums of them fit.
const MAX_LIVE: u64 = 1 << 60;
/// Duration of a kernel, at most, nanoseconds: 11 days.
const MAX_NS: u64 = 1_000_000_000_000_000;
/// Ranges of one operation, at most.
const MAX_PIECES: usize = 1 << 20;

/// Which tensors are live: every access has to lie in one.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    live: HashMap<u32, u64>,
    live_bytes: u64,
    /// Ever freed; asked only for tensors that are not live.
    freed: IdSet,
}

impl Checker {
    /// The next operation of the program.
    ///
    /// # Errors
    /// What is wrong with it, and what is accepted.
    pub fn check(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Alloc { t, n } => {
                if *n == 0 || *n > MAX_TENSOR {
                    return Err(format!("tensor {t} has {n} bytes; accepted: 1 to {MAX_TENSOR}"));
                }
                if self.live.insert(*t, *n).is_some() {
                    return Err(format!("tensor {t} is allocated, but it is live already"));
                }
                self.live_bytes += n;
                if self.live_bytes > MAX_LIVE {
                    return Err(format!(
                        "with tensor {t} {} bytes are live; accepted: at most {MAX_LIVE}",
                        self.live_bytes
                    ));
                }
            }
            Op::Free { t } => {
                if let Some(bytes) = self.live.remove(t) {
                    self.live_bytes -= bytes;
                } else {
                    let why = if self.freed.contains(*t) {
                        "freed already"
                    } else {
                        "never allocated"
                    };
                    return Err(format!("tensor {t} is freed, but it was {why}"));
                }
                self.freed.insert(*t);
            }
            Op::Kernel {
                name,
                r,
                w,
                ns,
                pattern,
                ..
            } => {
                if ns.is_some_and(|ns| ns > MAX_NS) {
                    return Err(format!(
                        "kernel {name:?} has ns = {}; accepted: up to {MAX_NS}",
                        ns.unwrap_or_default()
                    ));
                }
                for pieces in [r, w] {
                    self.check_pieces(pieces, &format!("kernel {name:?}"))?;
                }
                if let Some(pattern) = pattern {
                    let checked = pattern.check(r.len(), w.len());
                    checked.map_err(|what| format!("pattern of kernel {name:?}: {what}"))?;
                }
            }
            Op::H2d { w } => self.check_pieces(w, "a host copy")?,
            Op::Cpu { w, .. } => self.check_pieces(w, "a CPU access")?,
            Op::Prefetch { w, .. } => self.check_pieces(w, "a prefetch")?,
            Op::Advise { w, .. } => self.check_pieces(w, "an advice")?,
            Op::Discard { w, .. } => self.check_pieces(w, "a discard")?,
            Op::Sync {} | Op::Iter { .. } => {}
        }
        Ok(())
    }

    fn check_pieces(&self, pieces: &[Piece], who: &str) -> Result<(), String> {
        if pieces.len() > MAX_PIECES {
            return Err(format!(
                "{who} has {} ranges; accepted: up to {MAX_PIECES}",
                pieces.len()
            ));
        }
        for Piece(t, offset, bytes) in pieces {
            let Some(size) = self.live.get(t) else {
                let why = if self.freed.contains(*t) {
                    "was freed before"
                } else {
                    "was never allocated"
                };
                return Err(format!("{who} touches tensor {t}, which {why}"));
            };
            if offset.checked_add(*bytes).is_none_or(|end| end > *size) {
                return Err(format!(
                    "{who} touches bytes {offset} + {bytes} of tensor {t}, which has {size} bytes"
                ));
            }
        }
        Ok(())
    }
}

impl Program {
    /// Checks what a file of this program would be checked for.
    ///
    /// # Errors
    /// Which operation is wrong, why, and what is accepted.
    pub fn check(&self) -> Result<(), String> {
        if self.iterations.is_empty() {
            return Err("the program has no iteration".to_owned());
        }
        let mut checker = Checker::default();
        for (number, ops) in std::iter::once(&self.setup).chain(&self.iterations).enumerate() {
            for (at, op) in ops.iter().enumerate() {
                checker.check(op).map_err(|what| {
                    // The setup comes before iteration 0.
                    let part = number
                        .checked_sub(1)
                        .map_or_else(|| "the setup".to_owned(), |i| format!("iteration {i}"));
                    format!("operation {at} of {part}: {what}")
                })?;
            }
        }
        Ok(())
    }
}
