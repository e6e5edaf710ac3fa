//! The accesses of every block as a recording has them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sim_core::access::{Access, AccessKind, AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::{ByteRange, Page};

/// Accesses of a kernel, at most: what a line of a program can hold.
pub const MOST_RECORDED: usize = 1 << 20;

/// Warps of a block that touch the same bytes of an operand with the same instruction: step, operand,
/// offset in bytes, bytes, warps.
pub type RecordedAccess = (u32, u32, u64, u64, u16);

/// Which blocks touched what, in launch order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedSpec {
    /// Steps of every block; those that a block has no accesses in are empty.
    pub steps: u32,
    /// The accesses of each block, by step.
    pub blocks: Vec<Vec<RecordedAccess>>,
}

impl RecordedSpec {
    /// Can it be simulated with `operands` ranges?
    ///
    /// # Errors
    /// What is wrong, and what is accepted.
    pub fn check(&self, operands: usize) -> Result<(), String> {
        let accesses: usize = self.blocks.iter().map(Vec::len).sum();
        if accesses > MOST_RECORDED {
            return Err(format!("{accesses} accesses; accepted: up to {MOST_RECORDED}"));
        }
        for (number, block) in self.blocks.iter().enumerate() {
            if !block.is_sorted_by_key(|access| access.0) {
                return Err(format!(
                    "block {number}: its accesses are not in the order of their steps"
                ));
            }
            for (step, operand, offset, bytes, warps) in block {
                let wrong = |what: String| Err(format!("block {number}: {what}"));
                if *step >= self.steps {
                    return wrong(format!("step {step}; there are {}", self.steps));
                }
                if *operand as usize >= operands {
                    return wrong(format!("operand {operand}; there are {operands}"));
                }
                if *bytes == 0 || *bytes > 1 << 40 || *offset > 1 << 50 || !(1..=32).contains(warps) {
                    return wrong(format!(
                        "{bytes} bytes at {offset} by {warps} warps; accepted: 1 to 2^40 bytes at up to 2^50, 1 to 32 warps"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// [`RecordedSpec`] at its addresses.
#[derive(Clone, Debug)]
pub struct Recorded {
    spec: Arc<RecordedSpec>,
    /// Ranges read, then ranges written.
    operands: Vec<ByteRange>,
    /// So many of these are read.
    reads: usize,
}

impl Recorded {
    /// A recording over these ranges.
    pub fn new(spec: Arc<RecordedSpec>, reads: &[ByteRange], writes: &[ByteRange]) -> Recorded {
        Recorded {
            spec,
            operands: [reads, writes].concat(),
            reads: reads.len(),
        }
    }

    /// The access at its pages; `None` where the operand has no such bytes.
    fn placed(&self, recorded: &RecordedAccess) -> Option<Access> {
        let (_, operand, offset, bytes, warps) = *recorded;
        let range = self.operands.get(operand as usize)?;
        let start = range.start + offset;
        let end = (offset + bytes).min(range.bytes) + range.start;
        if start >= end {
            return None;
        }
        let piece = ByteRange {
            start,
            bytes: end - start,
        };
        Some(Access {
            first: piece.first_page(),
            pages: (piece.end_page().0 - piece.first_page().0) as u32,
            warps,
            kind: if (operand as usize) < self.reads {
                AccessKind::Read
            } else {
                AccessKind::Write
            },
        })
    }

    fn accesses(&self, block: u64) -> &[RecordedAccess] {
        usize::try_from(block)
            .ok()
            .and_then(|block| self.spec.blocks.get(block))
            .map_or(&[], Vec::as_slice)
    }

    fn any_unmapped(ranges: &[ByteRange], mapped: &dyn MappedPages) -> bool {
        ranges.iter().any(|range| {
            range.bytes > 0
                && mapped
                    .first_unmapped(range.first_page(), range.end_page())
                    .is_some()
        })
    }
}

impl AccessPattern for Recorded {
    fn blocks(&self) -> u64 {
        (self.spec.blocks.len() as u64).max(1)
    }

    fn steps(&self) -> u32 {
        self.spec.steps.max(1)
    }

    fn step(&self, block: u64, step: u32, out: &mut StepAccesses) {
        let accesses = self.accesses(block);
        let first = accesses.partition_point(|access| access.0 < step);
        for recorded in accesses[first..].iter().take_while(|access| access.0 == step) {
            if let Some(access) = self.placed(recorded) {
                match access.kind {
                    AccessKind::Read => out.loads.push(access),
                    _ => out.stores.push(access),
                }
            }
        }
    }

    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        if !Recorded::any_unmapped(&self.operands, mapped) {
            return None;
        }
        (from..self.spec.blocks.len() as u64).find(|block| {
            self.accesses(*block)
                .iter()
                .filter_map(|recorded| self.placed(recorded))
                .any(|access| {
                    let end = Page(access.first.0 + u64::from(access.pages));
                    mapped.first_unmapped(access.first, end).is_some()
                })
        })
    }

    fn loads_mapped(&self, mapped: &dyn MappedPages) -> bool {
        !Recorded::any_unmapped(&self.operands[..self.reads], mapped)
    }

    fn may_touch(&self, first: Page, end: Page) -> bool {
        self.operands
            .iter()
            .any(|range| range.bytes > 0 && range.first_page() < end && first < range.end_page())
    }
}
