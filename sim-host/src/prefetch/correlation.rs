//! Correlation, in the way of `DeepUM` (ASPLOS'23): which VA block was served after which is remembered,
//! and a fault fetches the chain of blocks that followed last time. `DeepUM` keeps a table per kernel
//! and predicts the next kernel too; the driver sees no kernel's name, so there is one table here.

use std::collections::{BTreeMap, VecDeque};

use sim_core::pages::{PageMask, VaBlock};

use super::{PrefetchPolicy, Service};
use crate::policy::View;

/// The table of successors.
#[derive(Clone, Debug)]
pub struct Correlation {
    /// Links of the chain that are followed.
    pub window: u32,
    next: BTreeMap<VaBlock, VaBlock>,
    last: Option<VaBlock>,
    queue: VecDeque<VaBlock>,
}

impl Correlation {
    /// Knows nothing yet.
    pub fn new(window: u32) -> Correlation {
        Correlation {
            window,
            next: BTreeMap::new(),
            last: None,
            queue: VecDeque::new(),
        }
    }
}

impl PrefetchPolicy for Correlation {
    fn pages(&mut self, block: VaBlock, service: &Service<'_>, view: &View<'_>) -> PageMask {
        if let Some(last) = self.last.replace(block).filter(|last| *last != block) {
            // A successor that is resident was fetched in time: its absence here is no evidence.
            let kept = self
                .next
                .get(&last)
                .is_some_and(|known| !view.resident(*known).is_empty());
            if !kept {
                self.next.insert(last, block);
            }
        }
        self.queue.clear();
        let mut at = block;
        for _ in 0..self.window {
            match self.next.get(&at) {
                Some(next) if *next != block => at = *next,
                _ => break,
            }
            self.queue.push_back(at);
        }
        PageMask::range(0, service.pages).without(service.thrashing)
    }

    fn ahead(&mut self, view: &View<'_>) -> Option<(VaBlock, PageMask)> {
        let block = self.queue.pop_front()?;
        Some((block, view.valid(block)))
    }
}
