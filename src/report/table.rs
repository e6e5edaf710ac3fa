//! Tables for the terminal.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use sim_core::Time;

use super::{Summary, Wall};

/// An empty table with a head; all columns but the first are right-aligned.
pub fn table<T: Into<String> + Clone>(head: &[T]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(head.iter().cloned().map(Into::into).collect::<Vec<String>>());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A table of names and values.
pub fn key_value(title: &str, rows: &[(String, String)]) -> String {
    let mut t = table(&[title, ""]);
    t.add_rows(rows.iter().map(|(name, value)| [name.clone(), value.clone()]));
    format!("{t}\n")
}

/// A time with a fitting unit and four digits.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// Bytes with a fitting binary unit.
pub fn bytes(bytes: u64) -> String {
    let value = bytes as f64;
    for (scale, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << scale {
            return format!("{} {unit}", digits(value / (1u64 << scale) as f64));
        }
    }
    format!("{bytes} B")
}

/// Four significant digits.
pub fn digits(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if m >= 1000.0 || m == 0.0 => 0,
        m if m >= 100.0 => 1,
        m if m >= 10.0 => 2,
        m if m >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

/// A whole number with thin groups of three.
pub fn count(number: u64) -> String {
    let text = number.to_string();
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        if i > 0 && (text.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The table of a run: how long, how much slower, where the time went, what moved and why.
pub fn run(summary: &Summary, wall: &Wall) -> String {
    let mut out = String::new();
    let mut section = |title: &str, rows: Vec<[String; 2]>| {
        if rows.is_empty() {
            return;
        }
        let mut t = table(&[title, ""]);
        t.add_rows(rows);
        out.push_str(&t.to_string());
        out.push('\n');
    };
    let mut rows = Vec::new();
    if let Some(slowdown) = summary.slowdown {
        rows.push(["slowdown".into(), format!("{} x", digits(slowdown))]);
    }
    rows.push(["simulated time".into(), time(summary.simulated_ns)]);
    if let Some(baseline) = summary.baseline_simulated_ns {
        rows.push(["simulated time, everything resident".into(), time(baseline)]);
    }
    if summary.iteration_start_ns.len() > 1 {
        rows.push([
            "mean iteration after the first".into(),
            time(summary.iteration_ns()),
        ]);
    }
    rows.push(["footprint".into(), bytes(summary.footprint_bytes)]);
    rows.push([
        "device memory for it".into(),
        summary.capacity_bytes.map_or("unlimited".into(), bytes),
    ]);
    if let Some(factor) = summary.oversubscription {
        rows.push(["oversubscription".into(), format!("{} x", digits(factor))]);
    }
    rows.push(["kernels".into(), count(summary.kernels)]);
    if summary.unknown_kernels > 0 {
        rows.push(["kernels of unknown class".into(), count(summary.unknown_kernels)]);
    }
    section("result", rows);

    let stalled = summary.sm_stalled_total_ns();
    let total = summary.sm_computing_ns + summary.sm_idle_ns + stalled;
    if total > 0.0 {
        let row = |name: String, ns: f64| [name, percent(ns / total)];
        let mut rows = vec![
            row("computing".into(), summary.sm_computing_ns),
            row("no block to run".into(), summary.sm_idle_ns),
            row("stalled on pages".into(), stalled),
        ];
        let mut reasons: Vec<_> = summary
            .sm_stalled_ns
            .iter()
            .filter(|(_, ns)| **ns > 0.0)
            .collect();
        reasons.sort_by(|a, b| b.1.total_cmp(a.1).then(a.0.cmp(b.0)));
        rows.extend(
            reasons
                .into_iter()
                .map(|(name, ns)| row(format!("  while the driver: {name}"), *ns)),
        );
        if let Some(hidden) = summary.hidden_share {
            rows.push(["migration hidden behind computation".into(), percent(hidden)]);
        }
        section("SM time", rows);
    }

    let moved: Vec<_> = summary.traffic.iter().filter(|t| t.copies > 0).collect();
    if !moved.is_empty() {
        let mut t = table(&["moved", "cause", "bytes", "copies"]);
        for traffic in moved {
            t.add_row([
                traffic.direction.replace('_', " "),
                traffic.cause.replace('_', " "),
                bytes(traffic.bytes),
                count(traffic.copies),
            ]);
        }
        for (name, dead) in [
            ("device to host", summary.dead_write_back_bytes),
            ("host to device", summary.dead_fetch_bytes),
        ] {
            if let Some(dead) = dead.filter(|dead| *dead > 0) {
                t.add_row([name.into(), "of this dead".into(), bytes(dead), String::new()]);
            }
        }
        out.push_str(&t.to_string());
        out.push('\n');
    }

    let mut t = table(&["faults and service", ""]);
    for (name, number) in [
        ("raw faults (entries written)", summary.fault_entries),
        ("  of these fetched", summary.counter("raw_faults")),
        ("coalesced faults", summary.counter("coalesced_faults")),
        ("duplicates", summary.counter("duplicate_faults")),
        ("dropped, buffer full", summary.fault_entries_dropped),
        ("batches", summary.counter("batches")),
        ("block services", summary.counter("block_services")),
        ("evictions", summary.counter("evictions")),
    ] {
        t.add_row([name.to_string(), count(number)]);
    }
    if summary.counter("batches") > 0 {
        let figures = [
            time(summary.batch_time_median_ns),
            time(summary.batch_time_p99_ns),
        ];
        t.add_row(["time of a batch, median / 99 %".to_string(), figures.join(" / ")]);
    }
    out.push_str(&t.to_string());
    out.push('\n');
    let _ = writeln!(
        out,
        "wall time {:.2} s{}, {} events, {:.2} M events/s",
        wall.wall_s,
        wall.baseline_wall_s
            .map(|s| format!(" (baseline {s:.2} s)"))
            .unwrap_or_default(),
        count(summary.events),
        wall.events_per_s / 1e6
    );
    out
}

/// A time for progress messages.
pub fn short_time(at: Time) -> String {
    time(at.as_ns_f64())
}
