//! Discarded contents (uvm-driver 9.3).

use sim_core::Time;
use sim_core::pages::{PageMask, VaBlock};

use crate::device::Device;
use crate::pmm::List;
use crate::service::{Cursor, Memory};
use crate::stats::BatchRecord;

impl Memory {
    /// The contents of pages do not matter any more. With `unmap`, mappings and GPU residency go, too.
    /// Returns when the CPU is done.
    pub fn discard_block<D: Device>(
        &mut self,
        block: VaBlock,
        pages: &PageMask,
        unmap: bool,
        now: Time,
        device: &mut D,
    ) -> Time {
        let mut record = BatchRecord::default();
        let mut cursor = Cursor::new(now, device, &mut record);
        if unmap {
            self.unmap_gpu(block, pages, &mut cursor);
            self.unmap_cpu(block, pages, &mut cursor);
        }
        let Some(state) = self.space.block_mut(block) else {
            return cursor.at;
        };
        let discarding = *pages & (state.resident | state.cpu_resident);
        state.discarded |= discarding;
        if unmap {
            // Where the pages are next is decided by who touches them; until then the host has them.
            let leaving = state.resident & *pages;
            state.resident = state.resident.without(&leaving);
            state.cpu_resident |= leaving;
        }
        self.stats.discarded_pages += u64::from(discarding.count());
        let (resident, discarded, chunk) = (state.resident, state.discarded, state.chunk);
        if unmap {
            self.space.populate_cpu(block);
        }
        if let Some(chunk) = chunk {
            if resident.is_empty() {
                self.pmm.move_to(chunk, List::Unused);
            } else if resident.is_subset_of(&discarded) {
                self.pmm.move_to(chunk, List::Discarded);
            }
        }
        cursor.at
    }
}
