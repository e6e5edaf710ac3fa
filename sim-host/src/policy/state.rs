//! The policies of one driver, and what is remembered on their behalf.

use std::collections::BTreeMap;
use std::sync::Arc;

use sim_core::Time;
use sim_core::pages::{PageMask, VaBlock};
use sim_core::push::Ticket;

use super::{Moment, UsePlan};
use crate::eviction::EvictionPolicy;
use crate::prefetch::PrefetchPolicy;

/// Thread blocks do not advance together when they wait for pages: so many VA blocks, served last, are
/// taken to be in use still. Assumed.
const RECENT: usize = 16;

/// Policies and their surroundings.
#[derive(Debug)]
pub(crate) struct Policies {
    pub eviction: Box<dyn EvictionPolicy>,
    pub prefetch: Box<dyn PrefetchPolicy>,
    pub plan: Arc<UsePlan>,
    pub now: Moment,
    /// All of the program before this is over, as far as the driver can tell.
    pub passed: Moment,
    /// Blocks served lately in the present kernel and the last steps that use them, oldest first.
    recent: Vec<(VaBlock, u32)>,
    /// Blocks that the present batch has served: nothing done ahead of need may evict them.
    pub served: Vec<VaBlock>,
    /// Victims among [`Policies::served`] are refused at the moment.
    pub protect: bool,
    /// With dirty tracking: pages that were copied from the host, whose copy there still holds, and the
    /// moment when the first of them came.
    pub clean: BTreeMap<VaBlock, (PageMask, Moment)>,
    /// When the thread that works ahead of need is done with what it has.
    pub ahead_free: Time,
    /// The push whose completion asks for more to fetch ahead.
    pub ahead_waits: Option<Ticket>,
    /// Fetches ahead that this moment still allows: no policy goes on for ever.
    pub ahead_budget: u64,
}

impl Policies {
    pub fn new(
        eviction: Box<dyn EvictionPolicy>,
        prefetch: Box<dyn PrefetchPolicy>,
        capacity: u64,
    ) -> Policies {
        Policies {
            eviction,
            prefetch,
            plan: Arc::default(),
            now: Moment::default(),
            passed: Moment::default(),
            recent: Vec::new(),
            served: Vec::new(),
            protect: false,
            clean: BTreeMap::new(),
            ahead_free: Time::ZERO,
            ahead_waits: None,
            ahead_budget: capacity,
        }
    }

    /// A block is served: the present kernel has come at least to its first use of it.
    pub fn served_now(&mut self, block: VaBlock, capacity: u64) {
        self.served.push(block);
        let Some(at) = self.plan.use_by(block, self.now.kernel) else {
            return;
        };
        self.now.step = self.now.step.max(at.first);
        self.recent.retain(|served| served.0 != block);
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push((block, at.last));
        let slowest = self.recent.iter().map(|served| served.1).min().unwrap_or(0);
        if self.recent.len() == RECENT && slowest > self.passed.step {
            self.passed.step = slowest;
            self.ahead_budget = capacity;
        }
    }

    /// A kernel has started.
    pub fn kernel_started(&mut self, kernel: u32, capacity: u64) {
        if kernel > self.now.kernel {
            self.now = Moment { kernel, step: 0 };
            self.passed = self.now;
            self.recent.clear();
            self.ahead_budget = capacity;
        }
    }

    /// Pages have arrived from the host as the program left them there.
    pub fn arrived(&mut self, block: VaBlock, pages: &PageMask) {
        let now = self.passed;
        self.clean.entry(block).or_insert((PageMask::EMPTY, now)).0 |= *pages;
    }

    /// Pages are written.
    pub fn written(&mut self, block: VaBlock, pages: &PageMask) {
        if let Some((clean, _)) = self.clean.get_mut(&block) {
            *clean = clean.without(pages);
        }
    }

    /// Which of the block's pages are clean, asked when it leaves.
    pub fn take_clean(&mut self, block: VaBlock) -> PageMask {
        match self.clean.remove(&block) {
            Some((pages, since)) if !self.plan.written_between(block, since, self.now) => pages,
            _ => PageMask::EMPTY,
        }
    }
}

/// The view of a [`Memory`](crate::service::Memory), in a form that leaves its policies free to change.
macro_rules! view {
    ($memory:expr) => {
        $crate::policy::View {
            pmm: &$memory.pmm,
            space: &$memory.space,
            plan: &$memory.policies.plan,
            now: $memory.policies.now,
            passed: $memory.policies.passed,
            evictions: $memory.stats.evictions,
        }
    };
}
pub(crate) use view;
