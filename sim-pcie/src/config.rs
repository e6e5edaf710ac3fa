//! What a link is: generation, width, packet limits, latencies. Every number has a default and a source.

use sim_core::Time;
use std::fmt;

/// A PCI Express generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Generation {
    /// 2.5 GT/s, 8b/10b.
    Gen1 = 1,
    /// 5 GT/s, 8b/10b.
    Gen2 = 2,
    /// 8 GT/s, 128b/130b.
    Gen3 = 3,
    /// 16 GT/s, 128b/130b.
    Gen4 = 4,
    /// 32 GT/s, 128b/130b.
    Gen5 = 5,
    /// 64 GT/s, 256-byte flits with forward error correction.
    Gen6 = 6,
}

impl Generation {
    /// All of them, slowest first.
    pub const ALL: [Generation; 6] = [
        Self::Gen1,
        Self::Gen2,
        Self::Gen3,
        Self::Gen4,
        Self::Gen5,
        Self::Gen6,
    ];

    /// The generation of this number, 1 to 6.
    pub fn from_number(number: u64) -> Option<Generation> {
        Self::ALL.into_iter().find(|g| u64::from(g.number()) == number)
    }

    /// 1 to 6.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Ticks for one byte on one lane; 128b/130b generations spread the 2-bit sync header over the
    /// 16 symbols of its block. Exact: 4 ns, 2 ns, 65/64 ns and its halves, 1/8 ns.
    pub const fn symbol_ticks(self) -> u64 {
        match self {
            Self::Gen1 => 4096,
            Self::Gen2 => 2048,
            Self::Gen3 => 1040,
            Self::Gen4 => 520,
            Self::Gen5 => 260,
            Self::Gen6 => 128,
        }
    }

    /// Does this generation send 256-byte flits instead of framed packets?
    pub const fn uses_flits(self) -> bool {
        matches!(self, Self::Gen6)
    }

    /// `InternalDelay` of the ACK latency formula, symbol times (published: PCIe base specification
    /// tables, as reproduced by the pcie-bench model).
    pub const fn internal_delay_symbols(self) -> u64 {
        match self {
            Self::Gen1 => 19,
            Self::Gen2 => 70,
            _ => 115,
        }
    }
}

/// How a completer cuts the data of one read into completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionPolicy {
    /// One completion per read completion boundary (measured: client Intel root ports, 64 B).
    Rcb,
    /// As few completions as the rules allow.
    Max,
    /// `rcb` of every `of` reads, spread evenly, are cut as [`Rcb`](Self::Rcb), the others as
    /// [`Max`](Self::Max): reaches any mean completion size deterministically, in short copies too.
    Mixed {
        /// Reads cut at every boundary ...
        rcb: u32,
        /// ... out of so many.
        of: u32,
    },
}

/// Who goes first upstream when a write and a read request are both ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arbiter {
    /// Packet by packet in turn.
    RoundRobin,
    /// Posted writes before read requests.
    PostedFirst,
    /// Read requests before posted writes.
    NonPostedFirst,
}

/// How data-link packets (ACK, `UpdateFC`) cost wire time in the transfer-level model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DllpModel {
    /// They cost nothing.
    None,
    /// Evenly spaced: downstream one ACK and one `UpdateFC` (16 B) follow every `P` bytes of
    /// completions, upstream one ACK (8 B) follows the read request that brings the requested
    /// completions to `P` bytes, where `P = max(ack limit * lanes, completion bytes of one full
    /// read)`. This is the rule behind the closed form of read throughput.
    Cadence,
}

/// When a receiver sends an ACK in the data-link protocol model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AckPolicy {
    /// Every packet makes an ACK due; ACKs that wait for the wire merge.
    Immediate,
    /// One ACK per ACK latency limit, started by the first unacknowledged packet.
    Timer,
}

/// Everything that decides a link's timing.
///
/// Build one with [`LinkConfig::default`] and change fields; [`LinkConfig::validate`] says what is
/// wrong by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Generation.
    pub generation: Generation,
    /// Width: 1, 2, 4, 8 or 16.
    pub lanes: u32,
    /// Max payload size, bytes: bounds writes and completions.
    pub mps: u32,
    /// Max read request size, bytes.
    pub mrrs: u32,
    /// Read completion boundary, bytes: 64 or 128.
    pub rcb: u32,
    /// Reads that may be outstanding.
    pub tags: u32,
    /// 64 or 32: decides the header size of requests.
    pub address_bits: u32,
    /// End-to-end CRC: 4 more bytes per packet.
    pub ecrc: bool,
    /// Payload of the copy engine's writes, bytes, at most `mps` (measured: 128 up to Ada).
    pub write_tlp: u32,
    /// How the host cuts read data.
    pub completions: CompletionPolicy,
    /// One-way latency from the last byte leaving one transaction layer to its arrival at the other.
    pub one_way: Time,
    /// Host latency from the arrival of a read request until its completions are ready.
    pub host_read: Time,
    /// SKP ordered sets on or off.
    pub skp: bool,
    /// Symbol times between SKP ordered sets; `None`: the generation's own interval.
    pub skp_interval: Option<u32>,
    /// Cost of data-link packets in the transfer-level model.
    pub dllp: DllpModel,
    /// Upstream arbitration.
    pub arbiter: Arbiter,
    /// ACK policy of the data-link protocol model.
    pub ack: AckPolicy,
    /// Posted header credits of the root port; `None`: infinite.
    pub posted_headers: Option<u32>,
    /// Posted data credits (16 bytes each) of the root port; `None`: infinite.
    pub posted_data: Option<u32>,
    /// Time from the arrival of a posted write until its credits can be returned.
    pub drain: Time,
    /// Rate at which the root complex drains posted writes, bytes per second; `None`: unlimited.
    pub rc_write: Option<u64>,
    /// Rate at which the root complex serves reads, bytes per second; `None`: unlimited.
    pub rc_read: Option<u64>,
    /// Rate that reads and writes share in the root complex, bytes per second; `None`: unlimited.
    pub rc_total: Option<u64>,
}

impl Default for LinkConfig {
    /// Gen4 x16 with the values that public `lspci` listings of data-centre GPUs show (MPS 256,
    /// MRRS 512, RCB 64, extended tags) and the latencies measured on Xeon hosts.
    fn default() -> Self {
        LinkConfig {
            generation: Generation::Gen4,
            lanes: 16,
            mps: 256,                           // published: lspci of A100
            mrrs: 512,                          // published: lspci of A100
            rcb: 64,                            // published: lspci of Quadro RTX 8000
            tags: 256,                          // published: ExtTag+
            address_bits: 64,                   // host memory lies above 4 GiB
            ecrc: false,                        // published: off in the listings
            write_tlp: 128,                     // measured: D2H asymptotes of V100, RTX 4090, A100
            completions: CompletionPolicy::Rcb, // measured: RTX 4090 on a client host
            one_way: Time::from_ns(75),         // assumed: 40-100 ns PHY and link layer
            host_read: Time::from_ns(350),      // measured: 505 ns for a 64 B read on Gen3 x16
            skp: true,
            skp_interval: None,
            dllp: DllpModel::Cadence,
            arbiter: Arbiter::RoundRobin, // assumed
            ack: AckPolicy::Timer,        // assumed: real parts lie between the two
            posted_headers: None,
            posted_data: None,
            drain: Time::from_ns(20), // assumed
            rc_write: None,
            rc_read: None,
            rc_total: None,
        }
    }
}

/// A field of [`LinkConfig`] that no link can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("link.{key} = {value}: allowed is {allowed}")]
pub struct LinkConfigError {
    /// Name of the field.
    pub key: &'static str,
    /// What it was.
    pub value: String,
    /// What it may be.
    pub allowed: String,
}

const POWERS: &str = "128, 256, 512, 1024, 2048 or 4096";
/// Longest latency accepted, so that no sum of times can overflow: one second.
const LONGEST: Time = Time::from_us(1_000_000);

fn require(
    ok: bool,
    key: &'static str,
    value: impl fmt::Display,
    allowed: impl fmt::Display,
) -> Result<(), LinkConfigError> {
    if ok {
        Ok(())
    } else {
        Err(LinkConfigError {
            key,
            value: value.to_string(),
            allowed: allowed.to_string(),
        })
    }
}

impl LinkConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// The first field, in declaration order, whose value no link can have.
    pub fn validate(&self) -> Result<(), LinkConfigError> {
        let power = |n: u32| n.is_power_of_two() && (128..=4096).contains(&n);
        require(
            matches!(self.lanes, 1 | 2 | 4 | 8 | 16),
            "lanes",
            self.lanes,
            "1, 2, 4, 8 or 16",
        )?;
        require(power(self.mps), "mps", self.mps, POWERS)?;
        require(power(self.mrrs), "mrrs", self.mrrs, POWERS)?;
        require(matches!(self.rcb, 64 | 128), "rcb", self.rcb, "64 or 128")?;
        require((1..=16384).contains(&self.tags), "tags", self.tags, "1 to 16384")?;
        require(
            matches!(self.address_bits, 32 | 64),
            "address_bits",
            self.address_bits,
            "32 or 64",
        )?;
        let write_ok = self.write_tlp.is_power_of_two() && (64..=self.mps).contains(&self.write_tlp);
        require(
            write_ok,
            "write_tlp",
            self.write_tlp,
            format_args!("a power of two from 64 to mps = {}", self.mps),
        )?;
        if let CompletionPolicy::Mixed { rcb, of } = self.completions {
            let ok = of > 0 && rcb <= of && of <= 1_000_000;
            require(
                ok,
                "completions",
                format_args!("mixed {rcb} of {of}"),
                "rcb <= of, 1 <= of <= 1000000",
            )?;
        }
        require(self.one_way <= LONGEST, "one_way", self.one_way, "at most 1 s")?;
        require(
            self.host_read <= LONGEST,
            "host_read",
            self.host_read,
            "at most 1 s",
        )?;
        if let Some(symbols) = self.skp_interval {
            let least = self.least_skp_interval();
            let ok = (least..=1_000_000).contains(&symbols);
            require(
                ok,
                "skp_interval",
                symbols,
                format_args!("{least} to 1000000 symbol times"),
            )?;
            require(
                symbols % 4 == 0 || self.generation <= Generation::Gen2,
                "skp_interval",
                symbols,
                "a multiple of 4",
            )?;
        }
        require(
            self.posted_headers != Some(0),
            "posted_headers",
            0,
            "at least 1, or infinite",
        )?;
        let unit = self.write_tlp.div_ceil(16);
        if let Some(data) = self.posted_data {
            require(
                data >= unit,
                "posted_data",
                data,
                format_args!("at least write_tlp / 16 = {unit}, or infinite"),
            )?;
        }
        require(self.drain <= LONGEST, "drain", self.drain, "at most 1 s")?;
        for (key, rate) in [
            ("rc_write", self.rc_write),
            ("rc_read", self.rc_read),
            ("rc_total", self.rc_total),
        ] {
            if let Some(rate) = rate {
                let ok = (1_000_000..=1_000_000_000_000_000).contains(&rate);
                require(ok, key, rate, "1000000 to 10^15 bytes per second, or unlimited")?;
            }
        }
        Ok(())
    }

    fn least_skp_interval(&self) -> u32 {
        // Separate-reference-clock intervals: under 154 symbols, or 38 blocks (published).
        match self.generation {
            Generation::Gen1 | Generation::Gen2 => 64,
            Generation::Gen6 => 1024,
            _ => 320,
        }
    }

    /// Ticks of one slot: 4 bytes on the whole link.
    pub fn slot_ticks(&self) -> u64 {
        4 * self.generation.symbol_ticks() / u64::from(self.lanes)
    }

    /// Slots in one symbol time (at least 1): a packet that follows idle starts on a multiple.
    pub fn slots_per_symbol(&self) -> u64 {
        (u64::from(self.lanes) / 4).max(1)
    }

    /// Symbol times between SKP ordered sets: 1538 for 8b/10b, 375 blocks of 16 for 128b/130b
    /// (published), 12 000 for flits (unverified).
    pub fn skp_interval_symbols(&self) -> u64 {
        self.skp_interval.map_or(
            match self.generation {
                Generation::Gen1 | Generation::Gen2 => 1538,
                Generation::Gen6 => 12_000,
                _ => 6000,
            },
            u64::from,
        )
    }

    /// Longest time before an ACK must be sent, in symbol times:
    /// `floor((MPS + 28) * AckFactor / lanes + InternalDelay)`.
    pub fn ack_limit_symbols(&self) -> u64 {
        ack_limit_symbols(self.generation, self.lanes, self.mps)
    }

    /// Raw bytes per second and direction (flit bytes for Gen6).
    pub fn raw_bytes_per_second(&self) -> f64 {
        f64::from(self.lanes) * sim_core::time::TICKS_PER_NS as f64 * 1e9
            / self.generation.symbol_ticks() as f64
    }
}

/// `AckFactor` times 10 of the ACK latency formula (published tables).
pub fn ack_factor_tenths(mps: u32, lanes: u32) -> u64 {
    match (mps <= 256, lanes) {
        (true, ..=4) => 14,
        (true, ..=8) => 25,
        (true, _) => 30,
        (false, ..=8) => 10,
        (false, _) => 20,
    }
}

/// The ACK latency limit in symbol times, also for widths that no [`LinkConfig`] has (x12, x32).
pub fn ack_limit_symbols(generation: Generation, lanes: u32, mps: u32) -> u64 {
    (u64::from(mps) + 28) * ack_factor_tenths(mps, lanes) / (10 * u64::from(lanes))
        + generation.internal_delay_symbols()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_link() {
        LinkConfig::default().validate().unwrap();
    }

    #[test]
    fn errors_name_key_value_and_allowed() {
        let bad = LinkConfig {
            lanes: 12,
            ..LinkConfig::default()
        };
        assert_eq!(
            bad.validate().unwrap_err().to_string(),
            "link.lanes = 12: allowed is 1, 2, 4, 8 or 16"
        );
        let bad = LinkConfig {
            write_tlp: 512,
            ..LinkConfig::default()
        };
        assert_eq!(
            bad.validate().unwrap_err().to_string(),
            "link.write_tlp = 512: allowed is a power of two from 64 to mps = 256"
        );
    }
}
