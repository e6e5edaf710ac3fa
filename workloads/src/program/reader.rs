//! Reading and checking programs.

use std::collections::HashSet;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::check::Checker;
use super::lines::{self, Lines, Place, text_at};
use super::stored::{Index, Recording, Stamp, Stored};
use super::{FORMAT, Op, Piece, Program, ProgramError};
use crate::pattern::PatternSpec;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    name: String,
    #[serde(default)]
    iterations: Option<u32>,
}

/// Memory that the operations of a program may take; of a larger one only the places are kept.
const KEPT_BYTES: usize = 128 << 20;
/// Names of kernels that are shared between operations.
const NAMES: usize = 1 << 16;

/// Reads a whole program from a file, plain or compressed (by its first bytes).
///
/// # Errors
/// What is wrong, with file and line.
pub fn read(path: &Path) -> Result<Program, ProgramError> {
    let text = text_at(lines::open(path)?, 0).map_err(|source| lines::io(path, source))?;
    parse(text, &path.display().to_string())
}

/// Reads and checks a program; if its operations would take more than 128 MiB of memory they stay in the
/// file and are read again by each [`Schedule`](super::Schedule).
///
/// # Errors
/// What is wrong, with file and line.
pub fn open(path: &Path) -> Result<Recording, ProgramError> {
    open_keeping(path, KEPT_BYTES)
}

/// As [`open`]; operations stay in the file if they would take more than `most` bytes of memory.
///
/// # Errors
/// What is wrong, with file and line.
pub fn open_keeping(path: &Path, most: usize) -> Result<Recording, ProgramError> {
    let file = lines::open(path)?;
    let stamp = Stamp::of(&file).map_err(|source| lines::io(path, source))?;
    // What is not a file, such as a pipe, can be read only once.
    let most = if stamp.is_file { most } else { usize::MAX };
    let text = text_at(file, 0).map_err(|source| lines::io(path, source))?;
    let scanned = scan(text, &path.display().to_string(), most)?;
    Ok(match scanned.kept {
        Some(program) => Recording::Memory(program),
        None => Recording::Stored(Stored {
            path: path.to_path_buf(),
            stamp,
            name: scanned.name,
            index: scanned.index,
        }),
    })
}

/// Parses a program; `file` is for messages.
///
/// # Errors
/// What is wrong, with file and line.
pub fn parse(reader: impl BufRead, file: &str) -> Result<Program, ProgramError> {
    let scanned = scan(reader, file, usize::MAX)?;
    // Nothing is too large to be kept.
    Ok(scanned.kept.unwrap_or(Program {
        name: scanned.name,
        setup: Vec::new(),
        iterations: Vec::new(),
    }))
}

/// What one pass over a program finds.
struct Scanned {
    name: String,
    /// The operations, unless they are too many.
    kept: Option<Program>,
    index: Index,
}

/// One pass: everything is checked, at most `most` bytes of operations are kept.
fn scan(reader: impl BufRead, file: &str, most: usize) -> Result<Scanned, ProgramError> {
    let mut lines = Lines::new(reader, file, Place::default());
    let header = match lines.next()? {
        None => return Err(lines.wrong("the file is empty; expected a program".to_owned())),
        Some(text) => serde_json::from_str::<Header>(text).map_err(|error| error.to_string()),
    };
    let header = header.map_err(|error| {
        lines.wrong(format!(
            "{error}; the first line has to be {{\"format\":\"{FORMAT}\",\"name\":\"...\"}}"
        ))
    })?;
    if header.format != FORMAT {
        return Err(lines.wrong(format!(
            "format {:?} is not known; accepted: {FORMAT:?}",
            header.format
        )));
    }
    let mut kept = Some(Program {
        name: header.name.clone(),
        setup: Vec::new(),
        iterations: Vec::new(),
    });
    let mut bytes = 0_usize;
    let mut index = Index::new(lines.place());
    let mut checker = Checker::default();
    let mut operations = Operations::default();
    while let Some(op) = operations.next(&mut lines)? {
        checker.check(&op).map_err(|what| lines.wrong(what))?;
        index.add(&op, lines.place()).map_err(|what| lines.wrong(what))?;
        bytes = bytes.saturating_add(size_of_op(&op));
        if bytes > most {
            kept = None;
        }
        let Some(program) = &mut kept else { continue };
        if let Op::Iter { .. } = op {
            program.iterations.push(Vec::new());
        } else {
            program
                .iterations
                .last_mut()
                .unwrap_or(&mut program.setup)
                .push(op);
        }
    }
    let found = index.iterations.len();
    if let Some(announced) = header.iterations
        && announced as usize != found
    {
        return Err(lines.wrong(format!(
            "the file ends after {found} of {announced} iterations: it is truncated"
        )));
    }
    if found == 0 {
        return Err(lines
            .wrong("the program has no iteration: a line {\"op\":\"iter\",\"i\":0} is missing".to_owned()));
    }
    index.finish(lines.place());
    Ok(Scanned {
        name: header.name,
        kept,
        index,
    })
}

/// Memory that an operation takes, about.
fn size_of_op(op: &Op) -> usize {
    let (pieces, pattern) = match op {
        Op::Kernel { r, w, pattern, .. } => (
            r.len() + w.len(),
            pattern
                .as_ref()
                .map_or(0, |spec| size_of::<PatternSpec>() + spec.heap_bytes()),
        ),
        Op::H2d { w } | Op::Cpu { w, .. } => (w.len(), 0),
        _ => (0, 0),
    };
    size_of::<Op>() + pieces * size_of::<Piece>() + pattern
}

/// Operations from lines; kernels of one name share it.
#[derive(Debug, Default)]
pub(super) struct Operations {
    names: HashSet<Arc<str>>,
}

impl Operations {
    /// The next operation; `None` at the end.
    ///
    /// # Errors
    /// The line cannot be read or is no operation.
    pub fn next<R: BufRead>(&mut self, lines: &mut Lines<R>) -> Result<Option<Op>, ProgramError> {
        let parsed = match lines.next()? {
            None => return Ok(None),
            Some(text) => serde_json::from_str::<Op>(text).map_err(|error| error.to_string()),
        };
        let mut op = parsed.map_err(|what| lines.wrong(what))?;
        if let Op::Kernel { name, .. } = &mut op {
            if let Some(known) = self.names.get(name) {
                *name = Arc::clone(known);
            } else if self.names.len() < NAMES {
                self.names.insert(Arc::clone(name));
            }
        }
        Ok(Some(op))
    }
}
