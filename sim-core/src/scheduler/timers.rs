//! Cancellable events: an indexed binary heap keyed by timer id.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use priority_queue::PriorityQueue;
use rustc_hash::FxHasher;

use super::Key;
use crate::Time;

/// An event with its id; only the id counts for equality.
#[derive(Debug)]
struct Timer<E> {
    id: u64,
    event: E,
}

impl<E> PartialEq for Timer<E> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<E> Eq for Timer<E> {}

impl<E> Hash for Timer<E> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl<E> Borrow<u64> for Timer<E> {
    fn borrow(&self) -> &u64 {
        &self.id
    }
}

#[derive(Debug)]
pub(super) struct Timers<E> {
    heap: PriorityQueue<Timer<E>, Reverse<Key>, BuildHasherDefault<FxHasher>>,
}

impl<E> Timers<E> {
    pub(super) fn new() -> Self {
        Timers {
            heap: PriorityQueue::with_default_hasher(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<Key> {
        self.heap.peek().map(|(_, key)| key.0)
    }

    pub(super) fn pop(&mut self) -> Option<(Time, E)> {
        self.heap.pop().map(|(timer, key)| (key.0.0, timer.event))
    }

    pub(super) fn insert(&mut self, id: u64, key: Key, event: E) {
        self.heap.push(Timer { id, event }, Reverse(key));
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.heap.get(&id).is_some()
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<E> {
        self.heap.remove(&id).map(|(timer, _)| timer.event)
    }

    /// Gives a pending timer a new place; `false` if there is none.
    pub(super) fn reschedule(&mut self, id: u64, key: Key) -> bool {
        self.heap.change_priority(&id, Reverse(key)).is_some()
    }
}
