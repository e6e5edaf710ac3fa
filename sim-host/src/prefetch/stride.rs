//! Stride: where two faults in a row of a region are as far apart as the two before, the pages at that
//! distance are fetched, also in the blocks that follow (a reference prediction table by region in
//! place of the instruction's address, which the driver does not see).

use std::collections::{BTreeMap, VecDeque};

use sim_core::pages::{PageMask, VaBlock};

use super::{PrefetchPolicy, Service};
use crate::policy::View;

/// VA blocks of one region: 64 MiB.
const REGION: u64 = 32;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    last: u64,
    stride: i64,
    /// The stride was seen twice in a row.
    steady: bool,
}

/// The predictions.
#[derive(Clone, Debug)]
pub struct Stride {
    /// Pages fetched per fault.
    pub degree: u32,
    table: BTreeMap<u64, Entry>,
    ahead: VecDeque<(VaBlock, PageMask)>,
}

impl Stride {
    /// Knows nothing yet.
    pub fn new(degree: u32) -> Stride {
        Stride {
            degree,
            table: BTreeMap::new(),
            ahead: VecDeque::new(),
        }
    }
}

impl PrefetchPolicy for Stride {
    fn pages(&mut self, block: VaBlock, service: &Service<'_>, _view: &View<'_>) -> PageMask {
        let entry = self.table.entry(block.0 / REGION).or_default();
        let mut here = PageMask::EMPTY;
        for index in service.faulted.iter() {
            let page = block.page(service.first_page + index).0;
            let stride = page.cast_signed().wrapping_sub(entry.last.cast_signed());
            entry.steady = entry.last != 0 && stride == entry.stride && stride != 0;
            entry.stride = stride;
            entry.last = page;
            if !entry.steady {
                continue;
            }
            for k in 1..=i64::from(self.degree) {
                let Some(at) = stride.checked_mul(k).and_then(|d| page.checked_add_signed(d)) else {
                    break;
                };
                let target = sim_core::pages::Page(at);
                if target.block() == block {
                    if let Some(index) = target.index().checked_sub(service.first_page) {
                        here.insert(index);
                    }
                } else {
                    match self.ahead.back_mut().filter(|last| last.0 == target.block()) {
                        Some(last) => last.1.insert(target.index()),
                        None => self
                            .ahead
                            .push_back((target.block(), PageMask::single(target.index()))),
                    }
                }
            }
        }
        here.without(service.thrashing)
    }

    fn ahead(&mut self, _view: &View<'_>) -> Option<(VaBlock, PageMask)> {
        self.ahead.pop_front()
    }
}
