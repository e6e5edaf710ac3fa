//! The flit stream of generation 6, one direction with its retry: 256-byte flits with sequence numbers, packets
//! packed back to back across them, bad flits replayed (go-back-n).
//!
//! Every flit slot sends one flit: new packet bytes, a replay, or NOPs. A receiver has a packet when the flit with
//! its last byte is whole and has passed error correction. A bad flit with packet bytes makes the receiver ask for
//! replay in the next flit the other way; the sender goes back to it and resends all that followed. A bad flit with
//! only NOPs needs no replay (published: PCI-SIG answers on 6.0). Acknowledgements ride in the flits of the other
//! direction and cost no bytes; they wait at most one flit.
//!
//! ```
//! use sim_core::Time;
//! use sim_pcie::flit::{FlitLink, FlitOptions};
//!
//! let mut link = FlitLink::new(FlitOptions::default())?;
//! link.send(Time::ZERO, 272); // a write of 256 bytes: two flits, 4 ns
//! link.run();
//! assert_eq!(link.arrivals()[0], Time::from_ns(4 + 2 + 75));
//! # Ok::<(), sim_pcie::LinkConfigError>(())
//! ```

use crate::LinkConfigError;
use crate::protocol::errors::ErrorGap;
use sim_core::Time;
use std::collections::VecDeque;

/// Packet bytes of a flit (published: 236 of 256).
pub const FLIT_TLP_BYTES: u64 = 236;
/// Flit sequence numbers, 10 bits; 0 is kept for idle flits (unverified).
pub const FLIT_SEQUENCES: u64 = 1023;

/// One direction of a link in flit mode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlitOptions {
    /// Width: 1, 2, 4, 8 or 16.
    pub lanes: u32,
    /// Flight of the last bit.
    pub one_way: Time,
    /// Error correction and check of a whole flit (about 2 ns).
    pub decode: Time,
    /// Probability that a flit is bad after correction (of the order of 1e-6; 0: never).
    pub flit_errors: f64,
    /// Seed of the stream of errors, `link.flits`.
    pub seed: u64,
    /// Flits that the retry buffer holds, at most 511 (half the sequence numbers).
    pub retry_flits: u32,
}

impl Default for FlitOptions {
    fn default() -> Self {
        FlitOptions {
            lanes: 16,
            one_way: Time::from_ns(75),
            decode: Time::from_ns(2),
            flit_errors: 0.0,
            seed: 0,
            retry_flits: 511,
        }
    }
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlitCount {
    /// Flits with new packet bytes.
    pub new: u64,
    /// Flits sent again.
    pub replayed: u64,
    /// Flits of NOPs only, while packets waited or were not acknowledged; those of idle time are not counted.
    pub nops: u64,
    /// Bad flits, of NOPs too.
    pub bad: u64,
    /// Requests for replay.
    pub naks: u64,
}

/// A flit of packet bytes in the retry buffer.
#[derive(Clone, Copy, Debug)]
struct Flit {
    number: u64,
    /// Packets whose last byte is in it.
    ends: u64,
}

#[derive(Clone, Copy, Debug)]
enum Reply {
    Ack(u64),
    Nak(u64),
}

/// One direction with its receiver; the way back carries the replies.
#[derive(Clone, Debug)]
pub struct FlitLink {
    options: FlitOptions,
    flit: u64,
    errors: ErrorGap,
    /// Packets that wait: ready, bytes left.
    queue: VecDeque<(u64, u64)>,
    retry: VecDeque<Flit>,
    replay: Option<usize>,
    next: u64,
    /// Receiver: the next flit number, and whether a replay was asked for.
    expected: u64,
    asked: bool,
    /// Replies on their way, by arrival.
    replies: VecDeque<(u64, Reply)>,
    slot: u64,
    count: FlitCount,
    arrivals: Vec<Time>,
}

impl FlitLink {
    /// An idle direction.
    ///
    /// # Errors
    /// An option that no link can have.
    pub fn new(options: FlitOptions) -> Result<FlitLink, LinkConfigError> {
        let error = |key, value: String, allowed: &str| LinkConfigError {
            key,
            value,
            allowed: allowed.to_owned(),
        };
        if !matches!(options.lanes, 1 | 2 | 4 | 8 | 16) {
            return Err(error("lanes", options.lanes.to_string(), "1, 2, 4, 8 or 16"));
        }
        if !(0.0..=0.1).contains(&options.flit_errors) {
            return Err(error("flit_errors", options.flit_errors.to_string(), "0 to 0.1"));
        }
        if !(1..=511).contains(&options.retry_flits) {
            return Err(error("retry_flits", options.retry_flits.to_string(), "1 to 511"));
        }
        let second = Time::from_us(1_000_000);
        for (key, time) in [("one_way", options.one_way), ("decode", options.decode)] {
            if time > second {
                return Err(error(key, time.to_string(), "at most 1 s"));
            }
        }
        Ok(FlitLink {
            flit: 256 * 128 / u64::from(options.lanes),
            errors: ErrorGap::new(options.flit_errors, options.seed, "link.flits"),
            options,
            queue: VecDeque::new(),
            retry: VecDeque::new(),
            replay: None,
            next: 0,
            expected: 0,
            asked: false,
            replies: VecDeque::new(),
            slot: 0,
            count: FlitCount::default(),
            arrivals: Vec::new(),
        })
    }

    /// A packet of `bytes` stream bytes (header and payload, see [`crate::packet::tlp_bytes`]) is ready at `at`;
    /// packets go in the order of the calls.
    pub fn send(&mut self, at: Time, bytes: u64) {
        self.queue.push_back((at.0.min(1 << 60), bytes.clamp(4, 1 << 13)));
    }

    /// When each packet was received, in order.
    pub fn arrivals(&self) -> &[Time] {
        &self.arrivals
    }

    /// What was sent.
    pub fn count(&self) -> FlitCount {
        self.count
    }

    /// Runs until every packet has arrived and is acknowledged; over idle time in one step.
    pub fn run(&mut self) {
        self.go(true);
    }

    /// The same, flit by flit through idle time too: the reference.
    pub fn run_every_flit(&mut self) {
        self.go(false);
    }

    fn go(&mut self, jump: bool) {
        while !self.queue.is_empty() || !self.retry.is_empty() {
            let t = self.slot * self.flit;
            while let Some(&(at, reply)) = self.replies.front() {
                if at > t {
                    break;
                }
                self.replies.pop_front();
                self.reply(reply);
            }
            if self.transmit(t) {
                self.slot += 1;
                continue;
            }
            // Only NOPs until a packet is ready or a reply arrives.
            let ready = self.queue.front().map(|q| q.0).filter(|_| self.has_room());
            let reply = self.replies.front().map(|r| r.0);
            let Some(until) = [ready, reply].into_iter().flatten().min() else {
                if self.retry.is_empty() {
                    return;
                }
                // The last flit was lost and nothing followed: the receiver notices with the next NOP flit.
                self.nops(1);
                self.ask(t);
                continue;
            };
            let slots = until.div_ceil(self.flit).saturating_sub(self.slot).max(1);
            self.nops(if jump { slots } else { 1 });
        }
    }

    fn has_room(&self) -> bool {
        self.retry.len() < self.options.retry_flits as usize
    }

    fn nops(&mut self, flits: u64) {
        self.slot += flits;
        self.count.nops += flits;
        let mut left = flits;
        while left > self.errors.left {
            left -= self.errors.left + 1;
            self.errors.pass(self.errors.left.saturating_add(1));
            self.count.bad += 1;
        }
        self.errors.pass(left);
    }

    fn transmit(&mut self, t: u64) -> bool {
        let flit = if let Some(index) = self.replay {
            self.replay = (index + 1 < self.retry.len()).then_some(index + 1);
            self.count.replayed += 1;
            let Some(&flit) = self.retry.get(index) else {
                return false;
            };
            flit
        } else {
            if !self.has_room() {
                return false;
            }
            let (mut room, mut ends) = (FLIT_TLP_BYTES, 0);
            // A packet that becomes ready inside a flit goes with the next.
            while room > 0
                && let Some((ready, bytes)) = self.queue.front_mut()
                && *ready <= t
            {
                let part = room.min(*bytes);
                (*bytes, room) = (*bytes - part, room - part);
                if *bytes == 0 {
                    ends += 1;
                    self.queue.pop_front();
                }
            }
            if room == FLIT_TLP_BYTES {
                return false;
            }
            let flit = Flit {
                number: self.next,
                ends,
            };
            self.next += 1;
            self.retry.push_back(flit);
            self.count.new += 1;
            flit
        };
        let bad = self.errors.pass(1);
        self.count.bad += u64::from(bad);
        let arrival = t + self.flit + self.options.one_way.0 + self.options.decode.0;
        self.receive(flit, bad, arrival);
        true
    }

    fn receive(&mut self, flit: Flit, bad: bool, arrival: u64) {
        if bad || flit.number > self.expected {
            // Asked in order of the arrival of flits; the reply leaves with the next flit the other way.
            if !std::mem::replace(&mut self.asked, true) {
                self.ask(arrival);
            }
            return;
        }
        if flit.number == self.expected {
            self.expected += 1;
            self.asked = false;
            let new = std::iter::repeat_n(Time(arrival), flit.ends as usize);
            self.arrivals.extend(new);
        }
        self.answer(arrival, Reply::Ack(self.expected));
    }

    fn ask(&mut self, at: u64) {
        self.asked = true;
        self.count.naks += 1;
        self.answer(at, Reply::Nak(self.expected));
    }

    fn answer(&mut self, at: u64, reply: Reply) {
        let leaves = at.next_multiple_of(self.flit) + self.flit;
        let arrival = leaves + self.options.one_way.0 + self.options.decode.0;
        self.replies.push_back((arrival, reply));
    }

    fn reply(&mut self, reply: Reply) {
        let (Reply::Ack(upto) | Reply::Nak(upto)) = reply;
        let mut freed = 0;
        while self.retry.front().is_some_and(|flit| flit.number < upto) {
            self.retry.pop_front();
            freed += 1;
        }
        self.replay = match reply {
            Reply::Nak(_) => {
                // What is received from here on is the replay.
                self.asked = false;
                (!self.retry.is_empty()).then_some(0)
            }
            Reply::Ack(_) => self
                .replay
                .map(|index| index.saturating_sub(freed))
                .filter(|&i| i < self.retry.len()),
        };
    }
}
