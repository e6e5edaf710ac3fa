//! Which read may be issued when: at most `limit` reads are outstanding, and a tag is free again when
//! the last completion of its read has arrived.
//!
//! Reads are numbered in issue order. Read `k` may be issued when read `k - limit` is done. Times are kept
//! as runs of reads whose completions were sent back to back, so that memory depends neither on the bytes
//! moved nor, in a stream, on the number of tags.

use crate::wire::{Segment, SlotWire, Wire};
use std::collections::VecDeque;

/// Consecutive reads of which every `per_read`-th packet of a segment is the last completion.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    reads: u64,
    segment: Segment,
    /// Packet of the segment that ends read `first`.
    offset: u64,
    per_read: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Tags {
    limit: u64,
    issued: u64,
    runs: VecDeque<Run>,
    /// Packets of the read that the last segment left unfinished.
    partial: u64,
    latency: u64,
}

impl Tags {
    pub fn new(limit: u64, latency: u64) -> Tags {
        Tags {
            limit,
            issued: 0,
            runs: VecDeque::new(),
            partial: 0,
            latency,
        }
    }

    pub fn copy_from(&mut self, other: &Tags) {
        self.issued = other.issued;
        self.partial = other.partial;
        self.runs.clear();
        self.runs.extend(&other.runs);
    }

    /// Reads issued so far.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    fn end(&self, down: &Wire, run: &Run, read: u64) -> u64 {
        down.packet_end(&run.segment, run.offset + (read - run.first) * run.per_read) + self.latency
    }

    fn last(&self, down: &Wire, run: &Run) -> u64 {
        self.end(down, run, run.first + run.reads - 1)
    }

    /// The tick from which the next read may be issued (0: long ago).
    pub fn next_free(&mut self, down: &Wire) -> u64 {
        let Some(read) = self.issued.checked_sub(self.limit) else {
            return 0;
        };
        while self.runs.front().is_some_and(|run| run.first + run.reads <= read) {
            self.runs.pop_front();
        }
        match self.runs.front() {
            Some(run) if run.first <= read => self.end(down, run, read),
            _ => 0,
        }
    }

    /// The tick from which the read `ahead` after the next may be issued, if that is known already.
    pub fn free_of(&self, down: &Wire, ahead: u64) -> Option<u64> {
        let Some(read) = (self.issued + ahead).checked_sub(self.limit) else {
            return Some(0);
        };
        if read >= self.issued {
            return None;
        }
        let run = self.runs.iter().find(|run| read < run.first + run.reads);
        Some(
            run.filter(|run| run.first <= read)
                .map_or(0, |run| self.end(down, run, read)),
        )
    }

    /// Reads that can surely be issued at tick `now` (a lower bound).
    pub fn available(&mut self, down: &Wire, now: u64) -> u64 {
        while let Some(run) = self.runs.front() {
            if self.last(down, run) > now {
                break;
            }
            self.runs.pop_front();
        }
        self.runs.front().map_or(self.limit, |run| {
            self.limit.saturating_sub(self.issued - run.first)
        })
    }

    /// The ticks from which the next reads may be issued, one after another, as far as they are known.
    pub fn upcoming<'a>(&'a self, down: &'a SlotWire) -> Upcoming<'a> {
        let read = self.issued.saturating_sub(self.limit);
        let first = self.runs.front().map_or(self.issued, |run| run.first);
        // The next reads wait for reads `issued - limit` and on. Those before the first run are long done,
        // and the first `limit` reads of all wait for none.
        Upcoming {
            free: (first + self.limit).saturating_sub(self.issued.max(read + self.limit))
                + self.limit.saturating_sub(self.issued),
            read: read.max(first),
            runs: self.runs.iter(),
            down,
            latency: self.latency,
            left: 0,
            slots: 0,
            bytes: 0,
            run: None,
        }
    }

    /// Records one read, done with the last packet of `segment`.
    pub fn record_one(&mut self, segment: Segment) {
        let offset = segment.packets - 1;
        self.runs.push_back(Run {
            first: self.issued,
            reads: 1,
            segment,
            offset,
            per_read: 1,
        });
        self.issued += 1;
    }

    /// Records completions of issued reads, `per_read` packets each, in order.
    pub fn record(&mut self, segment: Segment, per_read: u64) {
        let packets = self.partial + segment.packets;
        let reads = packets / per_read;
        if reads > 0 {
            let offset = per_read - 1 - self.partial;
            self.runs.push_back(Run {
                first: self.issued,
                reads,
                segment,
                offset,
                per_read,
            });
            self.issued += reads;
        }
        self.partial = packets % per_read;
    }
}

/// Iterates over the return of tags without a division per read.
pub(crate) struct Upcoming<'a> {
    free: u64,
    read: u64,
    runs: std::collections::vec_deque::Iter<'a, Run>,
    run: Option<&'a Run>,
    left: u64,
    /// Slots from the origin of the run to the start of the packet that ends the next read.
    slots: u64,
    /// Data-link byte count there.
    bytes: u64,
    down: &'a SlotWire,
    latency: u64,
}

impl Iterator for Upcoming<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.free > 0 {
            self.free -= 1;
            return Some(0);
        }
        let cadence = &self.down.cadence;
        while self.left == 0 {
            let run = self.runs.next()?;
            let skip = self.read.saturating_sub(run.first);
            if skip >= run.reads {
                continue;
            }
            let packets = run.offset + skip * run.per_read;
            self.left = run.reads - skip;
            self.slots = self.down.elapsed(run.segment.counter, run.segment.unit, packets);
            self.bytes = run.segment.counter + packets * run.segment.unit.count;
            if let Some(rest) = self.bytes.checked_rem(cadence.period) {
                self.bytes = rest;
            }
            self.run = Some(run);
        }
        let Run {
            segment, per_read, ..
        } = self.run?;
        let time = segment.origin + (self.slots + segment.unit.slots) * self.down.slot + self.latency;
        self.left -= 1;
        self.slots += per_read * segment.unit.slots;
        if cadence.period > 0 {
            self.bytes += per_read * segment.unit.count;
            while self.bytes >= cadence.period {
                self.bytes -= cadence.period;
                self.slots += cadence.slots;
            }
        }
        Some(time)
    }
}
