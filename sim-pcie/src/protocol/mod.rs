//! The data-link protocol, packet by packet: sequence numbers, ACK and NAK, replay, flow-control credits.
//!
//! Where the transfer-level [`Link`](crate::Link) charges data-link packets at an even rate, this model
//! sends each one: it shows what credits, ACK latency, retry buffers, lost packets and bit errors cost.
//! Two ports face each other; each transmits on its own wire and receives from the other's. In
//! generation 6 packets are a stream inside flits and data-link packets ride in a field of each flit, without errors.
//!
//! Priorities at a packet boundary: ordered set, NAK, ACK, `UpdateFC`, replay, then new packets of the
//! classes in turn, passing over a class without credit. NP never overtakes P inside one queue; P and CPL
//! go on when NP is blocked; with relaxed ordering completions and writes pass a write that waits for credits.
//!
//! ```
//! use sim_core::Time;
//! use sim_pcie::LinkConfig;
//! use sim_pcie::protocol::{Side, Stepping, Protocol};
//!
//! let mut link = Protocol::new(&LinkConfig { skp: false, ..LinkConfig::default() })?;
//! link.write(Time::ZERO, 0, 4096);
//! link.run(Stepping::Packets).unwrap();
//! assert_eq!(link.counters(Side::Up).delivered, 32);
//! # Ok::<(), sim_pcie::protocol::ProtocolError>(())
//! ```

mod agenda;
mod copy;
mod deadlock;
pub(crate) mod errors;
mod events;
mod flits;
mod jump;
mod limits;
mod ordering;
mod port;
mod root;
mod run;
mod sink;
mod source;
mod steps;

pub use copy::{CopyCosts, CopyDone};
pub use deadlock::{Blocked, Deadlock, WaitsFor};
pub use errors::Errors;
pub use port::{Credit, PortOptions};
pub use root::{HostOptions, IotlbOptions};
pub use run::{Protocol, Stepping};
pub use sink::{Delivery, NoRecord, Recorder, Sink, TlpInfo, TraceEntry};

use crate::LinkConfigError;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Device to host: sent by the device.
    Up = 0,
    /// Host to device: sent by the host.
    Down = 1,
}

impl Side {
    /// Both.
    pub const BOTH: [Side; 2] = [Side::Up, Side::Down];

    /// The opposite way.
    #[must_use]
    pub const fn other(self) -> Side {
        match self {
            Side::Up => Side::Down,
            Side::Down => Side::Up,
        }
    }
}

/// A flow-control class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Posted: memory writes, messages, interrupts.
    Posted = 0,
    /// Non-posted: read requests.
    NonPosted = 1,
    /// Completions.
    Completion = 2,
}

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// A copy engine writes host memory.
    CopyWrite,
    /// A copy engine reads host memory.
    CopyRead,
    /// An SM writes host memory.
    ZeroCopyWrite,
    /// An SM reads host memory.
    ZeroCopyRead,
    /// A copy engine tells that a copy has ended.
    Semaphore,
    /// MSI-X.
    Interrupt,
    /// The host tells the device that there is work.
    Doorbell,
    /// A copy engine fetches its commands.
    CommandFetch,
    /// The host reads registers of the device, such as a PUT pointer.
    MmioRead,
}

/// What was on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    /// A transaction layer packet with this sequence number.
    Tlp {
        /// Its kind.
        kind: crate::packet::Kind,
        /// 12-bit sequence number.
        sequence: u16,
    },
    /// Acknowledges everything up to this number.
    Ack(u16),
    /// The same, and asks for replay of what follows.
    Nak(u16),
    /// Credits of a class.
    UpdateFc {
        /// Which.
        class: Class,
        /// Headers that the receiver has freed since the start. A real packet carries the low bits of these plus the
        /// initial credits.
        headers: u64,
        /// Units of 16 payload bytes, likewise.
        data: u64,
    },
    /// An ordered set.
    Skp,
    /// Not a packet: the replay timer ran out.
    ReplayTimer,
    /// Not a packet: the fourth replay without progress retrains the link.
    Retrain,
}

/// What one side has sent and the other received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transaction layer packets sent, with replays.
    pub tlps: u64,
    /// Of these, replays.
    pub replayed: u64,
    /// Packets delivered, each once.
    pub delivered: u64,
    /// Their user bytes.
    pub payload: u64,
    /// ACKs sent.
    pub acks: u64,
    /// NAKs sent.
    pub naks: u64,
    /// `UpdateFC`s sent.
    pub updates: u64,
    /// Bytes of all packets sent.
    pub wire_bytes: u64,
    /// Packets corrupted on the wire.
    pub corrupted: u64,
    /// Replay timers that ran out.
    pub timeouts: u64,
    /// Link retrainings.
    pub retrains: u64,
}

impl Counters {
    /// Adds what was counted since `old` again, so many times.
    fn repeat(&mut self, old: &Counters, times: u64) {
        for (count, was) in [
            (&mut self.tlps, old.tlps),
            (&mut self.replayed, old.replayed),
            (&mut self.delivered, old.delivered),
            (&mut self.payload, old.payload),
            (&mut self.acks, old.acks),
            (&mut self.naks, old.naks),
            (&mut self.updates, old.updates),
            (&mut self.wire_bytes, old.wire_bytes),
            (&mut self.corrupted, old.corrupted),
            (&mut self.timeouts, old.timeouts),
            (&mut self.retrains, old.retrains),
        ] {
            *count += (*count - was) * times;
        }
    }
}

/// A protocol model that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A field of the configuration.
    #[error(transparent)]
    Config(#[from] LinkConfigError),
    /// Flit mode has its own retry; it is not modelled here but in [`flit`](crate::flit).
    #[error(
        "link.generation = 6 with errors: the data-link protocol model allows errors in generations 1 to 5"
    )]
    Flits,
    /// A field of [`PortOptions`], [`HostOptions`] or [`Errors`].
    #[error("{key} = {value}: allowed is {allowed}")]
    Options {
        /// Its name, with the port.
        key: String,
        /// What it was.
        value: String,
        /// What it may be.
        allowed: String,
    },
}
