//! The rest of each faulted page's 64 KiB big page, and nothing else.

use sim_core::pages::{PAGES_PER_BIG_PAGE, PageMask, VaBlock};

use super::{PrefetchPolicy, Service};
use crate::policy::View;

/// 64 KiB around each fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct BigPage;

impl PrefetchPolicy for BigPage {
    fn pages(&mut self, _block: VaBlock, service: &Service<'_>, _view: &View<'_>) -> PageMask {
        let mut out = PageMask::EMPTY;
        let phase = service.first_page % PAGES_PER_BIG_PAGE;
        for page in service.faulted.iter() {
            let start = (page + phase) / PAGES_PER_BIG_PAGE * PAGES_PER_BIG_PAGE;
            let end = (start + PAGES_PER_BIG_PAGE - phase).min(service.pages);
            out |= PageMask::range(start.saturating_sub(phase), end);
        }
        out.without(service.thrashing)
    }
}
