//! Transfers as packets on the two wires: the transfer-level model.
//!
//! Upstream, posted writes (device to host) and read requests (host to device) share the wire under an
//! arbiter; downstream carries only completions, in request order. So the whole link is one sequence of
//! upstream decisions: at each, a packet starts, and a read request fixes at once when its completions
//! run. [`State::run`] makes the decisions before a limit, one packet at a time or (fast) in bursts whose
//! length follows from when anything else could happen.

use crate::TransferId;
use crate::config::{Arbiter, CompletionPolicy, LinkConfig};
use crate::host::Host;
use crate::packet::{Kind, first_completion, first_request};
use crate::tags::Tags;
use crate::wire::{Side, Unit, Wire};
use std::collections::VecDeque;

/// What is left to launch of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    id: TransferId,
    pub ready: u64,
    pub address: u64,
    pub left: u64,
}

/// What never changes, worked out once.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub config: LinkConfig,
    pub latency: u64,
    pub write_limit: u64,
    pub read_limit: u64,
    mps: u64,
    rcb: u64,
    fast: bool,
    pub arbiter: Arbiter,
    /// A full aligned write.
    pub full_write: Unit,
    /// Full aligned reads: cut at every boundary, and as little as possible.
    pub full_reads: [FullRead; 2],
    pub stream: Stream,
}

/// A full aligned read and its completions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FullRead {
    pub request: Unit,
    pub completion: Unit,
    pub completions: u64,
}

/// When full reads can be launched in bulk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// Most ticks from the moment a request is ready (the wire idle or just ending a request) to its end.
    on_wire: u64,
    /// Most ticks from there to its completions being ready, with room for one ordered set downstream.
    turn: u64,
    /// Do completions take so much longer than requests that, once some are queued at the host, requests
    /// sent back to back keep them queued?
    pub bursts: bool,
    /// Are there enough tags to keep completions back to back when every request waits for a tag?
    streams: bool,
    /// Requests after which the upstream wire has forgotten any delay.
    settle: u64,
}

impl Plan {
    pub fn new(config: LinkConfig, fast: bool) -> Plan {
        let (mps, rcb) = (u64::from(config.mps), u64::from(config.rcb));
        let unit = Unit {
            slots: config.tlp_slots(Kind::MWr, u64::from(config.write_tlp)),
            count: 0,
        };
        let none = FullRead {
            request: unit,
            completion: unit,
            completions: 1,
        };
        let mut plan = Plan {
            latency: config.one_way.0,
            write_limit: u64::from(config.write_tlp),
            read_limit: u64::from(config.mrrs),
            mps,
            rcb,
            fast,
            arbiter: config.arbiter,
            full_write: unit,
            full_reads: [none; 2],
            stream: Stream {
                on_wire: 0,
                turn: 0,
                bursts: false,
                streams: false,
                settle: 0,
            },
            config,
        };
        plan.full_reads = [plan.full_read(false), plan.full_read(true)];
        plan.stream = plan.stream();
        plan
    }

    fn completion(&self, payload: u64) -> Unit {
        let slots = self.config.tlp_slots(Kind::CplD, payload);
        Unit {
            slots,
            count: slots * 4,
        }
    }

    /// The request of a read whose completions take `wire_bytes`.
    fn request(&self, wire_bytes: u64) -> Unit {
        Unit {
            slots: self.config.tlp_slots(Kind::MRd, 0),
            count: wire_bytes,
        }
    }

    /// Calls `each(payload, count)` for the completions of a read, equal neighbours together.
    fn completions(&self, address: u64, bytes: u64, max: bool, mut each: impl FnMut(u64, u64)) {
        let step = if max { self.mps } else { self.rcb };
        let (mut at, mut left) = (address, bytes);
        while left > 0 {
            let payload = first_completion(at, left, self.mps, self.rcb, max);
            let count = if payload == step {
                left >> step.trailing_zeros()
            } else {
                1
            };
            each(payload, count);
            at += payload * count;
            left -= payload * count;
        }
    }

    fn wire_bytes(&self, address: u64, bytes: u64, max: bool) -> u64 {
        let mut sum = 0;
        self.completions(address, bytes, max, |payload, count| {
            sum += self.completion(payload).slots * 4 * count;
        });
        sum
    }

    fn full_read(&self, max: bool) -> FullRead {
        let payload = first_completion(0, self.read_limit, self.mps, self.rcb, max);
        FullRead {
            request: self.request(self.wire_bytes(0, self.read_limit, max)),
            completion: self.completion(payload),
            completions: self.read_limit / payload,
        }
    }

    fn stream(&self) -> Stream {
        let (up, down) = (
            Wire::new(&self.config, Side::Up),
            Wire::new(&self.config, Side::Down),
        );
        let used = match self.config.completions {
            CompletionPolicy::Rcb => &self.full_reads[..1],
            CompletionPolicy::Max => &self.full_reads[1..],
            CompletionPolicy::Mixed { .. } => &self.full_reads[..],
        };
        let ticks = used
            .iter()
            .map(|full| down.least_ticks(full.completion, full.completions))
            .min()
            .unwrap_or(1);
        let request_ticks = up.least_ticks(used[0].request, 1) + 2 * self.config.slot_ticks();
        let on_wire = up.jitter() + request_ticks;
        let turn = on_wire + self.latency + self.config.host_read.0 + down.jitter();
        let bursts = ticks >= 2 * request_ticks;
        let window = (u64::from(self.config.tags) - 1).saturating_mul(ticks);
        let streams = bursts && window >= turn + self.latency;
        Stream {
            on_wire,
            turn,
            bursts,
            streams,
            settle: on_wire / ticks + 2,
        }
    }
}

/// The link between two decisions.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub up: Wire,
    pub down: Wire,
    pub host: Host,
    pub tags: Tags,
    pub writes: VecDeque<Job>,
    pub reads: VecDeque<Job>,
    pub wrote_last: bool,
    /// Completed transfers, in time order each: reads, writes.
    pub reads_done: VecDeque<(u64, TransferId)>,
    pub writes_done: VecDeque<(u64, TransferId)>,
    /// No packet was launched upstream at or after this tick.
    pub frontier: u64,
    /// All reads from this one on were full.
    full_since: u64,
    /// Payload bytes launched: up (writes), down (completions).
    pub payload: [u64; 2],
}

impl State {
    pub fn new(config: &LinkConfig) -> State {
        State {
            up: Wire::new(config, Side::Up),
            down: Wire::new(config, Side::Down),
            host: Host::new(config),
            tags: Tags::new(u64::from(config.tags), config.one_way.0),
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            wrote_last: false,
            reads_done: VecDeque::new(),
            writes_done: VecDeque::new(),
            frontier: 0,
            full_since: 0,
            payload: [0; 2],
        }
    }

    /// Becomes a copy of `other` without allocating in steady state.
    pub fn copy_from(&mut self, other: &State) {
        fn copy<T: Copy>(to: &mut VecDeque<T>, from: &VecDeque<T>) {
            to.clear();
            to.extend(from);
        }
        self.up.clone_from(&other.up);
        self.down.clone_from(&other.down);
        self.host.copy_from(&other.host);
        self.tags.copy_from(&other.tags);
        copy(&mut self.writes, &other.writes);
        copy(&mut self.reads, &other.reads);
        copy(&mut self.reads_done, &other.reads_done);
        copy(&mut self.writes_done, &other.writes_done);
        (self.wrote_last, self.frontier, self.payload) = (other.wrote_last, other.frontier, other.payload);
        self.full_since = other.full_since;
    }

    pub fn submit_read(&mut self, id: TransferId, ready: u64, address: u64, bytes: u64) {
        self.reads.push_back(Job {
            id,
            ready,
            address,
            left: bytes,
        });
    }

    pub fn submit_write(&mut self, id: TransferId, ready: u64, address: u64, bytes: u64) {
        self.writes.push_back(Job {
            id,
            ready,
            address,
            left: bytes,
        });
    }

    /// Is everything launched and reported?
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
            && self.reads.is_empty()
            && self.reads_done.is_empty()
            && self.writes_done.is_empty()
    }

    /// The earliest completion known so far.
    pub fn first_done(&self) -> Option<u64> {
        let times = [self.reads_done.front(), self.writes_done.front()];
        times.into_iter().flatten().map(|&(time, _)| time).min()
    }

    /// Drops completions at or before tick `to`, passing each to `report`, in (time, id) order.
    pub fn pop_done(&mut self, to: u64, mut report: impl FnMut(u64, TransferId)) {
        loop {
            let (read, write) = (
                self.reads_done.front().copied(),
                self.writes_done.front().copied(),
            );
            let read_first = match (read, write) {
                (Some(read), Some(write)) => read < write,
                (read, _) => read.is_some(),
            };
            let queue = if read_first {
                &mut self.reads_done
            } else {
                &mut self.writes_done
            };
            match queue.front() {
                Some(&(time, id)) if time <= to => {
                    queue.pop_front();
                    report(time, id);
                }
                _ => return,
            }
        }
    }

    /// Runs until the first completion is certain; answers its time.
    pub fn run_to_completion(&mut self, plan: &Plan) -> Option<u64> {
        if self.first_done().is_none() {
            self.decide(plan, u64::MAX, true);
        }
        // A packet that starts later than a completion cannot complete anything earlier.
        let mut first = self.first_done()?;
        if !(self.writes.is_empty() && self.reads.is_empty()) {
            self.decide(plan, first, false);
            first = self.first_done()?;
        }
        Some(first)
    }

    /// Launches everything that starts before tick `limit`.
    pub fn run(&mut self, plan: &Plan, limit: u64) {
        self.decide(plan, limit, false);
    }

    fn decide(&mut self, plan: &Plan, limit: u64, stop_when_done: bool) {
        loop {
            if stop_when_done && !(self.reads_done.is_empty() && self.writes_done.is_empty()) {
                return;
            }
            let gate = match self.writes.front() {
                Some(job) => self
                    .host
                    .write_gate(first_request(job.address, job.left, plan.write_limit)),
                None => 0,
            };
            let write = self.writes.front().map(|job| job.ready.max(gate));
            // A read request does not pass a write that waits for credits.
            let read = match self.reads.front() {
                Some(job) => Some(job.ready.max(self.tags.next_free(&self.down)).max(gate)),
                None => None,
            };
            let Some(ready) = write.into_iter().chain(read).min() else {
                return;
            };
            let start = self.up.peek(ready);
            if start.time >= limit {
                return;
            }
            if plan.fast && write.is_some() && self.interleave(plan, start.time, limit) {
                continue;
            }
            let is_ready = |at: Option<u64>| at.is_some_and(|at| at <= start.time);
            let writes = match (is_ready(write), is_ready(read)) {
                (true, true) => match plan.arbiter {
                    Arbiter::RoundRobin => !self.wrote_last,
                    Arbiter::PostedFirst => true,
                    Arbiter::NonPostedFirst => false,
                },
                (writes, _) => writes,
            };
            if writes {
                let stop = match (read, plan.arbiter) {
                    (None, _) | (_, Arbiter::PostedFirst) => limit,
                    (Some(read), _) => read.min(limit),
                };
                self.launch_write(plan, ready, start.time, stop);
            } else {
                self.launch_read(plan, ready, start.time, limit);
            }
            self.wrote_last = writes;
        }
    }

    /// Launches the next write, at `start`, and in fast mode the full ones after it that start before `stop`.
    fn launch_write(&mut self, plan: &Plan, ready: u64, start: u64, stop: u64) {
        let Some(job) = self.writes.front_mut() else {
            return;
        };
        let bytes = first_request(job.address, job.left, plan.write_limit);
        let burst = plan.fast && bytes == plan.write_limit && stop > start && self.host.plain_writes();
        let (sent, end) = if burst {
            self.up
                .burst(ready, plan.full_write, job.left / bytes, stop, |_, _| ())
        } else {
            let end = self.up.send(
                ready,
                Unit {
                    slots: plan.config.tlp_slots(Kind::MWr, bytes),
                    count: 0,
                },
            );
            self.host.write(end + plan.latency, bytes);
            (1, end)
        };
        self.frontier = end;
        self.payload[0] += bytes * sent;
        job.advance(bytes * sent);
        if job.left == 0 {
            self.writes_done.push_back((end + plan.latency, job.id));
            self.writes.pop_front();
        }
    }

    /// Launches the next read request, at `start`, and in fast mode, if no write waits, as many full ones
    /// after it as keep the completions back to back and start before `limit`.
    fn launch_read(&mut self, plan: &Plan, ready: u64, start: u64, limit: u64) {
        let Some(&job) = self.reads.front() else { return };
        let bulk = plan.fast
            && plan.stream.bursts
            && self.writes.is_empty()
            && self.host.plain_reads()
            && job.left >= 2 * plan.read_limit
            && job.address & (plan.read_limit - 1) == 0;
        if !(bulk
            && self.burst_reads(
                plan,
                ready,
                start,
                limit,
                job.left >> plan.read_limit.trailing_zeros(),
            ))
        {
            self.launch_one_read(plan, ready);
        }
    }

    /// Tries to launch several of `reads` full reads at once; false: nothing was done.
    fn burst_reads(&mut self, plan: &Plan, ready: u64, start: u64, limit: u64, reads: u64) -> bool {
        let stream = &plan.stream;
        if self.down.free() < start + stream.turn {
            return false;
        }
        // Tags to spare: requests back to back.
        let free = self.tags.available(&self.down, start).min(reads);
        if free >= 2 {
            self.by_answer(plan, free, |state, full, alike| {
                let (sent, end) = state.up.burst(ready, full.request, alike, limit, |_, _| ());
                if sent > 0 {
                    state.frontier = end;
                }
                sent
            });
            return true;
        }
        // Every request waits for a tag, whose return is at least one read's completions later than that of
        // the one before; the data stay back to back because enough reads are outstanding.
        let tag_bound = stream.streams && self.tags.next_free(&self.down) == ready && self.up.free() <= ready;
        let oldest = self.tags.issued().checked_sub(u64::from(plan.config.tags));
        if !tag_bound || oldest.is_none_or(|oldest| oldest < self.full_since) {
            return false;
        }
        let mut sent = reads - 1;
        if limit < u64::MAX {
            sent = sent.min(u64::from(plan.config.tags));
            while sent > stream.settle {
                match self.tags.free_of(&self.down, sent - 1) {
                    Some(free) if free + stream.on_wire < limit => break,
                    _ => sent /= 2,
                }
            }
        }
        let sent = sent.saturating_sub(stream.settle);
        if sent == 0 {
            return false;
        }
        self.by_answer(plan, sent, |state, full, alike| {
            state.up.account_isolated(full.request, alike);
            alike
        });
        self.frontier = limit;
        true
    }

    /// Requests `reads` full reads by `request`, those together that are answered alike, and completes them;
    /// ends early where it sends fewer than it was given.
    fn by_answer(
        &mut self,
        plan: &Plan,
        mut reads: u64,
        mut request: impl FnMut(&mut State, &FullRead, u64) -> u64,
    ) {
        while reads > 0 {
            let (max, alike) = plan.config.completions.run(self.tags.issued());
            let full = &plan.full_reads[usize::from(max)];
            let alike = alike.min(reads);
            let sent = request(self, full, alike);
            self.complete_full_reads(full, sent, plan);
            if sent < alike {
                return;
            }
            reads -= sent;
        }
    }

    /// The completions of `sent` full reads whose data are ready before the wire is free for them.
    pub fn complete_full_reads(&mut self, full: &FullRead, sent: u64, plan: &Plan) {
        let State {
            down, tags, reads, ..
        } = self;
        let packets = sent * full.completions;
        let (_, end) = down.burst(0, full.completion, packets, u64::MAX, |_, run| {
            tags.record(run, full.completions);
        });
        let bytes = sent * plan.read_limit;
        self.payload[1] += bytes;
        if let Some(job) = reads.front_mut() {
            job.advance(bytes);
            if job.left == 0 {
                self.reads_done.push_back((end + plan.latency, job.id));
                reads.pop_front();
            }
        }
    }

    fn launch_one_read(&mut self, plan: &Plan, ready: u64) {
        let State {
            up,
            down,
            host,
            tags,
            reads,
            ..
        } = self;
        let Some(job) = reads.front_mut() else { return };
        let bytes = first_request(job.address, job.left, plan.read_limit);
        let max = plan.config.completions.is_max(tags.issued());
        let full = &plan.full_reads[usize::from(max)];
        let request = if bytes == plan.read_limit {
            full.request
        } else {
            plan.request(plan.wire_bytes(job.address, bytes, max))
        };
        let end = up.send(ready, request);
        self.frontier = end;
        let data = host.read(end + plan.latency, bytes);
        let (mut last, mut done) = (None, 0);
        let mut complete = |unit: Unit, count| {
            let (step, bursts) = if plan.fast { (count, 1) } else { (1, count) };
            for _ in 0..bursts {
                (_, done) = down.burst(data, unit, step, u64::MAX, |_, run| last = Some(run));
            }
        };
        if bytes == plan.read_limit {
            complete(full.completion, full.completions);
        } else {
            plan.completions(job.address, bytes, max, |payload, count| {
                complete(plan.completion(payload), count);
            });
        }
        if let Some(last) = last {
            tags.record_one(last);
        }
        if bytes < plan.read_limit {
            self.full_since = tags.issued();
        }
        self.payload[1] += bytes;
        job.advance(bytes);
        if job.left == 0 {
            self.reads_done.push_back((done + plan.latency, job.id));
            reads.pop_front();
        }
    }
}

impl Job {
    pub fn advance(&mut self, bytes: u64) {
        self.address += bytes;
        self.left -= bytes;
    }
}
