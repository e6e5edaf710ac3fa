//! From the instructions of the warps of a block to its steps.
//!
//! A step of a warp is what it does between two points where it has to wait: loads that depend on nothing
//! under way, then stores. The next step begins with a load after something used a register that the step
//! loads, or after a store. The k-th steps of a block's warps are its k-th step. A step that touches no page
//! which the step before has not touched is left out: a warp that walks along a page is not held up again.

use std::collections::HashMap;

use super::instruction::{Effect, Instruction};

/// Bytes of a page of the GPU's virtual memory, the smallest.
pub(super) const PAGE: u64 = 4096;
/// Bytes of a sector: what the memory system moves at least.
const SECTOR: u64 = 32;
/// Bytes of a register.
const REGISTER: u64 = 4;
/// Warps of a block, at most (CUDA).
const MOST_WARPS: u16 = 32;

/// Warps of a block that touch a page in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    pub page: u64,
    pub store: bool,
    pub warps: u16,
}

/// A set of registers, R0 to R255.
#[derive(Clone, Copy, Debug, Default)]
struct Registers([u64; 4]);

impl Registers {
    fn insert(&mut self, register: u32) {
        if let Some(word) = self.0.get_mut(register as usize / 64) {
            *word |= 1 << (register % 64);
        }
    }

    fn contains(self, register: u32) -> bool {
        self.0
            .get(register as usize / 64)
            .is_some_and(|word| word >> (register % 64) & 1 != 0)
    }
}

/// Where a warp is.
#[derive(Debug, Default)]
struct Warp {
    step: usize,
    /// Registers that the step's loads write.
    loading: Registers,
    /// Something waits for them, or a store has been made.
    over: bool,
}

/// The touches of one step, in the order of the first warp.
#[derive(Debug, Default)]
struct Step {
    touches: Vec<Touch>,
    /// Position in `touches`, and which warp came last.
    index: HashMap<(u64, bool), (usize, u32)>,
}

/// A block while its instructions are read.
#[derive(Debug, Default)]
pub(super) struct Block {
    warps: HashMap<u32, Warp>,
    steps: Vec<Step>,
    /// Bytes of the sectors read and written, each instruction for itself.
    pub traffic: (u64, u64),
}

impl Block {
    /// One instruction of warp `number`. Returns how many touches are new.
    pub fn instruction(&mut self, number: u32, instruction: &Instruction) -> usize {
        let warp = self.warps.entry(number).or_default();
        if instruction
            .sources
            .iter()
            .any(|register| warp.loading.contains(*register))
        {
            warp.over = true;
        }
        let (loads, stores) = match instruction.effect {
            Effect::None => return 0,
            Effect::Load => (true, false),
            Effect::Store => (false, true),
            Effect::Atomic => (true, true),
        };
        if loads && !stores {
            if warp.over {
                warp.step += 1;
                warp.over = false;
                warp.loading = Registers::default();
            }
            let registers = instruction.bytes.div_ceil(REGISTER) as u32;
            for first in &instruction.destinations {
                // R255 reads as zero.
                (*first..first.saturating_add(registers).min(255))
                    .for_each(|register| warp.loading.insert(register));
            }
        } else {
            warp.over = true;
            if loads {
                // What an atomic returns is not there before it is done.
                for register in &instruction.destinations {
                    warp.loading.insert(*register);
                }
            }
        }
        if self.steps.len() <= warp.step {
            self.steps.resize_with(warp.step + 1, Step::default);
        }
        let step = &mut self.steps[warp.step];
        let mut added = 0;
        let mut sectors: Vec<u64> = Vec::with_capacity(64);
        for address in &instruction.addresses {
            let last = address + instruction.bytes - 1;
            sectors.extend(address / SECTOR..=last / SECTOR);
            for page in address / PAGE..=last / PAGE {
                let position = step.touches.len();
                let (at, by) = step.index.entry((page, stores)).or_insert((position, number));
                if *at == position {
                    step.touches.push(Touch {
                        page,
                        store: stores,
                        warps: 1,
                    });
                    added += 1;
                } else if *by != number {
                    *by = number;
                    let touch = &mut step.touches[*at];
                    touch.warps = (touch.warps + 1).min(MOST_WARPS);
                }
            }
        }
        sectors.sort_unstable();
        sectors.dedup();
        let bytes = sectors.len() as u64 * SECTOR;
        self.traffic.0 += if loads { bytes } else { 0 };
        self.traffic.1 += if stores { bytes } else { 0 };
        added
    }

    /// The touches of each step, without the steps that add nothing to the one before.
    pub fn finish(self) -> Vec<Vec<Touch>> {
        let mut steps: Vec<Vec<Touch>> = Vec::new();
        let mut last: HashMap<(u64, bool), (usize, u32)> = HashMap::new();
        for step in self.steps {
            let known = |touch: &Touch| {
                last.contains_key(&(touch.page, true))
                    || (!touch.store && last.contains_key(&(touch.page, false)))
            };
            if step.touches.is_empty() || (!steps.is_empty() && step.touches.iter().all(known)) {
                continue;
            }
            last = step.index;
            steps.push(step.touches);
        }
        steps
    }
}
