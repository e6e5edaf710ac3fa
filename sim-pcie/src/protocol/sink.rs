//! Who listens to a run.

use super::{Purpose, Sent, Side};
use crate::packet::Kind;
use sim_core::Time;

/// A packet on a wire, or an event of a transmitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// Who sent it.
    pub side: Side,
    /// What.
    pub sent: Sent,
    /// First byte leaves.
    pub start: Time,
    /// Last byte has left.
    pub end: Time,
    /// Bytes on the wire; 0 for events, ordered sets, and data-link packets inside flits.
    pub wire_bytes: u64,
    /// Was it corrupted on the wire, or lost?
    pub corrupted: bool,
    /// What is said of transaction layer packets only.
    pub tlp: Option<TlpInfo>,
}

/// What a transaction layer packet moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlpInfo {
    /// Tag of the read that it asks for or answers.
    pub tag: Option<u16>,
    /// First byte.
    pub address: u64,
    /// User bytes (of a read request: requested).
    pub bytes: u64,
    /// What for.
    pub purpose: Purpose,
    /// Which requester wants it: 0 reading copy engine (or host), 1 SMs, 2 writing copy engine.
    pub source: u8,
    /// Is it sent again?
    pub replay: bool,
}

/// A packet that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Which way it went.
    pub side: Side,
    /// What it is.
    pub kind: Kind,
    /// Its sequence number.
    pub sequence: u16,
    /// User bytes (of a read request: requested).
    pub payload: u64,
    /// When.
    pub time: Time,
    /// First byte.
    pub address: u64,
    /// What for.
    pub purpose: Purpose,
    /// Which requester wants it, as in [`TlpInfo::source`].
    pub source: u8,
    /// Tag of the read that it asks for or answers.
    pub tag: Option<u16>,
}

/// Is told what happens, in order of the start on the wire (device first at the same time) and of the
/// delivery. Methods do nothing unless given.
pub trait Sink {
    /// Whether it wants to know; `false` makes the recording vanish at compile time.
    const RECORDS: bool = true;

    /// A packet was put on a wire.
    fn sent(&mut self, _entry: &TraceEntry) {}

    /// A packet was accepted.
    fn delivered(&mut self, _delivery: &Delivery) {}
}

/// Keeps nothing: memory does not grow with the bytes moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoRecord;

impl Sink for NoRecord {
    const RECORDS: bool = false;
}

/// Keeps everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorder {
    /// What was sent.
    pub trace: Vec<TraceEntry>,
    /// What was accepted.
    pub deliveries: Vec<Delivery>,
}

impl Sink for Recorder {
    fn sent(&mut self, entry: &TraceEntry) {
        self.trace.push(*entry);
    }

    fn delivered(&mut self, delivery: &Delivery) {
        self.deliveries.push(*delivery);
    }
}
