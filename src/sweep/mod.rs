//! Sweeps: every combination of the values of `[sweep]`, in a stable order, on all cores.
//!
//! Points that differ only in how much memory there is share one baseline, which runs once. The
//! result does not depend on the number of threads.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rayon::prelude::*;

use crate::config::diagnostic::ConfigErrors;
use crate::config::schema::Key;
use crate::config::value::Value;
use crate::config::{Config, ResolvedConfig};
use crate::report::plot::{Chart, Series, Style};
use crate::report::records::csv_field;
use crate::report::{Summary, table};
use crate::simulate::{Simulate, SimulateError, guarded};

/// Most points of a sweep.
const MOST_POINTS: usize = 1_000_000;

/// One point of the grid.
#[derive(Clone, Debug)]
pub struct Point {
    /// The value of each axis.
    pub values: Vec<(&'static Key, Value)>,
    /// The config there.
    pub config: ResolvedConfig,
    /// Index of its baseline in [`Plan::baselines`].
    pub baseline: usize,
}

/// What has to be run.
#[derive(Debug)]
pub struct Plan {
    /// Points in the order of the grid: the last axis varies fastest.
    pub points: Vec<Point>,
    /// Baselines in the order of their first point.
    pub baselines: Vec<ResolvedConfig>,
}

/// Expands the grid; a config without `[sweep]` has one point.
///
/// # Errors
/// Points that no config can have, with the point; too many of them.
pub fn plan(config: &Config) -> Result<Plan, ConfigErrors> {
    let total = config
        .axes
        .iter()
        .try_fold(1usize, |n, axis| n.checked_mul(axis.values.len()));
    if total.is_none_or(|total| total > MOST_POINTS) {
        use crate::config::diagnostic::Diagnostic;
        return Err(ConfigErrors::one(Diagnostic::new(format!(
            "the sweep has more than {MOST_POINTS} points"
        ))));
    }
    let mut plan = Plan {
        points: Vec::new(),
        baselines: Vec::new(),
    };
    let mut known = BTreeMap::new();
    for index in 0..total.unwrap_or(1) {
        let mut rest = index;
        let mut values = Vec::with_capacity(config.axes.len());
        for axis in config.axes.iter().rev() {
            values.push((axis.key, axis.values[rest % axis.values.len()].clone()));
            rest /= axis.values.len();
        }
        values.reverse();
        let resolved = config.resolve_with(&values)?;
        let baseline = resolved.baseline()?;
        let next = plan.baselines.len();
        let slot = *known.entry(baseline.fingerprint()).or_insert(next);
        if slot == next {
            plan.baselines.push(baseline);
        }
        plan.points.push(Point {
            values,
            config: resolved,
            baseline: slot,
        });
    }
    Ok(plan)
}

/// A point with its result.
pub type Outcome = Result<Summary, SimulateError>;

/// Runs everything on `threads` threads (0: as many as there are cores).
///
/// # Errors
/// Where no threads can be started.
pub fn run(
    plan: &Plan,
    simulator: &dyn Simulate,
    threads: usize,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<Outcome>, String> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|e| e.to_string())?;
    let jobs: Vec<&ResolvedConfig> = plan
        .baselines
        .iter()
        .chain(plan.points.iter().map(|point| &point.config))
        .collect();
    let results: Vec<Outcome> = pool.install(|| {
        jobs.par_iter()
            .with_max_len(1)
            .map(|config| {
                let result = guarded(simulator, config, false).map(|result| result.summary);
                done();
                result
            })
            .collect()
    });
    let (baselines, points) = results.split_at(plan.baselines.len());
    Ok(plan
        .points
        .iter()
        .zip(points)
        .map(|(point, result)| {
            let mut summary = result.clone()?;
            summary.set_baseline(baselines[point.baseline].as_ref().map_err(|error| {
                let message = format!("its baseline: {error}");
                match error {
                    SimulateError::Input(_) => SimulateError::Input(message),
                    SimulateError::Internal(_) => SimulateError::Internal(message),
                }
            })?);
            Ok(summary)
        })
        .collect())
}

/// `sweep.csv`: one line a point, figures with their units in the head.
pub fn csv(plan: &Plan, outcomes: &[Outcome]) -> String {
    let mut out = String::from("point");
    if let Some(first) = plan.points.first() {
        for (key, _) in &first.values {
            let _ = write!(out, ",{}", key.path);
        }
    }
    out.push_str(
        ",status,slowdown,simulated_ns,baseline_simulated_ns,iteration_ns,footprint_bytes,capacity_bytes,\
         host_to_device_bytes,device_to_host_bytes,demand_bytes,prefetch_bytes,eviction_bytes,host_to_device_copies,\
         device_to_host_copies,fault_entries,coalesced_faults,duplicate_faults,batches,block_services,evictions,\
         replays,sm_computing_ns,sm_stalled_ns,sm_idle_ns,hidden_share,kernels,events,error\n",
    );
    let optional = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
    for (index, (point, outcome)) in plan.points.iter().zip(outcomes).enumerate() {
        let _ = write!(out, "{index}");
        for (_, value) in &point.values {
            let _ = write!(out, ",{}", csv_field(&value.to_string()));
        }
        match outcome {
            Ok(s) => {
                let fields = [
                    optional(s.slowdown),
                    s.simulated_ns.to_string(),
                    optional(s.baseline_simulated_ns),
                    s.iteration_ns().to_string(),
                    s.footprint_bytes.to_string(),
                    s.capacity_bytes.map(|b| b.to_string()).unwrap_or_default(),
                    s.bytes("host_to_device").to_string(),
                    s.bytes("device_to_host").to_string(),
                    s.bytes_of_cause("coherence").to_string(),
                    s.bytes_of_cause("prefetch").to_string(),
                    s.bytes_of_cause("eviction").to_string(),
                    s.copies("host_to_device").to_string(),
                    s.copies("device_to_host").to_string(),
                    s.fault_entries.to_string(),
                    s.counter("coalesced_faults").to_string(),
                    s.counter("duplicate_faults").to_string(),
                    s.counter("batches").to_string(),
                    s.counter("block_services").to_string(),
                    s.counter("evictions").to_string(),
                    s.replays.to_string(),
                    s.sm_computing_ns.to_string(),
                    s.sm_stalled_total_ns().to_string(),
                    s.sm_idle_ns.to_string(),
                    optional(s.hidden_share),
                    s.kernels.to_string(),
                    s.events.to_string(),
                ];
                let _ = writeln!(out, ",ok,{},", fields.join(","));
            }
            Err(error) => {
                let _ = writeln!(out, ",failed{},{}", ",".repeat(26), csv_field(&error.to_string()));
            }
        }
    }
    out
}

/// The table for the terminal.
pub fn terminal(plan: &Plan, outcomes: &[Outcome]) -> String {
    let Some(first) = plan.points.first() else {
        return String::new();
    };
    let mut head: Vec<String> = first.values.iter().map(|(key, _)| key.path.to_string()).collect();
    head.extend(
        [
            "slowdown",
            "time",
            "to device",
            "to host",
            "batches",
            "evictions",
            "hidden",
        ]
        .map(String::from),
    );
    let mut t = table::table(&head);
    for (point, outcome) in plan.points.iter().zip(outcomes) {
        let mut row: Vec<String> = point.values.iter().map(|(_, value)| value.to_string()).collect();
        match outcome {
            Ok(s) => row.extend([
                s.slowdown.map(table::digits).unwrap_or_default(),
                table::time(s.simulated_ns),
                table::bytes(s.bytes("host_to_device")),
                table::bytes(s.bytes("device_to_host")),
                table::count(s.counter("batches")),
                table::count(s.counter("evictions")),
                s.hidden_share
                    .map(|share| format!("{:.0} %", share * 100.0))
                    .unwrap_or_default(),
            ]),
            Err(_) => row.push("failed".into()),
        }
        t.add_row(row);
    }
    let mut out = t.to_string();
    for (index, outcome) in outcomes.iter().enumerate() {
        if let Err(error) = outcome {
            let _ = write!(out, "\npoint {index} failed: {error}");
        }
    }
    out
}

/// A value as a plain number, in the unit of [`unit`]; `None` for names.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::Ratio(n) | Value::Flops(n) => Some(*n),
        Value::Bytes(n) => Some(n.as_gib_f64()),
        Value::Bandwidth(n) => Some(n.as_gb_per_s_f64()),
        Value::Time(n) => Some(n.as_us_f64()),
        Value::Hertz(n) => Some(n.as_ghz_f64()),
        Value::Bool(_) | Value::Text(_) | Value::Word(_) => None,
    }
}

/// The unit that [`number`] counts in, for axis labels.
pub(crate) fn unit(value: &Value) -> &'static str {
    match value {
        Value::Bytes(_) => " (GiB)",
        Value::Bandwidth(_) => " (GB/s)",
        Value::Time(_) => " (us)",
        Value::Hertz(_) => " (GHz)",
        Value::Flops(_) => " (FLOP/s)",
        _ => "",
    }
}

/// The slowdown against the first axis that holds numbers (else the first), a curve for each
/// combination of the others; `None` where nothing varies.
pub fn chart(title: &str, plan: &Plan, outcomes: &[Outcome]) -> Option<Chart> {
    let first = plan.points.first()?;
    let numeric = |i: usize| {
        plan.points
            .iter()
            .all(|point| number(&point.values[i].1).is_some())
    };
    let varies = |i: usize| {
        plan.points
            .iter()
            .any(|point| point.values[i].1 != first.values[i].1)
    };
    let axes: Vec<usize> = (0..first.values.len()).filter(|i| varies(*i)).collect();
    let x = axes
        .iter()
        .copied()
        .find(|i| numeric(*i))
        .or_else(|| axes.first().copied())?;
    let mut places: Vec<&Value> = Vec::new();
    for point in &plan.points {
        if !places.contains(&&point.values[x].1) {
            places.push(&point.values[x].1);
        }
    }
    let categories = (!numeric(x)).then(|| places.iter().map(ToString::to_string).collect::<Vec<_>>());
    let mut series: Vec<Series> = Vec::new();
    for (point, outcome) in plan.points.iter().zip(outcomes) {
        let name: Vec<_> = axes
            .iter()
            .filter(|i| **i != x)
            .map(|i| {
                let (key, value) = &point.values[*i];
                // The table's name and a path's folder add nothing to a legend.
                let name = key.path.split_once('.').map_or(key.path, |(_, name)| name);
                let value = value.to_string();
                let value = value.rsplit('/').next().unwrap_or(&value);
                format!("{name} = {}", value.trim_end_matches(".uvmprog.zst"))
            })
            .collect();
        let name = name.join(", ");
        let value = &point.values[x].1;
        let place = match categories {
            Some(_) => places.iter().position(|p| *p == value).map(|i| i as f64),
            None => number(value),
        };
        let index = series.iter().position(|s| s.name == name).unwrap_or_else(|| {
            series.push(Series {
                name,
                points: Vec::new(),
                style: Style::Line,
                color: series.len(),
            });
            series.len() - 1
        });
        if let (Some(place), Some(slowdown)) = (place, outcome.as_ref().ok().and_then(|s| s.slowdown)) {
            series[index].points.push((place, slowdown));
        }
    }
    for one in &mut series {
        one.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let heights = || series.iter().flat_map(|s| &s.points).map(|p| p.1);
    let (low, high) = (
        heights().fold(f64::INFINITY, f64::min),
        heights().fold(0.0, f64::max),
    );
    Some(Chart {
        title: title.to_string(),
        x_label: format!("{}{}", first.values[x].0.path, unit(&first.values[x].1)),
        y_label: "slowdown (time / time with everything resident)".into(),
        log_x: false,
        log_y: high > 20.0 * low && low > 0.0,
        categories,
        series,
    })
}
