//! Published curves, replayed: ours beside theirs.
//!
//! A validation file is a config with a `[validation]` table (who measured, where) and one `[[curve]]`
//! for each curve: the metric, the key that varies, the published values. Every point is printed;
//! one that cannot be simulated counts as missed.

pub mod file;
pub mod metric;
pub mod rank;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rayon::prelude::*;

use crate::config::ResolvedConfig;
use crate::report::plot::{Chart, Series, Style};
use crate::report::records::csv_field;
use crate::report::table;
use crate::simulate::{RunResult, Simulate, SimulateError, guarded};
use file::{Curve, ValidationFile};
use metric::Metric;

/// One point with our value.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The place on the curve, as written.
    pub x: String,
    /// The published value.
    pub published: f64,
    /// Ours, or why there is none.
    pub ours: Result<f64, String>,
    /// Relative error of ours; absent where there is none.
    pub error: Option<f64>,
    /// Within tolerance?
    pub pass: bool,
}

/// One curve with our values.
#[derive(Clone, Debug)]
pub struct CurveReport {
    /// The curve.
    pub curve: Curve,
    /// Every point.
    pub points: Vec<Compared>,
    /// Spearman's rank correlation of ours with theirs; absent below three points or without spread.
    pub rank_correlation: Option<f64>,
}

impl CurveReport {
    /// Points within tolerance.
    pub fn passed(&self) -> usize {
        self.points.iter().filter(|point| point.pass).count()
    }
}

/// Replays every curve of a file.
pub fn run(file: &ValidationFile, simulator: &dyn Simulate, done: &(dyn Fn() + Sync)) -> Vec<CurveReport> {
    // Curves and points that need the same run share it.
    let mut jobs: Vec<(&ResolvedConfig, bool)> = Vec::new();
    let mut known = BTreeMap::new();
    let mut job = |config, records: bool| {
        let slot = *known.entry(fingerprint(config)).or_insert_with(|| {
            jobs.push((config, false));
            jobs.len() - 1
        });
        jobs[slot].1 |= records;
        slot
    };
    let needs: Vec<Vec<(usize, Option<usize>)>> = file
        .curves
        .iter()
        .map(|curve| {
            let records = curve.metric.needs_records();
            curve
                .points
                .iter()
                .map(|point| {
                    let own = job(&point.config, records);
                    let reference = point.reference.as_ref().map(|config| job(config, false));
                    (own, reference)
                })
                .collect()
        })
        .collect();
    let results: Vec<Result<RunResult, SimulateError>> = jobs
        .par_iter()
        .with_max_len(1)
        .map(|(config, records)| {
            let result = guarded(simulator, config, *records);
            done();
            result
        })
        .collect();
    file.curves
        .iter()
        .zip(needs)
        .map(|(curve, needs)| {
            let points = curve
                .points
                .iter()
                .zip(needs)
                .map(|(point, (own, reference))| {
                    let ours = value(
                        curve.metric,
                        &results[own],
                        reference.map(|slot| &results[slot]),
                        point.x_number,
                    )
                    .map(|value| value * curve.scale);
                    compare(curve, &point.x, point.published, ours)
                })
                .collect::<Vec<_>>();
            let pairs: Vec<_> = points
                .iter()
                .filter_map(|p| p.ours.as_ref().ok().map(|ours| (p.published, *ours)))
                .collect();
            CurveReport {
                curve: curve.clone(),
                rank_correlation: rank::spearman(&pairs),
                points,
            }
        })
        .collect()
}

fn fingerprint(config: &ResolvedConfig) -> String {
    config.fingerprint()
}

fn value(
    metric: Metric,
    own: &Result<RunResult, SimulateError>,
    reference: Option<&Result<RunResult, SimulateError>>,
    x: Option<f64>,
) -> Result<f64, String> {
    let own = own.as_ref().map_err(ToString::to_string)?;
    let reference = reference
        .map(|r| r.as_ref().map_err(|e| format!("its reference: {e}")))
        .transpose()?;
    metric.of(own, reference, x)
}

fn compare(curve: &Curve, x: &str, published: f64, ours: Result<f64, String>) -> Compared {
    let error = ours.as_ref().ok().and_then(|ours| {
        if published == 0.0 {
            (*ours == 0.0).then_some(0.0)
        } else {
            Some((ours - published) / published.abs())
        }
    });
    let pass = error.is_some_and(|error| error.abs() <= curve.tolerance);
    Compared {
        x: x.to_string(),
        published,
        ours,
        error,
        pass,
    }
}

fn fitted(curve: &Curve) -> String {
    curve
        .fitted
        .as_ref()
        .map_or("not fitted".into(), |what| format!("fitted: {what}"))
}

/// Published value, ours, error, verdict.
fn cells(point: &Compared, unit: &str) -> [String; 4] {
    let with_unit = |value: f64| format!("{} {unit}", table::digits(value)).trim_end().to_string();
    [
        with_unit(point.published),
        point
            .ours
            .as_ref()
            .map_or("failed".into(), |ours| with_unit(*ours)),
        point
            .error
            .map(|e| format!("{:+.1} %", e * 100.0))
            .unwrap_or_default(),
        if point.pass { "yes" } else { "MISS" }.into(),
    ]
}

/// The report of a file for the terminal.
pub fn terminal(file: &ValidationFile, reports: &[CurveReport]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n  {}", file.title, file.citation);
    for note in &file.notes {
        let _ = writeln!(out, "  {note}");
    }
    // Curves of one point share a table; the others have one each.
    let singles: Vec<&CurveReport> = reports.iter().filter(|report| report.points.len() == 1).collect();
    for report in reports.iter().filter(|report| report.points.len() != 1) {
        let curve = &report.curve;
        let _ = writeln!(out, "\n{} ({})", curve.name, fitted(curve));
        let unit = if curve.unit.is_empty() {
            String::new()
        } else {
            format!(", {}", curve.unit)
        };
        let mut t = table::table(&[
            curve.x_key.unwrap_or("x").to_string(),
            format!("published{unit}"),
            format!("ours{unit}"),
            "error".into(),
            format!("within {:.0} %", curve.tolerance * 100.0),
        ]);
        for point in &report.points {
            let [published, ours, error, pass] = cells(point, "");
            t.add_row([point.x.clone(), published, ours, error, pass]);
        }
        let _ = writeln!(out, "{t}");
        let rank = report
            .rank_correlation
            .map(|r| format!("; rank correlation {r:.3}"))
            .unwrap_or_default();
        let _ = writeln!(
            out,
            "{} of {} points within tolerance{rank}",
            report.passed(),
            report.points.len()
        );
    }
    if !singles.is_empty() {
        let mut t = table::table(&[
            "single figures",
            "published",
            "ours",
            "error",
            "tolerance",
            "within",
            "fitted",
        ]);
        for report in &singles {
            let curve = &report.curve;
            for point in &report.points {
                let [published, ours, error, pass] = cells(point, &curve.unit);
                let tolerance = format!("{:.0} %", curve.tolerance * 100.0);
                let fitted = if curve.fitted.is_some() { "yes" } else { "no" };
                t.add_row([
                    curve.name.clone(),
                    published,
                    ours,
                    error,
                    tolerance,
                    pass,
                    fitted.into(),
                ]);
            }
        }
        let _ = writeln!(out, "\n{t}");
        for curve in singles
            .iter()
            .map(|report| &report.curve)
            .filter(|curve| curve.fitted.is_some())
        {
            let _ = writeln!(out, "{}: {}", curve.name, fitted(curve));
        }
    }
    for report in reports {
        for point in &report.points {
            if let Err(error) = &point.ours {
                let _ = writeln!(out, "{} at {} failed: {error}", report.curve.name, point.x);
            }
        }
    }
    out
}

/// `validation.csv`: one line a point.
pub fn csv(reports: &[(&ValidationFile, Vec<CurveReport>)]) -> String {
    let mut out = String::from(
        "file,curve,metric,unit,fitted,x,published,ours,relative_error,tolerance,pass,failure\n",
    );
    for (file, reports) in reports {
        for report in reports {
            let curve = &report.curve;
            for point in &report.points {
                let (ours, failure) = match &point.ours {
                    Ok(value) => (value.to_string(), String::new()),
                    Err(error) => (String::new(), csv_field(error)),
                };
                let _ = writeln!(
                    out,
                    "{},{},{},{},{},{},{},{ours},{},{},{},{failure}",
                    csv_field(&file.name),
                    csv_field(&curve.name),
                    curve.metric.name(),
                    csv_field(&curve.unit),
                    curve.fitted.is_some(),
                    csv_field(&point.x),
                    point.published,
                    point.error.map(|e| e.to_string()).unwrap_or_default(),
                    curve.tolerance,
                    point.pass
                );
            }
        }
    }
    out
}

/// Ours and theirs of one curve as a picture; `None` where x holds no numbers.
pub fn chart(report: &CurveReport) -> Option<Chart> {
    let curve = &report.curve;
    let xs: Vec<f64> = curve
        .points
        .iter()
        .map(|point| point.x_number)
        .collect::<Option<_>>()?;
    let published: Vec<_> = xs
        .iter()
        .zip(&report.points)
        .map(|(x, p)| (*x, p.published))
        .collect();
    let ours: Vec<_> = xs
        .iter()
        .zip(&report.points)
        .filter_map(|(x, p)| p.ours.as_ref().ok().map(|y| (*x, *y)))
        .collect();
    if xs.len() < 2 {
        return None;
    }
    let heights = || published.iter().chain(&ours).map(|p| p.1);
    let (low, high) = (
        heights().fold(f64::INFINITY, f64::min),
        heights().fold(0.0, f64::max),
    );
    let series = |name: &str, points, style, color| Series {
        name: name.into(),
        points,
        style,
        color,
    };
    let unit = if curve.unit.is_empty() {
        String::new()
    } else {
        format!(" ({})", curve.unit)
    };
    Some(Chart {
        title: curve.name.clone(),
        x_label: curve.x_label.clone(),
        y_label: format!("{}{unit}", curve.metric.name()),
        log_x: false,
        log_y: low > 0.0 && high > 20.0 * low,
        categories: None,
        series: vec![
            series("published", published, Style::Reference, 1),
            series("uvmsim", ours, Style::Line, 0),
        ],
    })
}
