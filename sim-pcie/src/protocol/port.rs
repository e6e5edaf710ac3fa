//! One end of the link: a transmitter, and the receiver beside it.

use super::{Class, Counters, Purpose, Sent};
use crate::config::{AckPolicy, Arbiter, LinkConfig};
use crate::packet::{DLLP_BYTES, Kind};
use std::collections::VecDeque;

/// Sequence numbers count modulo this.
pub(super) const SEQUENCES: u16 = 4096;
/// Most packets without acknowledgement.
pub(super) const MOST_UNACKED: usize = 2047;

/// Credits of one class that the receiver grants at the start; `None` is infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Packet headers.
    pub headers: Option<u32>,
    /// Units of 16 payload bytes.
    pub data: Option<u32>,
}

/// How one end behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// Classes in the order in which they take turns.
    pub order: [Class; 3],
    /// Take turns (round robin), or always prefer the first of `order`?
    pub rotate: bool,
    /// Credits for this end's transmitter: posted, non-posted, completion.
    pub credits: [Credit; 3],
    /// Longest ACK delay, ticks; `None`: at once, merging while the wire is busy.
    pub ack_delay: Option<u64>,
    /// Replay timer, ticks; `None`: off.
    pub replay_timer: Option<u64>,
    /// Size of the retry buffer, wire bytes; `None`: unlimited.
    pub retry_bytes: Option<u64>,
    /// Ticks from the arrival of a packet until its credits are free.
    pub drain: u64,
    /// Freed headers that make an `UpdateFC` due.
    pub update_after: u64,
    /// Ticks that retraining takes after four replays without progress.
    pub retrain: u64,
    /// Do completions pass writes that wait for credits (relaxed ordering)? Read requests never do.
    pub relaxed_completions: bool,
    /// Do copy and zero-copy writes carry the relaxed ordering attribute, so that the next of them may pass a
    /// write of another requester that waits for data credits? Semaphores, interrupts and doorbells never carry it.
    pub relaxed_writes: bool,
}

impl PortOptions {
    /// What a link configuration says: ACK policy, arbitration, drain; classic replay timer of three ACK
    /// limits; no limit of the retry buffer; infinite credits but for the configured posted ones.
    pub fn new(config: &LinkConfig, upstream: bool) -> PortOptions {
        let limit = config.ack_limit_symbols() * config.generation.symbol_ticks();
        let (order, rotate) = match config.arbiter {
            Arbiter::RoundRobin => ([Class::Posted, Class::NonPosted, Class::Completion], true),
            Arbiter::PostedFirst => ([Class::Posted, Class::Completion, Class::NonPosted], false),
            Arbiter::NonPostedFirst => ([Class::NonPosted, Class::Posted, Class::Completion], false),
        };
        let mut credits = [Credit::default(); 3];
        if upstream {
            credits[0] = Credit {
                headers: config.posted_headers,
                data: config.posted_data,
            };
        }
        // Flits carry an acknowledgement each, and have no replay timer of packets here (there are no errors).
        let flits = config.generation.uses_flits();
        PortOptions {
            order,
            rotate,
            credits,
            ack_delay: (config.ack == AckPolicy::Timer && !flits).then_some(limit),
            replay_timer: (!flits).then_some(3 * limit),
            retry_bytes: None,
            drain: config.drain.0,
            update_after: 1,
            retrain: 20_000 * 1024,    // assumed: tens of microseconds
            relaxed_completions: true, // published: RlxdOrd+ in listings of GPUs
            relaxed_writes: false,     // assumed: where smaller writes could pass, the listings do not say
        }
    }
}

/// A transaction layer packet, in 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tlp {
    pub address: u64,
    /// Number of its copy, from 1; 0: none.
    pub copy: u32,
    pub payload: u16,
    pub wire_bytes: u16,
    pub sequence: u16,
    /// Of the read that it asks for or answers.
    pub tag: u16,
    pub kind: Kind,
    pub purpose: Purpose,
    /// Which requester of its side (of a completion: of the other side) wants it.
    pub source: u8,
    pub attempt: u8,
    /// Last completion of its read.
    pub last: bool,
    pub bad: bool,
}

const _: () = assert!(size_of::<Tlp>() == 32 && size_of::<Frame>() <= 32);

impl Tlp {
    #[inline]
    pub fn class(&self) -> Class {
        match self.kind {
            Kind::MWr => Class::Posted,
            Kind::MRd => Class::NonPosted,
            Kind::CplD => Class::Completion,
        }
    }

    /// Data credits that it takes.
    #[inline]
    pub fn units(&self) -> u16 {
        match self.kind {
            Kind::MRd => 0,
            Kind::MWr | Kind::CplD => self.payload.div_ceil(16),
        }
    }
}

/// A data-link layer packet that waits or flies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dllp {
    Nak(u16),
    Ack(u16),
    /// Totals of headers and data units ever freed.
    Update(Class, u64, u64),
}

/// What a transmitter puts on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Frame {
    Tlp(Tlp),
    Dllp(Dllp),
}

impl Frame {
    #[inline]
    pub fn wire_bytes(&self) -> u64 {
        match self {
            Frame::Tlp(tlp) => u64::from(tlp.wire_bytes),
            Frame::Dllp(_) => DLLP_BYTES,
        }
    }

    pub fn sent(&self) -> Sent {
        match *self {
            Frame::Tlp(tlp) => Sent::Tlp {
                kind: tlp.kind,
                sequence: tlp.sequence,
            },
            Frame::Dllp(Dllp::Ack(sequence)) => Sent::Ack(sequence),
            Frame::Dllp(Dllp::Nak(sequence)) => Sent::Nak(sequence),
            Frame::Dllp(Dllp::Update(class, headers, data)) => Sent::UpdateFc { class, headers, data },
        }
    }
}

/// Credits of one class as the transmitter counts them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    pub granted: Credit,
    pub used: (u64, u64),
    pub freed: (u64, u64),
}

impl Account {
    /// Can credits of this class run out?
    #[inline]
    pub fn is_finite(&self) -> bool {
        self.granted.headers.is_some() || self.granted.data.is_some()
    }

    #[inline]
    pub fn headers_left(&self) -> Option<u64> {
        self.granted
            .headers
            .map(|h| u64::from(h) + self.freed.0 - self.used.0)
    }
    #[inline]
    pub fn data_left(&self) -> Option<u64> {
        self.granted
            .data
            .map(|d| u64::from(d) + self.freed.1 - self.used.1)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Port {
    pub options: PortOptions,
    /// The packet of each class that goes next, once it is ready.
    pub heads: [Option<Tlp>; 3],
    /// The write behind the posted head, if it may pass it.
    pub relaxed: Option<Tlp>,
    pub turn: usize,
    pub nak: Option<u16>,
    /// An ACK waits for the wire.
    pub ack: bool,
    /// Waiting `UpdateFC`s in the order in which they became due.
    pub updates: VecDeque<(Class, u64, u64)>,
    pub next_sequence: u16,
    pub retry: VecDeque<Tlp>,
    pub retry_used: u64,
    /// Index into `retry` of the next packet to replay.
    pub replay: Option<usize>,
    pub replays: u32,
    pub accounts: [Account; 3],
    /// Receiver.
    pub expected: u16,
    pub nak_scheduled: bool,
    pub freed: [(u64, u64); 3],
    pub unsent_headers: [u64; 3],
    /// An `UpdateFC` of the class was lost: the refresh sends one in any case.
    pub lost_update: [bool; 3],
    pub blocked_until: u64,
    pub counters: Counters,
}

#[inline]
fn behind(a: u16, b: u16) -> u16 {
    (a.wrapping_sub(b)) % SEQUENCES
}

impl Port {
    pub fn new(options: PortOptions) -> Port {
        Port {
            accounts: options.credits.map(|granted| Account {
                granted,
                ..Account::default()
            }),
            options,
            heads: [None; 3],
            relaxed: None,
            turn: 0,
            nak: None,
            ack: false,
            updates: VecDeque::new(),
            next_sequence: 0,
            retry: VecDeque::new(),
            retry_used: 0,
            replay: None,
            replays: 0,
            expected: 0,
            nak_scheduled: false,
            freed: [(0, 0); 3],
            unsent_headers: [0; 3],
            lost_update: [false; 3],
            blocked_until: 0,
            counters: Counters::default(),
        }
    }

    /// Sequence number of the last packet accepted.
    #[inline]
    pub fn last_good(&self) -> u16 {
        behind(self.expected, 1)
    }

    /// The earliest tick, not before `now`, at which this transmitter has something that may start.
    #[inline]
    pub fn ready(&self, now: u64) -> Option<u64> {
        let data_link = self.ack || self.nak.is_some() || !self.updates.is_empty();
        if data_link {
            return Some(now.max(self.blocked_until));
        }
        self.ready_tlp(now)
    }

    /// The same for transaction layer packets only.
    #[inline]
    pub fn ready_tlp(&self, now: u64) -> Option<u64> {
        let new = || {
            let mut heads = self.heads.iter().flatten();
            heads.any(|tlp| self.hold(tlp).is_none()) || self.passes()
        };
        (self.replay.is_some() || new()).then(|| now.max(self.blocked_until))
    }

    /// Takes what starts at tick `t`.
    #[inline]
    pub fn pick(&mut self, t: u64) -> Option<Frame> {
        if t < self.blocked_until {
            return None;
        }
        if let Some(reply) = self.pick_reply() {
            return Some(Frame::Dllp(reply));
        }
        if let Some(update) = self.pick_update() {
            return Some(Frame::Dllp(update));
        }
        self.pick_tlp()
    }

    /// Takes the NAK or ACK that waits.
    #[inline]
    pub fn pick_reply(&mut self) -> Option<Dllp> {
        if let Some(sequence) = self.nak.take() {
            self.counters.naks += 1;
            return Some(Dllp::Nak(sequence));
        }
        std::mem::take(&mut self.ack).then(|| {
            self.counters.acks += 1;
            Dllp::Ack(self.last_good())
        })
    }

    /// Takes the first `UpdateFC` that waits.
    #[inline]
    pub fn pick_update(&mut self) -> Option<Dllp> {
        let (class, headers, data) = self.updates.pop_front()?;
        self.counters.updates += 1;
        Some(Dllp::Update(class, headers, data))
    }

    /// Takes the transaction layer packet that is next: a replay, or a new one.
    #[inline]
    pub fn pick_tlp(&mut self) -> Option<Frame> {
        if let Some(index) = self.replay {
            self.replay = (index + 1 < self.retry.len()).then_some(index + 1);
            let tlp = self.retry.get_mut(index)?;
            tlp.attempt = tlp.attempt.saturating_add(1);
            let tlp = *tlp;
            self.counters.tlps += 1;
            self.counters.replayed += 1;
            return Some(Frame::Tlp(tlp));
        }
        for step in 0..3 {
            let place = if self.options.rotate {
                (self.turn + step) % 3
            } else {
                step
            };
            let class = self.options.order[place] as usize;
            let free = self.heads[class].filter(|tlp| self.hold(tlp).is_none());
            let mut tlp = if let Some(tlp) = free {
                self.heads[class] = None;
                tlp
            } else if class == Class::Posted as usize
                && self.passes()
                && let Some(tlp) = self.relaxed.take()
            {
                tlp
            } else {
                continue;
            };
            let account = &mut self.accounts[class];
            account.used.0 += 1;
            account.used.1 += u64::from(tlp.units());
            tlp.sequence = self.next_sequence;
            self.next_sequence = (self.next_sequence + 1) % SEQUENCES;
            self.retry.push_back(tlp);
            self.retry_used += u64::from(tlp.wire_bytes);
            self.turn = (place + 1) % 3;
            self.counters.tlps += 1;
            return Some(Frame::Tlp(tlp));
        }
        None
    }

    /// An ACK or NAK arrived: everything up to `sequence` has. Did that make progress?
    #[inline]
    pub fn acknowledged(&mut self, sequence: u16) -> bool {
        let mut freed = 0;
        while self
            .retry
            .front()
            .is_some_and(|tlp| behind(sequence, tlp.sequence) < SEQUENCES / 2)
        {
            if let Some(tlp) = self.retry.pop_front() {
                self.retry_used -= u64::from(tlp.wire_bytes);
                freed += 1;
            }
        }
        if let Some(index) = self.replay {
            let index = index.saturating_sub(freed);
            self.replay = (index < self.retry.len()).then_some(index);
        }
        if freed > 0 {
            self.replays = 0;
        }
        freed > 0
    }

    /// Resend everything that is not acknowledged; after the fourth time without progress retrain first.
    pub fn start_replay(&mut self, now: u64) -> bool {
        if self.retry.is_empty() {
            return false;
        }
        self.replay = Some(0);
        self.replays += 1;
        let retrain = self.replays >= 4;
        if retrain {
            self.replays = 0;
            self.counters.retrains += 1;
            self.blocked_until = now + self.options.retrain;
        }
        retrain
    }

    /// Does `sequence` come too late (seen already), in order, or too early?
    #[inline]
    pub fn place(&self, sequence: u16) -> std::cmp::Ordering {
        match behind(sequence, self.expected) {
            0 => std::cmp::Ordering::Equal,
            ahead if ahead < SEQUENCES / 2 => std::cmp::Ordering::Greater,
            _ => std::cmp::Ordering::Less,
        }
    }

    /// The receiver has freed the credits of a packet, of which the other end counts; an `UpdateFC` may
    /// become due. Answers whether freed credits now wait for more, or for the periodic refresh.
    #[inline]
    pub fn free_credits(&mut self, class: Class, units: u64) -> bool {
        let index = class as usize;
        self.freed[index].0 += 1;
        self.freed[index].1 += units;
        self.unsent_headers[index] += 1;
        if self.unsent_headers[index] < self.options.update_after {
            return true;
        }
        self.send_update(class);
        false
    }

    /// Makes an `UpdateFC` due, or brings one that waits for the wire up to date.
    #[inline]
    pub fn send_update(&mut self, class: Class) {
        let index = class as usize;
        self.unsent_headers[index] = 0;
        let update = (class, self.freed[index].0, self.freed[index].1);
        match self.updates.iter_mut().find(|(c, ..)| *c == class) {
            Some(waiting) => *waiting = update,
            None => self.updates.push_back(update),
        }
    }

    /// Are there freed credits that no `UpdateFC` has told?
    #[inline]
    pub fn has_untold(&self, class: Class) -> bool {
        self.unsent_headers[class as usize] > 0
    }
}
