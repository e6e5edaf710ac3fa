//! A driver and a GPU that carries pushes out at once, for tests of policies.

// Each test file uses its part.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::sync::Arc;

use sim_core::Time;
use sim_core::access::{Access, AccessKind, AccessPattern, MappedPages, StepAccesses};
use sim_core::fault::FaultEntry;
use sim_core::pages::{BLOCK_BYTES, ByteRange, Page, VaBlock};
use sim_core::push::{CHANNELS, Direction, Method, Push, Ticket};
use sim_host::policy::UsePlan;
use sim_host::{Device, UvmDriver};

const BASE: u64 = 0x7000_0000_0000;

#[derive(Default)]
pub struct Fake {
    entries: Vec<FaultEntry>,
    get: u64,
    mapped: BTreeSet<Page>,
    counts: [u64; CHANNELS],
    wake: Option<Time>,
    completed: Vec<Ticket>,
    pub pages_out: u32,
}

impl Device for Fake {
    fn fault_put(&mut self, _at: Time) -> u64 {
        self.entries.len() as u64
    }
    fn fault_entry(&mut self, index: u64, _at: Time) -> Option<FaultEntry> {
        self.entries.get(index as usize).copied()
    }
    fn set_fault_get(&mut self, index: u64, _at: Time) {
        self.get = index;
    }
    fn submit(&mut self, push: Push) -> Ticket {
        self.counts[push.channel as usize] += 1;
        let ticket = Ticket {
            channel: push.channel,
            value: self.counts[push.channel as usize],
        };
        for method in &push.methods {
            match *method {
                Method::MapPtes { block, pages, .. } => {
                    self.mapped.extend(pages.iter().map(|i| block.page(i)));
                }
                Method::UnmapPtes { block, pages, .. } => {
                    for index in pages.iter() {
                        assert!(self.mapped.remove(&block.page(index)));
                    }
                }
                Method::Copy {
                    direction: Direction::DeviceToHost,
                    pages,
                    ..
                } => self.pages_out += pages,
                _ => {}
            }
        }
        if push.notify {
            self.completed.push(ticket);
        }
        ticket
    }
    fn wake_at(&mut self, at: Time) {
        self.wake = Some(at);
    }
}

pub fn block(number: u64) -> VaBlock {
    VaBlock(BASE / BLOCK_BYTES + number)
}

pub fn page(number: u64, index: usize) -> Page {
    block(number).page(index)
}

/// A driver's surroundings: `blocks` managed blocks, initialised by the CPU.
pub struct Bench {
    pub driver: UvmDriver,
    pub device: Fake,
}

impl Bench {
    pub fn new(mut driver: UvmDriver, blocks: u64) -> Bench {
        let mut device = Fake::default();
        let range = ByteRange {
            start: BASE,
            bytes: blocks * BLOCK_BYTES,
        };
        let now = Time::ZERO;
        driver.managed_alloc(range, now, &mut device).expect("free");
        driver.cpu_touch(range, true, now, &mut device).expect("managed");
        Bench { driver, device }
    }

    /// One fault, served to its end.
    pub fn fault(&mut self, page: Page, access: AccessKind) {
        self.device.entries.push(FaultEntry {
            page,
            access,
            utlb: 0,
            instance: 0,
            raised: Time::ZERO,
        });
        self.driver.interrupt(Time::ZERO, &mut self.device);
        self.settle();
        assert!(self.device.mapped.contains(&page), "not served");
    }

    pub fn read(&mut self, number: u64, index: usize) {
        self.fault(page(number, index), AccessKind::Read);
    }

    pub fn kernel(&mut self, number: u64) {
        self.driver.kernel_started(number, Time::ZERO, &mut self.device);
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            let completed = std::mem::take(&mut self.device.completed);
            let wake = self.device.wake.take();
            if completed.is_empty() && wake.is_none() {
                break;
            }
            if let Some(at) = wake {
                self.driver.wake(at, &mut self.device);
            }
            for ticket in completed {
                self.driver.push_complete(ticket, Time::ZERO, &mut self.device);
            }
        }
        self.driver.check_invariants().expect("invariants hold");
    }

    /// Which of the first `n` blocks have page 0 on the GPU.
    pub fn resident(&self, n: u64) -> Vec<u64> {
        (0..n)
            .filter(|number| (0..512).any(|index| self.driver.is_resident(page(*number, index))))
            .collect()
    }

    /// Pages of a block on the GPU.
    pub fn pages(&self, number: u64) -> Vec<usize> {
        (0..512)
            .filter(|index| self.driver.is_resident(page(number, *index)))
            .collect()
    }
}

/// A kernel of one thread block that touches page 0 of one VA block.
struct Touch(u64, bool);

impl AccessPattern for Touch {
    fn blocks(&self) -> u64 {
        1
    }
    fn steps(&self) -> u32 {
        1
    }
    fn step(&self, _block: u64, _step: u32, out: &mut StepAccesses) {
        let (list, kind) = if self.1 {
            (&mut out.stores, AccessKind::Write)
        } else {
            (&mut out.loads, AccessKind::Read)
        };
        list.push(Access {
            first: page(self.0, 0),
            pages: 1,
            warps: 1,
            kind,
        });
    }
    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        mapped.first_unmapped(page(self.0, 0), page(self.0, 1))?;
        (from == 0).then_some(0)
    }
}

/// The plan of kernels that touch one block each.
pub fn plan(blocks: &[u64], writes: bool) -> Arc<UsePlan> {
    let mut plan = UsePlan::default();
    for number in blocks {
        plan.add_kernel(&Touch(*number, writes), 1);
    }
    Arc::new(plan)
}
