//! What the driver needs from the GPU and from the simulation.

use sim_core::Time;
use sim_core::fault::FaultEntry;
use sim_core::pages::{PageMask, VaBlock};
use sim_core::push::{Push, Ticket};
use sim_core::tools::ToolsEvent;

/// The GPU as the driver reaches it, and the simulation's clock.
pub trait Device {
    /// MMIO read of PUT: entries that the hardware has written by `at`, counted from the start.
    fn fault_put(&mut self, at: Time) -> u64;
    /// Entry `index`, counted from the start; `None` while its valid bit is not set at `at`.
    fn fault_entry(&mut self, index: u64, at: Time) -> Option<FaultEntry>;
    /// Writes GET: entries before `index` are released.
    fn set_fault_get(&mut self, index: u64, at: Time);
    /// Hands over a push. Those with `notify` come back through
    /// [`push_complete`](crate::UvmDriver::push_complete).
    fn submit(&mut self, push: Push) -> Ticket;
    /// Makes pages valid before the call that allocates them returns: PTEs of `cudaMalloc`, which RM
    /// writes.
    fn map_now(&mut self, block: VaBlock, pages: PageMask) {
        let _ = (block, pages);
    }
    /// Asks for [`wake`](crate::UvmDriver::wake) at `at`: the one continuation of the bottom half.
    fn wake_at(&mut self, at: Time);
    /// Asks for [`timer`](crate::UvmDriver::timer) at `at`; there can be several.
    fn timer_at(&mut self, at: Time) {
        let _ = at;
    }
    /// Does anybody listen to [`report`](Device::report)? Asked before an event is put together.
    fn listens(&self) -> bool {
        false
    }
    /// A tools event.
    fn report(&mut self, event: ToolsEvent) {
        let _ = event;
    }
}
