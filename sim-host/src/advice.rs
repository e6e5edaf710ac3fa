//! `cudaMemAdvise`: what the program says about its ranges (uvm-driver 9.2).
//!
//! The real driver splits ranges and blocks where advice begins and ends; here each block has one
//! mask for each kind, which comes to the same choices.

use std::collections::BTreeMap;
use std::str::FromStr;

use sim_core::Time;
use sim_core::access::AccessKind;
use sim_core::pages::{PageMask, VaBlock};
use sim_core::push::{ChannelKind, Method, Sharing};
use sim_core::tools::{MapRemoteCause, Processor};

use crate::device::Device;
use crate::residency::{Question, select};
use crate::service::{Cursor, Memory, tlb_invalidate};
use crate::stats::BatchRecord;

/// One piece of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Reads of several processors make copies; `false` takes it back.
    ReadMostly(bool),
    /// Where pages should stay; `None` takes it back.
    PreferredLocation(Option<Processor>),
    /// This processor should always be able to access the pages.
    AccessedBy(Processor),
    /// Takes that back.
    NotAccessedBy(Processor),
}

impl Advice {
    /// The names of CUDA's `cudaMemoryAdvise`.
    pub const NAMES: [&'static str; 6] = [
        "cudaMemAdviseSetReadMostly",
        "cudaMemAdviseUnsetReadMostly",
        "cudaMemAdviseSetPreferredLocation",
        "cudaMemAdviseUnsetPreferredLocation",
        "cudaMemAdviseSetAccessedBy",
        "cudaMemAdviseUnsetAccessedBy",
    ];
}

/// A name of CUDA, about a processor.
impl FromStr for Advice {
    type Err = String;
    /// `NAME` or `NAME:gpu` or `NAME:cpu`; without a processor, the GPU is meant.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, device) = text.split_once(':').unwrap_or((text, "gpu"));
        let processor = match device {
            "gpu" => Processor::Gpu,
            "cpu" => Processor::Cpu,
            _ => return Err(format!("unknown device {device:?}; accepted: gpu, cpu")),
        };
        match name.strip_prefix("cudaMemAdvise").unwrap_or(name) {
            "SetReadMostly" => Ok(Advice::ReadMostly(true)),
            "UnsetReadMostly" => Ok(Advice::ReadMostly(false)),
            "SetPreferredLocation" => Ok(Advice::PreferredLocation(Some(processor))),
            "UnsetPreferredLocation" => Ok(Advice::PreferredLocation(None)),
            "SetAccessedBy" => Ok(Advice::AccessedBy(processor)),
            "UnsetAccessedBy" => Ok(Advice::NotAccessedBy(processor)),
            _ => Err(format!(
                "unknown advice {name:?}; accepted: {}",
                Advice::NAMES.join(", ")
            )),
        }
    }
}

/// Advice on the pages of one block; read-mostly pages are in the block's own state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockAdvice {
    pub preferred_cpu: PageMask,
    pub preferred_gpu: PageMask,
    pub accessed_by_cpu: PageMask,
    pub accessed_by_gpu: PageMask,
}

impl BlockAdvice {
    pub fn preferred(&self, index: usize) -> Option<Processor> {
        if self.preferred_cpu.contains(index) {
            Some(Processor::Cpu)
        } else if self.preferred_gpu.contains(index) {
            Some(Processor::Gpu)
        } else {
            None
        }
    }

    fn is_empty(&self) -> bool {
        self.preferred_cpu.is_empty()
            && self.preferred_gpu.is_empty()
            && self.accessed_by_cpu.is_empty()
            && self.accessed_by_gpu.is_empty()
    }
}

/// Advice by block, for blocks that have any.
pub(crate) type AdviceTable = BTreeMap<VaBlock, BlockAdvice>;

impl Memory {
    /// The advice on a block.
    pub fn advice(&self, block: VaBlock) -> BlockAdvice {
        match self.space.block(block) {
            Some(state) if state.advised => self.space.advice.get(&block).copied().unwrap_or_default(),
            _ => BlockAdvice::default(),
        }
    }

    /// Of faulted pages of the GPU, those that stay in or go to host memory, to be mapped remotely.
    pub fn to_map_remotely(&self, block: VaBlock, faulted: &PageMask) -> PageMask {
        let mut remote = PageMask::EMPTY;
        let Some(state) = self.space.block(block).filter(|state| state.advised) else {
            return remote;
        };
        let advice = self.advice(block);
        for index in faulted.iter() {
            let resident = if state.resident.contains(index) {
                Some(Processor::Gpu)
            } else {
                state.cpu_resident.contains(index).then_some(Processor::Cpu)
            };
            let question = Question {
                read_duplication: state.read_mostly.contains(index),
                preferred: advice.preferred(index),
                accessed_by: advice.accessed_by_gpu.contains(index),
                ..Question::plain(Processor::Gpu, AccessKind::Read, resident)
            };
            if select(&question).place == Processor::Cpu {
                remote.insert(index);
            }
        }
        remote
    }

    /// Maps pages of host memory on the GPU. Pages that are nowhere are populated on the host; pages on
    /// the device are left alone.
    pub fn map_remotely<D: Device>(
        &mut self,
        block: VaBlock,
        pages: &PageMask,
        cause: MapRemoteCause,
        cursor: &mut Cursor<'_, D>,
    ) {
        let populated = self.space.populate_cpu(block);
        if populated {
            cursor.at += self.cost.page_population;
        }
        let Some(state) = self.space.block_mut(block) else {
            return;
        };
        let pages = pages.without(&state.resident) & state.valid;
        state.cpu_resident |= pages;
        let mapping = pages.without(&state.mapped);
        if mapping.is_empty() {
            return;
        }
        let entries = state.entries_to_map(&mapping);
        cursor.at += self.cost.push + self.cost.pte_method.times(u64::from(entries));
        let tracker = state.tracker;
        let map = Method::MapShared {
            block,
            pages: mapping,
            entries,
            sharing: Sharing::Remote(cause),
        };
        let mapped = cursor.push(ChannelKind::MemOps, &tracker, vec![map, tlb_invalidate(entries)]);
        state.mapped |= mapping;
        state.remote |= mapping;
        state.tracker.add(mapped);
        self.batch_tracker.add(mapped);
        self.stats.remote_pages += u64::from(mapping.count());
    }

    /// Carries out one piece of advice on the pages of one block; returns when the CPU is done.
    pub fn advise_block<D: Device>(
        &mut self,
        block: VaBlock,
        pages: &PageMask,
        advice: Advice,
        now: Time,
        device: &mut D,
    ) -> Time {
        let mut record = BatchRecord::default();
        let mut cursor = Cursor::new(now, device, &mut record);
        let mut of_block = self.advice(block);
        let set = |mask: &mut PageMask, on: bool| {
            *mask = if on { *mask | *pages } else { mask.without(pages) };
        };
        match advice {
            Advice::ReadMostly(on) => {
                if let Some(state) = self.space.block_mut(block) {
                    set(&mut state.read_mostly, on);
                    if on {
                        // Nothing moves; writable remote mappings would break the copies.
                        let remote = state.remote & *pages;
                        self.unmap_gpu(block, &remote, &mut cursor);
                    } else {
                        self.keep_one_copy(block, pages, of_block, &mut cursor);
                    }
                }
            }
            Advice::PreferredLocation(place) => {
                set(&mut of_block.preferred_cpu, place == Some(Processor::Cpu));
                set(&mut of_block.preferred_gpu, place == Some(Processor::Gpu));
                // Migrates nothing, but unmaps remote mappings of the new preferred processor.
                if place == Some(Processor::Gpu)
                    && let Some(state) = self.space.block(block)
                {
                    let remote = state.remote & *pages;
                    self.unmap_gpu(block, &remote, &mut cursor);
                }
            }
            Advice::AccessedBy(processor) | Advice::NotAccessedBy(processor) => {
                let on = matches!(advice, Advice::AccessedBy(_));
                match processor {
                    Processor::Cpu => set(&mut of_block.accessed_by_cpu, on),
                    Processor::Gpu => set(&mut of_block.accessed_by_gpu, on),
                }
            }
        }
        let empty = of_block.is_empty();
        if empty {
            self.space.advice.remove(&block);
        } else {
            self.space.advice.insert(block, of_block);
        }
        if let Some(state) = self.space.block_mut(block) {
            state.advised = !empty || !state.read_mostly.is_empty();
        }
        if advice == Advice::AccessedBy(Processor::Gpu) {
            self.map_accessed_by(block, &mut cursor);
        }
        cursor.at
    }

    /// Maps pages of host memory for a GPU that is said to access them: now and after each move.
    pub fn map_accessed_by<D: Device>(&mut self, block: VaBlock, cursor: &mut Cursor<'_, D>) {
        let wanted = self.advice(block).accessed_by_gpu;
        let Some(state) = self.space.block(block) else {
            return;
        };
        let pages = (wanted & state.cpu_resident)
            .without(&state.resident)
            .without(&state.read_mostly);
        if !pages.is_empty() {
            self.map_remotely(block, &pages, MapRemoteCause::Policy, cursor);
        }
    }

    /// Pages that are on both sides stay on one: the preferred location, else the device (assumed: the
    /// processor that made the copy uses it).
    fn keep_one_copy<D: Device>(
        &mut self,
        block: VaBlock,
        pages: &PageMask,
        advice: BlockAdvice,
        cursor: &mut Cursor<'_, D>,
    ) {
        let Some(state) = self.space.block(block) else {
            return;
        };
        let both = state.resident & state.cpu_resident & *pages;
        let on_cpu = both & advice.preferred_cpu;
        self.drop_gpu_copy(block, &on_cpu, cursor);
        self.drop_cpu_copy(block, &both.without(&on_cpu), cursor);
        // The next access maps with full rights.
        if let Some(state) = self.space.block(block) {
            let read_only = state.read_only & *pages;
            self.unmap_gpu(block, &read_only, cursor);
        }
    }
}
