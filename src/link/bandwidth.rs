//! Bandwidth against transfer size.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use sim_core::push::Direction;
use sim_pcie::{LinkConfigError, Transfer};

use super::profile::LinkModel;
use crate::report::plot::{Chart, Series, Style};
use crate::report::table;

/// One transfer and what runs beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// Host to device, alone.
    H2d,
    /// Device to host, alone.
    D2h,
    /// Host to device while an equal transfer runs the other way, both submitted at once.
    BothH2d,
    /// Device to host, likewise.
    BothD2h,
}

impl Curve {
    /// In the order of tables.
    pub const ALL: [Curve; 4] = [Curve::H2d, Curve::D2h, Curve::BothH2d, Curve::BothD2h];

    /// Column name, without the unit.
    pub fn key(self) -> &'static str {
        match self {
            Curve::H2d => "h2d",
            Curve::D2h => "d2h",
            Curve::BothH2d => "both_h2d",
            Curve::BothD2h => "both_d2h",
        }
    }

    fn heading(self) -> &'static str {
        match self {
            Curve::H2d => "H2D",
            Curve::D2h => "D2H",
            Curve::BothH2d => "both: H2D",
            Curve::BothD2h => "both: D2H",
        }
    }

    fn is_both(self) -> bool {
        matches!(self, Curve::BothH2d | Curve::BothD2h)
    }
}

/// What is swept: `--direction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Traffic {
    /// Host to device, alone.
    H2d,
    /// Device to host, alone.
    D2h,
    /// Both at once.
    Both,
}

impl Traffic {
    /// The curves of this traffic.
    pub fn curves(self) -> &'static [Curve] {
        match self {
            Traffic::H2d => &Curve::ALL[..1],
            Traffic::D2h => &Curve::ALL[1..2],
            Traffic::Both => &Curve::ALL[2..],
        }
    }
}

/// One size. Times are ns, from submission to the arrival of the last byte. As JSON: `bytes`, and for each
/// curve its time (`h2d_ns`) and rate (`h2d_gbps`).
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Bytes of each transfer.
    pub bytes: u64,
    /// Time in ns of each curve that was asked for.
    pub ns: Vec<(Curve, f64)>,
}

impl Point {
    /// GB/s (10^9) of a transfer that takes `ns`.
    fn gbps(&self, ns: f64) -> f64 {
        self.bytes as f64 / ns
    }
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + 2 * self.ns.len()))?;
        map.serialize_entry("bytes", &self.bytes)?;
        for (curve, ns) in &self.ns {
            map.serialize_entry(&format!("{}_ns", curve.key()), ns)?;
        }
        for (curve, ns) in &self.ns {
            map.serialize_entry(&format!("{}_gbps", curve.key()), &self.gbps(*ns))?;
        }
        map.end()
    }
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

/// Time of each of `curves` at each size; `fixed_ns` is added to every transfer (engine setup, driver call).
///
/// # Errors
/// A field of the link that no link can have.
pub fn sweep(
    link: &LinkModel,
    sizes: &[u64],
    fixed_ns: f64,
    curves: &[Curve],
) -> Result<Vec<Point>, LinkConfigError> {
    use Direction::{DeviceToHost, HostToDevice};
    sizes
        .iter()
        .map(|&bytes| {
            let both = if curves.iter().any(|curve| curve.is_both()) {
                times(link, bytes, &[HostToDevice, DeviceToHost])?
            } else {
                Vec::new()
            };
            let time = |curve| {
                Ok(match curve {
                    Curve::H2d => times(link, bytes, &[HostToDevice])?[0],
                    Curve::D2h => times(link, bytes, &[DeviceToHost])?[0],
                    Curve::BothH2d => both[0],
                    Curve::BothD2h => both[1],
                } + fixed_ns)
            };
            let ns = curves.iter().map(|&curve| Ok((curve, time(curve)?)));
            Ok(Point {
                bytes,
                ns: ns.collect::<Result<_, _>>()?,
            })
        })
        .collect()
}

/// The curves of a sweep.
fn curves(points: &[Point]) -> impl Iterator<Item = Curve> + '_ {
    points
        .first()
        .into_iter()
        .flat_map(|p| &p.ns)
        .map(|(curve, _)| *curve)
}

/// As a table for the terminal; with all four curves, the times of two transfers at once are left out.
pub fn terminal(points: &[Point]) -> String {
    let all = curves(points).count() == Curve::ALL.len();
    let timed = |curve: Curve| !(all && curve.is_both());
    let mut head = vec!["size".to_string()];
    let with_time = curves(points).filter(|&curve| timed(curve));
    head.extend(with_time.map(|curve| format!("{} time", curve.heading())));
    head.extend(curves(points).map(|curve| format!("{} GB/s", curve.heading())));
    let mut t = table::table(&head);
    for p in points {
        let mut row = vec![table::bytes(p.bytes)];
        let with_time = p.ns.iter().filter(|(curve, _)| timed(*curve));
        row.extend(with_time.map(|(_, ns)| table::time(*ns)));
        row.extend(p.ns.iter().map(|(_, ns)| table::digits(p.gbps(*ns))));
        t.add_row(row);
    }
    format!("{t}\n")
}

/// As CSV: `bytes`, the times, the rates.
pub fn csv(points: &[Point]) -> String {
    let mut out = String::from("bytes");
    for unit in ["ns", "gbps"] {
        for curve in curves(points) {
            let _ = write!(out, ",{}_{unit}", curve.key());
        }
    }
    out.push('\n');
    for p in points {
        let _ = write!(out, "{}", p.bytes);
        for (_, ns) in &p.ns {
            let _ = write!(out, ",{ns}");
        }
        for (_, ns) in &p.ns {
            let _ = write!(out, ",{:.6}", p.gbps(*ns));
        }
        out.push('\n');
    }
    out
}

/// As a chart; two transfers at once are dashed.
pub fn chart(name: &str, points: &[Point]) -> Chart {
    let series = curves(points).enumerate().map(|(at, curve)| Series {
        name: match curve {
            Curve::H2d | Curve::D2h => curve.heading().into(),
            Curve::BothH2d => "H2D, both at once".into(),
            Curve::BothD2h => "D2H, both at once".into(),
        },
        points: points
            .iter()
            .map(|p| (p.bytes as f64, p.gbps(p.ns[at].1)))
            .collect(),
        style: if curve.is_both() {
            Style::Reference
        } else {
            Style::Line
        },
        color: usize::from(matches!(curve, Curve::D2h | Curve::BothD2h)),
    });
    Chart {
        title: format!("{name}: bandwidth of one transfer"),
        x_label: "size, bytes".into(),
        y_label: "GB/s".into(),
        log_x: true,
        series: series.collect(),
        ..Chart::default()
    }
}
