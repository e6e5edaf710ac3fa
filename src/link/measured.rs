//! A row of measurements, and the link that answers it.

use serde::Deserialize;
use sim_core::push::Direction;
use sim_pcie::LinkConfig;
use sim_pcie::config::{CompletionPolicy, Generation};
use sim_pcie::nvlink::{self, NvLink};

use super::bandwidth::times;
use super::compare::{SetReport, median};
use super::platforms::Platforms;
use super::profile::LinkModel;

/// A fixed cost is fitted on copies up to this size, ...
const SMALL: u64 = 1 << 20;
/// ... of which a set must have so many.
const LEAST_SMALL: usize = 3;

/// The columns that are used.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    pub(super) set: String,
    #[serde(default)]
    source: String,
    r#gen: String,
    lanes: String,
    pub(super) gpu: String,
    pub(super) direction: String,
    pub(super) bytes: u64,
    #[serde(rename = "GBps")]
    pub(super) gbps: f64,
    #[serde(default)]
    label: String,
    #[serde(default)]
    note: String,
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

/// Which transfers a direction of the table means: those that run, and of how many the rates are added.
fn traffic(direction: &str) -> Result<(&'static [Direction], usize), String> {
    use Direction::{DeviceToHost, HostToDevice};
    Ok(match direction {
        "h2d" | "p2p_read" => (&[HostToDevice], 1),
        "d2h" | "p2p_write" | "p2p_duplex" => (&[DeviceToHost], 1),
        "h2d_bidir" => (&[HostToDevice, DeviceToHost], 1),
        "d2h_bidir" | "p2p_write_bidir" => (&[DeviceToHost, HostToDevice], 1),
        "bidir_sum" => (&[HostToDevice, DeviceToHost], 2),
        _ if direction.ends_with("_sm") || direction.ends_with("_zero_copy") => {
            return Err("accesses of a kernel: the link alone carries copies".into());
        }
        _ if direction.starts_with("cpu_") => {
            return Err("stores of a CPU core: its write-combining buffers are not modelled".into());
        }
        _ if direction.contains("_all") => {
            return Err("several devices at once: one link is modelled".into());
        }
        _ => {
            return Err(format!(
                "direction {direction:?}; known: h2d, d2h, h2d_bidir, d2h_bidir, bidir_sum, p2p_read, \
                 p2p_write, p2p_write_bidir, p2p_duplex"
            ));
        }
    })
}

/// What a row is modelled with.
struct Answer {
    model: LinkModel,
    /// The same with nothing measured: largest packets, no loss, no shared budget.
    sheet: LinkModel,
    link: String,
    write_tlp: u32,
    rcb_share: Option<f64>,
    packets_from_here: bool,
    why: Vec<String>,
}

/// The device whose rates gave packet size and loss of [`NvLink::new`], and what they are (pcie-link 4.7).
fn read_off(kind: nvlink::Generation) -> (&'static str, &'static str) {
    match kind {
        nvlink::Generation::NvLink2 => ("V100-SXM2", "packets of 128 B: measured, AC922"),
        nvlink::Generation::NvLink3 => ("8-GPU NVLink", "packets of 256 B, 2 % loss: measured, A100"),
        nvlink::Generation::NvLink4 => ("H800", "packets of 128 B: measured, H800"),
        nvlink::Generation::C2c => ("GH200", "losses and shared memory: measured, GH200"),
    }
}

fn nvlink_answer(row: &Row, platforms: &Platforms) -> Result<Answer, String> {
    let kind = match row.r#gen.trim() {
        "NVLink2" => nvlink::Generation::NvLink2,
        "NVLink3" => nvlink::Generation::NvLink3,
        "NVLink4" => nvlink::Generation::NvLink4,
        "C2C" => nvlink::Generation::C2c,
        other => return Err(format!("link {other:?}; known: NVLink2 to NVLink4, C2C")),
    };
    let text = row.lanes.trim().trim_start_matches(['x', 'X']);
    let links = match text {
        "-" | "" if kind == nvlink::Generation::C2c => Some(1),
        _ => text.parse().ok().filter(|n| (1..=64).contains(n)),
    };
    let links = links.ok_or_else(|| format!("lanes {:?}: 1 to 64 links", row.lanes))?;
    let mut link = NvLink::new(kind, links);
    let (device, source) = read_off(kind);
    let mut why = vec![source.to_string()];
    if let Some(entry) = platforms.nvlink(&row.gpu) {
        link.rate = entry.link_rate;
        why.push(format!("rate: {}", entry.source));
    }
    if row.direction == "p2p_duplex" {
        why.push("one or both directions not stated: taken as one".into());
    }
    let sheet = NvLink {
        payload: 256,
        loss_h2d: 0,
        loss_d2h: 0,
        shared: None,
        ..link
    };
    Ok(Answer {
        link: format!("{} x{links}", row.r#gen.trim()),
        write_tlp: link.payload as u32,
        rcb_share: None,
        packets_from_here: row.gpu.starts_with(device),
        model: LinkModel::NvLink(link),
        sheet: LinkModel::NvLink(sheet),
        why,
    })
}

fn pcie_answer(row: &Row, shown: &[Direction], platforms: &Platforms) -> Result<Answer, String> {
    let generation = generation(&row.r#gen)
        .ok_or_else(|| format!("generation {:?}: 1 to 6, NVLink2 to NVLink4 or C2C", row.r#gen))?;
    let lanes = row.lanes.trim().trim_start_matches(['x', 'X']).parse();
    let lanes = lanes.map_err(|_| format!("lanes {:?}: 1, 2, 4, 8 or 16", row.lanes))?;
    let unknown = |what: &str| format!("{what} not in the table of platforms");
    let device = platforms.device(&row.gpu).ok_or_else(|| unknown("device"))?;
    let host = platforms
        .host(&row.gpu, &row.note, generation.number())
        .ok_or_else(|| unknown("host"))?;
    let config = LinkConfig {
        generation,
        lanes,
        write_tlp: device.write_tlp,
        completions: CompletionPolicy::mixed(host.rcb_share),
        ..LinkConfig::default()
    };
    config.validate().map_err(|e| e.to_string())?;
    let sheet = LinkConfig {
        write_tlp: config.mps,
        completions: CompletionPolicy::Max,
        ..config.clone()
    };
    let mut why = vec![format!("MPS {}, MRRS {}: default", config.mps, config.mrrs)];
    let mut packets_from_here = false;
    for direction in shown {
        let (from, source) = match direction {
            Direction::HostToDevice => (&host.from, format!("completions: {}", host.source)),
            Direction::DeviceToHost => (&device.from, format!("writes: {}", device.source)),
        };
        why.push(source);
        packets_from_here |= from
            .as_ref()
            .is_some_and(|from| from.split(", ").any(|name| row.gpu.starts_with(name)));
    }
    if row.r#gen.trim().parse::<u64>().is_err() {
        why.push(format!("generation {} of {:?}", generation.number(), row.r#gen));
    }
    Ok(Answer {
        link: format!("Gen{} x{lanes}", generation.number()),
        write_tlp: device.write_tlp,
        rcb_share: Some(host.rcb_share),
        packets_from_here,
        model: LinkModel::Pcie(Box::new(config)),
        sheet: LinkModel::Pcie(Box::new(sheet)),
        why,
    })
}

/// One group of rows, and what it is modelled with.
pub(super) struct Group {
    pub(super) report: SetReport,
    /// What runs, the measured one first.
    pub(super) directions: &'static [Direction],
    /// Of how many of them the rates are added.
    pub(super) shown: usize,
    /// How it was measured: groups of one method share a fixed cost.
    pub(super) method: String,
    model: LinkModel,
    sheet: LinkModel,
    /// Columns `gen` and `lanes`.
    link: [String; 2],
}

impl Group {
    /// The group that `row` opens, or why it cannot be compared.
    pub(super) fn new(row: &Row, platforms: &Platforms) -> Result<Group, String> {
        let (directions, shown) = traffic(&row.direction)?;
        let text = row.r#gen.trim();
        let answer = if text.starts_with("NVLink") || text == "C2C" {
            nvlink_answer(row, platforms)?
        } else {
            pcie_answer(row, &directions[..shown], platforms)?
        };
        let mut why = answer.why;
        if answer.packets_from_here {
            why.push("packet size was read off this device's own asymptote".into());
        }
        if row.label == "secondary" || row.note.contains("assumed") {
            why.push(format!("doubtful in the table itself: {}", row.note));
        }
        let method = match platforms.method(&row.note, &row.source) {
            Some(name) => name.to_string(),
            None => format!("of {}", row.gpu),
        };
        Ok(Group {
            report: SetReport {
                set: row.set.clone(),
                gpu: row.gpu.clone(),
                direction: row.direction.clone(),
                both: directions.len() > 1,
                link: answer.link,
                write_tlp: answer.write_tlp,
                rcb_share: answer.rcb_share,
                fixed_ns: 0.0,
                fitted_here: false,
                packets_from_here: answer.packets_from_here,
                why,
                large: None,
                all: 0.0,
                sheet: 0.0,
                points: Vec::new(),
            },
            directions,
            shown,
            method,
            model: answer.model,
            sheet: answer.sheet,
            link: [row.r#gen.clone(), row.lanes.clone()],
        })
    }

    /// Does `row` belong to it?
    pub(super) fn has(&self, row: &Row) -> bool {
        let r = &self.report;
        r.set == row.set
            && r.gpu == row.gpu
            && r.direction == row.direction
            && self.link[0] == row.r#gen
            && self.link[1] == row.lanes
    }

    fn times_on(&self, model: &LinkModel) -> Result<Vec<Vec<f64>>, String> {
        let times = |bytes| {
            let mut all = times(model, bytes, self.directions)?;
            all.truncate(self.shown);
            Ok(all)
        };
        let points = self.report.points.iter();
        points
            .map(|p| times(p.bytes))
            .collect::<Result<_, sim_pcie::LinkConfigError>>()
            .map_err(|e| e.to_string())
    }

    /// Time on the link alone of each point, ns, of the directions that are shown.
    pub(super) fn link_times(&self) -> Result<Vec<Vec<f64>>, String> {
        self.times_on(&self.model)
    }

    /// Absolute error of each point if nothing is known but data sheet and listing.
    pub(super) fn sheet_errors(&self) -> Result<Vec<f64>, String> {
        let times = self.times_on(&self.sheet)?;
        let error = |(point, times): (&super::compare::Point, Vec<f64>)| {
            let rate: f64 = times.iter().map(|t| point.bytes as f64 / t).sum();
            (rate / point.measured - 1.0).abs()
        };
        Ok(self.report.points.iter().zip(times).map(error).collect())
    }

    /// The fixed cost that small copies of this set imply, if it has enough of them.
    pub(super) fn fit(&self, link: &[Vec<f64>]) -> Option<f64> {
        let rest: Vec<f64> = self
            .report
            .points
            .iter()
            .zip(link)
            .filter(|(p, _)| p.bytes <= SMALL && !self.report.both)
            .map(|(p, on_link)| (p.bytes as f64 / p.measured - on_link[0]).max(0.0))
            .collect();
        if rest.len() < LEAST_SMALL {
            return None;
        }
        median(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_of_wordy_columns() {
        assert_eq!(generation("5 (link trains at Gen6)"), Some(Generation::Gen5));
        assert_eq!(generation("5 claimed, rate is Gen4"), Some(Generation::Gen4));
        assert_eq!(generation("NVLink3"), None);
    }
}
