//! Where the time of the SMs and of the copy engines went.
//!
//! At every moment an SM is computing (some resident block is being served), stalled (blocks are
//! resident and all of them wait for pages), or idle. Stalled time is split by what the driver was
//! doing meanwhile, which the composition states through [`Accounting::set_stall_reason`].

use sim_core::Time;

/// Number of stall reasons that can be told apart.
pub const STALL_REASONS: usize = 16;

/// Integrals over time; every SM tick is in exactly one of `computing`, `stalled`, `idle`.
#[derive(Clone, Debug)]
pub struct Accounting {
    sms: u32,
    last: Time,
    served: Vec<u32>,
    parked: Vec<u32>,
    computing_sms: u32,
    stalled_sms: u32,
    reason: usize,
    engines_busy: u32,
    /// SM time with a block being served.
    pub computing: u128,
    /// SM time with resident blocks that all wait for pages, by reason.
    pub stalled: [u128; STALL_REASONS],
    /// SM time without resident blocks.
    pub idle: u128,
    /// Time with at least one migration copy under way.
    pub migrating: u128,
    /// The same, times the SMs that computed meanwhile.
    pub migrating_sm_computing: u128,
    /// The same, times the SMs that were stalled meanwhile.
    pub migrating_sm_stalled: u128,
}

impl Accounting {
    /// All SMs idle at time zero.
    pub fn new(sms: u32) -> Accounting {
        Accounting {
            sms,
            last: Time::ZERO,
            served: vec![0; sms as usize],
            parked: vec![0; sms as usize],
            computing_sms: 0,
            stalled_sms: 0,
            reason: 0,
            engines_busy: 0,
            computing: 0,
            stalled: [0; STALL_REASONS],
            idle: 0,
            migrating: 0,
            migrating_sm_computing: 0,
            migrating_sm_stalled: 0,
        }
    }

    /// Books the time up to `now` under the present state.
    pub fn settle(&mut self, now: Time) {
        let span = u128::from(now.saturating_sub(self.last).0);
        if span == 0 {
            return;
        }
        self.last = now;
        self.computing += span * u128::from(self.computing_sms);
        self.stalled[self.reason] += span * u128::from(self.stalled_sms);
        self.idle += span * u128::from(self.sms - self.computing_sms - self.stalled_sms);
        if self.engines_busy > 0 {
            self.migrating += span;
            self.migrating_sm_computing += span * u128::from(self.computing_sms);
            self.migrating_sm_stalled += span * u128::from(self.stalled_sms);
        }
    }

    /// What stalled SMs wait for from `now` on.
    pub fn set_stall_reason(&mut self, reason: usize, now: Time) {
        if reason != self.reason {
            self.settle(now);
            self.reason = reason;
        }
    }

    /// A migration copy starts.
    pub fn copy_started(&mut self, now: Time) {
        self.settle(now);
        self.engines_busy += 1;
    }

    /// A migration copy ends.
    pub fn copy_ended(&mut self, now: Time) {
        self.settle(now);
        self.engines_busy -= 1;
    }

    /// The blocks of `sm` that are served and parked change by the given numbers.
    pub fn blocks_changed(&mut self, sm: u16, served: i32, parked: i32, now: Time) {
        let index = usize::from(sm);
        let before = (self.served[index] > 0, self.parked[index] > 0);
        self.served[index] = self.served[index].wrapping_add_signed(served);
        self.parked[index] = self.parked[index].wrapping_add_signed(parked);
        let after = (self.served[index] > 0, self.parked[index] > 0);
        if before != after {
            self.settle(now);
            self.count(before, -1);
            self.count(after, 1);
        }
    }

    fn count(&mut self, (served, parked): (bool, bool), by: i32) {
        if served {
            self.computing_sms = self.computing_sms.wrapping_add_signed(by);
        } else if parked {
            self.stalled_sms = self.stalled_sms.wrapping_add_signed(by);
        }
    }

    /// SMs stalled now.
    pub fn stalled_sms(&self) -> u32 {
        self.stalled_sms
    }

    /// SM time of all kinds together: SMs times elapsed time.
    pub fn total(&self) -> u128 {
        self.computing + self.stalled.iter().sum::<u128>() + self.idle
    }
}
