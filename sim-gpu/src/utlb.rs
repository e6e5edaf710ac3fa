//! Requests that found no valid PTE: parked in their uTLB until a replay lets them hit.
//!
//! One [`ParkedAccess`] is one warp's access to one page. A uTLB holds a bounded number of them
//! (`utlb_outstanding_faults`); the misses beyond wait in order and raise nothing. Every access that
//! is parked writes one fault entry; a replay retries all of them, and those that still miss write
//! new entries, by uTLB and then by age.

use std::collections::VecDeque;

use sim_core::Time;
use sim_core::access::AccessKind;
use sim_core::pages::Page;

/// Names the resident block (of a kernel) that waits for an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Index of the running kernel.
    pub kernel: u32,
    /// Slot of the kernel.
    pub slot: u32,
}

/// One warp's access to one page, waiting for its translation.
#[derive(Clone, Copy, Debug)]
pub struct ParkedAccess {
    /// The page without PTE.
    pub page: Page,
    /// Who waits.
    pub waiter: Waiter,
    /// What the access is.
    pub kind: AccessKind,
    /// Which of its warp's independent accesses it is. All warps of an SM issue their first access
    /// before any issues its second one: the loose round robin of the warp schedulers.
    pub rank: u16,
    /// When it missed.
    pub missed: Time,
}

/// The parked and waiting accesses of one uTLB, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Utlb {
    /// At most `limit`; the first `emitted` of them have written their entry.
    parked: Vec<ParkedAccess>,
    /// Misses that found the uTLB full.
    waiting: VecDeque<ParkedAccess>,
    emitted: usize,
    limit: usize,
}

impl Utlb {
    /// A uTLB that parks up to `limit` accesses.
    pub fn new(limit: u32) -> Utlb {
        Utlb { limit: limit as usize, ..Utlb::default() }
    }

    /// Parked accesses that have still to write their entry.
    pub fn unemitted(&self) -> usize {
        self.parked.len() - self.emitted
    }

    /// Accesses parked and waiting.
    pub fn len(&self) -> usize {
        self.parked.len() + self.waiting.len()
    }

    /// Nothing is parked or waiting.
    pub fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// A miss arrives. It parks if there is room; of the misses of one moment, lower ranks go first.
    pub fn miss(&mut self, access: ParkedAccess) {
        let goes_before = |other: &ParkedAccess| other.missed == access.missed && other.rank > access.rank;
        let waiting = self.waiting.iter().rev().take_while(|other| goes_before(other)).count();
        if waiting < self.waiting.len() {
            self.waiting.insert(self.waiting.len() - waiting, access);
            return;
        }
        let unwritten = &self.parked[self.emitted..];
        let parked = unwritten.iter().rev().take_while(|other| goes_before(other)).count();
        if parked == 0 && self.parked.len() == self.limit {
            self.waiting.push_front(access);
            return;
        }
        self.parked.insert(self.parked.len() - parked, access);
        if self.parked.len() > self.limit
            && let Some(last) = self.parked.pop()
        {
            self.waiting.push_front(last);
        }
    }

    /// The next access to write its entry.
    pub fn emit(&mut self) -> Option<ParkedAccess> {
        let access = *self.parked.get(self.emitted)?;
        self.emitted += 1;
        Some(access)
    }

    /// Marks up to `n` accesses as having written their entry, without looking at them.
    pub fn skip_emission(&mut self, n: usize) -> usize {
        let n = n.min(self.unemitted());
        self.emitted += n;
        n
    }

    /// A replay: every parked access is retried, then waiting ones take the room that is left.
    ///
    /// `is_mapped` says whether a page has a PTE now; `hit` hears of every access that hits. Those
    /// that still miss have their entry to write again.
    pub fn replay(&mut self, is_mapped: impl Fn(Page) -> bool, mut hit: impl FnMut(Waiter)) {
        self.emitted = 0;
        self.parked.retain(|access| {
            let mapped = is_mapped(access.page);
            if mapped {
                hit(access.waiter);
            }
            !mapped
        });
        while self.parked.len() < self.limit {
            let Some(access) = self.waiting.pop_front() else { break };
            if is_mapped(access.page) {
                hit(access.waiter);
            } else {
                self.parked.push(access);
            }
        }
    }

    /// Pages waited for, for reports of a simulation that cannot go on.
    pub fn pages(&self) -> impl Iterator<Item = Page> + '_ {
        self.parked.iter().chain(&self.waiting).map(|access| access.page)
    }
}
