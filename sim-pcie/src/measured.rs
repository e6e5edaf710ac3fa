//! Measured copy bandwidth against the link model.
//!
//! Rows are one-directional copies over PCIe (`h2d`, `d2h`) of at least [`LEAST_BYTES`], where the fixed
//! cost of a copy no longer counts. Of each set and direction the best rate is taken: the link is a limit.
//! The model knows only what a data sheet or a listing of the device says: generation, lanes, and the
//! payload of the engine's writes by the maker's family. How the host cuts read data is not known from
//! there, so reads are compared with both extremes, and the measured rate should lie between them; so are
//! writes of families whose packets are not known.

use crate::config::{CompletionPolicy, Generation, LinkConfig};
use crate::link::{Link, Transfer};
use sim_core::Time;
use sim_core::push::Direction;
use sim_core::time::TICKS_PER_NS;
use std::io::BufRead;

/// Copies shorter than this are left out.
pub const LEAST_BYTES: u64 = 32_000_000;

/// One set and direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Name of the set.
    pub set: String,
    /// The device, as the table names it.
    pub gpu: String,
    /// Which way.
    pub direction: Direction,
    /// Best measured rate, GB/s.
    pub measured: f64,
    /// Rate of the model, GB/s: with the smallest and the largest packets possible.
    pub model: (f64, f64),
}

impl Comparison {
    /// Relative error of the model, towards the nearer end of its range; 0 inside it.
    pub fn error(&self) -> f64 {
        let (low, high) = self.model;
        if self.measured < low {
            low / self.measured - 1.0
        } else if self.measured > high {
            high / self.measured - 1.0
        } else {
            0.0
        }
    }
}

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MeasuredError {
    /// Reading failed.
    #[error("cannot read: {0}")]
    Io(#[from] std::io::Error),
    /// A column is missing.
    #[error("line {line}: the table needs a column {column:?}")]
    Missing {
        /// Line of the column names.
        line: usize,
        /// The column.
        column: &'static str,
    },
    /// A row has too few or too many fields.
    #[error("line {line}: {found} fields, but {expected} columns")]
    Fields {
        /// Line of the file.
        line: usize,
        /// Fields in it.
        found: usize,
        /// Columns named.
        expected: usize,
    },
    /// A field is not a number.
    #[error("line {line}: {column} = {value:?} is not a number")]
    Number {
        /// Line of the file.
        line: usize,
        /// Column.
        column: &'static str,
        /// What it said.
        value: String,
    },
}

/// Fields of a line; a quoted field may hold commas, and doubled quotes stand for one.
fn fields(line: &str) -> Vec<String> {
    let (mut all, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    all.push(field);
    all
}

/// Payloads of the engine's writes that are known of `gpu`, smallest and largest.
fn write_sizes(gpu: &str) -> (u32, u32) {
    let any = |names: &[&str]| names.iter().any(|name| gpu.contains(name));
    if any(&["B200", "B300", "MI100", "MI2", "MI3"]) {
        (256, 256) // Blackwell and AMD (measured asymptotes)
    } else if any(&["H100", "H200", "H800", "unnamed", "system"]) {
        (128, 256) // not known: Hopper measures between the two
    } else {
        (128, 128) // NVIDIA up to Ada (measured asymptotes)
    }
}

/// Payload GB/s of a long copy on an otherwise idle link.
///
/// # Errors
/// A field of `config` that no link can have.
pub fn asymptote(config: &LinkConfig, direction: Direction) -> Result<f64, crate::LinkConfigError> {
    let bytes = 256 << 20;
    let mut link = Link::new(config.clone())?;
    link.submit(
        Time::ZERO,
        Transfer {
            direction,
            bytes,
            address: 0,
        },
    );
    let ticks = link.next_event().unwrap_or(Time(1)).0;
    Ok(bytes as f64 * TICKS_PER_NS as f64 / ticks as f64)
}

/// Compares a table of measurements (columns `set`, `gen`, `lanes`, `gpu`, `direction`, `bytes`, `GBps`; comment
/// lines start with `#`) with the model. Rows of other links or directions are passed over.
///
/// # Errors
/// The table cannot be read.
pub fn compare(reader: impl BufRead) -> Result<Vec<Comparison>, MeasuredError> {
    const COLUMNS: [&str; 7] = ["set", "gen", "lanes", "gpu", "direction", "bytes", "GBps"];
    let mut places: Option<(usize, [usize; 7])> = None;
    let mut all: Vec<Comparison> = Vec::new();
    for (line, text) in (1..).zip(reader.lines()) {
        let text = text?;
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        let row = fields(text.trim_end());
        let Some((columns, places)) = places else {
            let mut found = [0; 7];
            for (place, column) in found.iter_mut().zip(COLUMNS) {
                let at = row.iter().position(|name| name == column);
                *place = at.ok_or(MeasuredError::Missing { line, column })?;
            }
            places = Some((row.len(), found));
            continue;
        };
        if row.len() != columns {
            return Err(MeasuredError::Fields {
                line,
                found: row.len(),
                expected: columns,
            });
        }
        let [set, generation, lanes, gpu, direction, bytes, rate] = places.map(|place| row[place].as_str());
        let bad = |column, value: &str| MeasuredError::Number {
            line,
            column,
            value: value.to_string(),
        };
        let bytes: u64 = bytes.parse().map_err(|_| bad("bytes", bytes))?;
        let measured: f64 = rate.parse().map_err(|_| bad("GBps", rate))?;
        let direction = match direction {
            "h2d" => Direction::HostToDevice,
            "d2h" => Direction::DeviceToHost,
            _ => continue,
        };
        // "5 (link trains at Gen6)" runs at 5.
        let first = generation.split(' ').next().and_then(|n| n.parse().ok());
        let (Some(generation), Ok(lanes)) = (first.and_then(Generation::from_number), lanes.parse()) else {
            continue;
        };
        let (small, large) = write_sizes(gpu);
        let mut config = LinkConfig {
            generation,
            lanes,
            write_tlp: small,
            ..LinkConfig::default()
        };
        if bytes < LEAST_BYTES || config.validate().is_err() {
            continue;
        }
        if let Some(seen) = all
            .iter_mut()
            .find(|c| c.set == set && c.gpu == gpu && c.direction == direction)
        {
            seen.measured = seen.measured.max(measured);
            continue;
        }
        let low = asymptote(&config, direction).unwrap_or(0.0);
        config.completions = CompletionPolicy::Max;
        config.write_tlp = large;
        let high = asymptote(&config, direction).unwrap_or(0.0);
        all.push(Comparison {
            set: set.to_string(),
            gpu: gpu.to_string(),
            direction,
            measured,
            model: (low, high),
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_errors() {
        assert_eq!(fields("a,\"b, \"\"c\"\"\",,d"), ["a", "b, \"c\"", "", "d"]);
        let error = |text: &str| compare(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error("set,gen\n"), "line 1: the table needs a column \"lanes\"");
        let head = "set,gen,lanes,gpu,direction,bytes,GBps\n";
        assert_eq!(error(&format!("{head}a,3\n")), "line 2: 2 fields, but 7 columns");
        assert_eq!(
            error(&format!("{head}a,3,16,x,h2d,1,fast\n")),
            "line 2: GBps = \"fast\" is not a number"
        );
        assert_eq!(
            compare(format!("{head}a,C2C,-,x,h2d,99999999,300\n").as_bytes()).unwrap(),
            []
        );
    }
}
