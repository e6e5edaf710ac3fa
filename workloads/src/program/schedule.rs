//! Running a program for any number of iterations.
//!
//! The recorded iterations 0, 1, ..., R-1 run first; then 1, ..., R-1 again, over and over (with one
//! recorded iteration, that one). The first is not repeated because it creates what later ones use,
//! such as optimizer state.
//!
//! Tensors that iteration j frees although it did not allocate them were *carried* from the iteration
//! before. When j follows another iteration than j - 1, the k-th carried tensor of the one stands for
//! the k-th carried tensor of the other, in the order of their allocation. Accesses beyond the size of
//! such a stand-in are clipped to it, as are accesses to tensors that the repeated iteration finds
//! under another size.

use std::borrow::Cow;
use std::collections::HashMap;

use super::stored::{Cursor, Source};
use super::{Op, Piece, ProgramError};

/// Turns recorded iterations into a run of any length; tensors get ids that are never used twice.
#[derive(Debug)]
pub struct Schedule<'a> {
    source: Source<'a>,
    wanted: u32,
    /// The iteration in progress: how many have begun, which recording, its next operations.
    begun: u32,
    recording: usize,
    cursor: Cursor<'a>,
    failed: bool,
    /// Recorded id -> (id of this run, bytes, iteration of this run that allocated it).
    names: HashMap<u32, (u32, u64, u32)>,
    fresh: u32,
}

/// One operation of a run, tensors named by ids of the run.
#[derive(Clone, Debug, PartialEq)]
pub enum Scheduled<'a> {
    /// A tensor is allocated: id, bytes.
    Alloc(u32, u64),
    /// A tensor is freed.
    Free(u32),
    /// Anything else; its pieces are to be looked up with [`Schedule::piece`].
    Other(Cow<'a, Op>),
    /// An iteration begins.
    Iteration(u32),
}

impl<'a> Schedule<'a> {
    /// A run of `iterations` iterations.
    pub fn new(program: impl Into<Source<'a>>, iterations: u32) -> Schedule<'a> {
        let source = program.into();
        Schedule {
            source,
            wanted: iterations,
            begun: 0,
            recording: 0,
            cursor: source.cursor(),
            failed: false,
            names: HashMap::new(),
            fresh: 0,
        }
    }

    /// The run's tensor id, offset and bytes of a recorded piece; `None` if nothing is left of it.
    pub fn piece(&self, piece: &Piece) -> Option<(u32, u64, u64)> {
        let (id, size, _) = *self.names.get(&piece.0)?;
        let end = piece.1.saturating_add(piece.2).min(size);
        (piece.1 < end).then(|| (id, piece.1, end - piece.1))
    }

    /// The next recording after `recording`.
    fn successor(&self, recording: usize) -> usize {
        let recorded = self.source.recorded();
        if recording + 1 < recorded {
            recording + 1
        } else {
            1.min(recorded - 1)
        }
    }

    /// Begins the next iteration; `None` after the last.
    fn begin(&mut self) -> Result<Option<Scheduled<'a>>, ProgramError> {
        if self.begun == self.wanted {
            return Ok(None);
        }
        let recorded = self.source.recorded();
        let (previous, repeated) = (self.recording, self.begun as usize >= recorded);
        let next = if self.begun == 0 {
            0
        } else {
            self.successor(previous)
        };
        if repeated {
            // What the iteration just ended has left, in order of allocation, stands for what the
            // recording before `next` would have left.
            let expected = self.source.carried_into(next);
            let last = self.begun - 1;
            let mut left: Vec<(u32, (u32, u64, u32))> = self
                .names
                .iter()
                .filter(|(_, v)| v.2 == last)
                .map(|(k, v)| (*k, *v))
                .collect();
            left.sort_unstable_by_key(|(_, value)| value.0);
            // Only as many as are expected, the last ones allocated: earlier ones are kept for ever.
            let skip = left.len().saturating_sub(expected.len());
            let standing: Vec<_> = left.drain(skip..).collect();
            for (recorded_id, _) in &standing {
                self.names.remove(recorded_id);
            }
            for (expected, (_, value)) in expected.iter().zip(standing) {
                self.names.insert(*expected, value);
            }
        }
        self.cursor.begin(next)?;
        self.recording = next;
        self.begun += 1;
        Ok(Some(Scheduled::Iteration(self.begun - 1)))
    }

    fn step(&mut self) -> Result<Option<Scheduled<'a>>, ProgramError> {
        loop {
            let Some(op) = self.cursor.next()? else {
                return self.begin();
            };
            match *op {
                Op::Alloc { t, n } => {
                    let id = self.fresh;
                    self.fresh = id.checked_add(1).ok_or_else(|| ProgramError::Parameter {
                        key: "iterations",
                        value: self.wanted.to_string(),
                        accepted: "a run can allocate up to 4294967295 tensors",
                    })?;
                    // Repeated recordings can find an id in use by a tensor that is kept: it stays
                    // live under its old id of the run, which nothing names any more.
                    let born = self.begun.wrapping_sub(1);
                    self.names.insert(t, (id, n, born));
                    return Ok(Some(Scheduled::Alloc(id, n)));
                }
                Op::Free { t } => {
                    if let Some((id, _, _)) = self.names.remove(&t) {
                        return Ok(Some(Scheduled::Free(id)));
                    }
                }
                _ => return Ok(Some(Scheduled::Other(op))),
            }
        }
    }
}

impl<'a> Iterator for Schedule<'a> {
    type Item = Result<Scheduled<'a>, ProgramError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.step();
        self.failed = next.is_err();
        next.transpose()
    }
}
