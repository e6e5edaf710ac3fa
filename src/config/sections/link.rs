//! `[link]`: the link.

use sim_core::Time;
use sim_core::units::{Bandwidth, Bytes};

use crate::config::schema::section;
use crate::config::value::Kind;

const POWER: Kind = Kind::Bytes {
    min: 128,
    max: 4096,
    power_of_two: true,
};
/// Latencies beyond a second are mistakes of unit.
const LATENCY: Kind = Kind::Time {
    min: Time::ZERO,
    max: Time::from_us(1_000_000),
};

section! {
    /// The link: `[link]`.
    LinkSection {
        /// PCIe generation.
        generation ("link.generation"): u32 = Kind::Int { min: 1, max: 6 };
        /// Width.
        lanes ("link.lanes"): u32 = Kind::OneOf(&[1, 2, 4, 8, 16]);
        /// Max payload size: bounds writes and completions.
        mps ("link.mps"): Bytes = POWER;
        /// Max read request size.
        mrrs ("link.mrrs"): Bytes = POWER;
        /// Read completion boundary.
        rcb ("link.rcb"): Bytes = Kind::Bytes { min: 64, max: 128, power_of_two: true };
        /// Reads that may be outstanding.
        tags ("link.tags"): u32 = Kind::Int { min: 1, max: 16384 };
        /// Width of host addresses: decides the header size of requests.
        address_bits ("link.address_bits"): u32 = Kind::OneOf(&[32, 64]);
        /// End-to-end CRC: 4 more bytes per packet.
        ecrc ("link.ecrc"): bool = Kind::Bool;
        /// Payload of the writes that a copy engine makes; at most `link.mps`.
        write_tlp ("link.write_tlp"): Bytes = Kind::Bytes { min: 64, max: 4096, power_of_two: true };
        /// How the host cuts read data into completions: at every read completion boundary, as few as
        /// allowed, or a mix.
        completion_policy ("link.completion_policy"): String = Kind::Choice(&["rcb", "max", "mixed"]);
        /// Share of reads cut at every boundary when the policy is `mixed`.
        completion_rcb_share ("link.completion_rcb_share"): f64 = Kind::Ratio { min: 0.0, max: 1.0, inclusive: true };
        /// From the last byte leaving one transaction layer to its arrival at the other.
        one_way_latency ("link.one_way_latency"): Time = LATENCY;
        /// In the host, from the arrival of a read request until its completions are ready.
        host_read_latency ("link.host_read_latency"): Time = LATENCY;
        /// Are SKP ordered sets sent?
        skp ("link.skp"): bool = Kind::Bool;
        /// Symbol times between SKP ordered sets; `generation` stands for the generation's own interval.
        skp_interval ("link.skp_interval", "generation"): Option<u32> = Kind::Int { min: 64, max: 1_000_000 };
        /// Cost of data-link packets (ACK, flow control): none, or evenly spaced.
        dllp ("link.dllp"): String = Kind::Choice(&["cadence", "none"]);
        /// Who goes first upstream when a write and a read request are both ready.
        arbiter ("link.arbiter"): String = Kind::Choice(&["round-robin", "posted-first", "non-posted-first"]);
        /// When a receiver acknowledges packets.
        ack_policy ("link.ack_policy"): String = Kind::Choice(&["timer", "immediate"]);
        /// Posted header credits of the root port.
        posted_headers ("link.posted_headers", "infinite"): Option<u32> = Kind::Int { min: 1, max: 1 << 20 };
        /// Posted data credits of the root port, 16 bytes each.
        posted_data ("link.posted_data", "infinite"): Option<u32> = Kind::Int { min: 1, max: 1 << 24 };
        /// From the arrival of a posted write until its credits can be returned.
        drain ("link.drain"): Time = LATENCY;
        /// Rate at which the root complex drains posted writes.
        rc_write ("link.rc_write", "unlimited"): Option<Bandwidth> = Kind::Bandwidth;
        /// Rate at which the root complex serves reads.
        rc_read ("link.rc_read", "unlimited"): Option<Bandwidth> = Kind::Bandwidth;
        /// Rate that reads and writes share in the root complex.
        rc_total ("link.rc_total", "unlimited"): Option<Bandwidth> = Kind::Bandwidth;
    }
}
