//! The root complex behind the link: service rates and posted credits.

use crate::config::LinkConfig;
use crate::packet::DLLP_BYTES;
use std::collections::VecDeque;

/// Ticks in a second.
const TICKS_PER_SECOND: u64 = 1024 * 1_000_000_000;

/// Posted credits of a root port whose drain rate is limited and whose credits are not configured
/// (published: endpoint defaults of open PCIe models; assumed for root ports).
const DEFAULT_HEADERS: u32 = 64;
const DEFAULT_DATA: u32 = 1024;

/// A first-come first-served resource with a byte rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// Bytes per second; `None`: infinitely fast.
    rate: Option<u64>,
    free: u64,
    /// Fraction of a tick left over, in units of 1/rate.
    rest: u64,
}

impl Server {
    pub fn new(rate: Option<u64>) -> Server {
        Server {
            rate,
            free: 0,
            rest: 0,
        }
    }

    /// When `bytes` that come at `arrival` have been served.
    #[inline]
    pub fn serve(&mut self, arrival: u64, bytes: u64) -> u64 {
        let Some(rate) = self.rate else { return arrival };
        if arrival > self.free {
            (self.free, self.rest) = (arrival, 0);
        }
        let work = bytes * TICKS_PER_SECOND + self.rest;
        self.free += work / rate;
        self.rest = work % rate;
        self.free
    }

    /// Is the state at `now` that of `other` at `other_now`, for all that can follow?
    pub fn same(&self, now: u64, other: &Server, other_now: u64) -> bool {
        let state =
            |server: &Server, now: u64| (server.free >= now).then(|| (server.free - now, server.rest));
        state(self, now) == state(other, other_now)
    }

    /// Moves the work at hand on by `ticks`.
    pub fn shift(&mut self, now: u64, ticks: u64) {
        if self.free >= now {
            self.free += ticks;
        }
    }
}

/// Host side of the transfer-level model. Reads and writes reach it in the order of their launch.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    read_latency: u64,
    drain: u64,
    /// From the return of a credit at the root port to its arrival at the device.
    credit_latency: u64,
    total: Server,
    reads: Server,
    writes: Server,
    headers: Option<u64>,
    data: Option<u64>,
    /// Writes whose credits are out: when they come back, and how many data credits.
    posted: VecDeque<(u64, u64)>,
    posted_units: u64,
    /// The next write may not start earlier.
    gate: u64,
}

impl Host {
    pub fn new(config: &LinkConfig) -> Host {
        // A drain rate acts on the link only through credits.
        let limited = config.rc_write.is_some() || config.rc_total.is_some();
        let implied = |credits: Option<u32>, default| credits.or(limited.then_some(default)).map(u64::from);
        Host {
            read_latency: config.host_read.0,
            drain: config.drain.0,
            credit_latency: config.one_way.0 + DLLP_BYTES / 4 * config.slot_ticks(),
            total: Server::new(config.rc_total),
            reads: Server::new(config.rc_read),
            writes: Server::new(config.rc_write),
            headers: implied(config.posted_headers, DEFAULT_HEADERS),
            data: implied(config.posted_data, DEFAULT_DATA),
            posted: VecDeque::new(),
            posted_units: 0,
            gate: 0,
        }
    }

    pub fn copy_from(&mut self, other: &Host) {
        (self.total, self.reads, self.writes) = (other.total, other.reads, other.writes);
        (self.posted_units, self.gate) = (other.posted_units, other.gate);
        self.posted.clear();
        self.posted.extend(&other.posted);
    }

    /// Is a read answered a fixed time after it arrives?
    pub fn plain_reads(&self) -> bool {
        self.total.rate.is_none() && self.reads.rate.is_none()
    }

    /// Does a write touch nothing but the wire?
    pub fn plain_writes(&self) -> bool {
        self.total.rate.is_none() && !self.counts_credits()
    }

    fn counts_credits(&self) -> bool {
        self.headers.is_some() || self.data.is_some()
    }

    /// When the completions of a read of `bytes` that arrives at `arrival` are ready.
    pub fn read(&mut self, arrival: u64, bytes: u64) -> u64 {
        let served = self.total.serve(arrival, bytes);
        self.reads.serve(served, bytes) + self.read_latency
    }

    /// The earliest start of a write of `bytes`: when the credits for it are back.
    pub fn write_gate(&mut self, bytes: u64) -> u64 {
        let units = bytes.div_ceil(16);
        while let Some(&(back, held)) = self.posted.front() {
            let headers = self
                .headers
                .is_none_or(|limit| (self.posted.len() as u64) < limit);
            let data = self.data.is_none_or(|limit| self.posted_units + units <= limit);
            if headers && data {
                break;
            }
            self.gate = self.gate.max(back);
            self.posted_units -= held;
            self.posted.pop_front();
        }
        self.gate
    }

    /// A write of `bytes` arrives.
    pub fn write(&mut self, arrival: u64, bytes: u64) {
        let served = self.total.serve(arrival, bytes);
        let drained = self.writes.serve(served, bytes) + self.drain;
        if self.counts_credits() {
            let units = bytes.div_ceil(16);
            self.posted.push_back((drained + self.credit_latency, units));
            self.posted_units += units;
        }
    }
}
