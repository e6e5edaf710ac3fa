//! Bandwidth against transfer size.

use std::fmt::Write as _;

use serde::Serialize;
use sim_core::push::Direction;
use sim_pcie::{LinkConfigError, Transfer};

use super::profile::LinkModel;
use crate::report::plot::{Chart, Series, Style};
use crate::report::table;

/// One size. Rates are GB/s (10^9), times ns, from submission to the arrival of the last byte.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Bytes of each transfer.
    pub bytes: u64,
    /// Host to device, alone.
    pub h2d_ns: f64,
    /// Device to host, alone.
    pub d2h_ns: f64,
    /// Host to device while an equal transfer runs the other way, both submitted at once.
    pub both_h2d_ns: f64,
    /// Device to host, likewise.
    pub both_d2h_ns: f64,
    /// Rates of the four.
    pub h2d_gbps: f64,
    /// Device to host, alone.
    pub d2h_gbps: f64,
    /// Host to device while both run.
    pub both_h2d_gbps: f64,
    /// Device to host while both run.
    pub both_d2h_gbps: f64,
}

/// Powers of two from 512 B to 1 GiB.
pub fn default_sizes() -> Vec<u64> {
    (9..=30).map(|power| 1 << power).collect()
}

/// Time in ns of one transfer of `bytes` in each of `directions`, submitted at once on an idle link.
///
/// # Errors
/// A field of the link that no link can have.
pub fn times(link: &LinkModel, bytes: u64, directions: &[Direction]) -> Result<Vec<f64>, LinkConfigError> {
    let mut link = link.build()?;
    let ids: Vec<_> = directions
        .iter()
        .map(|&direction| {
            link.submit(Transfer {
                direction,
                bytes,
                address: 0,
            })
        })
        .collect();
    let done = link.drain();
    let time = |id| {
        let found = done.iter().find(|completion| completion.id == id);
        found.map_or(f64::NAN, |completion| completion.time.as_ns_f64())
    };
    Ok(ids.into_iter().map(time).collect())
}

/// Bandwidth at each size; `fixed_ns` is added to every transfer (engine setup, driver call).
///
/// # Errors
/// A field of the link that no link can have.
pub fn sweep(link: &LinkModel, sizes: &[u64], fixed_ns: f64) -> Result<Vec<Point>, LinkConfigError> {
    use Direction::{DeviceToHost, HostToDevice};
    sizes
        .iter()
        .map(|&bytes| {
            let h2d_ns = times(link, bytes, &[HostToDevice])?[0] + fixed_ns;
            let d2h_ns = times(link, bytes, &[DeviceToHost])?[0] + fixed_ns;
            let both = times(link, bytes, &[HostToDevice, DeviceToHost])?;
            let (both_h2d_ns, both_d2h_ns) = (both[0] + fixed_ns, both[1] + fixed_ns);
            let rate = |ns: f64| bytes as f64 / ns;
            Ok(Point {
                bytes,
                h2d_ns,
                d2h_ns,
                both_h2d_ns,
                both_d2h_ns,
                h2d_gbps: rate(h2d_ns),
                d2h_gbps: rate(d2h_ns),
                both_h2d_gbps: rate(both_h2d_ns),
                both_d2h_gbps: rate(both_d2h_ns),
            })
        })
        .collect()
}

/// As a table for the terminal.
pub fn terminal(points: &[Point]) -> String {
    let mut t = table::table(&[
        "size",
        "H2D time",
        "D2H time",
        "H2D GB/s",
        "D2H GB/s",
        "both: H2D GB/s",
        "both: D2H GB/s",
    ]);
    for p in points {
        t.add_row([
            table::bytes(p.bytes),
            table::time(p.h2d_ns),
            table::time(p.d2h_ns),
            table::digits(p.h2d_gbps),
            table::digits(p.d2h_gbps),
            table::digits(p.both_h2d_gbps),
            table::digits(p.both_d2h_gbps),
        ]);
    }
    format!("{t}\n")
}

/// As CSV.
pub fn csv(points: &[Point]) -> String {
    let mut out = String::from(
        "bytes,h2d_ns,d2h_ns,both_h2d_ns,both_d2h_ns,h2d_gbps,d2h_gbps,both_h2d_gbps,both_d2h_gbps\n",
    );
    for p in points {
        let _ = writeln!(
            out,
            "{},{},{},{},{},{:.6},{:.6},{:.6},{:.6}",
            p.bytes,
            p.h2d_ns,
            p.d2h_ns,
            p.both_h2d_ns,
            p.both_d2h_ns,
            p.h2d_gbps,
            p.d2h_gbps,
            p.both_h2d_gbps,
            p.both_d2h_gbps
        );
    }
    out
}

/// As a chart.
pub fn chart(name: &str, points: &[Point]) -> Chart {
    type Rate = fn(&Point) -> f64;
    let curves: [(&str, Rate); 4] = [
        ("H2D", |p| p.h2d_gbps),
        ("D2H", |p| p.d2h_gbps),
        ("H2D, both at once", |p| p.both_h2d_gbps),
        ("D2H, both at once", |p| p.both_d2h_gbps),
    ];
    Chart {
        title: format!("{name}: bandwidth of one transfer"),
        x_label: "size, bytes".into(),
        y_label: "GB/s".into(),
        log_x: true,
        series: curves
            .into_iter()
            .enumerate()
            .map(|(i, (name, rate))| Series {
                name: name.into(),
                points: points.iter().map(|p| (p.bytes as f64, rate(p))).collect(),
                style: if i < 2 { Style::Line } else { Style::Reference },
                color: i % 2,
            })
            .collect(),
        ..Chart::default()
    }
}
