//! Planned and oracle: blocks are fetched before they are used, from the plan of the program.
//!
//! `planned` looks at whole kernels, the present one and the next few, as G10 (MICRO'23) does from its
//! compile-time analysis. `oracle` looks as far as the memory reaches, at every step, and skips what
//! the present kernel has passed. Both stop where the blocks in use until then fill the memory: what
//! is fetched displaces nothing that is needed sooner, if the eviction policy chooses well (`belady`).
//! Which pages of a block will be used is not in the plan: blocks are fetched whole.

use std::collections::{BTreeSet, VecDeque};

use sim_core::pages::{PageMask, VaBlock};

use super::{PrefetchPolicy, Service};
use crate::policy::{Moment, View};

/// The blocks to come.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Kernels after the present one; `None`: as far as the memory reaches, and to the step.
    window: Option<u32>,
    made_for: Option<Moment>,
    queue: VecDeque<VaBlock>,
}

impl Planned {
    /// Whole kernels, `window` beyond the present one.
    pub fn kernels(window: u32) -> Planned {
        Planned {
            window: Some(window),
            made_for: None,
            queue: VecDeque::new(),
        }
    }

    /// Everything, to the step.
    pub fn oracle() -> Planned {
        Planned {
            window: None,
            made_for: None,
            queue: VecDeque::new(),
        }
    }

    fn look_ahead(&mut self, view: &View<'_>) {
        let now = view.passed();
        let plan = view.plan();
        let end = match self.window {
            Some(window) => now.kernel.saturating_add(window).saturating_add(1),
            None => u32::MAX,
        }
        .min(plan.kernels());
        self.queue.clear();
        let mut needed = BTreeSet::new();
        for kernel in now.kernel..end {
            for (_, block) in plan.blocks_of(kernel) {
                let passed = self.window.is_none()
                    && kernel == now.kernel
                    && plan.use_by(*block, kernel).is_some_and(|at| at.last < now.step);
                if passed || !needed.insert(*block) {
                    continue;
                }
                if needed.len() as u64 > view.capacity() {
                    return;
                }
                if !view.valid(*block).is_subset_of(&view.resident(*block)) {
                    self.queue.push_back(*block);
                }
            }
        }
    }
}

impl PrefetchPolicy for Planned {
    fn pages(&mut self, _block: VaBlock, service: &Service<'_>, _view: &View<'_>) -> PageMask {
        PageMask::range(0, service.pages).without(service.thrashing)
    }

    fn ahead(&mut self, view: &View<'_>) -> Option<(VaBlock, PageMask)> {
        let now = Moment {
            step: if self.window.is_some() {
                0
            } else {
                view.passed().step
            },
            ..view.passed()
        };
        if self.made_for != Some(now) {
            self.made_for = Some(now);
            self.look_ahead(view);
        }
        let block = self.queue.pop_front()?;
        Some((block, view.valid(block)))
    }

    fn needs_plan(&self) -> bool {
        true
    }
}
