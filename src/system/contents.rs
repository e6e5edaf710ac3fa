//! Which bytes hold something that matters, so that transfers of dead ones can be counted.
//!
//! A caching allocator keeps freed blocks, and the driver does not know: it writes dead bytes back when
//! it evicts them, and fetches them again when a new tensor at their place is first touched, even if
//! that is only written. Contents matter from the end of the first kernel (or copy) that writes them until
//! their tensor is freed; both take effect when the kernels launched before have finished.

use std::collections::{BTreeMap, VecDeque};

use sim_core::pages::{ByteRange, PAGE_BYTES};
use sim_core::push::{Cause, Direction};
use sim_gpu::gpu::CopyRecord;

/// A note of the program that has not taken effect.
#[derive(Clone, Copy, Debug)]
struct Note {
    /// Kernels that have to finish before.
    after: u64,
    range: ByteRange,
    live: bool,
}

/// Live byte ranges, and what was moved outside of them.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    notes: VecDeque<Note>,
    /// Disjoint live ranges: start, end.
    live: BTreeMap<u64, u64>,
    /// Somebody says what matters; else nothing is counted.
    known: bool,
    dead_write_back: u64,
    dead_fetch: u64,
}

impl Contents {
    /// The program says that a range matters, or does not any more, once `launched` kernels have
    /// finished.
    pub fn note(&mut self, range: ByteRange, live: bool, launched: u64) {
        self.known = true;
        self.notes.push_back(Note {
            after: launched,
            range,
            live,
        });
    }

    /// `finished` kernels have finished.
    pub fn finished(&mut self, finished: u64) {
        while let Some(note) = self.notes.front().filter(|note| note.after <= finished) {
            let (start, end) = (note.range.start, note.range.end());
            let live = note.live;
            self.notes.pop_front();
            self.cut(start, end);
            if live && start < end {
                self.live.insert(start, end);
            }
        }
    }

    /// Takes `start..end` out of the live ranges.
    fn cut(&mut self, start: u64, end: u64) {
        if let Some((&first, &last)) = self.live.range(..start).next_back()
            && last > start
        {
            self.live.insert(first, start);
            if last > end {
                self.live.insert(end, last);
            }
        }
        while let Some((&first, &last)) = self.live.range(start..end).next() {
            self.live.remove(&first);
            if last > end {
                self.live.insert(end, last);
            }
        }
    }

    fn live_bytes(&self, start: u64, end: u64) -> u64 {
        let before = self.live.range(..start).next_back();
        let overlap = |(&first, &last): (&u64, &u64)| last.min(end).saturating_sub(first.max(start));
        before.map_or(0, overlap) + self.live.range(start..end).map(overlap).sum::<u64>()
    }

    /// A copy has been made.
    pub fn copied(&mut self, record: &CopyRecord) {
        if !self.known {
            return;
        }
        let start = record.first.address();
        let bytes = u64::from(record.pages) * PAGE_BYTES;
        let dead = |contents: &Contents| bytes - contents.live_bytes(start, start + bytes);
        match (record.direction, record.cause) {
            (Direction::DeviceToHost, Cause::Eviction) => self.dead_write_back += dead(self),
            // What the program copies is alive by then.
            (Direction::HostToDevice, Cause::User) | (Direction::DeviceToHost, _) => {}
            (Direction::HostToDevice, _) => self.dead_fetch += dead(self),
        }
    }

    /// Dead bytes written back by evictions and fetched by faults; absent if nobody said what matters.
    pub fn dead_bytes(&self) -> Option<(u64, u64)> {
        self.known.then_some((self.dead_write_back, self.dead_fetch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim_core::Time;
    use sim_core::pages::Page;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange {
            start,
            bytes: end - start,
        }
    }

    fn copy(direction: Direction, cause: Cause, first: u64, pages: u32) -> CopyRecord {
        CopyRecord {
            direction,
            cause,
            first: Page(first),
            pages,
            start: Time::ZERO,
            end: Time::ZERO,
            pushed: Time::ZERO,
        }
    }

    #[test]
    fn dead_bytes_are_those_never_written_or_freed() {
        let mut contents = Contents::default();
        contents.copied(&copy(Direction::DeviceToHost, Cause::Eviction, 0, 4));
        assert_eq!(contents.dead_bytes(), None, "nobody has said what matters");
        contents.note(range(1000, 9000), true, 1);
        contents.finished(0);
        contents.copied(&copy(Direction::HostToDevice, Cause::Prefetch, 0, 4));
        assert_eq!(contents.dead_bytes(), Some((0, 16384)), "not written yet");
        contents.finished(1);
        contents.copied(&copy(Direction::DeviceToHost, Cause::Eviction, 0, 4));
        assert_eq!(contents.dead_bytes(), Some((8384, 16384)));
        // The middle is freed: two pieces are left.
        contents.note(range(2000, 3000), false, 1);
        contents.note(range(5000, 20000), false, 1);
        contents.finished(1);
        assert_eq!(contents.live, BTreeMap::from([(1000, 2000), (3000, 5000)]));
        contents.copied(&copy(Direction::HostToDevice, Cause::Coherence, 0, 1));
        assert_eq!(contents.dead_bytes(), Some((8384, 16384 + 4096 - 2096)));
        contents.copied(&copy(Direction::HostToDevice, Cause::User, 0, 4));
        assert_eq!(contents.dead_bytes(), Some((8384, 18384)));
    }
}
