use proptest::prelude::*;

use super::*;

/// The plain reference: an unsorted list, searched for the smallest (time, sequence).
#[derive(Default)]
struct Plain {
    now: u64,
    sequence: u64,
    /// (time, sequence, event).
    events: Vec<(u64, u64, u32)>,
    processed: u64,
    ties: u64,
}

impl Plain {
    fn at(&mut self, time: u64, event: u32) {
        self.events.push((time, self.sequence, event));
        self.sequence += 1;
    }

    fn position(&self, event: u32) -> Option<usize> {
        self.events.iter().position(|e| e.2 == event)
    }

    fn cancel(&mut self, event: u32) -> Option<u32> {
        self.position(event).map(|i| self.events.remove(i).2)
    }

    fn reschedule(&mut self, event: u32, time: u64) -> bool {
        let found = self.position(event);
        if let Some(i) = found {
            self.events[i] = (time, self.sequence, event);
            self.sequence += 1;
        }
        found.is_some()
    }

    fn next(&self) -> Option<(u64, u64, u32)> {
        self.events.iter().min().copied()
    }

    fn pop(&mut self) -> Option<(Time, u32)> {
        let first = self.next()?;
        self.events.retain(|e| *e != first);
        self.ties += u64::from(self.processed > 0 && self.now == first.0);
        self.processed += 1;
        self.now = first.0;
        Some((Time(first.0), first.2))
    }
}

#[derive(Clone, Debug)]
enum Op {
    At(u64),
    Timer(u64),
    Cancel(usize),
    Reschedule(usize, u64),
    Pop,
}

/// Delays that hit every level of the wheel, with many ties.
fn delay() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0u64..4,
        4 => (0u64..8).prop_map(|n| n * 64),
        2 => 0u64..100_000,
        1 => (0u32..64).prop_map(|bit| 1 << bit),
        1 => any::<u64>(),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => delay().prop_map(Op::At),
        2 => delay().prop_map(Op::Timer),
        1 => any::<usize>().prop_map(Op::Cancel),
        1 => (any::<usize>(), delay()).prop_map(|(i, d)| Op::Reschedule(i, d)),
        5 => Just(Op::Pop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn agrees_with_the_plain_list(ops in prop::collection::vec(op(), 0..300)) {
        let mut scheduler = Scheduler::new();
        let mut plain = Plain::default();
        let mut timers = Vec::new();
        for (event, op) in (0u32..).zip(ops) {
            match op {
                Op::At(delay) => {
                    plain.at(plain.now.saturating_add(delay), event);
                    scheduler.after(Time(delay), event);
                }
                Op::Timer(delay) => {
                    plain.at(plain.now.saturating_add(delay), event);
                    timers.push((scheduler.timer_after(Time(delay), event), event));
                }
                Op::Cancel(i) if !timers.is_empty() => {
                    let (id, event) = timers[i % timers.len()];
                    prop_assert_eq!(scheduler.is_pending(id), plain.position(event).is_some());
                    prop_assert_eq!(scheduler.cancel(id), plain.cancel(event));
                }
                Op::Reschedule(i, delay) if !timers.is_empty() => {
                    let (id, event) = timers[i % timers.len()];
                    let time = plain.now.saturating_add(delay);
                    prop_assert_eq!(scheduler.reschedule(id, Time(time)), plain.reschedule(event, time));
                }
                Op::Pop => prop_assert_eq!(scheduler.pop(), plain.pop()),
                Op::Cancel(_) | Op::Reschedule(..) => {}
            }
            prop_assert_eq!(scheduler.now().0, plain.now);
            prop_assert_eq!(scheduler.len(), plain.events.len());
            prop_assert_eq!(scheduler.is_empty(), plain.events.is_empty());
            prop_assert_eq!(scheduler.peek_time(), plain.next().map(|e| Time(e.0)));
        }
        while let Some(expected) = plain.pop() {
            prop_assert_eq!(scheduler.pop(), Some(expected));
        }
        prop_assert_eq!(scheduler.pop(), None);
        prop_assert_eq!(scheduler.processed(), plain.processed);
        prop_assert_eq!(scheduler.ties(), plain.ties);
        prop_assert_eq!(scheduler.late_schedules(), 0);
    }
}

#[test]
fn timers_and_events_share_one_order() {
    let mut s = Scheduler::new();
    s.at(Time(7), 'a');
    let b = s.timer_at(Time(7), 'b');
    s.at(Time(7), 'c');
    let d = s.timer_at(Time(7), 'd');
    s.at(Time(7), 'e');
    assert!(s.reschedule(b, Time(7)));
    assert_eq!(s.cancel(d), Some('d'));
    assert_eq!(s.cancel(d), None);
    let order: String = std::iter::from_fn(|| s.pop()).map(|(_, e)| e).collect();
    assert_eq!(order, "aceb");
    assert!(!s.reschedule(b, Time(9)));
    assert_eq!((s.processed(), s.ties()), (4, 3));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "before now")]
fn scheduling_in_the_past_is_caught() {
    let mut s = Scheduler::new();
    s.at(Time(10), ());
    s.pop();
    s.at(Time(9), ());
}

#[test]
#[cfg(not(debug_assertions))]
fn scheduling_in_the_past_is_counted() {
    let mut s = Scheduler::new();
    s.at(Time(10), ());
    s.pop();
    s.at(Time(9), ());
    assert_eq!(s.pop(), Some((Time(10), ())));
    assert_eq!(s.late_schedules(), 1);
}
