//! Batches and copies as CSV.

use std::fmt::Write as _;

use sim_core::push::{Cause, Direction};

use crate::simulate::{CopyRow, RunResult};

/// The name of a direction in outputs.
pub fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::HostToDevice => "host_to_device",
        Direction::DeviceToHost => "device_to_host",
    }
}

/// The driver's name of a cause.
pub fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::User => "user",
        Cause::Coherence => "coherence",
        Cause::Prefetch => "prefetch",
        Cause::Eviction => "eviction",
        Cause::AccessCounters => "access_counters",
    }
}

/// `batches.csv`: one line a batch.
pub fn batches_csv(result: &RunResult) -> String {
    let mut out = String::from(
        "start_ns,end_ns,raw_faults,unique_pages,blocks,pages,copied_pages,evictions,cpu_unmapped_pages\n",
    );
    for b in &result.batches {
        let (start, end) = (b.start.as_ns_f64(), b.end.as_ns_f64());
        let _ = writeln!(
            out,
            "{start},{end},{},{},{},{},{},{},{}",
            b.raw, b.unique_pages, b.blocks, b.pages, b.copied_pages, b.evictions, b.cpu_unmapped_pages
        );
    }
    out
}

/// `copies.csv`: one line a copy, in order of completion.
pub fn copies_csv(copies: &[CopyRow]) -> String {
    let mut out = String::from("start_ns,end_ns,direction,cause,address,bytes\n");
    for copy in copies {
        let _ = writeln!(
            out,
            "{},{},{},{},{:#x},{}",
            copy.start.as_ns_f64(),
            copy.end.as_ns_f64(),
            direction_name(copy.direction),
            cause_name(copy.cause),
            copy.first_page * sim_core::pages::PAGE_BYTES,
            u64::from(copy.pages) * sim_core::pages::PAGE_BYTES
        );
    }
    out
}

/// One field of a CSV line, quoted where it must be.
pub fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}
