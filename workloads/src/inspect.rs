//! What is in a program, without running it: tensors, kernels by class, footprint over time, reuse
//! distances.
//!
//! One streaming pass, in order of the operations. The reuse distance of an access is the bytes of *other*
//! tensors that kernels have touched since the last access to the same tensor: a memory of that size (plus
//! the tensor) under LRU by tensors would still hold it.

use std::collections::{BTreeMap, HashMap};

use crate::class::{Class, class_of};
use crate::program::{Op, ProgramError, Schedule, Scheduled, Source};

/// Kernels of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTotals {
    /// Launches.
    pub launches: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Floating point operations.
    pub flops: u64,
    /// Recorded durations, nanoseconds.
    pub recorded_ns: u64,
}

/// A tensor that stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorUse {
    /// Its number in the run, from 0 in order of allocation.
    pub id: u32,
    /// Bytes.
    pub bytes: u64,
    /// Kernels that touch it.
    pub uses: u64,
    /// Operation at which it is allocated, and at which it is freed if it is.
    pub lifetime: (u64, Option<u64>),
}

/// Everything about a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Operations.
    pub operations: u64,
    /// Iterations.
    pub iterations: u64,
    /// Tensors allocated.
    pub tensors: u64,
    /// Their bytes.
    pub tensor_bytes: u64,
    /// Most bytes live at once, and the operation at which.
    pub peak: (u64, u64),
    /// Kernels by class, in the order of [`Class::ALL`].
    pub classes: Vec<(Class, ClassTotals)>,
    /// Operations that are not kernels, by name.
    pub others: BTreeMap<&'static str, u64>,
    /// The largest tensors, largest first.
    pub largest: Vec<TensorUse>,
    /// Live bytes after some operations: (operation, bytes), peaks kept.
    pub footprint: Vec<(u64, u64)>,
    /// Accesses by the power of two above their reuse distance, bytes; the key is the exponent.
    pub reuse: BTreeMap<u32, ReuseBin>,
    /// First accesses to a tensor.
    pub first_accesses: u64,
}

/// Accesses of similar reuse distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReuseBin {
    /// Accesses.
    pub accesses: u64,
    /// Bytes of the tensors accessed.
    pub bytes: u64,
}

/// How many of the largest tensors are kept.
const LARGEST: usize = 10;
/// Points of the footprint curve.
const POINTS: usize = 256;

/// Sums over the most recent access of each tensor: a binary indexed tree by time of access.
#[derive(Default)]
struct Recency {
    sums: Vec<u64>,
    /// By tensor: time of its last access, and its bytes.
    last: HashMap<u32, (usize, u64)>,
    time: usize,
}

impl Recency {
    fn add(&mut self, mut at: usize, delta: u64, minus: bool) {
        while at < self.sums.len() {
            self.sums[at] = if minus {
                self.sums[at].wrapping_sub(delta)
            } else {
                self.sums[at].wrapping_add(delta)
            };
            at += at & at.wrapping_neg();
        }
    }

    fn up_to(&self, mut at: usize) -> u64 {
        let mut sum = 0_u64;
        while at > 0 {
            sum = sum.wrapping_add(self.sums[at]);
            at -= at & at.wrapping_neg();
        }
        sum
    }

    /// An access; the bytes of other tensors touched since the last one to this tensor.
    fn access(&mut self, tensor: u32, bytes: u64) -> Option<u64> {
        if self.time + 1 >= self.sums.len() {
            self.compact();
        }
        let before = self.last.get(&tensor).copied();
        let distance = before.map(|(at, _)| self.up_to(self.time).wrapping_sub(self.up_to(at)));
        if let Some((at, old)) = before {
            self.add(at, old, true);
        }
        self.time += 1;
        self.add(self.time, bytes, false);
        self.last.insert(tensor, (self.time, bytes));
        distance
    }

    fn forget(&mut self, tensor: u32) {
        if let Some((at, bytes)) = self.last.remove(&tensor) {
            self.add(at, bytes, true);
        }
    }

    /// Numbers the accesses that count anew, so that time stays near the number of tensors.
    fn compact(&mut self) {
        let mut order: Vec<(usize, u32, u64)> = self
            .last
            .iter()
            .map(|(tensor, (at, bytes))| (*at, *tensor, *bytes))
            .collect();
        order.sort_unstable();
        self.sums = vec![0; (4 * order.len()).max(1 << 12)];
        self.time = order.len();
        for (at, (_, tensor, bytes)) in order.into_iter().enumerate() {
            self.add(at + 1, bytes, false);
            self.last.insert(tensor, (at + 1, bytes));
        }
    }
}

/// Looks through `iterations` iterations of a program.
///
/// # Errors
/// A program that cannot be read to its end.
pub fn inspect<'a>(program: impl Into<Source<'a>>, iterations: u32) -> Result<Inspection, ProgramError> {
    let mut result = Inspection::default();
    let mut classes: HashMap<Class, ClassTotals> = HashMap::new();
    let mut live: HashMap<u32, TensorUse> = HashMap::new();
    let mut kept: Vec<TensorUse> = Vec::new();
    let mut recency = Recency::default();
    let mut bytes_live = 0_u64;
    // Every `stride` operations one point; the largest of its operations.
    let (mut stride, mut since, mut most) = (1_u64, 0_u64, (0_u64, 0_u64));
    let mut schedule = Schedule::new(program, iterations);
    while let Some(op) = schedule.next() {
        let op = op?;
        result.operations += 1;
        let now = result.operations;
        match &op {
            Scheduled::Alloc(id, bytes) => {
                result.tensors += 1;
                result.tensor_bytes = result.tensor_bytes.saturating_add(*bytes);
                bytes_live += bytes;
                let tensor = TensorUse {
                    id: *id,
                    bytes: *bytes,
                    uses: 0,
                    lifetime: (now, None),
                };
                live.insert(*id, tensor);
                if bytes_live > result.peak.0 {
                    result.peak = (bytes_live, now);
                }
            }
            Scheduled::Free(id) => {
                if let Some(mut tensor) = live.remove(id) {
                    bytes_live -= tensor.bytes;
                    tensor.lifetime.1 = Some(now);
                    keep(&mut kept, tensor);
                }
                recency.forget(*id);
            }
            Scheduled::Iteration(_) => result.iterations += 1,
            Scheduled::Other(op) => match &**op {
                Op::Kernel {
                    name,
                    r,
                    w,
                    flops,
                    rb,
                    wb,
                    nk,
                    ns,
                    ..
                } => {
                    let totals = classes.entry(class_of(name)).or_default();
                    totals.launches += u64::from(*nk);
                    totals.read_bytes = totals.read_bytes.saturating_add(*rb);
                    totals.write_bytes = totals.write_bytes.saturating_add(*wb);
                    totals.flops = totals.flops.saturating_add(*flops);
                    totals.recorded_ns = totals.recorded_ns.saturating_add(ns.unwrap_or(0));
                    let mut touched: Vec<u32> = r
                        .iter()
                        .chain(w)
                        .filter_map(|piece| schedule.piece(piece))
                        .map(|(id, ..)| id)
                        .collect();
                    touched.sort_unstable();
                    touched.dedup();
                    for id in touched {
                        let Some(tensor) = live.get_mut(&id) else { continue };
                        tensor.uses += 1;
                        match recency.access(id, tensor.bytes) {
                            None => result.first_accesses += 1,
                            Some(distance) => {
                                let bin = result.reuse.entry(64 - distance.leading_zeros()).or_default();
                                bin.accesses += 1;
                                bin.bytes = bin.bytes.saturating_add(tensor.bytes);
                            }
                        }
                    }
                }
                other => *result.others.entry(name_of(other)).or_default() += 1,
            },
        }
        if bytes_live >= most.1 {
            most = (now, bytes_live);
        }
        since += 1;
        if since == stride {
            result.footprint.push(most);
            (since, most) = (0, (now, bytes_live));
            if result.footprint.len() == 2 * POINTS {
                // Half the points, the larger of each pair.
                result.footprint = result
                    .footprint
                    .chunks(2)
                    .filter_map(|pair| pair.iter().copied().max_by_key(|point| point.1))
                    .collect();
                stride *= 2;
            }
        }
    }
    for tensor in live.into_values() {
        keep(&mut kept, tensor);
    }
    kept.sort_by_key(|tensor| (std::cmp::Reverse(tensor.bytes), tensor.id));
    kept.truncate(LARGEST);
    result.largest = kept;
    result.classes = Class::ALL
        .into_iter()
        .filter_map(|class| Some((class, *classes.get(&class)?)))
        .collect();
    Ok(result)
}

fn keep(kept: &mut Vec<TensorUse>, tensor: TensorUse) {
    kept.push(tensor);
    if kept.len() >= 1024 {
        kept.sort_by_key(|tensor| (std::cmp::Reverse(tensor.bytes), tensor.id));
        kept.truncate(LARGEST);
    }
}

fn name_of(op: &Op) -> &'static str {
    match op {
        Op::H2d { .. } => "copies from the host",
        Op::Cpu { .. } => "CPU accesses",
        Op::Sync {} => "waits for the device",
        Op::Prefetch { .. } => "prefetches",
        Op::Advise { .. } => "advice",
        Op::Discard { .. } => "discards",
        Op::Alloc { .. } | Op::Free { .. } | Op::Iter { .. } | Op::Kernel { .. } => "others",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::parse;

    #[test]
    fn distances_count_other_tensors_once() {
        let kernel = |t: u32, n: u64| {
            format!(
                "{{\"op\":\"kernel\",\"name\":\"add\",\"r\":[[{t},0,{n}]],\"w\":[],\"rb\":{n},\"wb\":0}}\n"
            )
        };
        let mut text = String::from("{\"format\":\"uvmprog/1\",\"name\":\"x\"}\n{\"op\":\"iter\",\"i\":0}\n");
        for (t, n) in [(0, 100), (1, 1000), (2, 5000)] {
            text.extend([format!("{{\"op\":\"alloc\",\"t\":{t},\"n\":{n}}}\n")]);
        }
        // 0 1 1 2 0: the last access has 6000 bytes of others since its first; the second of 1 has none.
        for (t, n) in [(0, 100), (1, 1000), (1, 1000), (2, 5000), (0, 100)] {
            text += &kernel(t, n);
        }
        text += "{\"op\":\"free\",\"t\":2}\n";
        text += &kernel(1, 1000);
        let program = parse(text.as_bytes(), "x").unwrap();
        let found = inspect(&program, 1).unwrap();
        assert_eq!(found.first_accesses, 3);
        let bins: Vec<(u32, u64)> = found.reuse.iter().map(|(k, bin)| (*k, bin.accesses)).collect();
        // 0 bytes; 100 bytes (a freed tensor no longer counts); 6000 bytes.
        assert_eq!(bins, [(0, 1), (7, 1), (13, 1)]);
        assert_eq!(found.peak.0, 6100);
        assert_eq!(found.largest[0].bytes, 5000);
        assert_eq!((found.tensors, found.iterations), (3, 1));
    }

    #[test]
    fn sums_beyond_a_counter_stay_at_its_end() {
        let most = u64::MAX;
        let kernel = format!(
            "{{\"op\":\"kernel\",\"name\":\"add\",\"r\":[[0,0,9]],\"w\":[],\"flops\":{most},\"rb\":{most},\"wb\":{most}}}\n"
        );
        let text = format!(
            "{{\"format\":\"uvmprog/1\",\"name\":\"x\"}}\n{{\"op\":\"iter\",\"i\":0}}\n{{\"op\":\"alloc\",\"t\":0,\"n\":9}}\n{kernel}{kernel}"
        );
        let found = inspect(&parse(text.as_bytes(), "x").unwrap(), 1).unwrap();
        let totals = &found.classes[0].1;
        assert_eq!(
            [totals.flops, totals.read_bytes, totals.write_bytes],
            [most, most, most]
        );
    }

    #[test]
    fn long_runs_are_compacted() {
        let mut recency = Recency::default();
        for round in 0..3000_u64 {
            for tensor in 0..7 {
                let distance = recency.access(tensor, 10);
                assert_eq!(distance, (round > 0).then_some(60));
            }
        }
        assert!(recency.sums.len() < 1 << 13);
    }
}
