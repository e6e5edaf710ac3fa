//! Which op launched what, and what it allocated meanwhile.

use std::collections::HashMap;

use super::super::lenient::Id;
use super::trace::{Autograd, Call, Trace};

/// Which op launched each piece of work, and when; and how many links of each kind there were.
pub struct Links {
    /// By index of the work: its op and the time of its launch.
    pub of: Vec<(Option<u32>, f64)>,
    /// By index of the work: the place of the innermost op around it that has one.
    pub autograd: Vec<Option<Autograd>>,
    pub by_call: u64,
    pub by_id: u64,
    pub without: u64,
}

pub fn link(trace: &Trace) -> Links {
    let calls: HashMap<i64, Call> = trace.calls.iter().map(|call| (call.correlation, *call)).collect();
    let by_external: HashMap<i64, u32> = (0..)
        .zip(&trace.ops)
        .filter_map(|(at, op)| Some((op.external?, at)))
        .collect();
    // The innermost op around each call: calls and ops of a thread in order of time, with a stack.
    let mut wanted: HashMap<Id, Vec<(f64, usize)>> = HashMap::new();
    let mut of: Vec<(Option<u32>, f64)> = Vec::with_capacity(trace.work.len());
    let mut autograd = vec![None; trace.work.len()];
    for (at, work) in trace.work.iter().enumerate() {
        let call = work.correlation.and_then(|correlation| calls.get(&correlation));
        of.push((None, call.map_or(work.start, |call| call.start)));
        if let Some(call) = call {
            wanted.entry(call.thread).or_default().push((call.start, at));
        }
    }
    let mut by_thread: HashMap<Id, Vec<u32>> = HashMap::new();
    for (at, op) in (0..).zip(&trace.ops) {
        by_thread.entry(op.thread).or_default().push(at);
    }
    let (mut by_call, mut by_id, mut without) = (0, 0, 0);
    for (thread, mut times) in wanted {
        times.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let ops = by_thread.get(&thread).map_or(&[][..], Vec::as_slice);
        let (mut next, mut stack) = (0, Vec::<u32>::new());
        for (time, work) in times {
            while let Some(&op) = ops.get(next).filter(|op| trace.ops[**op as usize].start <= time) {
                while stack
                    .last()
                    .is_some_and(|top| trace.ops[*top as usize].end <= trace.ops[op as usize].start)
                {
                    stack.pop();
                }
                stack.push(op);
                next += 1;
            }
            while stack
                .last()
                .is_some_and(|top| trace.ops[*top as usize].end < time)
            {
                stack.pop();
            }
            if let Some(op) = stack.last() {
                of[work].0 = Some(*op);
                by_call += 1;
                let mut around = stack.iter().rev();
                autograd[work] = around.find_map(|op| trace.ops[*op as usize].autograd);
            }
        }
    }
    for (at, work) in trace.work.iter().enumerate() {
        if of[at].0.is_none() {
            of[at].0 = work.external.and_then(|id| by_external.get(&id)).copied();
            if let Some(op) = of[at].0 {
                autograd[at] = trace.ops[op as usize].autograd;
                by_id += 1;
            } else {
                without += 1;
            }
        }
    }
    Links {
        of,
        autograd,
        by_call,
        by_id,
        without,
    }
}
/// By op: the indices of its allocations that were not freed before it ended.
pub fn kept_by_op(trace: &Trace, links: &Links) -> HashMap<u32, Vec<usize>> {
    let mut wanted: Vec<u32> = links.of.iter().filter_map(|link| link.0).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut by_thread: HashMap<Id, Vec<usize>> = HashMap::new();
    for (at, event) in trace.memory.iter().enumerate() {
        by_thread.entry(event.thread).or_default().push(at);
    }
    let mut kept = HashMap::new();
    for id in wanted {
        let op = &trace.ops[id as usize];
        let Some(events) = by_thread.get(&op.thread) else {
            continue;
        };
        let first = events.partition_point(|at| trace.memory[*at].time < op.start);
        let mut allocated: Vec<usize> = Vec::new();
        for &at in &events[first..] {
            let event = trace.memory[at];
            if event.time > op.end {
                break;
            }
            if event.bytes > 0 {
                allocated.push(at);
            } else if let Some(place) = allocated.iter().rposition(|other| {
                let other = trace.memory[*other];
                match (other.address, event.address) {
                    (Some(a), Some(b)) => a == b,
                    _ => other.bytes == -event.bytes,
                }
            }) {
                allocated.remove(place);
            }
        }
        if !allocated.is_empty() {
            kept.insert(id, allocated);
        }
    }
    kept
}
