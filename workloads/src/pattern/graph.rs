//! Graph algorithms, one thread a vertex: what a block touches is computed on the graph.
//!
//! A step ends where the next addresses depend on what was loaded: flags, then rows, then edges, then
//! what the edges lead to. A thread's edges are taken together.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sim_core::access::{Access, AccessKind, AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::{ByteRange, PAGE_BYTES, Page};

use super::touch::merge_touches;
pub use crate::graph::Prepared;

/// One kernel of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Breadth-first search, expansion (Rodinia's first kernel). Reads mask, nodes {start, count}, edges,
    /// visited, cost; writes mask, cost, updating.
    BfsExpand,
    /// Breadth-first search, commit. Reads updating; writes mask, visited, updating.
    BfsCommit,
    /// Shortest paths, relaxation. Reads finalized, rows, edges, lengths, distance; writes finalized,
    /// updating.
    SsspRelax,
    /// Shortest paths, update. Reads distance, updating; writes distance, finalized, updating.
    SsspUpdate,
    /// `PageRank`, pull. Reads rows, edges, rank; writes the next rank.
    PageRank,
}

impl Phase {
    /// Ranges read and written.
    pub const fn operands(self) -> (usize, usize) {
        match self {
            Phase::BfsExpand => (5, 3),
            Phase::BfsCommit => (1, 3),
            Phase::SsspRelax => (5, 2),
            Phase::SsspUpdate => (2, 3),
            Phase::PageRank => (3, 1),
        }
    }

    const fn steps(self) -> u32 {
        match self {
            Phase::BfsExpand => 4,
            Phase::SsspRelax | Phase::PageRank => 3,
            Phase::BfsCommit | Phase::SsspUpdate => 1,
        }
    }
}

/// Bytes of a flag.
const FLAG: u64 = 1;
/// Bytes of a vertex or edge number, a distance, a rank.
const WORD: u64 = 4;
/// Bytes of a row of the search: start and count.
const NODE: u64 = 8;

/// One launch of a kernel of an algorithm.
#[derive(Clone, Debug)]
pub struct GraphWalk {
    graph: Arc<Prepared>,
    phase: Phase,
    level: u32,
    threads: u32,
    reads: Vec<ByteRange>,
    writes: Vec<ByteRange>,
}

impl GraphWalk {
    /// The kernel of `phase` in iteration `level`.
    pub fn new(
        graph: Arc<Prepared>,
        phase: Phase,
        level: u32,
        threads: u32,
        reads: &[ByteRange],
        writes: &[ByteRange],
    ) -> GraphWalk {
        let (reads, writes) = (reads.to_vec(), writes.to_vec());
        GraphWalk {
            graph,
            phase,
            level,
            threads,
            reads,
            writes,
        }
    }

    /// The vertices of a block.
    fn vertices(&self, block: u64) -> std::ops::Range<u32> {
        let all = u64::from(self.graph.graph.vertices());
        let first = (block * u64::from(self.threads)).min(all);
        (first as u32)..((first + u64::from(self.threads)).min(all) as u32)
    }

    fn range(&self, kind: AccessKind, operand: usize) -> ByteRange {
        let side = if kind == AccessKind::Read {
            &self.reads
        } else {
            &self.writes
        };
        side.get(operand).copied().unwrap_or_default()
    }

    /// The accesses of a step; without loads if `loads` is false.
    fn in_step(&self, block: u64, step: u32, loads: bool, out: &mut StepAccesses) {
        use AccessKind::{AtomicWeak, Read, Write};
        let graph = &self.graph.graph;
        let vertices = self.vertices(block);
        let start = vertices.start;
        let fill = Fill { walk: self, loads };
        let (loads, stores) = (&mut out.loads, &mut out.stores);
        match self.phase {
            Phase::BfsExpand => {
                let levels = self.graph.levels();
                let frontier = || vertices.clone().filter(|v| levels[*v as usize] == self.level);
                let active = || frontier().map(|v| (v - start, u64::from(v)));
                let edges = || frontier().flat_map(|v| graph.row(v).map(move |e| (v - start, e)));
                let onward = || {
                    edges()
                        .map(|(t, e)| (t, graph.target(e)))
                        .filter(|(_, to)| levels[*to as usize] > self.level)
                        .map(|(t, to)| (t, u64::from(to)))
                };
                match step {
                    0 => fill.swept(0, FLAG, Read, block, loads),
                    1 => {
                        fill.scattered(1, NODE, Read, active(), loads);
                        fill.scattered(0, FLAG, Write, active(), stores);
                    }
                    2 => {
                        let wide = edges().map(|(t, e)| (t, u64::from(e)));
                        fill.scattered(2, WORD, Read, wide, loads);
                    }
                    _ => {
                        let to = edges().map(|(t, e)| (t, u64::from(graph.target(e))));
                        fill.scattered(3, FLAG, Read, to, loads);
                        let own = onward().map(|(t, _)| (t, u64::from(start + t)));
                        fill.scattered(4, WORD, Read, own, loads);
                        fill.scattered(1, WORD, Write, onward(), stores);
                        fill.scattered(2, FLAG, Write, onward(), stores);
                    }
                }
            }
            Phase::BfsCommit => {
                let levels = self.graph.levels();
                fill.swept(0, FLAG, Read, block, loads);
                for operand in 0..3 {
                    let reached = vertices
                        .clone()
                        .filter(|v| levels[*v as usize] == self.level + 1)
                        .map(|v| (v - start, u64::from(v)));
                    fill.scattered(operand, FLAG, Write, reached, stores);
                }
            }
            Phase::SsspRelax => {
                let active: &[u32] = self.graph.active().get(self.level as usize).map_or(&[], |list| {
                    let from = list.partition_point(|v| *v < vertices.start);
                    let end = list.partition_point(|v| *v < vertices.end);
                    &list[from..end]
                });
                let own = || active.iter().map(|v| (v - start, u64::from(*v)));
                let edges = || {
                    active
                        .iter()
                        .flat_map(|v| graph.row(*v).map(move |e| (v - start, e)))
                };
                match step {
                    0 => fill.swept(0, FLAG, Read, block, loads),
                    1 => {
                        let rows = own().flat_map(|(t, v)| [(t, v), (t, v + 1)]);
                        fill.scattered(1, WORD, Read, rows, loads);
                        fill.scattered(4, WORD, Read, own(), loads);
                        fill.scattered(0, FLAG, Write, own(), stores);
                    }
                    _ => {
                        for operand in [2, 3] {
                            let wide = edges().map(|(t, e)| (t, u64::from(e)));
                            fill.scattered(operand, WORD, Read, wide, loads);
                        }
                        let to = edges().map(|(t, e)| (t, u64::from(graph.target(e))));
                        fill.scattered(1, WORD, AtomicWeak, to, stores);
                    }
                }
            }
            Phase::SsspUpdate => {
                fill.swept(0, WORD, Read, block, loads);
                fill.swept(1, WORD, Read, block, loads);
                for (operand, element) in [(0, WORD), (1, FLAG)] {
                    let fell = vertices
                        .clone()
                        .filter(|v| self.graph.is_active(self.level + 1, *v))
                        .map(|v| (v - start, u64::from(v)));
                    fill.scattered(operand, element, Write, fell, stores);
                }
                fill.swept(2, WORD, Write, block, stores);
            }
            Phase::PageRank => {
                let edges = || {
                    vertices
                        .clone()
                        .flat_map(|v| graph.row(v).map(move |e| (v - start, e)))
                };
                match step {
                    0 => {
                        let rows = vertices
                            .clone()
                            .flat_map(|v| [(v - start, u64::from(v)), (v - start, u64::from(v) + 1)]);
                        fill.scattered(0, WORD, Read, rows, loads);
                    }
                    1 => {
                        let wide = edges().map(|(t, e)| (t, u64::from(e)));
                        fill.scattered(1, WORD, Read, wide, loads);
                    }
                    _ => {
                        let to = edges().map(|(t, e)| (t, u64::from(graph.target(e))));
                        fill.scattered(2, WORD, Read, to, loads);
                        fill.swept(0, WORD, Write, block, stores);
                    }
                }
            }
        }
    }

    fn ranges(&self) -> impl Iterator<Item = &ByteRange> {
        self.reads
            .iter()
            .chain(&self.writes)
            .filter(|range| range.bytes > 0)
    }
}

/// Fills in the accesses of a step, with or without its loads.
struct Fill<'a> {
    walk: &'a GraphWalk,
    loads: bool,
}

impl Fill<'_> {
    /// Elements `indices` (each with the thread that touches it) of an operand.
    fn scattered(
        &self,
        operand: usize,
        element: u64,
        kind: AccessKind,
        indices: impl Iterator<Item = (u32, u64)>,
        out: &mut Vec<Access>,
    ) {
        if kind == AccessKind::Read && !self.loads {
            return;
        }
        let range = self.walk.range(kind, operand);
        let before = out.len();
        for (thread, index) in indices {
            let at = index * element;
            if at >= range.bytes {
                continue;
            }
            let warps = (thread / 32) as u16;
            let first = Page::containing(range.start + at);
            match out[before..].last() {
                // Most neighbours lie in one page.
                Some(last) if last.first == first && last.warps == warps => {}
                _ => out.push(Access {
                    first,
                    pages: 1,
                    warps,
                    kind,
                }),
            }
        }
        merge_touches(out, before);
    }

    /// One element for each vertex of the block.
    fn swept(&self, operand: usize, element: u64, kind: AccessKind, block: u64, out: &mut Vec<Access>) {
        let vertices = self.walk.vertices(block);
        let indices = vertices.clone().map(|v| (v - vertices.start, u64::from(v)));
        self.scattered(operand, element, kind, indices, out);
    }
}

impl AccessPattern for GraphWalk {
    fn blocks(&self) -> u64 {
        u64::from(self.graph.graph.vertices())
            .div_ceil(u64::from(self.threads.max(1)))
            .max(1)
    }

    fn steps(&self) -> u32 {
        self.phase.steps()
    }

    fn step(&self, block: u64, step: u32, out: &mut StepAccesses) {
        self.in_step(block, step, true, out);
    }

    fn stores(&self, block: u64, step: u32, out: &mut StepAccesses) {
        self.in_step(block, step, false, out);
    }

    fn loads_mapped(&self, mapped: &dyn MappedPages) -> bool {
        self.reads
            .iter()
            .filter(|range| range.bytes > 0)
            .all(|r| mapped.first_unmapped(r.first_page(), r.end_page()).is_none())
    }

    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        if from >= self.blocks() {
            return None;
        }
        let hole = self.ranges().any(|range| {
            mapped
                .first_unmapped(range.first_page(), range.end_page())
                .is_some()
        });
        hole.then_some(from)
    }

    fn may_touch(&self, first: Page, end: Page) -> bool {
        self.ranges()
            .any(|range| range.first_page() < end && first < range.end_page())
    }
}

/// An element never lies in two pages where arrays start on one.
const _: () = assert!(PAGE_BYTES.is_multiple_of(NODE));
