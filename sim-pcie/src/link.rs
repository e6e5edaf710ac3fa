//! The link as the rest of a simulator sees it: submit transfers, ask for the next completion, advance.

use crate::config::{LinkConfig, LinkConfigError};
use crate::packet::Kind;
use crate::stats::{DirectionStats, LinkStats};
use crate::transfers::{Plan, State};
use sim_core::Time;
use sim_core::push::Direction;

/// Names a submitted transfer; ids count up from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// Consecutive bytes to move between host memory and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Host to device: reads made by the device. Device to host: posted writes.
    pub direction: Direction,
    /// Length; 0 is sent as one byte, as a zero-length request is. Values above 2^40 count as 2^40.
    pub bytes: u64,
    /// Host address of the first byte; only its position in its 4 KiB page matters.
    pub address: u64,
}

/// A transfer has arrived: its last completion at the device, or its last write at the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which.
    pub id: TransferId,
    /// When.
    pub time: Time,
}

/// How a link finds its times. The answers are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exactness {
    /// Bursts in closed form wherever nothing can interfere.
    #[default]
    Fast,
    /// Packet by packet.
    Stepped,
}

/// A full-duplex link with a device that reads and writes host memory.
///
/// Transfers of one direction are served in the order of submission, pipelined; the two directions share
/// the upstream wire packet by packet. Time is lazy: between calls nothing is computed, and a transfer on
/// an otherwise idle link costs a few arithmetic steps per SKP interval, whatever its size.
///
/// ```
/// use sim_core::{Time, push::Direction};
/// use sim_pcie::{Link, LinkConfig, Transfer};
///
/// let mut link = Link::new(LinkConfig::default())?;
/// link.submit(Time::ZERO, Transfer { direction: Direction::HostToDevice, bytes: 2 << 20, address: 0 });
/// let when = link.next_event().unwrap();
/// let mut done = Vec::new();
/// link.advance(when, &mut done);
/// assert_eq!(done[0].time, when);
/// # Ok::<(), sim_pcie::LinkConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Link {
    plan: Plan,
    /// Everything that started before the last submission.
    base: State,
    /// Runs ahead of it, as if nothing else were submitted; meaningful if `ahead_is_valid`.
    ahead: State,
    ahead_is_valid: bool,
    next_id: u64,
    now: u64,
    /// Completions up to here have been reported.
    reported: Option<u64>,
}

const MOST_BYTES: u64 = 1 << 40;
/// Later submissions count as this, 13 days, so that no sum of times overflows.
const LATEST: u64 = 1 << 60;

impl Link {
    /// An idle link at time zero.
    ///
    /// # Errors
    /// A field of `config` that no link can have.
    pub fn new(config: LinkConfig) -> Result<Link, LinkConfigError> {
        Link::with_exactness(config, Exactness::Fast)
    }

    /// An idle link that finds its times as told.
    ///
    /// # Errors
    /// A field of `config` that no link can have.
    pub fn with_exactness(config: LinkConfig, exactness: Exactness) -> Result<Link, LinkConfigError> {
        config.validate()?;
        let state = State::new(&config);
        Ok(Link {
            plan: Plan::new(config, exactness == Exactness::Fast),
            base: state.clone(),
            ahead: state,
            ahead_is_valid: false,
            next_id: 0,
            now: 0,
            reported: None,
        })
    }

    /// Its configuration.
    pub fn config(&self) -> &LinkConfig {
        &self.plan.config
    }

    /// Queues a transfer behind those of its direction. A `now` before an earlier call's counts as that.
    pub fn submit(&mut self, now: Time, transfer: Transfer) -> TransferId {
        self.now = self.now.max(now.0.min(LATEST));
        if self.ahead_is_valid && self.ahead.frontier <= self.now {
            std::mem::swap(&mut self.base, &mut self.ahead);
        }
        self.base.run(&self.plan, self.now);
        if let Some(reported) = self.reported {
            self.base.pop_done(reported, |_, _| ());
        }
        self.ahead_is_valid = false;
        let id = TransferId(self.next_id);
        self.next_id += 1;
        let (address, bytes) = (
            transfer.address % sim_core::pages::PAGE_BYTES,
            transfer.bytes.clamp(1, MOST_BYTES),
        );
        match transfer.direction {
            Direction::HostToDevice => self.base.submit_read(id, self.now, address, bytes),
            Direction::DeviceToHost => self.base.submit_write(id, self.now, address, bytes),
        }
        id
    }

    /// When the next completion occurs if nothing else is submitted; `None` on an idle link.
    pub fn next_event(&mut self) -> Option<Time> {
        if !self.ahead_is_valid {
            self.ahead.copy_from(&self.base);
            self.ahead_is_valid = true;
        }
        self.ahead.run_to_completion(&self.plan).map(Time)
    }

    /// Moves to time `to` and appends the completions up to and including it, in time order.
    pub fn advance(&mut self, to: Time, done: &mut Vec<Completion>) {
        while self.next_event().is_some_and(|time| time <= to) {
            // Only what is certain: a later run may find others at the same time.
            let first = self.ahead.first_done().unwrap_or(0);
            self.ahead
                .pop_done(first, |time, id| done.push(Completion { id, time: Time(time) }));
        }
        self.now = self.now.max(to.0.min(LATEST));
        self.reported = Some(self.now);
        if self.ahead.is_empty() {
            std::mem::swap(&mut self.base, &mut self.ahead);
            self.ahead_is_valid = false;
        }
    }

    /// Is no transfer outstanding?
    pub fn is_idle(&mut self) -> bool {
        self.next_event().is_none()
    }

    /// Counters up to `now`. Exact while no transfer is outstanding; while one is, they hold what has been
    /// worked out so far, which may reach beyond `now`.
    pub fn stats(&self, now: Time) -> LinkStats {
        let state = if self.ahead_is_valid {
            &self.ahead
        } else {
            &self.base
        };
        LinkStats {
            up: DirectionStats::of(&state.up, state.payload[0], now.0),
            down: DirectionStats::of(&state.down, state.payload[1], now.0),
        }
    }
}

impl LinkConfig {
    fn alone(&self, kind: Kind, payload: u64) -> u64 {
        let slots = self.tlp_slots(kind, payload);
        let wire = slots * self.slot_ticks();
        if self.generation.uses_flits() {
            wire.next_multiple_of(64 * self.slot_ticks())
        } else {
            wire
        }
    }

    /// Flight of an interrupt (MSI-X: a posted write of 4 bytes) to the host on an idle link.
    pub fn interrupt_latency(&self) -> Time {
        Time(self.alone(Kind::MWr, 4) + self.one_way.0)
    }

    /// Flight of a doorbell (a posted write of `bytes`, 4 or 8) to the device on an idle link.
    pub fn doorbell_latency(&self, bytes: u64) -> Time {
        Time(self.alone(Kind::MWr, bytes) + self.one_way.0)
    }

    /// Round trip of a host read of `bytes` of device registers on an idle link; `device` is the device's
    /// time from request to completion.
    pub fn mmio_read_latency(&self, bytes: u64, device: Time) -> Time {
        Time(self.alone(Kind::MRd, 0) + self.alone(Kind::CplD, bytes) + 2 * self.one_way.0) + device
    }
}
