//! The driver's own victim: the head of UNUSED, else of DISCARDED, else of USED (uvm-driver 7.2).

use super::EvictionPolicy;
use crate::pmm::ChunkId;
use crate::policy::View;

/// By last service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Driver;

impl EvictionPolicy for Driver {
    fn victim(&mut self, view: &View<'_>) -> Option<ChunkId> {
        view.driver_order().next()
    }
}
