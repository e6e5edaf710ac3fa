//! The page walkers of the GMMU: a bounded pool, one walk at a time each.
//!
//! A page without PTE is found by a walk, after the uTLB and the L2 TLB have missed; only then can
//! the fault be written. Warps of one block that miss the same page share one walk.

use sim_core::Time;

/// The walkers, by the time each is free again.
///
/// All walks take equally long and are asked for in the order of time, so the walker that has been
/// given work the longest time ago is the one that is free first.
#[derive(Clone, Debug)]
pub struct Walkers {
    free: Vec<Time>,
    next: usize,
    walk: Time,
    /// Walks begun.
    pub walks: u64,
    /// Time that walks waited for a free walker, added up.
    pub waited: Time,
}

impl Walkers {
    /// `count` walkers (at least one) that need `walk` for a walk.
    pub fn new(count: u32, walk: Time) -> Walkers {
        Walkers {
            free: vec![Time::ZERO; count.max(1) as usize],
            next: 0,
            walk,
            walks: 0,
            waited: Time::ZERO,
        }
    }

    /// A walk is asked for at `now`: when it ends. The walker that is free first takes it.
    pub fn walk(&mut self, now: Time) -> Time {
        let free = &mut self.free[self.next];
        let start = now.max(*free);
        *free = start + self.walk;
        let end = *free;
        self.next += 1;
        if self.next == self.free.len() {
            self.next = 0;
        }
        self.walks += 1;
        self.waited += start - now;
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_queue_when_all_walkers_are_busy() {
        let mut walkers = Walkers::new(2, Time(100));
        assert_eq!(walkers.walk(Time(0)), Time(100));
        assert_eq!(walkers.walk(Time(10)), Time(110));
        assert_eq!(walkers.walk(Time(20)), Time(200));
        assert_eq!(walkers.walk(Time(150)), Time(250));
        assert_eq!((walkers.walks, walkers.waited), (4, Time(80)));
    }
}
