//! Throughput and data-link timers in closed form, as exact fractions.
//!
//! What a transfer takes on an otherwise idle wire, without latencies, and the fractions lost to ordered
//! sets and data-link packets. The stepped link reaches these values in long runs; tests compare them.

use crate::config::{CompletionPolicy, Generation, LinkConfig};
use crate::packet::{DLLP_BYTES, Kind, split_completions, split_request};
use crate::ratio::Ratio;
use sim_core::push::Direction;
use sim_core::time::TICKS_PER_NS;

/// Flit bytes per TLP byte.
fn flit_tax(config: &LinkConfig) -> Ratio {
    if config.generation.uses_flits() {
        Ratio::new(256, 236)
    } else {
        Ratio::whole(1)
    }
}

/// Packets and wire bytes of one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Read requests.
    pub requests: u64,
    /// Writes, or completions with data.
    pub data_packets: u64,
    /// Wire (Gen6: stream) bytes from device to host.
    pub up_bytes: u64,
    /// Wire (Gen6: stream) bytes from host to device.
    pub down_bytes: u64,
    /// User bytes.
    pub payload: u64,
}

impl Totals {
    /// Cuts a transfer of `bytes` at `address` into packets and adds them up.
    pub fn of(config: &LinkConfig, direction: Direction, address: u64, bytes: u64) -> Totals {
        let mut sum = Totals {
            requests: 0,
            data_packets: 0,
            up_bytes: 0,
            down_bytes: 0,
            payload: bytes,
        };
        let (mps, rcb) = (u64::from(config.mps), u64::from(config.rcb));
        match direction {
            Direction::DeviceToHost => {
                for piece in split_request(address, bytes, u64::from(config.write_tlp)) {
                    sum.up_bytes += config.tlp_bytes(Kind::MWr, piece.bytes);
                    sum.data_packets += 1;
                }
            }
            Direction::HostToDevice => {
                for (index, read) in (0..).zip(split_request(address, bytes, u64::from(config.mrrs))) {
                    sum.up_bytes += config.tlp_bytes(Kind::MRd, 0);
                    sum.requests += 1;
                    let max = config.completions.is_max(index);
                    for piece in split_completions(read.address, read.bytes, mps, rcb, max) {
                        sum.down_bytes += config.tlp_bytes(Kind::CplD, piece.bytes);
                        sum.data_packets += 1;
                    }
                }
            }
        }
        sum
    }

    /// Ticks for which the busier direction is busy (fluid for Gen6: not rounded up to whole flits).
    pub fn ticks(&self, config: &LinkConfig) -> Ratio {
        let bytes = Ratio::whole(self.up_bytes.max(self.down_bytes));
        let symbol = Ratio::new(
            u128::from(config.generation.symbol_ticks()),
            u128::from(config.lanes),
        );
        bytes.times(symbol).times(flit_tax(config))
    }

    /// Payload GB/s (10^9 bytes/s) with nothing but packets on the wire.
    pub fn ideal_gbps(&self, config: &LinkConfig) -> Ratio {
        Ratio::whole(self.payload * TICKS_PER_NS).over(self.ticks(config))
    }

    /// With ordered sets.
    pub fn skp_gbps(&self, config: &LinkConfig) -> Ratio {
        self.ideal_gbps(config).times(skp_fraction(config))
    }

    /// With ordered sets and, for reads of Gen1-5, one ACK and one `UpdateFC` per ACK limit or read,
    /// whichever is longer.
    pub fn full_gbps(&self, config: &LinkConfig) -> Ratio {
        if self.requests == 0 || config.generation.uses_flits() {
            return self.skp_gbps(config);
        }
        let limit = Ratio::whole(config.ack_limit_symbols() * u64::from(config.lanes));
        let per = limit.max(Ratio::new(u128::from(self.down_bytes), u128::from(self.requests)));
        let dllps = Ratio::whole(2 * DLLP_BYTES);
        self.ideal_gbps(config)
            .times(skp_fraction(config).minus(dllps.over(per.plus(dllps))))
    }
}

/// The fraction of a link's time left by SKP ordered sets at their default interval, without alignment.
pub fn skp_fraction(config: &LinkConfig) -> Ratio {
    let lanes = u128::from(config.lanes);
    let lost = match config.generation {
        Generation::Gen1 | Generation::Gen2 => Ratio::new(4, 1538),
        Generation::Gen6 => Ratio::new(40, 12_040),
        _ => Ratio::new(16 * lanes + 4, 375 * 16 * lanes),
    };
    Ratio::whole(1).minus(lost)
}

/// Raw GB/s of one direction.
pub fn raw_gbps(config: &LinkConfig) -> Ratio {
    Ratio::new(
        u128::from(config.lanes) * u128::from(TICKS_PER_NS),
        u128::from(config.generation.symbol_ticks()),
    )
}

/// Wire limits of both directions at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BothWays {
    /// Host to device, limited by completions.
    pub h2d: Ratio,
    /// Device to host, beside the read requests.
    pub d2h: Ratio,
    /// Device to host alone.
    pub d2h_alone: Ratio,
}

/// Wire limits of reads and writes at the same time, GB/s; completions carry `completion` bytes each.
pub fn both_ways(config: &LinkConfig, completion: u64) -> BothWays {
    let rate = raw_gbps(config).over(flit_tax(config));
    let share =
        |kind, payload: u64| Ratio::new(u128::from(payload), u128::from(config.tlp_bytes(kind, payload)));
    let h2d = rate.times(share(Kind::CplD, completion));
    let write = share(Kind::MWr, u64::from(config.write_tlp));
    let request = Ratio::new(
        u128::from(config.tlp_bytes(Kind::MRd, 0)),
        u128::from(config.mrrs),
    );
    BothWays {
        h2d,
        d2h: rate.minus(h2d.times(request)).times(write),
        d2h_alone: rate.times(write),
    }
}

/// A plain link for comparison with closed forms: packets only, no latency, as many tags as there are.
pub(crate) fn bare(generation: Generation, lanes: u32, mps: u32) -> LinkConfig {
    LinkConfig {
        generation,
        lanes,
        mps,
        write_tlp: mps,
        tags: 16384,
        completions: CompletionPolicy::Max,
        one_way: sim_core::Time::ZERO,
        host_read: sim_core::Time::ZERO,
        skp: false,
        dllp: crate::config::DllpModel::None,
        ..LinkConfig::default()
    }
}
