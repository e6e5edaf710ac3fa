//! A stable monotone radix queue (a hierarchical timing wheel without a horizon).
//!
//! Times are read as digits of [`DIGIT_BITS`] bits. An event lies in the slot (level, digit), where
//! `level` is the highest digit in which its time differs from `base`, the time popped last, and
//! `digit` is its own digit there. When `base` advances to the earliest time of the lowest occupied
//! slot, only that slot's events change level: every event of a higher slot still differs from the
//! new base first at the same digit. So equal times always share a slot, and because slots are
//! first-in first-out lists that are redistributed in order, events of equal time keep their order
//! with no comparison at all. (A radix heap, after Ahuja, Mehlhorn, Orlin and Tarjan 1990, with a
//! larger digit.)
//!
//! An event is moved at most once per level, in practice once or twice, by relinking its node;
//! payloads stay where they are. Memory is one node per pending event plus the fixed slot table.

use super::Key;
use crate::Time;

const DIGIT_BITS: u32 = 6;
const DIGITS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
const NIL: u32 = u32::MAX;

#[derive(Debug)]
struct Node<E> {
    time: u64,
    sequence: u64,
    next: u32,
    /// `None` while the node is on the free list.
    event: Option<E>,
}

/// A first-in first-out list of nodes and the key of its earliest event.
#[derive(Clone, Copy, Debug)]
struct Slot {
    time: u64,
    sequence: u64,
    head: u32,
    tail: u32,
}

const EMPTY: Slot = Slot {
    time: u64::MAX,
    sequence: u64::MAX,
    head: NIL,
    tail: NIL,
};

#[derive(Debug)]
pub(super) struct Wheel<E> {
    nodes: Vec<Node<E>>,
    /// Head of the list of unused nodes.
    free: u32,
    len: usize,
    /// The time popped last.
    base: u64,
    /// Head and tail of the events whose time is `base`.
    current: (u32, u32),
    /// Bit l: some slot of level l is occupied.
    levels: u32,
    /// Per level, bit d: slot d is occupied.
    occupied: [u64; LEVELS],
    slots: Vec<Slot>,
}

impl<E> Wheel<E> {
    pub(super) fn new() -> Self {
        Wheel {
            nodes: Vec::new(),
            free: NIL,
            len: 0,
            base: 0,
            current: (NIL, NIL),
            levels: 0,
            occupied: [0; LEVELS],
            slots: vec![EMPTY; LEVELS * DIGITS],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an event; its time is not before the time popped last, and its sequence number is
    /// higher than all before.
    #[inline]
    pub(super) fn push(&mut self, (time, sequence): Key, event: E) {
        let node = Node {
            time: time.0,
            sequence,
            next: NIL,
            event: Some(event),
        };
        let index = if self.free == NIL {
            assert!(
                self.nodes.len() < NIL as usize,
                "more than 2^32 - 1 pending events"
            );
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            let index = self.free;
            let place = &mut self.nodes[index as usize];
            self.free = place.next;
            *place = node;
            index
        };
        self.len += 1;
        self.link(index, time.0, sequence);
    }

    /// Appends node `index` to the list where its time belongs.
    #[inline]
    fn link(&mut self, index: u32, time: u64, sequence: u64) {
        let differing = time ^ self.base;
        if differing == 0 {
            let tail = std::mem::replace(&mut self.current.1, index);
            if tail == NIL {
                self.current.0 = index;
            } else {
                self.nodes[tail as usize].next = index;
            }
            return;
        }
        let level = (differing.ilog2() / DIGIT_BITS) as usize;
        let digit = (time >> (level as u32 * DIGIT_BITS)) as usize % DIGITS;
        let slot = &mut self.slots[level * DIGITS + digit];
        let tail = std::mem::replace(&mut slot.tail, index);
        if time < slot.time || tail == NIL {
            slot.time = time;
            slot.sequence = sequence;
        }
        if tail == NIL {
            slot.head = index;
            self.levels |= 1 << level;
            self.occupied[level] |= 1 << digit;
        } else {
            self.nodes[tail as usize].next = index;
        }
    }

    /// The occupied slot that holds the earliest event that is not in `current`.
    #[inline]
    fn lowest_slot(&self) -> Option<(usize, usize)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// The key of the next event.
    #[inline]
    pub(super) fn peek(&self) -> Option<Key> {
        if self.current.0 != NIL {
            let sequence = self.nodes[self.current.0 as usize].sequence;
            return Some((Time(self.base), sequence));
        }
        let (level, digit) = self.lowest_slot()?;
        let slot = &self.slots[level * DIGITS + digit];
        Some((Time(slot.time), slot.sequence))
    }

    /// Takes the next event out.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(Time, E)> {
        if self.current.0 == NIL {
            self.advance()?;
        }
        let index = self.current.0;
        let node = &mut self.nodes[index as usize];
        self.current.0 = node.next;
        if node.next == NIL {
            self.current.1 = NIL;
        }
        node.next = self.free;
        self.free = index;
        self.len -= 1;
        Some((Time(self.base), node.event.take()?))
    }

    /// Moves `base` to the earliest time of the lowest slot and redistributes that slot.
    #[inline]
    fn advance(&mut self) -> Option<()> {
        let (level, digit) = self.lowest_slot()?;
        let slot = std::mem::replace(&mut self.slots[level * DIGITS + digit], EMPTY);
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
        self.base = slot.time;
        if level == 0 || slot.head == slot.tail {
            // All of one time: the list as a whole is what comes next.
            self.current = (slot.head, slot.tail);
            return Some(());
        }
        let mut index = slot.head;
        while index != NIL {
            let node = &mut self.nodes[index as usize];
            let (time, sequence) = (node.time, node.sequence);
            let next = std::mem::replace(&mut node.next, NIL);
            self.link(index, time, sequence);
            index = next;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_at_the_peak_of_pending_events() {
        let mut wheel = Wheel::new();
        for i in 0..1000u64 {
            wheel.push((Time(i * 37 % 501), i), i);
        }
        for i in 1000..200_000u64 {
            let (now, _) = wheel.pop().unwrap();
            wheel.push((Time(now.0 + 1 + i * 7919 % 5000), i), i);
        }
        assert_eq!((wheel.len(), wheel.nodes.len()), (1000, 1000));
    }
}
