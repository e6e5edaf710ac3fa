//! What a program will touch, and when: the knowledge of policies that look ahead or back.
//!
//! A use is "kernel k touches VA block b in steps `first..=last` of its own order". The order of a
//! kernel is that in which its thread blocks are handed out: blocks that fit on the device together
//! advance step by step. So the plan is exact to a step of a wave of thread blocks, and no finer: it
//! knows nothing of pages inside a block, and assumes that all blocks of a wave advance together.

use std::collections::BTreeMap;

use sim_core::access::{AccessPattern, StepAccesses};
use sim_core::pages::{Page, VaBlock};

/// A moment of the program: a kernel, in order of launch, and a step of its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Number of the launch, from 0.
    pub kernel: u32,
    /// Step of the kernel's order, from 0.
    pub step: u32,
}

/// One kernel's use of one VA block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Number of the launch.
    pub kernel: u32,
    /// First step that touches the block.
    pub first: u32,
    /// Last step that touches it.
    pub last: u32,
    /// Some step stores to it.
    pub writes: bool,
}

/// The uses of every VA block, and the blocks of every kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsePlan {
    blocks: BTreeMap<VaBlock, Vec<Use>>,
    kernels: Vec<Vec<(u32, VaBlock)>>,
}

impl UsePlan {
    /// Adds the next launch; `slots` thread blocks of it fit on the device together.
    pub fn add_kernel(&mut self, pattern: &impl AccessPattern, slots: u64) {
        let mut found: BTreeMap<VaBlock, Use> = BTreeMap::new();
        let kernel = u32::try_from(self.kernels.len()).unwrap_or(u32::MAX);
        let steps = u64::from(pattern.steps());
        let mut out = StepAccesses::default();
        for block in 0..pattern.blocks() {
            let wave = block / slots.max(1);
            for step in 0..pattern.steps() {
                let order = wave.saturating_mul(steps).saturating_add(u64::from(step));
                let order = u32::try_from(order).unwrap_or(u32::MAX);
                out.clear();
                pattern.step(block, step, &mut out);
                for (writes, accesses) in [(false, &out.loads), (true, &out.stores)] {
                    for access in accesses {
                        let last = Page(access.first.0 + u64::from(access.pages.max(1)) - 1);
                        for number in access.first.block().0..=last.block().0 {
                            let entry = found.entry(VaBlock(number)).or_insert(Use {
                                kernel,
                                first: order,
                                last: order,
                                writes,
                            });
                            entry.first = entry.first.min(order);
                            entry.last = entry.last.max(order);
                            entry.writes |= writes;
                        }
                    }
                }
            }
        }
        let mut order: Vec<(u32, VaBlock)> = found.iter().map(|(block, at)| (at.first, *block)).collect();
        order.sort_unstable();
        self.kernels.push(order);
        for (block, at) in found {
            self.blocks.entry(block).or_default().push(at);
        }
    }

    /// Kernels known.
    pub fn kernels(&self) -> u32 {
        u32::try_from(self.kernels.len()).unwrap_or(u32::MAX)
    }

    /// The blocks of a kernel with their first steps, by first step.
    pub fn blocks_of(&self, kernel: u32) -> &[(u32, VaBlock)] {
        self.kernels.get(kernel as usize).map_or(&[], Vec::as_slice)
    }

    fn uses(&self, block: VaBlock) -> &[Use] {
        self.blocks.get(&block).map_or(&[], Vec::as_slice)
    }

    /// The use of a block by one kernel.
    pub fn use_by(&self, block: VaBlock, kernel: u32) -> Option<Use> {
        let uses = self.uses(block);
        let at = uses.binary_search_by_key(&kernel, |u| u.kernel).ok()?;
        uses.get(at).copied()
    }

    /// When a block is used next, `now` included; `None`: never again.
    pub fn next_use(&self, block: VaBlock, now: Moment) -> Option<Moment> {
        let uses = self.uses(block);
        let from = uses.partition_point(|u| (u.kernel, u.last) < (now.kernel, now.step));
        let next = uses.get(from)?;
        let at = Moment {
            kernel: next.kernel,
            step: next.first,
        };
        Some(at.max(now))
    }

    /// When a block was used last, `now` included; `None`: never so far.
    pub fn last_use(&self, block: VaBlock, now: Moment) -> Option<Moment> {
        let uses = self.uses(block);
        let end = uses.partition_point(|u| (u.kernel, u.first) <= (now.kernel, now.step));
        let last = uses.get(end.checked_sub(1)?)?;
        let at = Moment {
            kernel: last.kernel,
            step: last.last,
        };
        Some(at.min(now))
    }

    /// Kernels that have used a block so far, `now` included.
    pub fn uses_so_far(&self, block: VaBlock, now: Moment) -> usize {
        self.uses(block)
            .partition_point(|u| (u.kernel, u.first) <= (now.kernel, now.step))
    }

    /// May the block have been written from `since` to `now`?
    pub fn written_between(&self, block: VaBlock, since: Moment, now: Moment) -> bool {
        let uses = self.uses(block);
        let from = uses.partition_point(|u| (u.kernel, u.last) < (since.kernel, since.step));
        uses[from..]
            .iter()
            .take_while(|u| u.kernel <= now.kernel)
            .any(|u| u.writes)
    }
}
