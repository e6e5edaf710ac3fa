//! How long single requests take while a transfer runs: a histogram.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde::Serialize;
use sim_core::Time;
use sim_pcie::packet::Kind;
use sim_pcie::protocol::{Delivery, Sent, Side, Sink, TraceEntry};

use super::packets::PacketError;
use crate::report::plot::{Chart, Series, Style};
use crate::report::table;

/// Sequence numbers of a transmitter.
const SEQUENCES: usize = 4096;
/// Longest latency told apart, ticks: 18 minutes. Longer ones count as this.
const LONGEST: u64 = 1 << 50;
/// Bars of a histogram, about.
const BARS: f64 = 20.0;

/// Listens to a transfer: latencies of its reads and writes, in memory that does not grow.
///
/// A read takes from the first byte of its request on the wire to the arrival of its last byte of data; a write from
/// its first byte to its acceptance by the root port. Replays are part of it, waiting for a tag or for credits is not.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// By tag: when the request left first, and bytes still to come.
    reads: Vec<(Time, u64)>,
    /// By sequence number of the device: when the write left first.
    writes: Vec<Time>,
    read: Histogram<u64>,
    write: Histogram<u64>,
}

impl Latencies {
    /// Of a device with so many tags.
    ///
    /// # Errors
    /// None with the bounds used here, which are constants.
    pub fn new(tags: u32) -> Result<Latencies, PacketError> {
        let empty =
            Histogram::new_with_bounds(1, LONGEST, 3).map_err(|e| PacketError::Input(e.to_string()))?;
        Ok(Latencies {
            reads: vec![(Time::ZERO, 0); tags as usize],
            writes: vec![Time::ZERO; SEQUENCES],
            read: empty.clone(),
            write: empty,
        })
    }

    /// Of the reads, then of the writes, if there were any.
    pub fn summaries(&self) -> Vec<Summary> {
        [("read", &self.read), ("write", &self.write)]
            .into_iter()
            .filter(|(_, histogram)| !histogram.is_empty())
            .map(|(name, histogram)| Summary::new(name, histogram))
            .collect()
    }
}

fn add(histogram: &mut Histogram<u64>, from: Time, to: Time) {
    histogram.saturating_record(to.0.saturating_sub(from.0).max(1));
}

impl Sink for &mut Latencies {
    fn sent(&mut self, entry: &TraceEntry) {
        let (Sent::Tlp { kind, sequence }, Some(tlp), Side::Up) = (entry.sent, entry.tlp, entry.side) else {
            return;
        };
        if tlp.replay {
            return;
        }
        match (kind, tlp.tag) {
            (Kind::MRd, Some(tag)) => {
                if let Some(read) = self.reads.get_mut(usize::from(tag)) {
                    *read = (entry.start, tlp.bytes);
                }
            }
            (Kind::MWr, _) => {
                if let Some(write) = self.writes.get_mut(usize::from(sequence)) {
                    *write = entry.start;
                }
            }
            _ => {}
        }
    }

    fn delivered(&mut self, delivery: &Delivery) {
        match (delivery.kind, delivery.tag) {
            (Kind::CplD, Some(tag)) if delivery.side == Side::Down => {
                if let Some((start, left)) = self.reads.get_mut(usize::from(tag)) {
                    *left = left.saturating_sub(delivery.payload);
                    if *left == 0 {
                        add(&mut self.read, *start, delivery.time);
                    }
                }
            }
            (Kind::MWr, _) if delivery.side == Side::Up => {
                if let Some(start) = self.writes.get(usize::from(delivery.sequence)) {
                    add(&mut self.write, *start, delivery.time);
                }
            }
            _ => {}
        }
    }
}

/// A bar of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// From this time on, ns.
    pub from_ns: f64,
    /// To before this, ns.
    pub to_ns: f64,
    /// So many requests.
    pub count: u64,
}

/// Latencies of one kind of request. Times are ns, within 0.1 %.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// `read` (host to device) or `write` (device to host).
    pub request: &'static str,
    /// How many.
    pub count: u64,
    /// Shortest.
    pub min_ns: f64,
    /// Mean.
    pub mean_ns: f64,
    /// As long as or longer than half.
    pub p50_ns: f64,
    /// ... than 90 %.
    pub p90_ns: f64,
    /// ... than 99 %.
    pub p99_ns: f64,
    /// Longest.
    pub max_ns: f64,
    /// The histogram, without empty bars.
    pub histogram: Vec<Bar>,
}

/// The smallest of 0.1, 0.2, 0.5, 1, 2, 5, 10, ... ns that is no less.
fn round_up(width: f64) -> f64 {
    let mut unit = 0.1;
    loop {
        for step in [1.0, 2.0, 5.0] {
            if unit * step >= width {
                return unit * step;
            }
        }
        unit *= 10.0;
    }
}

impl Summary {
    fn new(request: &'static str, histogram: &Histogram<u64>) -> Summary {
        let ns = |ticks: u64| Time(ticks).as_ns_f64();
        let (min, max) = (ns(histogram.min()), ns(histogram.max()));
        let width = round_up((max - min) / BARS);
        let mut bars: Vec<Bar> = Vec::new();
        for value in histogram.iter_recorded() {
            let place = (ns(value.value_iterated_to()) / width).floor();
            let (from_ns, to_ns) = (place * width, (place + 1.0) * width);
            let count = value.count_at_value();
            match bars.last_mut() {
                Some(bar) if bar.from_ns >= from_ns => bar.count += count,
                _ => bars.push(Bar {
                    from_ns,
                    to_ns,
                    count,
                }),
            }
        }
        Summary {
            request,
            count: histogram.len(),
            min_ns: min,
            mean_ns: histogram.mean() / ns_ticks(),
            p50_ns: ns(histogram.value_at_quantile(0.5)),
            p90_ns: ns(histogram.value_at_quantile(0.9)),
            p99_ns: ns(histogram.value_at_quantile(0.99)),
            max_ns: max,
            histogram: bars,
        }
    }
}

/// Ticks of a nanosecond.
fn ns_ticks() -> f64 {
    Time::from_ns(1).0 as f64
}

/// As tables for the terminal: figures, then a histogram of each kind of request.
pub fn terminal(summaries: &[Summary]) -> String {
    let mut t = table::table(&["request", "count", "min", "mean", "p50", "p90", "p99", "max"]);
    for s in summaries {
        let times = [s.min_ns, s.mean_ns, s.p50_ns, s.p90_ns, s.p99_ns, s.max_ns];
        let mut row = vec![s.request.to_string(), table::count(s.count)];
        row.extend(times.map(table::time));
        t.add_row(row);
    }
    let mut out = format!("{t}\n");
    for s in summaries {
        let most = s.histogram.iter().map(|bar| bar.count).max().unwrap_or(1);
        let _ = writeln!(out, "\n{} latency, ns", s.request);
        for (at, bar) in s.histogram.iter().enumerate() {
            if at > 0 && s.histogram[at - 1].to_ns < bar.from_ns - 1e-6 * bar.from_ns {
                let _ = writeln!(out, "{:>12}", "...");
            }
            // At least a mark: a bar that is there is not empty.
            let length = (50 * bar.count).div_ceil(most) as usize;
            let _ = writeln!(
                out,
                "{:>12}  {:>12}  {}",
                trimmed(bar.from_ns),
                table::count(bar.count),
                "#".repeat(length)
            );
        }
    }
    out
}

/// Up to one decimal.
fn trimmed(ns: f64) -> String {
    let text = format!("{ns:.1}");
    text.strip_suffix(".0").map_or(text.clone(), String::from)
}

/// As CSV: a row for each bar.
pub fn csv(summaries: &[Summary]) -> String {
    let mut out = String::from("request,from_ns,to_ns,count\n");
    for s in summaries {
        for bar in &s.histogram {
            let _ = writeln!(
                out,
                "{},{},{},{}",
                s.request,
                trimmed(bar.from_ns),
                trimmed(bar.to_ns),
                bar.count
            );
        }
    }
    out
}

/// As a chart: steps, with the share of requests as height.
pub fn chart(name: &str, summaries: &[Summary]) -> Chart {
    let series = summaries.iter().enumerate().map(|(color, s)| {
        let share = |bar: &Bar| 100.0 * bar.count as f64 / s.count as f64;
        let mut points: Vec<(f64, f64)> = Vec::new();
        for bar in &s.histogram {
            let last = points.last().map(|point| point.0);
            if last.is_none_or(|at| at < bar.from_ns - 1e-6 * bar.from_ns) {
                points.extend(last.map(|at| (at, 0.0)));
                points.push((bar.from_ns, 0.0));
            }
            points.extend([(bar.from_ns, share(bar)), (bar.to_ns, share(bar))]);
        }
        points.extend(points.last().map(|&(at, _)| (at, 0.0)));
        Series {
            name: s.request.into(),
            points,
            style: Style::Line,
            color,
        }
    });
    Chart {
        title: format!("{name}: latency of single requests"),
        x_label: "latency, ns".into(),
        y_label: "% of requests".into(),
        series: series.collect(),
        ..Chart::default()
    }
}
