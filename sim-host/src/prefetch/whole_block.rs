//! The whole VA block of each fault.

use sim_core::pages::{PageMask, VaBlock};

use super::{PrefetchPolicy, Service};
use crate::policy::View;

/// 2 MiB around each fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct WholeBlock;

impl PrefetchPolicy for WholeBlock {
    fn pages(&mut self, _block: VaBlock, service: &Service<'_>, _view: &View<'_>) -> PageMask {
        PageMask::range(0, service.pages).without(service.thrashing)
    }
}
