//! Programs of any length: in memory, or left in their file and read again iteration by iteration.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::SystemTime;

use super::lines::{self, Lines, Place, Text, text_at};
use super::reader::Operations;
use super::{Op, Program, ProgramError};

/// A program that has been read and checked.
#[derive(Debug)]
pub enum Recording {
    /// All of it is in memory.
    Memory(Program),
    /// Its operations are in their file.
    Stored(Stored),
}

impl Recording {
    /// Iterations that it has.
    pub fn iterations(&self) -> u32 {
        let iterations = match self {
            Recording::Memory(program) => program.iterations.len(),
            Recording::Stored(stored) => stored.index.iterations.len(),
        };
        u32::try_from(iterations).unwrap_or(u32::MAX)
    }
}

impl From<Program> for Recording {
    fn from(program: Program) -> Self {
        Recording::Memory(program)
    }
}

/// A program whose operations are in a file.
#[derive(Debug)]
pub struct Stored {
    pub(super) path: PathBuf,
    pub(super) stamp: Stamp,
    pub(super) name: String,
    pub(super) index: Index,
}

impl Stored {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Operations in the file, marks of iterations not counted.
    pub fn operations(&self) -> u64 {
        self.index.operations
    }

    /// A file that is not any more what was checked.
    fn changed(&self) -> ProgramError {
        lines::io(
            &self.path,
            std::io::Error::other("the file changed while it was in use"),
        )
    }

    fn lines_at(&self, place: Place) -> Result<Lines<Text>, ProgramError> {
        let io = |source| lines::io(&self.path, source);
        let file = lines::open(&self.path)?;
        if Stamp::of(&file).map_err(io)? != self.stamp {
            return Err(self.changed());
        }
        let text = text_at(file, place.offset).map_err(io)?;
        Ok(Lines::new(text, &self.path.display().to_string(), place))
    }
}

/// How one notices that a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub is_file: bool,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    pub fn of(file: &File) -> std::io::Result<Stamp> {
        let metadata = file.metadata()?;
        Ok(Stamp {
            is_file: metadata.is_file(),
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }
}

/// One iteration of a file.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// Where its first operation is.
    begin: Place,
    /// Tensors that it frees and the iteration before allocated, in the order of their allocation.
    carried: Vec<u32>,
}

/// Where the iterations of a file are; made in the pass that checks it.
#[derive(Clone, Debug)]
pub(super) struct Index {
    setup: Place,
    pub iterations: Vec<Span>,
    end: Place,
    operations: u64,
    /// Live tensors: the iteration that allocated them, and when.
    born: HashMap<u32, (usize, u64)>,
    /// Carried into the iteration in progress: when allocated, id.
    carried: Vec<(u64, u32)>,
}

impl Index {
    /// `setup`: where the first operation is.
    pub fn new(setup: Place) -> Index {
        Index {
            setup,
            iterations: Vec::new(),
            end: setup,
            operations: 0,
            born: HashMap::new(),
            carried: Vec::new(),
        }
    }

    /// The next operation; `after` it.
    ///
    /// # Errors
    /// An iteration out of turn.
    pub fn add(&mut self, op: &Op, after: Place) -> Result<(), String> {
        let begun = self.iterations.len();
        match op {
            Op::Iter { i } => {
                if *i as usize != begun {
                    return Err(format!("iteration {i} begins, but the next one is {begun}"));
                }
                self.close();
                self.iterations.push(Span {
                    begin: after,
                    carried: Vec::new(),
                });
                return Ok(());
            }
            Op::Alloc { t, .. } => {
                self.born.insert(*t, (begun, self.operations));
            }
            Op::Free { t } => {
                // What the setup allocated is kept, not carried.
                if let Some((iteration, when)) = self.born.remove(t)
                    && iteration + 1 == begun
                    && iteration > 0
                {
                    self.carried.push((when, *t));
                }
            }
            _ => {}
        }
        self.operations += 1;
        Ok(())
    }

    /// Nothing follows.
    pub fn finish(&mut self, end: Place) {
        self.close();
        self.born = HashMap::new();
        self.end = end;
    }

    /// Ends the iteration in progress.
    fn close(&mut self) {
        let mut carried = std::mem::take(&mut self.carried);
        carried.sort_unstable();
        if let Some(span) = self.iterations.last_mut() {
            span.carried = carried.into_iter().map(|(_, id)| id).collect();
        }
    }
}

/// A program to run: borrowed, wherever its operations are.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// In memory.
    Memory(&'a Program),
    /// In a file.
    Stored(&'a Stored),
}

impl<'a> From<&'a Program> for Source<'a> {
    fn from(program: &'a Program) -> Self {
        Source::Memory(program)
    }
}

impl<'a> From<&'a Recording> for Source<'a> {
    fn from(recording: &'a Recording) -> Self {
        match recording {
            Recording::Memory(program) => Source::Memory(program),
            Recording::Stored(stored) => Source::Stored(stored),
        }
    }
}

impl<'a> Source<'a> {
    /// Iterations in the recording.
    pub fn recorded(self) -> usize {
        match self {
            Source::Memory(program) => program.iterations.len(),
            Source::Stored(stored) => stored.index.iterations.len(),
        }
    }

    /// Tensors that iteration `recording` frees and the one before it allocated, in the order of their
    /// allocation; none for the first.
    pub(super) fn carried_into(self, recording: usize) -> Cow<'a, [u32]> {
        match self {
            Source::Memory(program) => Cow::Owned(program.carried_into(recording)),
            Source::Stored(stored) => stored
                .index
                .iterations
                .get(recording)
                .map_or(Cow::Borrowed(&[]), |span| Cow::Borrowed(&span.carried)),
        }
    }

    /// The operations of the setup.
    pub(super) fn cursor(self) -> Cursor<'a> {
        match self {
            Source::Memory(program) => Cursor::Memory(program, program.setup.iter()),
            Source::Stored(stored) => Cursor::Stored(Box::new(Reading {
                stored,
                lines: None,
                operations: Operations::default(),
                current: None,
                reached: None,
            })),
        }
    }
}

impl Program {
    fn carried_into(&self, recording: usize) -> Vec<u32> {
        if recording == 0 {
            return Vec::new();
        }
        let mut own = std::collections::HashSet::new();
        let mut freed = std::collections::HashSet::new();
        for op in &self.iterations[recording] {
            match op {
                Op::Alloc { t, .. } => {
                    own.insert(*t);
                }
                Op::Free { t } if !own.remove(t) => {
                    freed.insert(*t);
                }
                _ => {}
            }
        }
        let mut carried = Vec::new();
        for op in &self.iterations[recording - 1] {
            if let Op::Alloc { t, .. } = op {
                carried.retain(|id| id != t);
                if freed.contains(t) {
                    carried.push(*t);
                }
            }
        }
        carried
    }
}

/// The operations of the setup or of one iteration, one after the other.
#[derive(Debug)]
pub(super) enum Cursor<'a> {
    Memory(&'a Program, std::slice::Iter<'a, Op>),
    Stored(Box<Reading<'a>>),
}

impl<'a> Cursor<'a> {
    /// The next operation; `None` at the end of the setup or iteration.
    pub fn next(&mut self) -> Result<Option<Cow<'a, Op>>, ProgramError> {
        match self {
            Cursor::Memory(_, ops) => Ok(ops.next().map(Cow::Borrowed)),
            Cursor::Stored(reading) => Ok(reading.next()?.map(Cow::Owned)),
        }
    }

    /// Goes to the beginning of an iteration.
    pub fn begin(&mut self, recording: usize) -> Result<(), ProgramError> {
        match self {
            Cursor::Memory(program, ops) => {
                *ops = program
                    .iterations
                    .get(recording)
                    .map_or([].iter(), |ops| ops.iter());
                Ok(())
            }
            Cursor::Stored(reading) => reading.begin(recording),
        }
    }
}

/// Reading a stored program.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    stored: &'a Stored,
    /// Where it is; nothing before the first operation.
    lines: Option<Lines<Text>>,
    operations: Operations,
    /// The iteration being read; none: the setup.
    current: Option<usize>,
    /// The iteration whose mark was read last, if nothing has been read since.
    reached: Option<usize>,
}

impl Reading<'_> {
    fn next(&mut self) -> Result<Option<Op>, ProgramError> {
        if self.reached.is_some() {
            return Ok(None);
        }
        let lines = match &mut self.lines {
            Some(lines) => lines,
            none => none.insert(self.stored.lines_at(self.stored.index.setup)?),
        };
        let next = self.current.map_or(0, |current| current + 1);
        let index = &self.stored.index;
        match self.operations.next(lines)? {
            Some(Op::Iter { i }) if i as usize == next && next < index.iterations.len() => {
                self.reached = Some(next);
                Ok(None)
            }
            None if next == index.iterations.len() && lines.place().offset == index.end.offset => Ok(None),
            Some(Op::Iter { .. }) | None => Err(self.stored.changed()),
            op => Ok(op),
        }
    }

    fn begin(&mut self, recording: usize) -> Result<(), ProgramError> {
        if self.reached != Some(recording) {
            let span = self.stored.index.iterations.get(recording);
            let begin = span.ok_or_else(|| self.stored.changed())?.begin;
            self.lines = Some(self.stored.lines_at(begin)?);
        }
        self.reached = None;
        self.current = Some(recording);
        Ok(())
    }
}
