//! What no port can have: an error before the start instead of a deadlock.

use super::{Class, Errors, HostOptions, PortOptions, ProtocolError};
use crate::config::LinkConfig;
use crate::packet::Kind;
use std::fmt;

/// Most header and data credits: 127 and 2047, times 16 with scaled flow control (published).
const MOST: [u32; 2] = [127 * 16, 2047 * 16];
/// Times up to one second, so that no sum overflows.
const LONGEST: u64 = 1_000_000_000 * 1024;

fn require(
    ok: bool,
    key: impl Into<String>,
    value: impl fmt::Display,
    allowed: impl fmt::Display,
) -> Result<(), ProtocolError> {
    if ok {
        return Ok(());
    }
    Err(ProtocolError::Options {
        key: key.into(),
        value: value.to_string(),
        allowed: allowed.to_string(),
    })
}

fn port(config: &LinkConfig, name: &str, port: &PortOptions) -> Result<(), ProtocolError> {
    let data = u64::from(config.mps);
    let largest = [Kind::MWr, Kind::MRd, Kind::CplD].map(|kind| config.tlp_bytes(kind, data));
    for class in [Class::Posted, Class::NonPosted, Class::Completion] {
        let key = |what| {
            format!(
                "{name}.{}.{what}",
                ["posted", "non_posted", "completion"][class as usize]
            )
        };
        let credit = port.credits[class as usize];
        if let Some(headers) = credit.headers {
            let ok = (1..=MOST[0]).contains(&headers);
            require(
                ok,
                key("headers"),
                headers,
                format_args!("1 to {}, or infinite", MOST[0]),
            )?;
        }
        let least = match class {
            Class::Posted if name == "device" => config.write_tlp / 16,
            Class::Posted => 1,
            Class::NonPosted => 0,
            Class::Completion => config.mps / 16,
        };
        if let Some(data) = credit.data {
            let ok = (least..=MOST[1]).contains(&data);
            require(
                ok,
                key("data"),
                data,
                format_args!("{least} (the largest packet) to {}, or infinite", MOST[1]),
            )?;
        }
        if let Some(bytes) = port.retry_bytes {
            let least = largest.iter().max().copied().unwrap_or(0);
            require(
                bytes >= least,
                format!("{name}.retry_bytes"),
                bytes,
                format_args!("at least {least}, the largest packet"),
            )?;
        }
    }
    let classes = [0, 1, 2].map(|c| port.order.iter().filter(|&&o| o as usize == c).count());
    require(
        classes == [1; 3],
        format!("{name}.order"),
        format_args!("{:?}", port.order),
        "each class once",
    )?;
    for (what, ticks) in [
        ("ack_delay", port.ack_delay.unwrap_or(0)),
        ("replay_timer", port.replay_timer.unwrap_or(0)),
        ("drain", port.drain),
        ("retrain", port.retrain),
    ] {
        require(
            ticks <= LONGEST,
            format!("{name}.{what}"),
            ticks,
            "at most 1 s in ticks",
        )?;
    }
    Ok(())
}

/// Checks all options.
pub(super) fn check(
    config: &LinkConfig,
    ports: &[PortOptions; 2],
    host: &HostOptions,
    errors: &Errors,
) -> Result<(), ProtocolError> {
    port(config, "device", &ports[0])?;
    port(config, "host", &ports[1])?;
    let (of, out_of) = host.dram_reads;
    require(
        out_of >= 1 && of <= out_of,
        "host.dram_reads",
        format_args!("{of} of {out_of}"),
        "n of m, n <= m, 1 <= m",
    )?;
    for (key, time) in [("dram", host.dram), ("remote", host.remote), ("mmio", host.mmio)] {
        require(time.0 <= LONGEST, format!("host.{key}"), time, "at most 1 s")?;
    }
    if let Some(tlb) = &host.iotlb {
        require(
            (1..=65536).contains(&tlb.entries),
            "host.iotlb.entries",
            tlb.entries,
            "1 to 65536",
        )?;
        let pages = matches!(tlb.page, 4096 | 2_097_152);
        require(pages, "host.iotlb.page", tlb.page, "4096 or 2097152")?;
        require(
            (1..=1024).contains(&tlb.walkers),
            "host.iotlb.walkers",
            tlb.walkers,
            "1 to 1024",
        )?;
        require(tlb.walk.0 <= LONGEST, "host.iotlb.walk", tlb.walk, "at most 1 s")?;
    }
    if let Some((rate, _)) = errors.bit_errors {
        require((0.0..=1e-4).contains(&rate), "bit_error_rate", rate, "0 to 1e-4")?;
    }
    Ok(())
}
