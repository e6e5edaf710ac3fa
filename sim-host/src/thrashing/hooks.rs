//! Where services, faults of the CPU and the clock meet the state of thrashing.

use sim_core::Time;
use sim_core::pages::{PAGE_BYTES, PageMask, VaBlock};
use sim_core::push::Cause;
use sim_core::tools::{MapRemoteCause, Processor, ToolsEvent};

use super::state::Hint;
use super::{Thrashing, ThrashingStats};
use crate::device::Device;
use crate::driver::UvmDriver;
use crate::service::{Cursor, Memory};
use crate::stats::BatchRecord;

impl Thrashing {
    /// Pages of a block are being copied to `to`.
    pub fn moved<D: Device>(
        &mut self,
        block: VaBlock,
        pages: &PageMask,
        (to, cause): (Processor, Cause),
        stats: &mut ThrashingStats,
        cursor: &mut Cursor<'_, D>,
    ) {
        if !self.params.enable || pages.is_empty() {
            return;
        }
        match cause {
            Cause::Eviction => {}
            Cause::User => self.reset(block, pages),
            Cause::Coherence | Cause::Prefetch | Cause::AccessCounters => {
                let lapse = self.lapse.get();
                let state = self.blocks.entry(block).or_default();
                let detected = state.migrated(pages, to, cursor.at, &self.params, lapse);
                stats.detections += u64::from(detected.count());
                if cursor.device.listens() {
                    for (first, end) in detected.runs() {
                        cursor.device.report(ToolsEvent::ThrashingDetected {
                            address: block.page(first).address(),
                            bytes: (end - first) as u64 * PAGE_BYTES,
                            time: cursor.at,
                        });
                    }
                }
            }
        }
    }
}

/// What the hints on the faulted pages of a service come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hints {
    /// Pages to leave alone, and until when the first of them waits.
    pub throttled: PageMask,
    /// See [`Hints::throttled`].
    pub until: Time,
    /// Pages that are pinned to host memory.
    pub on_cpu: PageMask,
}

impl Memory {
    /// Asks for a hint on each page that `requester` has faulted on.
    pub fn thrashing_hints<D: Device>(
        &mut self,
        block: VaBlock,
        faulted: &PageMask,
        requester: Processor,
        cursor: &mut Cursor<'_, D>,
    ) -> Hints {
        let mut hints = Hints::default();
        let advice = self.advice(block);
        let Thrashing {
            params,
            lapse,
            blocks,
            expiries,
        } = &mut self.thrashing;
        let Some(state) = blocks.get_mut(&block).filter(|state| state.has_pages()) else {
            return hints;
        };
        let stats = &mut self.stats.thrashing;
        for index in faulted.iter() {
            let preferred = advice.preferred(index);
            let (hint, changes) = state.hint(index, requester, preferred, cursor.at, params, lapse);
            let address = block.page(index).address();
            if changes.throttling_ends && cursor.device.listens() {
                cursor.device.report(ToolsEvent::ThrottlingEnd {
                    processor: requester,
                    address,
                    time: cursor.at,
                });
            }
            match hint {
                Hint::None => {}
                Hint::Throttle(until) => {
                    if hints.throttled.is_empty() || until < hints.until {
                        hints.until = until;
                    }
                    hints.throttled.insert(index);
                    if changes.throttling_starts {
                        match requester {
                            Processor::Gpu => stats.throttles_gpu += 1,
                            Processor::Cpu => stats.throttles_cpu += 1,
                        }
                        if cursor.device.listens() {
                            cursor.device.report(ToolsEvent::ThrottlingStart {
                                processor: requester,
                                address,
                                time: cursor.at,
                            });
                        }
                    }
                }
                Hint::Pin(place) => {
                    if changes.pinned {
                        match place {
                            Processor::Gpu => stats.pins_gpu += 1,
                            Processor::Cpu => stats.pins_cpu += 1,
                        }
                        if let Some(deadline) = state.page(index).and_then(|page| page.deadline) {
                            let at_once = expiries.entry(deadline).or_default();
                            if at_once.is_empty() {
                                cursor.device.timer_at(deadline);
                            }
                            if at_once.last() != Some(&block) {
                                at_once.push(block);
                            }
                        }
                    }
                    if place == Processor::Cpu {
                        hints.on_cpu.insert(index);
                    }
                }
            }
        }
        hints
    }

    /// Takes the pages that thrashing keeps away from the GPU out of a service: throttled ones are left
    /// alone, pinned ones are mapped in host memory.
    pub fn mitigate<D: Device>(
        &mut self,
        block: VaBlock,
        faulted: &mut PageMask,
        cursor: &mut Cursor<'_, D>,
    ) {
        let hints = self.thrashing_hints(block, faulted, Processor::Gpu, cursor);
        if !hints.throttled.is_empty() {
            cursor.record.throttled = true;
            *faulted = faulted.without(&hints.throttled);
        }
        // Read duplication and the preferred location come before a pin (uvm-driver 4.2, rows 2 to 4).
        let preferred = self.advice(block).preferred_gpu;
        let read_mostly = self.space.block(block).map_or(PageMask::EMPTY, |s| s.read_mostly);
        let pinned = hints.on_cpu.without(&preferred).without(&read_mostly);
        if !pinned.is_empty() {
            self.make_resident_on_cpu(block, &pinned, &pinned, Cause::Coherence, cursor);
            self.map_remotely(block, &pinned, MapRemoteCause::Thrashing, cursor);
            *faulted = faulted.without(&pinned);
        }
    }

    /// Pages that the CPU has got, of those that are pinned there: the GPU, if they have been there, is
    /// given mappings.
    pub fn map_pinned<D: Device>(&mut self, block: VaBlock, pages: &PageMask, cursor: &mut Cursor<'_, D>) {
        let Some(state) = self.thrashing.blocks.get(&block) else {
            return;
        };
        let mut shared = PageMask::EMPTY;
        for index in (*pages & state.pinned).iter() {
            let gpu = 1 << Processor::Gpu as u8;
            if state
                .page(index)
                .is_some_and(|page| page.pin == Some(Processor::Cpu) && page.processors & gpu != 0)
            {
                shared.insert(index);
            }
        }
        if !shared.is_empty() {
            self.map_remotely(block, &shared, MapRemoteCause::Thrashing, cursor);
        }
    }

    /// Pins that have expired by `now` end: the GPU loses its mappings of host memory, unless advice
    /// gives it them.
    fn unpin_expired<D: Device>(&mut self, now: Time, device: &mut D) {
        let mut record = BatchRecord::default();
        let mut cursor = Cursor::new(now, device, &mut record);
        while let Some(due) = self.thrashing.expiries.first_entry().filter(|e| *e.key() <= now) {
            for block in due.remove() {
                let Some(state) = self.thrashing.blocks.get_mut(&block) else {
                    continue;
                };
                let expired = state.expire(now);
                self.stats.thrashing.unpins += u64::from(expired.count());
                let advice = self.advice(block);
                if let Some(state) = self.space.block(block) {
                    let advised = advice.accessed_by_gpu | advice.preferred_cpu;
                    let remote = (state.remote & expired).without(&advised);
                    self.unmap_gpu(block, &remote, &mut cursor);
                }
            }
        }
    }
}

impl UvmDriver {
    /// A timer that the driver has asked for ([`Device::timer_at`]) has come: pins expire.
    pub fn timer(&mut self, now: Time, device: &mut impl Device) {
        self.memory.unpin_expired(now, device);
    }
}
