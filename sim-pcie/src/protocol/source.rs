//! Who wants to send: jobs of the copy engines, of the SMs and of the host, cut into packets one at a time.

use super::Purpose;
use std::collections::VecDeque;

/// Requesters of one side. Device: 0 the engine that reads, 1 the SMs, 2 the engine that writes.
pub(super) const SOURCES: usize = 3;
/// No tag: not a request.
pub(super) const NO_TAG: u16 = u16::MAX;

/// A tag as sinks are told it.
#[inline]
pub(super) fn told_tag(tag: u16) -> Option<u16> {
    (tag != NO_TAG).then_some(tag)
}

/// Consecutive bytes to move for one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub at: u64,
    pub address: u64,
    /// Bytes left.
    pub bytes: u64,
    /// Largest packet.
    pub limit: u64,
    pub purpose: Purpose,
    /// Number of the copy that it belongs to, from 1; 0: none.
    pub copy: u32,
}

/// The jobs of one class of one side.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    pub jobs: [VecDeque<Job>; SOURCES],
    pub turn: usize,
    pub outstanding: [u32; SOURCES],
    pub limits: [Option<u32>; SOURCES],
}

impl Lane {
    /// The source whose first job is ready first (no time before `now` counts), in turn among equals; and
    /// when.
    #[inline]
    pub fn next(&self, now: u64) -> Option<(usize, u64)> {
        self.next_but(now, SOURCES)
    }

    /// The same without the source `but`.
    #[inline]
    pub fn next_but(&self, now: u64, but: usize) -> Option<(usize, u64)> {
        let mut best: Option<(usize, u64)> = None;
        for source in [0, 1, 2, 0, 1].into_iter().skip(self.turn).take(SOURCES) {
            let Some(job) = self.jobs[source].front() else {
                continue;
            };
            if source == but {
                continue;
            }
            if self.limits[source].is_some_and(|limit| self.outstanding[source] >= limit) {
                continue;
            }
            let at = job.at.max(now);
            if best.is_none_or(|(_, time)| at < time) {
                best = Some((source, at));
            }
        }
        best
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.jobs.iter().all(VecDeque::is_empty)
    }
}

/// Tags of one requester side, given out in turn.
#[derive(Clone, Debug)]
pub(super) struct Tags {
    used: Vec<bool>,
    pub next: usize,
    free: usize,
}

impl Tags {
    pub fn new(count: u32) -> Tags {
        let count = count.max(1) as usize;
        Tags {
            used: vec![false; count],
            next: 0,
            free: count,
        }
    }

    pub fn count(&self) -> u64 {
        self.used.len() as u64
    }

    #[inline]
    pub fn any_free(&self) -> bool {
        self.free > 0
    }

    #[inline]
    pub fn take(&mut self) -> u16 {
        // Without a division.
        let after = |tag: usize| if tag + 1 == self.used.len() { 0 } else { tag + 1 };
        let mut tag = self.next;
        while self.used[tag] {
            tag = after(tag);
        }
        self.next = after(tag);
        self.used[tag] = true;
        self.free -= 1;
        tag as u16
    }

    #[inline]
    pub fn release(&mut self, tag: u16) {
        if let Some(used) = self.used.get_mut(usize::from(tag)) {
            self.free += usize::from(*used);
            *used = false;
        }
    }

    /// Distance of a tag from the next.
    pub fn relative(&self, tag: u16) -> Option<usize> {
        let count = self.used.len();
        (tag != NO_TAG).then(|| (usize::from(tag) + count - self.next) % count)
    }

    pub fn same(&self, other: &Tags) -> bool {
        let count = self.used.len();
        self.free == other.free
            && (0..count).all(|i| self.used[(self.next + i) % count] == other.used[(other.next + i) % count])
    }

    /// All tags move on by so many.
    pub fn rotate(&mut self, by: u64) {
        let by = (by % self.count()) as usize;
        self.used.rotate_right(by);
        self.next = (self.next + by) % self.used.len();
    }
}

/// Data of one read on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub ready: u64,
    pub address: u64,
    pub bytes: u64,
    pub max: bool,
    pub tag: u16,
    pub source: u8,
    pub purpose: Purpose,
    pub copy: u32,
}
