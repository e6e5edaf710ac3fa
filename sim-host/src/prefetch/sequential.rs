//! Sequential-local: the pages that follow each faulted page, up to the end of its VA block. With 15
//! pages this is the 64 KiB of the sequential-local prefetcher of Ganguly et al. (ISCA'19), counted
//! from the fault instead of from a 64 KiB boundary.

use sim_core::pages::{PageMask, VaBlock};

use super::{PrefetchPolicy, Service};
use crate::policy::View;

/// The next pages.
#[derive(Clone, Copy, Debug)]
pub struct Sequential {
    /// How many.
    pub degree: u32,
}

impl PrefetchPolicy for Sequential {
    fn pages(&mut self, _block: VaBlock, service: &Service<'_>, _view: &View<'_>) -> PageMask {
        let mut out = PageMask::EMPTY;
        for (first, end) in service.faulted.runs() {
            let last = end.saturating_add(self.degree as usize).min(service.pages);
            if first < last {
                out |= PageMask::range(first, last);
            }
        }
        out.without(service.thrashing)
    }
}
