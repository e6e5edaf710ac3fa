//! A transfer on the protocol model of a PCIe link: every packet is sent, bit errors and all.

use sim_core::Time;
use sim_pcie::LinkConfig;
use sim_pcie::protocol::{
    Counters, Credit, Errors, HostOptions, PortOptions, Protocol, ProtocolError, Side, Sink, Stepping,
};

use super::bandwidth::Traffic;
use super::profile::LinkModel;

/// What is transferred, and how bad the wires are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scene {
    /// Which ways, all at once at time zero: reads of the copy engine for host to device, its writes for device to
    /// host, each from address zero of host memory.
    pub traffic: Traffic,
    /// Bytes each way.
    pub bytes: u64,
    /// Rate of independent bit errors and the seed of their random streams; `None`: no errors.
    pub bit_errors: Option<(f64, u64)>,
}

/// Why packets cannot be shown.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PacketError {
    /// Not PCIe.
    #[error("{0}: NVLink is simulated by rates, not packets; allowed: a PCIe profile, or a file with [link]")]
    NoPackets(String),
    /// A field that no link can have, by key.
    #[error("{0}")]
    Input(String),
    /// Something waits for ever.
    #[error("{0}")]
    Deadlock(String),
}

/// The same key as the user's, where there is one.
fn named(error: &ProtocolError) -> String {
    let mut text = error.to_string();
    for (ours, theirs) in [
        ("device.posted.headers", "link.posted_headers"),
        ("device.posted.data", "link.posted_data"),
        ("bit_error_rate", "--bit-errors"),
    ] {
        if let Some(rest) = text.strip_prefix(ours) {
            text = format!("{theirs}{rest}");
        }
    }
    text
}

/// The packets of `link`, which was asked for as `name`.
///
/// # Errors
/// Not PCIe.
pub fn config<'a>(name: &str, link: &'a LinkModel) -> Result<&'a LinkConfig, PacketError> {
    match link {
        LinkModel::Pcie(config) => Ok(config),
        LinkModel::NvLink(_) => Err(PacketError::NoPackets(name.to_string())),
    }
}

/// Credits of each transmitter at the start (device, host), by class.
pub fn credits(config: &LinkConfig) -> [[Credit; 3]; 2] {
    [true, false].map(|device| PortOptions::new(config, device).credits)
}

/// Runs `scene` until everything is acknowledged; the sink has heard all.
///
/// # Errors
/// A field that no link can have, a bit error rate out of range, errors in generation 6; a deadlock.
pub fn play<S: Sink>(config: &LinkConfig, scene: Scene, sink: S) -> Result<Protocol<S>, PacketError> {
    let ports = [true, false].map(|device| PortOptions::new(config, device));
    let errors = Errors {
        bit_errors: scene.bit_errors,
        ..Errors::default()
    };
    let mut link = Protocol::with_sink(config, ports, HostOptions::default(), errors, sink)
        .map_err(|error| PacketError::Input(named(&error)))?;
    if scene.traffic != Traffic::D2h {
        link.read(Time::ZERO, 0, scene.bytes);
    }
    if scene.traffic != Traffic::H2d {
        link.write(Time::ZERO, 0, scene.bytes);
    }
    link.run(Stepping::Periods)
        .map_err(|deadlock| PacketError::Deadlock(deadlock.to_string()))?;
    Ok(link)
}

/// What each end sent, a line each.
pub fn totals<S: Sink>(link: &Protocol<S>) -> String {
    let line = |name: &str, side| {
        let Counters {
            tlps,
            replayed,
            payload,
            acks,
            naks,
            updates,
            wire_bytes,
            corrupted,
            timeouts,
            retrains,
            ..
        } = link.counters(side);
        format!(
            "{name}: {tlps} TLPs ({replayed} replayed), {payload} B of data, {acks} ACK, {naks} NAK, {updates} UpdateFC, \
             {wire_bytes} B on the wire; {corrupted} corrupted, {timeouts} replay timeouts, {retrains} retrainings\n"
        )
    };
    line("device", Side::Up) + &line("host", Side::Down)
}
