//! The scenarios of the worked examples, run with the parameters that a file gives.

use super::CheckError;
use crate::config::{AckPolicy, CompletionPolicy, DllpModel, Generation, LinkConfig};
use crate::nvlink::{self, NvLink};
use crate::packet::{Kind, split_completions, split_request};
use crate::protocol::{
    Credit, Errors, PortOptions, Protocol, ProtocolError, Sent, Side, Stepping, TraceEntry,
};
use crate::{Link, LinkConfigError, Transfer};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sim_core::Time;
use sim_core::push::Direction;
use sim_core::time::TICKS_PER_NS;

/// One-way and host latency where an example gives none: 75 and 350 ns.
const ONE_WAY: u64 = 75 * TICKS_PER_NS;
const HOST: u64 = 350 * TICKS_PER_NS;
/// Most packets of an example.
const MOST: u64 = 1 << 16;

/// An example that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A link that cannot exist.
    #[error(transparent)]
    Config(#[from] LinkConfigError),
    /// A port that cannot exist.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// Nothing moves any more.
    #[error(transparent)]
    Deadlock(#[from] crate::protocol::Deadlock),
    /// A value outside of what is accepted.
    #[error("{key} = {value}: allowed is {allowed}")]
    Value {
        /// Key.
        key: String,
        /// What it said.
        value: String,
        /// What it may say.
        allowed: &'static str,
    },
}

fn bad(key: &str, value: &dyn std::fmt::Display, allowed: &'static str) -> Fault {
    Fault::Value {
        key: key.into(),
        value: value.to_string(),
        allowed,
    }
}

/// The parts of an example that are parameters; what is not given has the value of the shared assumptions.
#[derive(Default, Deserialize)]
pub(super) struct Given {
    r#gen: Option<u64>,
    lanes: Option<u32>,
    #[serde(rename = "D")]
    one_way: Option<u64>,
    #[serde(rename = "H")]
    host: Option<u64>,
    n: Option<u64>,
    tlps: Option<u64>,
    tags: Option<u32>,
    #[serde(rename = "PH")]
    headers: Option<u32>,
    drain: Option<u64>,
    ack_timer_symbols: Option<u64>,
    replay_symbols: Option<u64>,
    link: Option<String>,
    payload: Option<u64>,
}

impl Given {
    /// The parameters in `value`; everything else in it is left alone.
    pub(super) fn of(value: &Value) -> Result<Given, CheckError> {
        Given::deserialize(value).map_err(|e| CheckError::Json(e.to_string()))
    }

    /// Gen3 x16 unless said otherwise, MPS 256, everything that the examples leave out off.
    fn config(&self) -> Result<LinkConfig, Fault> {
        let number = self.r#gen.unwrap_or(3);
        let config = LinkConfig {
            generation: Generation::from_number(number).ok_or_else(|| bad("gen", &number, "1 to 6"))?,
            lanes: self.lanes.unwrap_or(16),
            mps: 256,
            mrrs: 512,
            rcb: 64,
            tags: self.tags.unwrap_or(1024),
            write_tlp: 256,
            completions: CompletionPolicy::Max,
            one_way: Time(self.one_way.unwrap_or(ONE_WAY)),
            host_read: Time(self.host.unwrap_or(HOST)),
            skp: false,
            dllp: DllpModel::None,
            ack: AckPolicy::Immediate,
            ..LinkConfig::default()
        };
        config.validate()?;
        Ok(config)
    }
}

/// The number of packets that `key` gives.
fn packets(key: &str, given: Option<u64>, default: u64) -> Result<u64, Fault> {
    let n = given.unwrap_or(default);
    if (1..=MOST).contains(&n) {
        Ok(n)
    } else {
        Err(bad(key, &n, "1 to 65536"))
    }
}

/// Ticks until one transfer on an idle transfer-level link has arrived.
fn alone(config: LinkConfig, direction: Direction, bytes: u64) -> Result<u64, Fault> {
    let mut link = Link::new(config)?;
    let address = 0;
    link.submit(
        Time::ZERO,
        Transfer {
            direction,
            bytes,
            address,
        },
    );
    Ok(link.next_event().map_or(0, |time| time.0))
}

/// A run of the protocol model: ports without replay timer, changed by `change`.
fn run(
    config: &LinkConfig,
    errors: Errors,
    change: impl FnOnce(&mut [PortOptions; 2]),
    write: u64,
    read: u64,
) -> Result<Protocol, Fault> {
    let mut ports = [PortOptions::new(config, true), PortOptions::new(config, false)];
    for port in &mut ports {
        port.replay_timer = None;
    }
    change(&mut ports);
    let mut link = Protocol::with_options(config, ports, errors)?;
    link.write(Time::ZERO, 0, write);
    link.read(Time::ZERO, 0, read);
    link.run(Stepping::Packets)?;
    Ok(link)
}

fn arrivals(link: &Protocol, kind: Kind) -> Vec<u64> {
    let all = link.deliveries().iter();
    all.filter(|d| d.kind == kind).map(|d| d.time.0).collect()
}

fn ns(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_NS as f64
}

fn gbps(bytes: u64, ticks: u64) -> f64 {
    bytes as f64 / ns(ticks)
}

fn name(side: Side) -> &'static str {
    match side {
        Side::Up => "A",
        Side::Down => "B",
    }
}

/// A line of a trace as the examples write it: who, what, sequence number, start, end.
fn line(entry: &TraceEntry) -> Value {
    let (side, start, end) = (name(entry.side), entry.start.0, entry.end.0);
    match entry.sent {
        Sent::Tlp { kind, sequence } => json!([side, format!("{kind:?}"), sequence, start, end]),
        Sent::Ack(sequence) => json!([side, "ACK", sequence, start, end]),
        Sent::Nak(sequence) => json!([side, "NAK", sequence, start, end]),
        Sent::ReplayTimer => json!(["replay_timer", side, start]),
        other => json!([side, format!("{other:?}"), start, end]),
    }
}

fn writes(given: &Given) -> Result<Value, Fault> {
    let config = given.config()?;
    let slots = config.tlp_slots(Kind::MWr, 256);
    let ticks = alone(config.clone(), Direction::DeviceToHost, 256)? - config.one_way.0;
    Ok(json!({
        "bytes": config.tlp_bytes(Kind::MWr, 256),
        "slots": slots,
        "symbols": (slots * config.slot_ticks()) as f64 / config.generation.symbol_ticks() as f64,
        "ticks": ticks,
        "ps": 1000.0 * ns(ticks),
    }))
}

fn page_read(given: &Given) -> Result<Value, Fault> {
    let mut out = Map::new();
    for (key, completions) in [("max", CompletionPolicy::Max), ("rcb", CompletionPolicy::Rcb)] {
        let config = LinkConfig {
            completions,
            ..given.config()?
        };
        let link = run(&config, Errors::default(), |_| (), 0, 4096)?;
        let times = arrivals(&link, Kind::CplD);
        let sent = |side: Side, kind: Kind| {
            let all = link.trace().iter().filter(|e| e.side == side);
            let of_kind = all.filter(|e| matches!(e.sent, Sent::Tlp { kind: k, .. } if k == kind));
            of_kind.copied().collect::<Vec<_>>()
        };
        let (requests, data) = (sent(Side::Up, Kind::MRd), sent(Side::Down, Kind::CplD));
        let bytes = |all: &[TraceEntry]| all.iter().map(|e| e.wire_bytes).sum::<u64>();
        let wire = |all: &[TraceEntry]| all.first().map_or(0, |e| e.end.0 - e.start.0);
        let last = times.last().copied().unwrap_or(0);
        out.insert(
            key.into(),
            json!({
                "n_mrd": requests.len(), "up_tlp_bytes": bytes(&requests),
                "n_cpld": data.len(), "down_tlp_bytes": bytes(&data),
                "first_cpld_arrival": times.first(), "last_cpld_arrival": last, "last_ns": ns(last),
                "t_mrd": wire(&requests), "t_cpld": wire(&data),
            }),
        );
    }
    Ok(Value::Object(out))
}

fn unaligned() -> Value {
    let requests: Vec<_> = split_request(0x1030, 512, 512)
        .map(|p| json!([p.address, p.bytes]))
        .collect();
    let mut out = Map::from_iter([("requests_mrrs512".to_string(), json!(requests))]);
    for rcb in [64, 128] {
        for mps in [128, 256, 512] {
            for (policy, max) in [("max", true), ("rcb", false)] {
                let sizes: Vec<_> = split_completions(0x1030, 512, mps, rcb, max)
                    .map(|p| p.bytes)
                    .collect();
                out.insert(format!("rcb{rcb}_mps{mps}_{policy}"), json!(sizes));
            }
        }
    }
    Value::Object(out)
}

fn contention(given: &Given) -> Result<Value, Fault> {
    let config = given.config()?;
    let mut out = Map::new();
    for (key, write, read) in [
        ("d2h_alone", 65536, 0),
        ("h2d_alone", 0, 65536),
        ("both", 65536, 65536),
    ] {
        let link = run(&config, Errors::default(), |_| (), write, read)?;
        let last = |kind| arrivals(&link, kind).last().copied();
        let (d2h, h2d) = (last(Kind::MWr), last(Kind::CplD));
        let bytes = |side| link.counters(side).wire_bytes;
        out.insert(
            key.into(),
            json!({
                "d2h_last_arrival": d2h, "d2h_ns": d2h.map(ns),
                "h2d_last_arrival": h2d, "h2d_ns": h2d.map(ns),
                "up_bytes": bytes(Side::Up), "down_bytes": bytes(Side::Down),
            }),
        );
    }
    Ok(Value::Object(out))
}

fn headers(given: &Given, row: &Given) -> Result<Value, Fault> {
    let config = LinkConfig {
        write_tlp: 64,
        ..given.config()?
    };
    let bytes = 64 * packets("n", given.n, 256)?;
    let ports = |ports: &mut [PortOptions; 2]| {
        ports[0].credits[0].headers = row.headers;
        ports[1].drain = given.drain.unwrap_or(config.drain.0);
    };
    let link = run(&config, Errors::default(), ports, bytes, 0)?;
    let last = arrivals(&link, Kind::MWr).last().copied().unwrap_or(0);
    // The rate is that of the sender's wire: without the flight of the last packet.
    let rate = gbps(bytes, last - config.one_way.0);
    Ok(json!({ "last_arrival": last, "GBps": rate }))
}

/// The parts of example 5 that are not rows: a packet, and the loop of one credit.
fn header_loop(given: &Given) -> Result<Value, Fault> {
    let config = LinkConfig {
        write_tlp: 64,
        ..given.config()?
    };
    let ports = |ports: &mut [PortOptions; 2]| {
        ports[0].credits[0] = Credit {
            headers: Some(1),
            data: None,
        };
        ports[1].drain = given.drain.unwrap_or(config.drain.0);
    };
    let link = run(&config, Errors::default(), ports, 128, 0)?;
    let sent: Vec<_> = link.trace().iter().filter(|e| e.side == Side::Up).collect();
    let Some((first, second)) = sent.first().zip(sent.get(1)) else {
        return Ok(Value::Null);
    };
    Ok(json!({
        "tlp_bytes": first.wire_bytes,
        "t_tlp": first.end.0 - first.start.0,
        "credit_loop_ticks": second.start.0 - first.start.0,
    }))
}

fn ack(given: &Given) -> Result<Value, Fault> {
    let config = given.config()?;
    let symbol = config.generation.symbol_ticks();
    let delay = given
        .ack_timer_symbols
        .unwrap_or_else(|| config.ack_limit_symbols());
    let ports = |ports: &mut [PortOptions; 2]| ports[1].ack_delay = Some(delay.saturating_mul(symbol));
    let link = run(&config, Errors::default(), ports, 256, 0)?;
    let trace: Vec<_> = link.trace().iter().map(line).collect();
    let sent = link.trace().iter().find(|e| matches!(e.sent, Sent::Ack(_)));
    let arrival = sent.map_or(0, |e| e.end.0) + config.one_way.0;
    Ok(json!({
        "trace": trace,
        "ack_arrival": arrival,
        "ack_arrival_ns": ns(arrival),
        // Whole slots that pass until the ACK is there.
        "retry_buffer_bytes_to_stream": arrival / config.slot_ticks() * 4,
    }))
}

fn replay(given: &Given) -> Result<Value, Fault> {
    let config = given.config()?;
    let mut out = Map::new();
    for (key, corrupt) in [("clean", vec![]), ("seq3_bad", vec![(Side::Up, 3, 0)])] {
        let errors = Errors {
            corrupt,
            ..Errors::default()
        };
        let link = run(&config, errors, |_| (), 2560, 0)?;
        let last = arrivals(&link, Kind::MWr).last().copied().unwrap_or(0);
        let trace = link.trace().iter();
        let naks = trace.clone().filter(|e| matches!(e.sent, Sent::Nak(_)));
        let sent = trace.filter_map(|e| match e.sent {
            Sent::Tlp { sequence, .. } => Some(json!([sequence, e.start.0])),
            _ => None,
        });
        let order: Vec<_> = link.deliveries().iter().map(|d| d.sequence).collect();
        out.insert(
            key.into(),
            json!({
                "last_arrival": last, "ns": ns(last), "tlps_sent": link.counters(Side::Up).tlps,
                "naks": naks.map(line).collect::<Vec<_>>(), "order": order, "tx": sent.collect::<Vec<_>>(),
            }),
        );
    }
    Ok(Value::Object(out))
}

fn lost_ack(given: &Given) -> Result<Value, Fault> {
    let config = given.config()?;
    let errors = Errors {
        lose: vec![(Side::Down, 1)],
        ..Errors::default()
    };
    let symbol = config.generation.symbol_ticks();
    let timer = given.replay_symbols.map(|symbols| symbols.saturating_mul(symbol));
    let link = run(&config, errors, |ports| ports[0].replay_timer = timer, 256, 0)?;
    Ok(json!({ "trace": link.trace().iter().map(line).collect::<Vec<_>>() }))
}

fn ordered_sets(row: &Given) -> Result<Value, Fault> {
    let config = row.config()?;
    let packets = packets("tlps", row.tlps, 8192)?;
    let bytes = 256 * packets;
    let time = |skp| {
        let config = LinkConfig {
            skp,
            ..config.clone()
        };
        alone(config, Direction::DeviceToHost, bytes).map(|ticks| ticks - row.one_way.unwrap_or(ONE_WAY))
    };
    let (without, with) = (time(false)?, time(true)?);
    let config = LinkConfig { skp: true, ..config };
    // The protocol model shows each ordered set.
    let link = run(&config, Errors::default(), |_| (), bytes, 0)?;
    let end = link
        .trace()
        .iter()
        .filter(|e| matches!(e.sent, Sent::Tlp { .. }))
        .map(|e| e.end)
        .max();
    let sets = link
        .trace()
        .iter()
        .filter(|e| e.side == Side::Up && e.sent == Sent::Skp && Some(e.start) < end);
    Ok(json!({
        "no_skp_ticks": without, "with_skp_ticks": with, "skps": sets.count(),
        "ns": ns(with), "GBps": gbps(bytes, with),
    }))
}

fn tags(given: &Given, row: &Given) -> Result<Value, Fault> {
    let config = LinkConfig {
        ack: AckPolicy::Timer,
        ..Given {
            r#gen: row.r#gen,
            tags: row.tags,
            one_way: given.one_way,
            host: given.host,
            ..Given::default()
        }
        .config()?
    };
    let bytes = 256 << 10;
    let link = run(&config, Errors::default(), |_| (), 0, bytes)?;
    let last = arrivals(&link, Kind::CplD).last().copied().unwrap_or(0);
    Ok(json!({ "last_arrival": last, "GBps": gbps(bytes, last) }))
}

fn flits(row: &Given) -> Result<Value, Fault> {
    let config = LinkConfig {
        generation: Generation::Gen6,
        ..row.config()?
    };
    let packets = packets("tlps", row.tlps, 1)?;
    let ticks = alone(config.clone(), Direction::DeviceToHost, 256 * packets)? - config.one_way.0;
    // A flit is 256 bytes on the whole link.
    let flit = 64 * config.slot_ticks();
    Ok(json!({
        "stream_bytes": packets * config.tlp_bytes(Kind::MWr, 256),
        "flits": ticks / flit, "ticks": ticks, "ns": ns(ticks), "GBps": gbps(256 * packets, ticks),
    }))
}

fn nvlinks(row: &Given) -> Result<Value, Fault> {
    let text = row.link.as_deref().unwrap_or_default();
    let unknown = || {
        bad(
            "link",
            &format_args!("{text:?}"),
            "\"NVLink2 x1 link\", \"NVLink3 12 links\", and the like",
        )
    };
    let (kind, links) = text.split_once(' ').ok_or_else(unknown)?;
    let kind = match kind {
        "NVLink2" => nvlink::Generation::NvLink2,
        "NVLink3" => nvlink::Generation::NvLink3,
        "NVLink4" => nvlink::Generation::NvLink4,
        _ => return Err(unknown()),
    };
    let links = links
        .trim_start_matches('x')
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok());
    let links = links.filter(|n| (1..=64).contains(n)).ok_or_else(unknown)?;
    let payload = row.payload.unwrap_or(256);
    if !payload.is_multiple_of(16) || !(16..=256).contains(&payload) {
        return Err(bad("payload", &payload, "a multiple of 16 up to 256"));
    }
    let link = NvLink {
        payload,
        ..NvLink::new(kind, links)
    };
    let time = link.write_ns(4096);
    Ok(json!({
        "raw_GBps": (link.rate * links) as f64 / 1e9, "packets": 4096_u64.div_ceil(payload),
        "flits16B": link.flits(4096), "bytes": nvlink::FLIT_BYTES * link.flits(4096),
        "ns": time, "eff_GBps": 4096.0 / time,
    }))
}

/// What an example, or a row of one, may say beside its results.
pub(super) struct Inputs {
    /// Keys of [`Given`] that its scenario uses.
    pub(super) parameters: &'static [&'static str],
    /// Prose, and where the rows are.
    pub(super) other: &'static [&'static str],
}

/// Inputs of example `number` as a whole, or of each of its rows; nothing where it has none of these.
pub(super) fn inputs(number: &str, row: bool) -> Option<Inputs> {
    let (parameters, other): (&[_], &[_]) = match (number, row) {
        ("1", true) => (&["gen", "lanes"], &[]),
        ("2", false) => (&["gen", "lanes", "D", "H", "tags"], &["ack"]),
        ("3", false) => (&[], &["single_mrd_allowed"]),
        ("4", false) => (&["gen", "lanes", "D", "H", "tags"], &["policy"]),
        ("5", false) => (&["gen", "lanes", "D", "drain", "n"], &["closed_form", "rows"]),
        ("5", true) => (&["PH"], &[]),
        ("6", false) => (&["gen", "lanes", "D", "ack_timer_symbols"], &[]),
        ("7", false) => (&["gen", "lanes", "D"], &[]),
        ("8", false) => (&["gen", "lanes", "D", "replay_symbols"], &[]),
        ("9", false) => (&[], &["rule", "rows"]),
        ("9", true) => (&["gen", "lanes", "tlps"], &[]),
        ("10", false) => (&["D", "H"], &["closed_form", "rows"]),
        ("10", true) => (&["gen", "tags"], &[]),
        ("11", true) => (&["lanes", "tlps"], &[]),
        ("12", true) => (&["link", "payload"], &[]),
        _ => return None,
    };
    Some(Inputs { parameters, other })
}

/// What this crate says of example `number` as a whole, or of a row of it with the values of `row`; null where
/// [`inputs`] has nothing.
pub(super) fn example(number: &str, given: &Given, row: Option<&Given>) -> Result<Value, Fault> {
    let one = row.unwrap_or(given);
    Ok(match (number, row.is_some()) {
        ("1", true) => writes(one)?,
        ("2", false) => page_read(given)?,
        ("3", false) => unaligned(),
        ("4", false) => contention(given)?,
        ("5", true) => headers(given, one)?,
        ("5", false) => header_loop(given)?,
        ("6", false) => ack(given)?,
        ("7", false) => replay(given)?,
        ("8", false) => lost_ack(given)?,
        ("9", true) => ordered_sets(one)?,
        ("10", true) => tags(given, one)?,
        ("11", true) => flits(one)?,
        ("12", true) => nvlinks(one)?,
        ("9" | "10", false) => json!({}),
        _ => Value::Null,
    })
}
