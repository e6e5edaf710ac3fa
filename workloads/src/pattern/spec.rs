//! How a kernel of a program walks over its ranges, where the name of its op does not say it: the
//! `pattern` object of the program format.
//!
//! ```json
//! {"threads":256,"walk":{"kind":"lockstep","blocks":4096,"steps":1,"grid_stride":false}}
//! ```
//!
//! | field | meaning |
//! | --- | --- |
//! | `threads` | threads of a block: decides how many blocks an SM holds |
//! | `blocks_per_sm` | at most so many, where registers or shared memory allow no more |
//! | `waits` | each step waits for its loads: the kernel takes at least the latency of its loads |
//! | `walk` | which blocks touch what in which order; `kind` is one of the below |
//!
//! Operands are numbered: first the ranges of `r`, then those of `w`.
//!
//! | `kind` | fields |
//! | --- | --- |
//! | `lockstep` | `blocks`, `steps`, `grid_stride`: all ranges swept together |
//! | `sweep` | `blocks`, `steps`, `order` (`ascending`, `shuffled`, `chunked`), `seed`, `pages_per_thread`: one lane a page, over the first of `r` and of `w` |
//! | `gemm` | `batch`, `m`, `n`, `k`, `element`: the first two of `r`, the first of `w` |
//! | `lists` | `chunk`, `steps`, `lists`, `stores`: the ranges of `r` as `lists` lists of tensors of equal length, those of `w` as `stores` ones, chunk by chunk |
//! | `windows` | `grid`, `steps`, `windows`, `touches`, `seed` |
//! | `graph` | `graph`, `phase`, `level`: a step of a graph algorithm, computed on the graph |
//! | `recorded` | `steps`, `blocks`: for every block its accesses `[step, operand, offset, bytes, warps]`, by step |

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sim_core::pages::ByteRange;

use super::graph::{GraphWalk, Phase, Prepared};
use super::recorded::{Recorded, RecordedAccess, RecordedSpec};
use super::windows::{Windows, WindowsSpec};
use super::{Gemm, KernelPattern, Lists, Lockstep, Order, Sweep, TensorList};
use crate::graph::GraphSource;

/// Steps, blocks and threads at most.
const MOST_BLOCKS: u64 = 1 << 40;
/// Steps of all blocks together, at most.
const MOST_SERVICES: u128 = 1 << 52;
/// Threads of a block, at most (CUDA).
const MOST_THREADS: u32 = 1024;
/// Elements of a dimension of a product, at most.
const MOST_ELEMENTS: u64 = 1 << 40;
/// Bytes of an element, at most.
const MOST_ELEMENT: u64 = 64;

// serde hands over references.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(value: &u64) -> bool {
    *value == 0
}
fn one() -> u32 {
    1
}

/// The order of a [`Walk::Sweep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SweepOrder {
    /// Item i is page i.
    Ascending,
    /// A fixed pseudo-random permutation.
    Shuffled,
    /// Every thread walks a contiguous piece.
    Chunked,
}

/// Which blocks touch what in which order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Walk {
    /// All ranges swept together.
    Lockstep {
        /// Thread blocks.
        blocks: u64,
        /// Steps of each.
        #[serde(default = "one")]
        steps: u32,
        /// A grid-stride loop instead of contiguous pieces.
        #[serde(default)]
        grid_stride: bool,
    },
    /// One lane a page.
    Sweep {
        /// Thread blocks.
        blocks: u64,
        /// Steps of each.
        #[serde(default = "one")]
        steps: u32,
        /// Which page a touch goes to.
        order: SweepOrder,
        /// Chooses the permutation.
        #[serde(default, skip_serializing_if = "is_zero")]
        seed: u64,
        /// Pages of a thread's piece.
        #[serde(default, skip_serializing_if = "is_zero")]
        pages_per_thread: u64,
    },
    /// Tiles of a matrix product.
    Gemm {
        /// Products.
        batch: u64,
        /// Rows of C.
        m: u64,
        /// Columns of C.
        n: u64,
        /// Inner dimension.
        k: u64,
        /// Bytes of an element.
        element: u64,
    },
    /// Lists of tensors, chunk by chunk.
    Lists {
        /// Bytes of a chunk.
        chunk: u64,
        /// Steps of a block.
        #[serde(default = "one")]
        steps: u32,
        /// Into how many lists of equal length the ranges read are divided.
        lists: u32,
        /// The same for those written.
        #[serde(default = "one")]
        stores: u32,
    },
    /// Rectangles and lookups.
    Windows(Arc<WindowsSpec>),
    /// A step of a graph algorithm.
    Graph {
        /// The graph.
        graph: GraphSource,
        /// Which kernel.
        phase: Phase,
        /// Which iteration, from 0.
        #[serde(default)]
        level: u32,
    },
    /// Every block's accesses as recorded.
    Recorded(Arc<RecordedSpec>),
}

/// The `pattern` object of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternSpec {
    /// Threads of a block.
    pub threads: u32,
    /// Blocks that an SM holds at most, where less than the threads allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks_per_sm: Option<u32>,
    /// Steps wait for their loads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// What is touched.
    pub walk: Walk,
}

impl PatternSpec {
    /// A walk by blocks of `threads` threads whose steps wait for their loads.
    pub fn new(threads: u32, walk: Walk) -> PatternSpec {
        PatternSpec {
            threads,
            blocks_per_sm: None,
            waits: true,
            walk,
        }
    }

    /// Windows and touches.
    pub fn windows(threads: u32, spec: WindowsSpec) -> PatternSpec {
        PatternSpec::new(threads, Walk::Windows(Arc::new(spec)))
    }

    /// Bytes that it takes beyond its own size, about.
    pub(crate) fn heap_bytes(&self) -> usize {
        match &self.walk {
            Walk::Recorded(spec) => spec
                .blocks
                .iter()
                .map(|block| size_of::<Vec<RecordedAccess>>() + size_of_val(block.as_slice()))
                .sum(),
            _ => 0,
        }
    }

    /// Can it be simulated with `reads` ranges read and `writes` written?
    ///
    /// # Errors
    /// What is wrong, and what is accepted.
    pub fn check(&self, reads: usize, writes: usize) -> Result<(), String> {
        if self.threads == 0 || self.threads > MOST_THREADS {
            return Err(format!(
                "threads = {}; accepted: 1 to {MOST_THREADS}",
                self.threads
            ));
        }
        if self.blocks_per_sm == Some(0) {
            return Err("blocks_per_sm = 0; accepted: at least 1".to_owned());
        }
        let grid = |blocks: u64, steps: u32| {
            if blocks == 0 || blocks > MOST_BLOCKS || steps == 0 {
                return Err(format!(
                    "{blocks} blocks of {steps} steps; accepted: 1 to 2^40 blocks, at least 1 step"
                ));
            }
            if u128::from(blocks) * u128::from(steps) > MOST_SERVICES {
                return Err(format!(
                    "{blocks} blocks of {steps} steps; accepted: up to 2^52 steps in all"
                ));
            }
            Ok(())
        };
        match &self.walk {
            Walk::Lockstep { blocks, steps, .. } => grid(*blocks, *steps),
            Walk::Sweep {
                blocks,
                steps,
                order,
                pages_per_thread,
                ..
            } => {
                if reads + writes == 0 || reads > 1 || writes > 1 {
                    return Err("a sweep reads at most one range and writes at most one".to_owned());
                }
                if *order == SweepOrder::Chunked && (*pages_per_thread == 0 || *pages_per_thread > 1 << 40) {
                    return Err(format!(
                        "pages_per_thread = {pages_per_thread}; accepted: 1 to 2^40"
                    ));
                }
                let threads = u128::from(*blocks) * u128::from(self.threads);
                if threads * u128::from(*pages_per_thread) > MOST_SERVICES {
                    return Err(format!(
                        "{threads} threads of {pages_per_thread} pages; accepted: up to 2^52 pages in all"
                    ));
                }
                grid(*blocks, *steps)
            }
            Walk::Gemm {
                batch,
                m,
                n,
                k,
                element,
            } => {
                let sizes = [batch, m, n, k];
                if sizes.iter().any(|d| **d == 0 || **d > MOST_ELEMENTS)
                    || sizes.map(|d| *d as f64).iter().product::<f64>() > 2_f64.powi(100)
                    || u128::from(*batch) * u128::from(*m) * u128::from(*n) > 1 << 50
                    || u128::from(*batch) * u128::from(*m) * u128::from(*k) > 1 << 50
                    || u128::from(*batch) * u128::from(*k) * u128::from(*n) > 1 << 50
                {
                    return Err(format!(
                        "a product of {batch} x {m} x {n} x {k}; accepted: 1 to 2^40 each, operands of up to 2^50 elements"
                    ));
                }
                if *element == 0 || *element > MOST_ELEMENT {
                    return Err(format!("element = {element}; accepted: 1 to {MOST_ELEMENT}"));
                }
                if reads < 2 || writes == 0 {
                    return Err("a product reads two ranges and writes one".to_owned());
                }
                Ok(())
            }
            Walk::Lists {
                chunk,
                steps,
                lists,
                stores,
            } => {
                if *chunk == 0 || *chunk > 1 << 40 || *steps == 0 || *steps > 1 << 20 {
                    return Err(format!(
                        "chunks of {chunk} bytes in {steps} steps; accepted: 1 to 2^40 and 1 to 2^20"
                    ));
                }
                if *lists == 0 || !(reads as u64).is_multiple_of(u64::from(*lists)) {
                    return Err(format!("{reads} ranges cannot be {lists} lists of equal length"));
                }
                if *stores == 0 || !(writes as u64).is_multiple_of(u64::from(*stores)) {
                    return Err(format!(
                        "{writes} ranges cannot be {stores} lists of equal length"
                    ));
                }
                Ok(())
            }
            Walk::Windows(spec) => {
                spec.check(reads + writes)?;
                grid(spec.grid.iter().product(), spec.steps)
            }
            Walk::Recorded(spec) => {
                spec.check(reads + writes)?;
                grid(spec.blocks.len() as u64, spec.steps)
            }
            Walk::Graph { graph, phase, .. } => {
                graph.check()?;
                let needed = phase.operands();
                if (reads, writes) != needed {
                    return Err(format!(
                        "{phase:?} reads {} ranges and writes {}, not {reads} and {writes}",
                        needed.0, needed.1
                    ));
                }
                Ok(())
            }
        }
    }

    /// The pattern at its addresses. `graph`: the graph of a [`Walk::Graph`].
    pub fn place(
        &self,
        reads: &[ByteRange],
        writes: &[ByteRange],
        graph: Option<&Arc<Prepared>>,
    ) -> Option<KernelPattern> {
        let warps = self.threads.div_ceil(32) as u16;
        Some(match &self.walk {
            Walk::Lockstep {
                blocks,
                steps,
                grid_stride,
            } => KernelPattern::Lockstep(Lockstep {
                reads: reads.to_vec(),
                writes: writes.to_vec(),
                blocks: *blocks,
                steps: *steps,
                warps,
                grid_stride: *grid_stride,
            }),
            Walk::Sweep {
                blocks,
                steps,
                order,
                seed,
                pages_per_thread,
            } => KernelPattern::Sweep(Sweep {
                read: reads.first().copied(),
                write: writes.first().copied(),
                blocks: *blocks,
                threads: self.threads,
                steps: *steps,
                order: match order {
                    SweepOrder::Ascending => Order::Ascending,
                    SweepOrder::Shuffled => Order::Shuffled { seed: *seed },
                    SweepOrder::Chunked => Order::Chunked {
                        pages_per_thread: *pages_per_thread,
                    },
                },
            }),
            Walk::Gemm {
                batch,
                m,
                n,
                k,
                element,
            } => KernelPattern::Gemm(Gemm {
                a: *reads.first()?,
                b: *reads.get(1)?,
                c: *writes.first()?,
                also_read: reads[2..].to_vec(),
                batch: *batch,
                m: *m,
                n: *n,
                k: *k,
                element: *element,
                steps: Gemm::steps_for(*k),
            }),
            Walk::Lists {
                chunk,
                steps,
                lists,
                stores,
            } => {
                let split = |ranges: &[ByteRange], lists: u32| {
                    ranges
                        .chunks((ranges.len() / lists as usize).max(1))
                        .map(|list| TensorList::new(list.to_vec()))
                        .collect()
                };
                KernelPattern::Lists(Lists {
                    reads: split(reads, *lists),
                    writes: split(writes, *stores),
                    chunk_bytes: *chunk,
                    steps: *steps,
                    warps,
                })
            }
            Walk::Windows(spec) => KernelPattern::Windows(Windows::new(spec.clone(), reads, writes)),
            Walk::Recorded(spec) => KernelPattern::Recorded(Recorded::new(spec.clone(), reads, writes)),
            Walk::Graph { phase, level, .. } => KernelPattern::Graph(GraphWalk::new(
                graph?.clone(),
                *phase,
                *level,
                self.threads,
                reads,
                writes,
            )),
        })
    }
}
