//! Only faulted pages.

use sim_core::pages::{PageMask, VaBlock};

use super::{PrefetchPolicy, Service};
use crate::policy::View;

/// Nothing is added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl PrefetchPolicy for Nothing {
    fn pages(&mut self, _block: VaBlock, _service: &Service<'_>, _view: &View<'_>) -> PageMask {
        PageMask::EMPTY
    }
}
