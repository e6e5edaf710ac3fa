//! Checks tables of expected link behaviour against this crate.
//!
//! A table is comma-separated text: comment lines start with `#`, the first other line names the columns.
//! The columns tell what the table is about:
//!
//! | has the column | a row is | compared |
//! | --- | --- | --- |
//! | `cpl_policy` | one transfer on an idle link | packets, bytes, ticks, throughput; the stepped link's counters and, for writes, its completion time |
//! | `cpl_payload` | both directions at once | wire limits |
//! | `ack_factor` | a link width and payload size | ACK limit and replay timer |
//!
//! Numbers must agree to the last printed digit. A file that begins with `{` holds worked examples instead:
//! scenarios by key, each value of which is a check.

mod examples;
mod scenarios;

use crate::closed_form::{Totals, bare, both_ways, raw_gbps};
use crate::config::{
    CompletionPolicy, Generation, LinkConfig, LinkConfigError, ack_factor_tenths, ack_limit_symbols,
};
use crate::link::{Exactness, Link, Transfer};
use crate::ratio::Ratio;
use sim_core::Time;
use sim_core::push::Direction;
use sim_core::time::TICKS_PER_NS;
use std::fmt::Write as _;
use std::io::{BufRead, Read};

/// What a table said, and how many of its rows agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Rows that agree in every column.
    pub passed: usize,
    /// Rows that do not.
    pub failed: usize,
    /// The first of them (at most 20).
    pub mismatches: Vec<Mismatch>,
}

impl CheckReport {
    /// Counts a row that does not agree, by its first difference.
    fn fail(&mut self, mismatch: Mismatch) {
        self.failed += 1;
        self.note(mismatch);
    }

    fn note(&mut self, mismatch: Mismatch) {
        if self.mismatches.len() < 20 {
            self.mismatches.push(mismatch);
        }
    }
}

/// One value that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Line of the file, from 1.
    pub line: usize,
    /// Column.
    pub column: String,
    /// What the table says.
    pub expected: String,
    /// What this crate says.
    pub actual: String,
}

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Reading failed.
    #[error("cannot read: {0}")]
    Io(#[from] std::io::Error),
    /// No line names columns that make a known table.
    #[error(
        "line {line}: no known table has the columns {found:?}; need one of cpl_policy, cpl_payload, ack_factor"
    )]
    Columns {
        /// Line of the file.
        line: usize,
        /// The columns found.
        found: String,
    },
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
    /// A field does not have one of its possible values.
    #[error("line {line}: {column} = {value:?}: allowed is {allowed}")]
    Value {
        /// Line of the file.
        line: usize,
        /// Column.
        column: &'static str,
        /// What it said.
        value: String,
        /// What it may say.
        allowed: String,
    },
    /// A row describes a link that cannot exist.
    #[error("line {line}: {error}")]
    Config {
        /// Line of the file.
        line: usize,
        /// Why.
        error: LinkConfigError,
    },
    /// Worked examples that cannot be read.
    #[error("worked examples: {0}")]
    Json(String),
    /// There are no rows.
    #[error("the table has no rows")]
    Empty,
}

struct Row<'a> {
    line: usize,
    header_line: usize,
    columns: &'a [String],
    fields: Vec<&'a str>,
}

impl Row<'_> {
    fn text(&self, column: &'static str) -> Result<&str, CheckError> {
        let at = self.columns.iter().position(|c| c == column);
        let at = at.ok_or(CheckError::Missing {
            line: self.header_line,
            column,
        })?;
        Ok(self.fields[at])
    }

    fn bad(&self, column: &'static str, value: &str, allowed: &str) -> CheckError {
        CheckError::Value {
            line: self.line,
            column,
            value: value.to_string(),
            allowed: allowed.to_string(),
        }
    }

    fn number(&self, column: &'static str) -> Result<u64, CheckError> {
        let text = self.text(column)?;
        let number = text.parse().ok().filter(|&n: &u64| n <= 1 << 40);
        number.ok_or_else(|| self.bad(column, text, "a whole number up to 2^40"))
    }

    fn small(&self, column: &'static str) -> Result<u32, CheckError> {
        let number = self.number(column)?;
        u32::try_from(number).map_err(|_| self.bad(column, &number.to_string(), "a smaller number"))
    }

    fn generation(&self) -> Result<Generation, CheckError> {
        let number = self.number("gen")?;
        Generation::from_number(number).ok_or_else(|| self.bad("gen", &number.to_string(), "1 to 6"))
    }
}

/// Values of a row, by column, as this crate has them.
type Values = Vec<(&'static str, String)>;

fn fixed(ratio: Ratio, digits: usize) -> String {
    format!("{:.digits$}", ratio.to_f64())
}

fn transfer_row(row: &Row) -> Result<Values, CheckError> {
    let write = match row.text("kind")? {
        "d2h_write" => true,
        "h2d_read" => false,
        other => return Err(row.bad("kind", other, "d2h_write or h2d_read")),
    };
    let mut config = bare(row.generation()?, row.small("lanes")?, row.small("mps")?);
    config.address_bits = row.small("addr_bits")?;
    if !write {
        config.mrrs = row.small("mrrs")?;
        config.rcb = row.small("rcb")?;
        config.completions = match row.text("cpl_policy")? {
            "max" => CompletionPolicy::Max,
            "rcb" => CompletionPolicy::Rcb,
            other => return Err(row.bad("cpl_policy", other, "max or rcb")),
        };
    }
    config.validate().map_err(|error| CheckError::Config {
        line: row.line,
        error,
    })?;
    let bytes = row.number("size_bytes")?;
    if !(1..=1 << 30).contains(&bytes) {
        return Err(row.bad("size_bytes", &bytes.to_string(), "1 to 2^30"));
    }
    let direction = if write {
        Direction::DeviceToHost
    } else {
        Direction::HostToDevice
    };
    let totals = Totals::of(&config, direction, 0, bytes);
    let ticks = totals.ticks(&config);
    let mut values = vec![
        ("n_mrd", totals.requests.to_string()),
        ("n_data_tlp", totals.data_packets.to_string()),
        ("up_bytes", totals.up_bytes.to_string()),
        ("down_bytes", totals.down_bytes.to_string()),
        (
            "t_ticks",
            ticks
                .to_whole()
                .map_or_else(|| fixed(ticks, 3), |t| t.to_string()),
        ),
        ("t_ns", fixed(ticks.over(Ratio::whole(TICKS_PER_NS)), 6)),
        ("raw_GBps", fixed(raw_gbps(&config), 6)),
        ("eff_ideal_GBps", fixed(totals.ideal_gbps(&config), 6)),
        ("eff_skp_GBps", fixed(totals.skp_gbps(&config), 6)),
        ("eff_full_GBps", fixed(totals.full_gbps(&config), 6)),
    ];
    simulate(row, &config, direction, bytes, &mut values)?;
    Ok(values)
}

/// The same transfer on the stepped link.
fn simulate(
    row: &Row,
    config: &LinkConfig,
    direction: Direction,
    bytes: u64,
    values: &mut Values,
) -> Result<(), CheckError> {
    let mut link =
        Link::with_exactness(config.clone(), Exactness::Stepped).map_err(|error| CheckError::Config {
            line: row.line,
            error,
        })?;
    link.submit(
        Time::ZERO,
        Transfer {
            direction,
            bytes,
            address: 0,
        },
    );
    let mut done = Vec::new();
    link.advance(Time::MAX, &mut done);
    let end = done.last().map_or(Time::ZERO, |d| d.time);
    let stats = link.stats(end);
    let write = direction == Direction::DeviceToHost;
    let requests = if write { 0 } else { stats.up.tlps };
    let data = if write { stats.up.tlps } else { stats.down.tlps };
    values.push(("n_mrd", requests.to_string()));
    values.push(("n_data_tlp", data.to_string()));
    values.push(("up_bytes", stats.up.wire_bytes.to_string()));
    values.push(("down_bytes", stats.down.wire_bytes.to_string()));
    if write && !config.generation.uses_flits() {
        values.push(("t_ticks", end.0.to_string()));
    }
    Ok(())
}

fn both_row(row: &Row) -> Result<Values, CheckError> {
    let mut config = bare(row.generation()?, row.small("lanes")?, row.small("mps")?);
    config.mrrs = row.small("mrrs")?;
    config.validate().map_err(|error| CheckError::Config {
        line: row.line,
        error,
    })?;
    let payload = row.number("cpl_payload")?;
    if !(1..=4096).contains(&payload) {
        return Err(row.bad("cpl_payload", &payload.to_string(), "1 to 4096"));
    }
    let both = both_ways(&config, payload);
    let loss = Ratio::whole(100).times(Ratio::whole(1).minus(both.d2h.over(both.d2h_alone)));
    Ok(vec![
        ("h2d_GBps", fixed(both.h2d, 6)),
        ("d2h_GBps", fixed(both.d2h, 6)),
        ("d2h_alone_GBps", fixed(both.d2h_alone, 6)),
        ("d2h_loss_pct", fixed(loss, 3)),
    ])
}

fn timer_row(row: &Row) -> Result<Values, CheckError> {
    let (generation, lanes, mps) = (row.generation()?, row.small("lanes")?, row.small("mps")?);
    if !(1..=32).contains(&lanes) {
        return Err(row.bad("lanes", &lanes.to_string(), "1 to 32"));
    }
    let limit = ack_limit_symbols(generation, lanes, mps);
    let ns = |symbols: u64| {
        fixed(
            Ratio::new(
                u128::from(symbols * generation.symbol_ticks()),
                u128::from(TICKS_PER_NS),
            ),
            3,
        )
    };
    let mut factor = String::new();
    let tenths = ack_factor_tenths(mps, lanes);
    let _ = write!(factor, "{}.{}", tenths / 10, tenths % 10);
    Ok(vec![
        ("ack_factor", factor),
        ("ack_limit_symbols", limit.to_string()),
        ("ack_limit_ns", ns(limit)),
        ("ack_bytes", (limit * u64::from(lanes)).to_string()),
        ("replay_min_symbols", (3 * limit).to_string()),
        ("replay_min_ns", ns(3 * limit)),
    ])
}

/// Longest file of worked examples, bytes.
const MOST_JSON: u64 = 16 << 20;

/// Checks a table or worked examples, whichever the content is; see the module documentation.
///
/// # Errors
/// As [`link_csv`]; worked examples that are no JSON, have an unknown key, or describe an impossible link.
pub fn link(mut reader: impl BufRead) -> Result<CheckReport, CheckError> {
    loop {
        let ahead = reader.fill_buf()?;
        let spaces = ahead.iter().take_while(|b| b.is_ascii_whitespace()).count();
        if ahead.get(spaces) == Some(&b'{') {
            break;
        }
        // Leading white space of a table holds no row, but its lines count.
        if spaces == 0 || spaces < ahead.len() || ahead.is_empty() || ahead.contains(&b'\n') {
            return link_csv(reader);
        }
        reader.consume(spaces);
    }
    let mut text = String::new();
    if reader.by_ref().take(MOST_JSON + 1).read_to_string(&mut text)? as u64 > MOST_JSON {
        return Err(CheckError::Json(format!("longer than {MOST_JSON} bytes")));
    }
    let report = examples::check(&text)?;
    if report.passed + report.failed == 0 {
        return Err(CheckError::Empty);
    }
    Ok(report)
}

/// Checks a table; see the module documentation for the tables that are known.
///
/// # Errors
/// The table cannot be read: not one of the known ones, a malformed row, a value that makes no sense.
/// A table that can be read but disagrees is not an error; the report says so.
pub fn link_csv(mut reader: impl BufRead) -> Result<CheckReport, CheckError> {
    let (mut report, mut text, mut line) = (CheckReport::default(), String::new(), 0);
    let (mut columns, mut header_line): (Vec<String>, usize) = (Vec::new(), 0);
    let mut check: fn(&Row) -> Result<Values, CheckError> = transfer_row;
    loop {
        text.clear();
        line += 1;
        if reader.read_line(&mut text)? == 0 {
            break;
        }
        let content = text.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if columns.is_empty() {
            columns = content.split(',').map(|c| c.trim().to_string()).collect();
            header_line = line;
            let has = |name: &str| columns.iter().any(|c| c == name);
            check = if has("cpl_policy") {
                transfer_row
            } else if has("cpl_payload") {
                both_row
            } else if has("ack_factor") {
                timer_row
            } else {
                let found = content.chars().take(200).collect();
                return Err(CheckError::Columns { line, found });
            };
            continue;
        }
        let fields: Vec<&str> = content.split(',').map(str::trim).collect();
        if fields.len() != columns.len() {
            return Err(CheckError::Fields {
                line,
                found: fields.len(),
                expected: columns.len(),
            });
        }
        let row = Row {
            line,
            header_line,
            columns: &columns,
            fields,
        };
        let mut good = true;
        for (column, actual) in check(&row)? {
            let expected = row.text(column)?;
            if expected != actual {
                good = false;
                let (column, expected) = (column.to_string(), expected.to_string());
                report.note(Mismatch {
                    line,
                    column,
                    expected,
                    actual,
                });
            }
        }
        if good {
            report.passed += 1;
        } else {
            report.failed += 1;
        }
    }
    if report.passed + report.failed == 0 {
        Err(CheckError::Empty)
    } else {
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_tables_are_errors_not_panics() {
        let error = |text: &str| link_csv(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error(""), "the table has no rows");
        assert!(error("a,b\n1,2\n").starts_with("line 1: no known table"));
        assert_eq!(
            error("gen,lanes,mps,ack_factor\n9,1,128,1.4\n"),
            "line 2: gen = \"9\": allowed is 1 to 6"
        );
        assert_eq!(
            error("gen,lanes,mps,ack_factor\n1,1\n"),
            "line 2: 2 fields, but 4 columns"
        );
        assert_eq!(
            error("gen,lanes,ack_factor\n1,1,1\n"),
            "line 1: the table needs a column \"mps\""
        );
        assert_eq!(
            error("gen,lanes,mps,ack_factor\n1,x,1,1\n"),
            "line 2: lanes = \"x\": allowed is a whole number up to 2^40"
        );
        assert_eq!(
            error("gen,lanes,mps,mrrs,cpl_payload\n3,3,128,128,64\n"),
            "line 2: link.lanes = 3: allowed is 1, 2, 4, 8 or 16"
        );
    }

    #[test]
    fn a_wrong_value_is_reported() {
        let table = "gen,lanes,mps,ack_factor,ack_limit_symbols,ack_limit_ns,ack_bytes,replay_min_symbols,replay_min_ns\n\
                     3,16,256,3.0,168,170.625,2688,504,511.875\n3,16,256,3.0,169,170.625,2688,504,511.875\n";
        let report = link_csv(table.as_bytes()).unwrap();
        assert_eq!((report.passed, report.failed), (1, 1));
        assert_eq!(report.mismatches[0].column, "ack_limit_symbols");
        assert_eq!(
            (report.mismatches[0].line, report.mismatches[0].actual.as_str()),
            (3, "168")
        );
    }
}
