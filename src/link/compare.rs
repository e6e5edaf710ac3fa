//! Measured copies against the link.
//!
//! The parameters of a set are what a data sheet or a listing tells of its machine (see
//! [`super::platforms`]), and one fixed cost per method of measuring and direction, fitted on the first set
//! of that method that has enough small sizes. Nothing is fitted by set beyond that.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;

use serde::{Deserialize, Serialize};
use sim_core::push::Direction;
use sim_pcie::LinkConfig;
use sim_pcie::config::{CompletionPolicy, Generation};

use super::bandwidth::times;
use super::platforms::Platforms;
use super::profile::LinkModel;
use crate::report::table;

/// Copies from this size on are large: the fixed cost no longer counts.
pub const LARGE: u64 = 32_000_000;
/// A fixed cost is fitted on copies up to this size, ...
const SMALL: u64 = 1 << 20;
/// ... of which a set must have so many.
const LEAST_SMALL: usize = 3;
/// Size taken where the source gives none: the asymptote.
const NO_SIZE: u64 = 64 << 20;
/// Longest copy taken, as the link's own limit.
const MOST: u64 = 1 << 40;

/// The columns that are used.
#[derive(Debug, Deserialize)]
struct Row {
    set: String,
    #[serde(default)]
    source: String,
    r#gen: String,
    lanes: String,
    gpu: String,
    direction: String,
    bytes: u64,
    #[serde(rename = "GBps")]
    gbps: f64,
    #[serde(default)]
    label: String,
    #[serde(default)]
    note: String,
}

const NEEDED: [&str; 7] = ["set", "gen", "lanes", "gpu", "direction", "bytes", "GBps"];

/// One copy size.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Bytes; 64 MiB where the table gives no size.
    pub bytes: u64,
    /// Measured GB/s.
    pub measured: f64,
    /// GB/s of the model.
    pub model: f64,
}

impl Point {
    /// Relative error of the model.
    pub fn error(&self) -> f64 {
        self.model / self.measured - 1.0
    }
}

/// One set, device and direction.
#[derive(Clone, Debug, Serialize)]
pub struct SetReport {
    /// Its name in the table.
    pub set: String,
    /// Device.
    pub gpu: String,
    /// Direction as in the table; `h2d_bidir`: while the other direction runs.
    pub direction: String,
    /// Generation and lanes that were taken.
    pub link: String,
    /// Payload of writes, bytes.
    pub write_tlp: u32,
    /// Share of reads cut at every boundary.
    pub rcb_share: f64,
    /// Fixed cost, ns.
    pub fixed_ns: f64,
    /// Was it fitted on this very set?
    pub fitted_here: bool,
    /// Was its packet size read off this very device's asymptote?
    pub packets_from_here: bool,
    /// Why: sources and assumptions.
    pub why: Vec<String>,
    /// Median absolute error of large copies; nothing if there are none.
    pub large: Option<f64>,
    /// The same over all sizes.
    pub all: f64,
    /// Every size.
    pub points: Vec<Point>,
}

/// The whole table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// In order of appearance.
    pub sets: Vec<SetReport>,
    /// Rows that no model here answers, by generation and direction.
    pub passed_over: BTreeMap<String, usize>,
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 {
        return None;
    }
    Some(f64::midpoint(values[(n - 1) / 2], values[n / 2]))
}

/// Generation from a column that may say more: `5 (link trains at Gen6)` is 5, `5 claimed, rate is Gen4` is 4.
fn generation(text: &str) -> Option<Generation> {
    let number = match text.split_once("rate is Gen") {
        Some((_, rest)) => rest,
        None => text.trim_start(),
    };
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().and_then(Generation::from_number)
}

/// One group of rows, and what it is modelled with.
struct Group {
    report: SetReport,
    direction: Direction,
    both: bool,
    model: LinkModel,
    method: String,
}

impl Group {
    fn new(row: &Row, platforms: &Platforms) -> Option<Group> {
        let (direction, both) = match row.direction.as_str() {
            "h2d" => (Direction::HostToDevice, false),
            "d2h" => (Direction::DeviceToHost, false),
            "h2d_bidir" => (Direction::HostToDevice, true),
            "d2h_bidir" => (Direction::DeviceToHost, true),
            _ => return None,
        };
        let generation = generation(&row.r#gen)?;
        let lanes = row.lanes.trim().trim_start_matches(['x', 'X']).parse().ok()?;
        let device = platforms.device(&row.gpu)?;
        let host = platforms.host(&row.gpu, &row.note, generation.number())?;
        let config = LinkConfig {
            generation,
            lanes,
            write_tlp: device.write_tlp,
            completions: CompletionPolicy::mixed(host.rcb_share),
            ..LinkConfig::default()
        };
        config.validate().ok()?;
        let reads = direction == Direction::HostToDevice;
        let mut why = vec![format!("MPS {}, MRRS {}: default", config.mps, config.mrrs)];
        let (from, source) = if reads {
            (&host.from, format!("completions: {}", host.source))
        } else {
            (&device.from, format!("writes: {}", device.source))
        };
        why.push(source);
        let packets_from_here = from
            .as_ref()
            .is_some_and(|from| from.split(", ").any(|name| row.gpu.starts_with(name)));
        if packets_from_here {
            why.push("packet size was read off this device's own asymptote".into());
        }
        if row.r#gen.trim().parse::<u64>().is_err() {
            why.push(format!("generation {} of {:?}", generation.number(), row.r#gen));
        }
        if row.label == "secondary" || row.note.contains("assumed") {
            why.push(format!("doubtful in the table itself: {}", row.note));
        }
        let method = match platforms.method(&row.note, &row.source) {
            Some(name) => name.to_string(),
            None => format!("of {}", row.gpu),
        };
        Some(Group {
            report: SetReport {
                set: row.set.clone(),
                gpu: row.gpu.clone(),
                direction: row.direction.clone(),
                link: format!("Gen{} x{lanes}", generation.number()),
                write_tlp: device.write_tlp,
                rcb_share: host.rcb_share,
                fixed_ns: 0.0,
                fitted_here: false,
                packets_from_here,
                why,
                large: None,
                all: 0.0,
                points: Vec::new(),
            },
            direction,
            both,
            model: LinkModel::Pcie(Box::new(config)),
            method,
        })
    }

    /// Time on the link alone of each point, ns.
    fn link_times(&self) -> Result<Vec<f64>, String> {
        let other = match self.direction {
            Direction::HostToDevice => Direction::DeviceToHost,
            Direction::DeviceToHost => Direction::HostToDevice,
        };
        let directions = [self.direction, other];
        let directions = if self.both {
            &directions[..]
        } else {
            &directions[..1]
        };
        let points = self.report.points.iter();
        points
            .map(|p| times(&self.model, p.bytes, directions).map(|t| t[0]))
            .collect::<Result<_, _>>()
            .map_err(|e| e.to_string())
    }

    /// The fixed cost that small copies of this set imply, if it has enough of them.
    fn fit(&self, link: &[f64]) -> Option<f64> {
        let rest: Vec<f64> = self
            .report
            .points
            .iter()
            .zip(link)
            .filter(|(p, _)| p.bytes <= SMALL && !self.both)
            .map(|(p, on_link)| (p.bytes as f64 / p.measured - on_link).max(0.0))
            .collect();
        if rest.len() < LEAST_SMALL {
            return None;
        }
        median(rest)
    }
}

/// Compares a table with the columns `set`, `gen`, `lanes`, `gpu`, `direction`, `bytes`, `GBps` (and, where it
/// has them, `source`, `label`, `note`); lines that start with `#` are comments.
///
/// # Errors
/// A missing column, a field that is no number, a rate that is not positive, by line.
pub fn compare(reader: impl Read, platforms: &Platforms) -> Result<Report, String> {
    let mut csv = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(reader);
    let head = csv.headers().map_err(|e| e.to_string())?.clone();
    for column in NEEDED {
        if !head.iter().any(|name| name == column) {
            return Err(format!(
                "the table needs a column {column:?}; it has {}",
                head.iter().collect::<Vec<_>>().join(", ")
            ));
        }
    }
    let mut report = Report::default();
    let mut groups: Vec<Group> = Vec::new();
    for row in csv.records() {
        let row = row.map_err(|e| e.to_string())?;
        let line = row.position().map_or(0, csv::Position::line);
        let row: Row = row
            .deserialize(Some(&head))
            .map_err(|e| format!("line {line}: {e}"))?;
        if !(row.gbps.is_finite() && row.gbps > 0.0) {
            return Err(format!("line {line}: GBps = {}: a rate is above 0", row.gbps));
        }
        let at = groups.iter().position(|g| {
            g.report.set == row.set && g.report.gpu == row.gpu && g.report.direction == row.direction
        });
        let at = match (at, Group::new(&row, platforms)) {
            (Some(at), _) => at,
            (None, Some(group)) => {
                groups.push(group);
                groups.len() - 1
            }
            (None, None) => {
                let what = format!("{} x{} {}", row.r#gen, row.lanes, row.direction);
                *report.passed_over.entry(what).or_default() += 1;
                continue;
            }
        };
        if row.bytes == 0 {
            groups[at].report.why.push("size not stated: 64 MiB taken".into());
        }
        groups[at].report.points.push(Point {
            bytes: if row.bytes == 0 {
                NO_SIZE
            } else {
                row.bytes.min(MOST)
            },
            measured: row.gbps,
            model: 0.0,
        });
    }
    let link: Vec<Vec<f64>> = groups.iter().map(Group::link_times).collect::<Result<_, _>>()?;
    // The first set of a method that can be fitted gives the fixed cost of all of them.
    let mut fixed: BTreeMap<(String, bool), (usize, f64)> = BTreeMap::new();
    for (at, (group, link)) in groups.iter().zip(&link).enumerate() {
        if let Some(cost) = group.fit(link) {
            let key = (group.method.clone(), group.direction == Direction::HostToDevice);
            fixed.entry(key).or_insert((at, cost));
        }
    }
    let from: Vec<String> = groups.iter().map(|g| g.report.set.clone()).collect();
    for (at, (mut group, link)) in groups.into_iter().zip(&link).enumerate() {
        let reads = group.direction == Direction::HostToDevice;
        let out = &mut group.report;
        let (cost, why) = match fixed.get(&(group.method.clone(), reads)) {
            Some(&(fitted, cost)) => {
                out.fitted_here = fitted == at;
                (
                    cost,
                    format!("fixed cost: {}, fitted on {}", group.method, from[fitted]),
                )
            }
            None if reads => (
                platforms.fixed.h2d_ns,
                "fixed cost: default, nothing to fit".into(),
            ),
            None => (
                platforms.fixed.d2h_ns,
                "fixed cost: default, nothing to fit".into(),
            ),
        };
        out.fixed_ns = cost;
        out.why.push(why);
        for (point, on_link) in out.points.iter_mut().zip(link) {
            point.model = point.bytes as f64 / (on_link + cost);
        }
        let errors = |least| {
            let points = out.points.iter().filter(|p| p.bytes >= least);
            median(points.map(|p| p.error().abs()).collect())
        };
        out.large = errors(LARGE);
        out.all = errors(0).unwrap_or(0.0);
        report.sets.push(group.report);
    }
    Ok(report)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// As text for the terminal: errors by set, then what was taken and why.
pub fn terminal(report: &Report) -> String {
    let mut t = table::table(&[
        "set",
        "device",
        "direction",
        "link",
        "writes",
        "64 B reads",
        "fixed",
        "n",
        "large",
        "all",
        "worst",
    ]);
    for s in &report.sets {
        let worst = s
            .points
            .iter()
            .max_by(|a, b| a.error().abs().total_cmp(&b.error().abs()));
        t.add_row([
            s.set.clone(),
            s.gpu.clone(),
            s.direction.clone(),
            s.link.clone(),
            format!("{} B", s.write_tlp),
            percent(s.rcb_share),
            format!(
                "{}{}",
                table::time(s.fixed_ns),
                if s.fitted_here { " *" } else { "" }
            ),
            s.points.len().to_string(),
            s.large.map_or("-".into(), percent),
            percent(s.all),
            worst.map_or("-".into(), |w| {
                format!("{:+.1} % at {}", w.error() * 100.0, table::bytes(w.bytes))
            }),
        ]);
    }
    let mut out =
        format!("{t}\n* fixed cost fitted on this set; large: median absolute error from 32 MB on\n");
    for s in &report.sets {
        let mut why = s.why.clone();
        why.dedup();
        let _ = writeln!(out, "{} {} {}: {}", s.set, s.gpu, s.direction, why.join("; "));
    }
    let over = |keep: &dyn Fn(&SetReport) -> bool, error: &dyn Fn(&SetReport) -> Option<f64>| {
        let sets = report
            .sets
            .iter()
            .filter(|s| !s.direction.ends_with("_bidir") && keep(s));
        let errors: Vec<f64> = sets.filter_map(error).collect();
        (errors.len(), median(errors))
    };
    let (large, all) = (|s: &SetReport| s.large, |s: &SetReport| Some(s.all));
    for (what, (n, value)) in [
        ("large copies", over(&|_| true, &large)),
        (
            "large copies, packet size not read off the same device",
            over(&|s| !s.packets_from_here, &large),
        ),
        ("all sizes", over(&|_| true, &all)),
        (
            "all sizes, nothing fitted on the set or device",
            over(&|s| !s.packets_from_here && !s.fitted_here, &all),
        ),
    ] {
        if let Some(value) = value {
            let _ = writeln!(
                out,
                "one direction, {what}: median {} of {n} sets",
                percent(value)
            );
        }
    }
    for (what, rows) in &report.passed_over {
        let _ = writeln!(out, "passed over: {rows} rows of {what}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "set,gen,lanes,gpu,direction,bytes,GBps\n";

    fn on(text: &str) -> Result<Report, String> {
        compare(text.as_bytes(), &Platforms::embedded().unwrap())
    }

    #[test]
    fn generations_of_wordy_columns() {
        assert_eq!(generation("5 (link trains at Gen6)"), Some(Generation::Gen5));
        assert_eq!(generation("5 claimed, rate is Gen4"), Some(Generation::Gen4));
        assert_eq!(generation("NVLink3"), None);
    }

    #[test]
    fn a_fixed_cost_is_found_again_and_carried_over() {
        // A made-up machine: the model itself with 9 us on top; then another set of the same device.
        let model = |bytes: u64| {
            let config = LinkConfig {
                generation: Generation::Gen4,
                lanes: 8,
                write_tlp: 128,
                ..LinkConfig::default()
            };
            let link = LinkModel::Pcie(Box::new(config));
            bytes as f64 / (times(&link, bytes, &[Direction::DeviceToHost]).unwrap()[0] + 9000.0)
        };
        let mut text = HEAD.to_string();
        for (set, power) in [("A", 12), ("A", 14), ("A", 16), ("A", 26), ("B", 18)] {
            let bytes = 1 << power;
            let _ = writeln!(text, "{set},4,8,Strange,d2h,{bytes},{}", model(bytes));
        }
        let report = on(&text).unwrap();
        assert_eq!(report.sets.len(), 2);
        assert!((report.sets[0].fixed_ns - 9000.0).abs() < 0.01);
        assert!(report.sets[0].fitted_here && !report.sets[1].fitted_here);
        assert!(report.sets.iter().all(|s| s.all < 1e-6));
        assert!(
            report.sets[0]
                .why
                .iter()
                .any(|why| why.contains("device not known"))
        );
    }

    #[test]
    fn errors_name_line_and_column() {
        assert!(on("set,gen\n").unwrap_err().contains("needs a column \"lanes\""));
        let rate = on(&format!("{HEAD}A,3,16,x,h2d,1,0\n")).unwrap_err();
        assert!(rate.contains("line 2") && rate.contains("GBps"));
        assert!(
            on(&format!("{HEAD}A,3,16,x,h2d,many,1\n"))
                .unwrap_err()
                .contains("line 2")
        );
        let other = on(&format!("{HEAD}A,C2C,-,x,h2d,9,1\n")).unwrap();
        assert_eq!((other.sets.len(), other.passed_over.len()), (0, 1));
    }
}
