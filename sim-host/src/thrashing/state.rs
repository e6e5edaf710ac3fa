//! State of the pages of one block, and the two things that change it: events and hints.

use sim_core::Time;
use sim_core::pages::{PAGES_PER_BLOCK, PageMask};
use sim_core::tools::Processor;

use super::lapse::Lapse;
use super::params::ThrashingParams;

/// Events saturate here: the field has three bits (uvm-driver 6.2).
const MOST_EVENTS: u8 = 7;

fn bit(processor: Processor) -> u8 {
    1 << processor as u8
}

/// Host memory can be accessed by every processor, device memory by the device only: a platform
/// whose CPU maps device memory (uvm-driver 6.3, "fast access") is not modelled.
fn all_reach(processors: u8, place: Processor) -> bool {
    place == Processor::Cpu || processors & !bit(place) == 0
}

/// What a page has been through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageState {
    /// Processors it has moved to.
    pub processors: u8,
    throttled: u8,
    events: u8,
    throttlings: u8,
    exempt: Option<Processor>,
    /// Where it is pinned.
    pub pin: Option<Processor>,
    /// Its last event.
    last: Option<Time>,
    throttle_end: Time,
    /// Until when it is pinned, if not for ever.
    pub deadline: Option<Time>,
}

/// What the driver does about a page that faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// Nothing special.
    None,
    /// The page is left alone until then.
    Throttle(Time),
    /// It goes to, or stays in, the memory of this processor.
    Pin(Processor),
}

/// What a hint has changed, for the tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub throttling_starts: bool,
    pub throttling_ends: bool,
    pub pinned: bool,
}

/// What the driver remembers of a block; its pages only once two processors have met there.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockState {
    last: Option<(Time, Processor)>,
    last_thrashing: Time,
    resets: u32,
    /// Pins so far: one ends forgiveness for good (uvm-driver 6.3).
    pins: u32,
    pages: Option<Box<[PageState]>>,
    /// Pages that thrash.
    pub thrashing: PageMask,
    /// Pages that are pinned.
    pub pinned: PageMask,
}

impl BlockState {
    pub fn page(&self, index: usize) -> Option<&PageState> {
        self.pages.as_ref().map(|pages| &pages[index])
    }

    pub fn has_pages(&self) -> bool {
        self.pages.is_some()
    }

    /// Pages have been copied to `to`; the pages that thrash since.
    pub fn migrated(
        &mut self,
        moved: &PageMask,
        to: Processor,
        now: Time,
        params: &ThrashingParams,
        lapse: Time,
    ) -> PageMask {
        let mut detected = PageMask::EMPTY;
        let before = self.last.replace((now, to));
        if self.pages.is_none() {
            let close = before.is_some_and(|(at, who)| who != to && now.saturating_sub(at) <= lapse);
            if !close {
                return detected;
            }
            self.pages = Some(vec![PageState::default(); PAGES_PER_BLOCK].into_boxed_slice());
        }
        let Some(pages) = &mut self.pages else {
            return detected;
        };
        for index in moved.iter() {
            let page = &mut pages[index];
            if page.pin == Some(to) {
                // It carries out the pin.
                continue;
            }
            page.processors |= bit(to);
            let Some(last) = page.last.replace(now) else {
                continue;
            };
            if now.saturating_sub(last) <= lapse {
                page.events = (page.events + 1).min(MOST_EVENTS);
                if page.events >= params.threshold {
                    self.last_thrashing = now;
                    if !self.thrashing.contains(index) {
                        self.thrashing.insert(index);
                        detected.insert(index);
                    }
                }
            } else if page.events >= params.threshold && page.pin.is_none() {
                *page = PageState::default();
                self.thrashing.remove(index);
            }
        }
        detected
    }

    /// Forgets what pages have been through.
    pub fn reset(&mut self, forgotten: &PageMask) {
        if let Some(pages) = &mut self.pages {
            for index in forgotten.iter() {
                pages[index] = PageState::default();
            }
        }
        self.thrashing = self.thrashing.without(forgotten);
        self.pinned = self.pinned.without(forgotten);
    }

    /// Pages whose pin has expired at `now` have it taken away, and are forgotten.
    pub fn expire(&mut self, now: Time) -> PageMask {
        let mut expired = PageMask::EMPTY;
        for index in self.pinned.iter() {
            let deadline = self.page(index).and_then(|page| page.deadline);
            if deadline.is_some_and(|deadline| deadline <= now) {
                expired.insert(index);
            }
        }
        self.reset(&expired);
        expired
    }

    /// What to do about a fault of `requester` on a page whose preferred location is given
    /// (uvm-driver 6.3). The two rows about platforms whose CPU maps device memory, and revocations,
    /// which a single GPU does not cause, are left out.
    pub fn hint(
        &mut self,
        index: usize,
        requester: Processor,
        preferred: Option<Processor>,
        now: Time,
        params: &ThrashingParams,
        lapse: &mut Lapse,
    ) -> (Hint, Changes) {
        let mut changes = Changes::default();
        let none = (Hint::None, changes);
        if self.pages.is_none() {
            return none;
        }
        let quiet = now.saturating_sub(self.last_thrashing);
        if quiet > params.epoch_time() && self.pins == 0 && self.resets < params.max_resets {
            self.pages = None;
            self.thrashing = PageMask::EMPTY;
            self.resets += 1;
            return none;
        }
        let Some(page) = self.pages.as_mut().map(|pages| &mut pages[index]) else {
            return none;
        };
        if page.events < params.threshold {
            return none;
        }
        let me = bit(requester);
        if page.throttled & me != 0 {
            if now < page.throttle_end && page.exempt != Some(requester) {
                return (Hint::Throttle(page.throttle_end), changes);
            }
            page.throttled &= !me;
            changes.throttling_ends = true;
        }
        let gap = now.saturating_sub(page.last.unwrap_or(now));
        lapse.vote(gap);
        if gap > lapse.get() && page.pin.is_none() {
            return (Hint::None, changes);
        }
        if now > page.throttle_end {
            page.throttle_end = now + params.nap_time();
            page.exempt = (page.exempt != Some(requester)).then_some(requester);
        } else {
            page.exempt.get_or_insert(requester);
        }
        let hint = page.decide(requester, preferred, params.pin_threshold);
        match hint {
            Hint::Throttle(_) => {
                page.throttled |= me;
                page.throttlings = page.throttlings.saturating_add(1);
                changes.throttling_starts = true;
            }
            Hint::Pin(place) => {
                if page.pin.is_none() {
                    page.deadline = params.pin_time().map(|pin| now + pin);
                    self.pins = self.pins.saturating_add(1);
                    self.pinned.insert(index);
                }
                changes.pinned = page.pin != Some(place);
                page.pin = Some(place);
            }
            Hint::None => {}
        }
        (hint, changes)
    }
}

impl PageState {
    /// The migration logic, first match wins.
    fn decide(&self, requester: Processor, preferred: Option<Processor>, pin_threshold: u8) -> Hint {
        let exempt = self.exempt == Some(requester);
        let throttle = Hint::Throttle(self.throttle_end);
        let processors = self.processors | bit(requester);
        if let Some(place) = preferred
            && all_reach(processors, place)
        {
            return Hint::Pin(place);
        }
        if preferred == Some(requester) {
            return match self.pin {
                Some(pin) if pin == requester || exempt => Hint::Pin(requester),
                Some(_) => throttle,
                None if !exempt => throttle,
                None if self.throttlings >= pin_threshold => Hint::Pin(requester),
                None => Hint::None,
            };
        }
        match self.pin {
            // The memory that all can access is the host's, if it is not the requester's.
            Some(_) if exempt && all_reach(processors, requester) => Hint::Pin(requester),
            Some(_) if exempt => Hint::Pin(Processor::Cpu),
            Some(pin) if all_reach(bit(requester), pin) => Hint::Pin(pin),
            Some(_) => throttle,
            None if !exempt => throttle,
            None if self.throttlings >= pin_threshold => Hint::Pin(requester),
            None => Hint::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Processor::{Cpu, Gpu};

    fn at(us: u64) -> Time {
        Time::from_us(us)
    }

    /// Page 0 moves to both in turn, 100 us apart, until it thrashes.
    fn bouncing() -> (BlockState, ThrashingParams, Lapse) {
        let params = ThrashingParams::default();
        let lapse = Lapse::new(&params);
        let mut state = BlockState::default();
        let page = PageMask::single(0);
        for (n, (to, detected)) in [(Gpu, 0), (Cpu, 0), (Gpu, 0), (Cpu, 0), (Gpu, 1)]
            .into_iter()
            .enumerate()
        {
            // The first event is the block's only; the second makes the array and is the page's first.
            let found = state.migrated(&page, to, at(1000 + 100 * n as u64), &params, lapse.get());
            assert_eq!(found.count(), detected, "event {n}");
        }
        (state, params, lapse)
    }

    #[test]
    fn one_processor_alone_is_never_seen() {
        let params = ThrashingParams::default();
        let mut state = BlockState::default();
        for n in 0..100 {
            state.migrated(&PageMask::FULL, Gpu, at(n), &params, params.lapse);
        }
        assert!(!state.has_pages());
        // Nor are two that are not close.
        state.migrated(&PageMask::FULL, Cpu, at(99 + 501), &params, params.lapse);
        assert!(!state.has_pages());
    }

    #[test]
    fn throttling_alternates_and_ends_in_a_pin_to_the_host() {
        let (mut state, params, mut lapse) = bouncing();
        let mut now = at(1450);
        let (mut throttles, mut pinned_at) = (0, Vec::new());
        let mut requester = Cpu;
        // Each gets what it wants unless it is throttled; then the other asks.
        for _ in 0..200 {
            let (hint, _) = state.hint(0, requester, None, now, &params, &mut lapse);
            match hint {
                Hint::Throttle(end) => {
                    assert!(end >= now, "ends later");
                    throttles += 1;
                }
                Hint::Pin(place) => pinned_at.push(place),
                Hint::None => {
                    state.migrated(&PageMask::single(0), requester, now, &params, lapse.get());
                }
            }
            if pinned_at.last() == Some(&Cpu) {
                break;
            }
            requester = if requester == Cpu { Gpu } else { Cpu };
            now += at(50);
        }
        assert_eq!(pinned_at.last(), Some(&Cpu), "{pinned_at:?}");
        assert!(throttles >= params.pin_threshold.into(), "{throttles}");
        // It stays there, and is forgotten when its time is over.
        assert_eq!(state.expire(now), PageMask::EMPTY);
        assert_eq!(state.expire(now + at(150_000)), PageMask::single(0));
        assert!(state.thrashing.is_empty() && state.pinned.is_empty());
    }

    #[test]
    fn a_preferred_location_that_both_reach_pins_at_once() {
        let (mut state, params, mut lapse) = bouncing();
        let (hint, changes) = state.hint(0, Gpu, Some(Cpu), at(1450), &params, &mut lapse);
        assert_eq!(hint, Hint::Pin(Cpu));
        assert!(changes.pinned);
    }

    #[test]
    fn a_quiet_block_is_forgiven_a_few_times_and_never_after_a_pin() {
        let (mut state, params, mut lapse) = bouncing();
        let late = at(2_000_000);
        assert_eq!(state.hint(0, Gpu, None, late, &params, &mut lapse).0, Hint::None);
        assert!(!state.has_pages());
        let (mut state, params, mut lapse) = bouncing();
        state.hint(0, Gpu, Some(Cpu), at(1450), &params, &mut lapse);
        state.hint(0, Gpu, Some(Cpu), late, &params, &mut lapse);
        assert!(state.has_pages());
    }
}
