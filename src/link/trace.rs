//! Every packet as it leaves, like a protocol analyser on both wires.

use std::io::Write;

use serde::Serialize;
use sim_pcie::LinkConfig;
use sim_pcie::packet::Kind;
use sim_pcie::protocol::{Class, Credit, Purpose, Sent, Side, Sink, TraceEntry};

/// A packet on a wire, or an event of a transmitter. Columns of the CSV table and keys of the JSON objects.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// First byte leaves, ns.
    pub start_ns: f64,
    /// Last byte has left, ns; of events the same.
    pub end_ns: f64,
    /// `device` or `host`.
    pub from: &'static str,
    /// `MWr`, `MRd`, `CplD`; `ACK`, `NAK`, `UpdateFC-P`, `-NP`, `-Cpl`; `SKP`; `replay-timer`, `retrain`.
    pub packet: &'static str,
    /// Of a TLP its sequence number; of an ACK or NAK that of the last good packet.
    pub sequence: Option<u16>,
    /// Tag of the read that is asked for or answered.
    pub tag: Option<u16>,
    /// First byte, in host memory.
    pub address: Option<u64>,
    /// User bytes; of a read request: requested.
    pub bytes: Option<u64>,
    /// Headers of the class allocated since the start, the initial credits among them (the packet carries the low
    /// bits); empty: infinite.
    pub header_credits: Option<u64>,
    /// Units of 16 bytes of data, likewise.
    pub data_credits: Option<u64>,
    /// Bytes on the wire with framing; 0 of events, ordered sets, and data-link packets inside flits.
    pub wire_bytes: u64,
    /// What a TLP is for.
    pub purpose: Option<&'static str>,
    /// Sent again?
    pub replay: bool,
    /// Corrupted on the wire?
    pub corrupted: bool,
}

fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::CopyWrite => "copy-write",
        Purpose::CopyRead => "copy-read",
        Purpose::ZeroCopyWrite => "zero-copy-write",
        Purpose::ZeroCopyRead => "zero-copy-read",
        Purpose::Semaphore => "semaphore",
        Purpose::Interrupt => "interrupt",
        Purpose::Doorbell => "doorbell",
        Purpose::CommandFetch => "command-fetch",
        Purpose::MmioRead => "mmio-read",
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::MWr => "MWr",
        Kind::MRd => "MRd",
        Kind::CplD => "CplD",
    }
}

impl Row {
    /// `granted`: credits of each transmitter (device, host) at the start, by class.
    pub fn new(entry: &TraceEntry, granted: &[[Credit; 3]; 2]) -> Row {
        let (packet, sequence) = match entry.sent {
            Sent::Tlp { kind: k, sequence } => (kind(k), Some(sequence)),
            Sent::Ack(sequence) => ("ACK", Some(sequence)),
            Sent::Nak(sequence) => ("NAK", Some(sequence)),
            Sent::UpdateFc { class, .. } => (
                match class {
                    Class::Posted => "UpdateFC-P",
                    Class::NonPosted => "UpdateFC-NP",
                    Class::Completion => "UpdateFC-Cpl",
                },
                None,
            ),
            Sent::Skp => ("SKP", None),
            Sent::ReplayTimer => ("replay-timer", None),
            Sent::Retrain => ("retrain", None),
        };
        let (header_credits, data_credits) = match entry.sent {
            Sent::UpdateFc { class, headers, data } => {
                // What one end frees, the other's transmitter may use.
                let credit = granted[entry.side.other() as usize][class as usize];
                (
                    credit.headers.map(|initial| u64::from(initial) + headers),
                    credit.data.map(|initial| u64::from(initial) + data),
                )
            }
            _ => (None, None),
        };
        Row {
            start_ns: entry.start.as_ns_f64(),
            end_ns: entry.end.as_ns_f64(),
            from: match entry.side {
                Side::Up => "device",
                Side::Down => "host",
            },
            packet,
            sequence,
            tag: entry.tlp.and_then(|tlp| tlp.tag),
            address: entry.tlp.map(|tlp| tlp.address),
            bytes: entry.tlp.map(|tlp| tlp.bytes),
            header_credits,
            data_credits,
            wire_bytes: entry.wire_bytes,
            purpose: entry.tlp.map(|tlp| purpose(tlp.purpose)),
            replay: entry.tlp.is_some_and(|tlp| tlp.replay),
            corrupted: entry.corrupted,
        }
    }

    /// A line of the terminal.
    fn line(&self) -> String {
        let mut said = Vec::new();
        if self.packet.starts_with("UpdateFC") {
            let credits = |n: Option<u64>| n.map_or("infinite".to_string(), |n| n.to_string());
            said.push(format!(
                "headers {} data {}",
                credits(self.header_credits),
                credits(self.data_credits)
            ));
        }
        said.extend(self.purpose.map(String::from));
        if self.replay {
            said.push("REPLAY".into());
        }
        if self.corrupted {
            said.push("CORRUPTED".into());
        }
        let text = format!(
            "{:>13.3} {:>13.3}  {:<6}  {:<12} {:>4} {:>5}  {:>14} {:>5} {:>5}  {}",
            self.start_ns,
            self.end_ns,
            self.from,
            self.packet,
            cell(self.sequence),
            cell(self.tag),
            cell(self.address.map(|address| format!("{address:#x}"))),
            cell(self.bytes),
            self.wire_bytes,
            said.join(" "),
        );
        text.trim_end().to_string() + "\n"
    }
}

fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn head() -> String {
    format!(
        "{:>13} {:>13}  {:<6}  {:<12} {:>4} {:>5}  {:>14} {:>5} {:>5}\n",
        "start ns", "end ns", "from", "packet", "seq", "tag", "address", "bytes", "wire"
    )
}

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns under a head.
    Lines,
    /// A JSON object a line.
    Json,
}

enum Output<'a> {
    Text(Format, &'a mut dyn Write),
    Csv(Box<csv::Writer<&'a mut dyn Write>>),
}

/// Writes records as they come: memory does not grow with the bytes moved. After an error it writes no more.
pub struct Tracer<'a> {
    granted: [[Credit; 3]; 2],
    outputs: Vec<Output<'a>>,
    began: bool,
    error: Option<std::io::Error>,
}

impl<'a> Tracer<'a> {
    /// Nothing is written yet, and nowhere.
    pub fn new(config: &LinkConfig) -> Tracer<'a> {
        Tracer {
            granted: super::packets::credits(config),
            outputs: Vec::new(),
            began: false,
            error: None,
        }
    }

    /// Writes there, too.
    pub fn text(&mut self, format: Format, out: &'a mut dyn Write) {
        self.outputs.push(Output::Text(format, out));
    }

    /// Writes a CSV table there, too.
    pub fn csv(&mut self, out: &'a mut dyn Write) {
        self.outputs
            .push(Output::Csv(Box::new(csv::Writer::from_writer(out))));
    }

    /// Writes what is left in buffers.
    ///
    /// # Errors
    /// The first thing that went wrong with the writing.
    pub fn finish(self) -> std::io::Result<()> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.outputs.into_iter().try_for_each(|out| match out {
            Output::Text(_, out) => out.flush(),
            Output::Csv(mut csv) => csv.flush(),
        })
    }
}

impl Output<'_> {
    fn write(&mut self, row: &Row, first: bool) -> std::io::Result<()> {
        match self {
            Output::Text(Format::Lines, out) => {
                if first {
                    out.write_all(head().as_bytes())?;
                }
                out.write_all(row.line().as_bytes())
            }
            Output::Text(Format::Json, out) => {
                serde_json::to_writer(&mut **out, row)?;
                out.write_all(b"\n")
            }
            Output::Csv(csv) => csv.serialize(row).map_err(std::io::Error::from),
        }
    }
}

impl Sink for &mut Tracer<'_> {
    fn sent(&mut self, entry: &TraceEntry) {
        if self.error.is_none() {
            let row = Row::new(entry, &self.granted);
            let began = std::mem::replace(&mut self.began, true);
            let write = |out: &mut Output<'_>| out.write(&row, !began).err();
            self.error = self.outputs.iter_mut().find_map(write);
        }
    }
}
