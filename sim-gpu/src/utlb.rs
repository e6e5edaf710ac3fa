//! Requests that found no valid PTE: parked in their uTLB until a replay lets them hit.
//!
//! A uTLB holds a bounded number of parked accesses (`utlb_outstanding_faults`, counted per warp and
//! page); the misses beyond wait in order and raise nothing. Every warp that is parked writes one fault
//! entry; a replay retries all of them, and those that still miss write new entries, by age. Warps of
//! one block that wait for the same page are kept together, as a count.
//!
//! Most of what is parked is there again after a replay. Two shortcuts keep that cheap: entries that
//! nobody will read are counted and not gone through ([`Utlb::skip`]), and a replay passes over a uTLB
//! none of whose pages has a new PTE ([`Utlb::waits_for`]).

use std::collections::VecDeque;

use sim_core::Time;
use sim_core::access::AccessKind;
use sim_core::pages::{Page, PageMask, VaBlock};

/// Names the resident block (of a kernel) that waits for an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Index of the running kernel.
    pub kernel: u32,
    /// Slot of the kernel.
    pub slot: u32,
}

/// Some warps' access to one page, waiting for its translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParkedAccess {
    /// The page without PTE.
    pub page: Page,
    /// Who waits.
    pub waiter: Waiter,
    /// What the access is.
    pub kind: AccessKind,
    /// Which of its warps' independent accesses it is. All warps of an SM issue their first access
    /// before any issues its second one: the loose round robin of the warp schedulers.
    pub rank: u16,
    /// Warps, each of which is parked by itself.
    pub warps: u32,
    /// When it missed.
    pub missed: Time,
}

/// What is waited for, in two folds: VA blocks into 4,096 bits, exact as long as they lie within
/// 8 GiB; pages into as many, exact within 16 MiB.
#[derive(Clone, Debug)]
struct Filter {
    blocks: [u64; 64],
    pages: [PageMask; 8],
}

impl Filter {
    const EMPTY: Filter = Filter {
        blocks: [0; 64],
        pages: [PageMask::EMPTY; 8],
    };

    fn insert(&mut self, page: Page) {
        let block = page.block();
        self.blocks[(block.0 / 64 % 64) as usize] |= 1 << (block.0 % 64);
        self.pages[(block.0 % 8) as usize].insert(page.index());
    }

    /// Never false for pages of which one was inserted.
    fn may_contain(&self, block: VaBlock, pages: &PageMask) -> bool {
        self.blocks[(block.0 / 64 % 64) as usize] >> (block.0 % 64) & 1 == 1
            && self.pages[(block.0 % 8) as usize].intersects(pages)
    }
}

impl Default for Filter {
    fn default() -> Self {
        Filter::EMPTY
    }
}

/// The parked and waiting accesses of one uTLB, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Utlb {
    /// At most `limit` warps together.
    parked: Vec<ParkedAccess>,
    /// Misses that found the uTLB full; none unless it is.
    waiting: VecDeque<ParkedAccess>,
    limit: u32,
    parked_warps: u32,
    /// Warps that have written their entry: all of `parked[..cursor]`, `within` of the next, and the
    /// `skipped` ones that follow.
    emitted_warps: u32,
    cursor: usize,
    within: u32,
    skipped: u32,
    /// Of the parked accesses; perhaps of some that have hit, too.
    awaited: Filter,
}

impl Utlb {
    /// A uTLB that parks up to `limit` warps.
    pub fn new(limit: u32) -> Utlb {
        Utlb {
            limit,
            ..Utlb::default()
        }
    }

    /// Parked warps that have still to write their entry.
    pub fn unemitted(&self) -> u32 {
        self.parked_warps - self.emitted_warps
    }

    /// Warps parked and waiting.
    pub fn len(&self) -> usize {
        self.parked
            .iter()
            .chain(&self.waiting)
            .map(|access| access.warps as usize)
            .sum()
    }

    /// Nothing is parked or waiting.
    pub fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// A miss arrives. It parks as far as there is room; of the misses of one moment, lower ranks go
    /// first.
    pub fn miss(&mut self, access: ParkedAccess) {
        let goes_before = |other: &ParkedAccess| other.missed == access.missed && other.rank > access.rank;
        let overtaken = self
            .waiting
            .iter()
            .rev()
            .take_while(|other| goes_before(other))
            .count();
        if overtaken < self.waiting.len() {
            self.waiting.insert(self.waiting.len() - overtaken, access);
            return;
        }
        self.awaited.insert(access.page);
        self.go_through_skipped();
        let unwritten = (self.cursor + usize::from(self.within > 0)).min(self.parked.len());
        let overtaken = self.parked[unwritten..]
            .iter()
            .rev()
            .take_while(|other| goes_before(other))
            .count();
        self.parked.insert(self.parked.len() - overtaken, access);
        self.parked_warps += access.warps;
        while self.parked_warps > self.limit {
            let excess = self.parked_warps - self.limit;
            let Some(last) = self.parked.last_mut() else { break };
            let moved = ParkedAccess {
                warps: last.warps.min(excess),
                ..*last
            };
            last.warps -= moved.warps;
            if last.warps == 0 {
                self.parked.pop();
            }
            self.parked_warps -= moved.warps;
            self.waiting.push_front(moved);
        }
    }

    /// The next `n` warps write their entries, and nobody will look at these. There must be as many.
    pub fn skip(&mut self, n: u32) {
        debug_assert!(n <= self.unemitted());
        self.skipped += n;
        self.emitted_warps += n;
    }

    fn go_through_skipped(&mut self) {
        while self.skipped > 0
            && let Some(access) = self.parked.get(self.cursor)
        {
            let taken = self.skipped.min(access.warps - self.within);
            self.skipped -= taken;
            self.within += taken;
            if self.within == access.warps {
                self.cursor += 1;
                self.within = 0;
            }
        }
    }

    /// The next warps of one access to write their entries, at most `n` of them.
    pub fn emit(&mut self, n: u32) -> Option<(ParkedAccess, u32)> {
        self.go_through_skipped();
        let access = *self.parked.get(self.cursor)?;
        let taken = n.min(access.warps - self.within);
        self.within += taken;
        self.emitted_warps += taken;
        if self.within == access.warps {
            self.cursor += 1;
            self.within = 0;
        }
        Some((access, taken))
    }

    /// Can these PTEs, new since the last replay, let a parked access hit?
    pub fn waits_for(&self, new: &[(VaBlock, PageMask)]) -> bool {
        new.iter()
            .any(|(block, pages)| self.awaited.may_contain(*block, pages))
    }

    /// A replay that lets none of the parked accesses hit.
    pub fn replay_in_vain(&mut self) {
        (self.cursor, self.within, self.skipped, self.emitted_warps) = (0, 0, 0, 0);
    }

    /// A replay: every parked access is retried, then waiting ones take the room that is left.
    ///
    /// `hits` says whether an access has a PTE that allows it now; `hit` hears of the warps that hit. Those that
    /// still miss have their entry to write again.
    pub fn replay(&mut self, hits: impl Fn(Page, AccessKind) -> bool, mut hit: impl FnMut(Waiter, u32)) {
        self.replay_in_vain();
        self.awaited = Filter::EMPTY;
        let awaited = &mut self.awaited;
        let mut left = 0;
        self.parked.retain(|access| {
            let mapped = hits(access.page, access.kind);
            if mapped {
                hit(access.waiter, access.warps);
            } else {
                left += access.warps;
                awaited.insert(access.page);
            }
            !mapped
        });
        self.parked_warps = left;
        while self.parked_warps < self.limit {
            let Some(mut access) = self.waiting.pop_front() else {
                break;
            };
            if hits(access.page, access.kind) {
                hit(access.waiter, access.warps);
                continue;
            }
            let taken = access.warps.min(self.limit - self.parked_warps);
            self.parked_warps += taken;
            self.awaited.insert(access.page);
            access.warps -= taken;
            match self.parked.last_mut() {
                Some(last)
                    if ParkedAccess {
                        warps: access.warps,
                        ..*last
                    } == access =>
                {
                    last.warps += taken;
                }
                _ => self.parked.push(ParkedAccess {
                    warps: taken,
                    ..access
                }),
            }
            if access.warps > 0 {
                self.waiting.push_front(access);
            }
        }
    }

    /// Pages waited for, for reports of a simulation that cannot go on.
    pub fn pages(&self) -> impl Iterator<Item = Page> + '_ {
        self.parked.iter().chain(&self.waiting).map(|access| access.page)
    }
}
