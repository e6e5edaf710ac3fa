//! Measured copies against the link.
//!
//! The parameters of a set are what a data sheet or a listing tells of its machine (see
//! [`super::platforms`]), and one fixed cost per method of measuring and direction, fitted on the first set
//! of that method that has enough small sizes. Nothing is fitted by set beyond that.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;

use serde::Serialize;
use sim_core::push::Direction;

use super::measured::{Group, Row};
use super::platforms::Platforms;
use crate::report::table;

/// Copies from this size on are large: the fixed cost no longer counts.
pub const LARGE: u64 = 32_000_000;
/// Size taken where the source gives none: the asymptote.
const NO_SIZE: u64 = 64 << 20;
/// Longest copy taken, as the link's own limit.
const MOST: u64 = 1 << 40;

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
    /// Direction as in the table; `h2d_bidir`: while the other direction runs; `bidir_sum`: both added.
    pub direction: String,
    /// Are both directions busy?
    pub both: bool,
    /// Generation and lanes that were taken.
    pub link: String,
    /// Payload of writes, bytes; of every packet on an NVLink.
    pub write_tlp: u32,
    /// Share of reads cut at every boundary; nothing on an NVLink.
    pub rcb_share: Option<f64>,
    /// Fixed cost, ns; of the slower way where both are added.
    pub fixed_ns: f64,
    /// Was it fitted on this very set?
    pub fitted_here: bool,
    /// Was its packet size (or loss) read off this very device's asymptote?
    pub packets_from_here: bool,
    /// Why: sources and assumptions.
    pub why: Vec<String>,
    /// Median absolute error of large copies; nothing if there are none.
    pub large: Option<f64>,
    /// The same over all sizes.
    pub all: f64,
    /// The same over all sizes, of the link that data sheet and listing describe: largest packets, nothing
    /// measured, no fixed cost.
    pub sheet: f64,
    /// Every size.
    pub points: Vec<Point>,
}

/// The whole table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// In order of appearance.
    pub sets: Vec<SetReport>,
    /// Rows that no model here answers, in order of appearance.
    pub passed_over: Vec<PassedOver>,
}

/// Rows of one set, device and direction that are not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PassedOver {
    /// Set in the table.
    pub set: String,
    /// Device.
    pub gpu: String,
    /// Direction as in the table.
    pub direction: String,
    /// How many rows.
    pub rows: usize,
    /// Why.
    pub reason: String,
}

pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 {
        return None;
    }
    Some(f64::midpoint(values[(n - 1) / 2], values[n / 2]))
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
        let at = match groups.iter().position(|group| group.has(&row)) {
            Some(at) => at,
            None => match Group::new(&row, platforms) {
                Ok(group) => {
                    groups.push(group);
                    groups.len() - 1
                }
                Err(reason) => {
                    report.pass_over(row, reason);
                    continue;
                }
            },
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
    let link = groups
        .iter()
        .map(Group::link_times)
        .collect::<Result<Vec<_>, _>>()?;
    // The first set of a method that can be fitted gives the fixed cost of all of them.
    let mut fixed: BTreeMap<(String, bool), (usize, f64)> = BTreeMap::new();
    for (at, (group, link)) in groups.iter().zip(&link).enumerate() {
        if let Some(cost) = group.fit(link) {
            let key = (
                group.method.clone(),
                group.directions[0] == Direction::HostToDevice,
            );
            fixed.entry(key).or_insert((at, cost));
        }
    }
    let from: Vec<String> = groups.iter().map(|g| g.report.set.clone()).collect();
    for (at, (mut group, link)) in groups.into_iter().zip(&link).enumerate() {
        let sheet = group.sheet_errors()?;
        let out = &mut group.report;
        let mut costs = Vec::new();
        for &direction in &group.directions[..group.shown] {
            let reads = direction == Direction::HostToDevice;
            let (cost, why) = if let Some(&(fitted, cost)) = fixed.get(&(group.method.clone(), reads)) {
                out.fitted_here |= fitted == at;
                let why = format!("fixed cost: {}, fitted on {}", group.method, from[fitted]);
                (cost, why)
            } else {
                let fallback = &platforms.fixed;
                let cost = if reads { fallback.h2d_ns } else { fallback.d2h_ns };
                (cost, "fixed cost: default, nothing to fit".into())
            };
            costs.push(cost);
            out.why.push(why);
        }
        out.fixed_ns = costs.iter().copied().fold(0.0, f64::max);
        for (point, on_link) in out.points.iter_mut().zip(link) {
            let rates = on_link.iter().zip(&costs).map(|(t, cost)| 1.0 / (t + cost));
            point.model = point.bytes as f64 * rates.sum::<f64>();
        }
        let errors = |least| {
            let points = out.points.iter().filter(|p| p.bytes >= least);
            median(points.map(|p| p.error().abs()).collect())
        };
        out.large = errors(LARGE);
        out.all = errors(0).unwrap_or(0.0);
        out.sheet = median(sheet).unwrap_or(0.0);
        report.sets.push(group.report);
    }
    Ok(report)
}

impl Report {
    fn pass_over(&mut self, row: Row, reason: String) {
        let same = |p: &&mut PassedOver| {
            p.set == row.set && p.gpu == row.gpu && p.direction == row.direction && p.reason == reason
        };
        match self.passed_over.iter_mut().find(same) {
            Some(known) => known.rows += 1,
            None => self.passed_over.push(PassedOver {
                set: row.set,
                gpu: row.gpu,
                direction: row.direction,
                rows: 1,
                reason,
            }),
        }
    }
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
        "sheet",
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
            s.rcb_share.map_or("-".into(), percent),
            format!(
                "{}{}",
                table::time(s.fixed_ns),
                if s.fitted_here { " *" } else { "" }
            ),
            s.points.len().to_string(),
            s.large.map_or("-".into(), percent),
            percent(s.all),
            percent(s.sheet),
            worst.map_or("-".into(), |w| {
                format!("{:+.1} % at {}", w.error() * 100.0, table::bytes(w.bytes))
            }),
        ]);
    }
    let mut out = format!(
        "{t}\n* fixed cost fitted on this set; large: median absolute error from 32 MB on; sheet: largest packets, nothing measured, no fixed cost\n"
    );
    for s in &report.sets {
        let mut why = s.why.clone();
        why.dedup();
        let _ = writeln!(out, "{} {} {}: {}", s.set, s.gpu, s.direction, why.join("; "));
    }
    let large = |s: &SetReport| s.large;
    let all = |s: &SetReport| Some(s.all);
    let sheet = |s: &SetReport| Some(s.sheet);
    let pcie = |s: &SetReport| s.rcb_share.is_some();
    let one = |s: &SetReport| pcie(s) && !s.both;
    let two = |s: &SetReport| pcie(s) && s.both;
    let nvlink = |s: &SetReport| !pcie(s);
    let mut over =
        |what: &str, keep: &dyn Fn(&SetReport) -> bool, error: &dyn Fn(&SetReport) -> Option<f64>| {
            let sets = report.sets.iter().filter(|s| keep(s));
            let errors: Vec<f64> = sets.filter_map(error).collect();
            let n = errors.len();
            if let Some(value) = median(errors) {
                let _ = writeln!(out, "{what}: median {} of {n} sets", percent(value));
            }
        };
    let from_another = |s: &SetReport| !s.packets_from_here;
    over("one direction, large copies", &one, &large);
    over(
        "one direction, large copies, packet size not read off the same device",
        &|s| one(s) && from_another(s),
        &large,
    );
    over("one direction, all sizes", &one, &all);
    over(
        "one direction, all sizes, nothing fitted on the set or device",
        &|s| one(s) && from_another(s) && !s.fitted_here,
        &all,
    );
    over("one direction, all sizes, data sheet only", &one, &sheet);
    over("both directions at once", &two, &all);
    over("both directions at once, data sheet only", &two, &sheet);
    over("NVLink and C2C", &nvlink, &all);
    over(
        "NVLink and C2C, nothing fitted on the set or device",
        &|s| nvlink(s) && from_another(s) && !s.fitted_here,
        &all,
    );
    over("NVLink and C2C, data sheet only", &nvlink, &sheet);
    for p in &report.passed_over {
        let _ = writeln!(
            out,
            "passed over: {} {} {}, {} rows: {}",
            p.set, p.gpu, p.direction, p.rows, p.reason
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::bandwidth::times;
    use super::super::profile::LinkModel;
    use super::*;
    use sim_pcie::LinkConfig;
    use sim_pcie::config::Generation;
    use sim_pcie::nvlink::{self, NvLink};

    const HEAD: &str = "set,gen,lanes,gpu,direction,bytes,GBps\n";

    fn on(text: &str) -> Result<Report, String> {
        compare(text.as_bytes(), &Platforms::embedded().unwrap())
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
    }

    #[test]
    fn both_ways_added_are_the_two_rates() {
        let config = LinkConfig {
            generation: Generation::Gen4,
            write_tlp: 128,
            ..LinkConfig::default()
        };
        let text = |way: &str| format!("A,4,16,Strange,{way},1000000,1\n");
        let report =
            on(&[HEAD, &text("h2d_bidir"), &text("d2h_bidir"), &text("bidir_sum")].concat()).unwrap();
        let model: Vec<f64> = report.sets.iter().map(|s| s.points[0].model).collect();
        assert!((model[0] + model[1] - model[2]).abs() < 1e-9, "{model:?}");
        let wire = config.generation.number();
        assert!(
            report
                .sets
                .iter()
                .all(|s| s.both && s.link == format!("Gen{wire} x16"))
        );
    }

    #[test]
    fn nvlinks_are_known_by_kind_and_links() {
        let text = "A,NVLink4,18,H100 SXM,p2p_write,67108864,380\n\
                    B,NVLink3,4,RTX A6000 pair,p2p_duplex,67108864,52\n\
                    C,C2C,-,GH200 480GB,h2d,67108864,370\n\
                    C,C2C,-,GH200 480GB,h2d_bidir,67108864,177\n";
        let report = on(&format!("{HEAD}{text}")).unwrap();
        let link = |generation, links| NvLink::new(generation, links);
        let slow = NvLink {
            rate: 14_062_500_000,
            ..link(nvlink::Generation::NvLink3, 4)
        };
        let write = [Direction::DeviceToHost];
        let both = [Direction::HostToDevice, Direction::DeviceToHost];
        let cases = [
            (link(nvlink::Generation::NvLink4, 18), &write[..], 1700.0),
            (slow, &write, 1700.0),
            (link(nvlink::Generation::C2c, 1), &both[..1], 2600.0),
            (link(nvlink::Generation::C2c, 1), &both, 2600.0),
        ];
        for (set, (link, directions, fixed)) in report.sets.iter().zip(cases) {
            let bytes = 64 << 20;
            let on_link = times(&LinkModel::NvLink(link), bytes, directions).unwrap()[0];
            let model = bytes as f64 / (on_link + fixed);
            assert!((set.points[0].model / model - 1.0).abs() < 1e-12, "{}", set.set);
        }
        assert_eq!(report.sets.len(), 4);
        let sheet = report.sets[2].sheet;
        assert!(
            (sheet - (450.0 * 16.0 / 17.0 / 370.0 - 1.0)).abs() < 0.01,
            "{sheet}"
        );
    }

    #[test]
    fn rows_passed_over_have_a_reason() {
        for (row, said) in [
            ("A,5,16,x,h2d_sm,9,1", "kernel"),
            ("A,3,16,x,cpu_wc_write,9,1", "CPU"),
            ("A,5,16,x,d2h_all8,9,1", "several"),
            ("A,5,16,x,sideways,9,1", "known: h2d"),
            ("A,7,16,x,h2d,9,1", "generation \"7\""),
            ("A,5,3,x,h2d,9,1", "link.lanes = 3"),
            ("A,NVLink9,4,x,h2d,9,1", "NVLink2"),
            ("A,NVLink4,many,x,h2d,9,1", "lanes \"many\""),
        ] {
            let report = on(&format!("{HEAD}{row}\n{row}\n")).unwrap();
            assert_eq!((report.sets.len(), report.passed_over.len()), (0, 1), "{row}");
            let over = &report.passed_over[0];
            assert!(over.rows == 2 && over.reason.contains(said), "{over:?}");
            assert!(row.ends_with(&format!("{},9,1", over.direction)));
        }
    }
}
