//! Holding the prefetcher against recorded decisions of the real driver.

use std::io::BufRead;

use serde::Deserialize;
use sim_core::pages::{PAGES_PER_BLOCK, PageMask};
use thiserror::Error;

use crate::prefetch::{Service, tree_prefetch};

/// One recorded case: page lists are half-open runs, numbered from the start of the block.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    first_page_in_2mib: usize,
    pages: usize,
    threshold: u32,
    faulted: Vec<(usize, usize)>,
    resident: Vec<(usize, usize)>,
    thrashing: Vec<(usize, usize)>,
    prefetched: Vec<(usize, usize)>,
}

/// A file of cases that cannot be used.
#[derive(Debug, Error)]
pub enum CheckError {
    /// Reading failed.
    #[error("line {line}: {source}")]
    Read {
        /// Line, from 1.
        line: u64,
        /// Why.
        source: std::io::Error,
    },
    /// A line is not a case.
    #[error(
        "line {line}: {what}; expected one JSON object with first_page_in_2mib, pages, threshold, faulted, resident, thrashing, prefetched"
    )]
    Malformed {
        /// Line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// No case at all.
    #[error("the file has no cases; expected one JSON object a line")]
    Empty,
}

/// A case whose result differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Line, from 1.
    pub line: u64,
    /// What the case says.
    pub expected: PageMask,
    /// What the model says.
    pub found: PageMask,
}

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Cases that agree.
    pub passed: u64,
    /// Cases that differ.
    pub mismatches: Vec<Mismatch>,
}

fn mask(runs: &[(usize, usize)], pages: usize) -> Result<PageMask, String> {
    let mut mask = PageMask::EMPTY;
    for &(first, end) in runs {
        if first > end || end > pages {
            return Err(format!(
                "run [{first}, {end}) is not inside the block of {pages} pages"
            ));
        }
        mask |= PageMask::range(first, end);
    }
    Ok(mask)
}

/// Compares the tree prefetcher with every case of a JSON Lines file.
///
/// # Errors
/// A line that is not a case, with its number.
pub fn prefetch_jsonl(reader: impl BufRead) -> Result<CheckReport, CheckError> {
    let mut report = CheckReport::default();
    for (line, text) in (1..).zip(reader.lines()) {
        let text = text.map_err(|source| CheckError::Read { line, source })?;
        if text.trim().is_empty() {
            continue;
        }
        let malformed = |what: String| CheckError::Malformed { line, what };
        let case: Case = serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
        if case.pages == 0 || case.first_page_in_2mib + case.pages > PAGES_PER_BLOCK {
            return Err(malformed("the block does not lie inside a 2 MiB slot".to_owned()));
        }
        let runs = |runs: &[(usize, usize)]| mask(runs, case.pages).map_err(malformed);
        let service = Service {
            first_page: case.first_page_in_2mib,
            pages: case.pages,
            faulted: &runs(&case.faulted)?,
            resident: &runs(&case.resident)?,
            thrashing: &runs(&case.thrashing)?,
        };
        let expected = runs(&case.prefetched)?;
        let found = tree_prefetch(&service, case.threshold);
        if found == expected {
            report.passed += 1;
        } else {
            report.mismatches.push(Mismatch {
                line,
                expected,
                found,
            });
        }
    }
    if report.passed == 0 && report.mismatches.is_empty() {
        return Err(CheckError::Empty);
    }
    Ok(report)
}
