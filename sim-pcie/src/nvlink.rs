//! NVLink 2 to 4 and C2C, simplified: packets of 16-byte flits at a usable rate.
//!
//! A packet is one header flit and up to 16 data flits, so payload moves at d/(d+1) of the rate. Reads are
//! asked for by single flits the other way. There is no arbitration by packet: a direction is a rate, and
//! both directions may share a budget of host memory.

use sim_core::Time;
use sim_core::push::Direction;
use sim_core::time::TICKS_PER_NS;

/// Bytes of a flit.
pub const FLIT_BYTES: u64 = 16;

/// A kind of link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generation {
    /// 8 lanes of 25 Gb/s a link: V100, POWER9.
    NvLink2,
    /// 4 lanes of 50 Gb/s a link: A100.
    NvLink3,
    /// 2 lanes of 100 Gb/s a link: H100.
    NvLink4,
    /// Chip to chip: GH200.
    C2c,
}

/// A link between two chips; all rates are per direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvLink {
    /// Its kind.
    pub generation: Generation,
    /// Links side by side.
    pub links: u64,
    /// Usable bytes per second of one link (published: 25 GB/s of NVLink 2 to 4, 450 of C2C).
    pub rate: u64,
    /// User bytes of a packet, 16 to 256, a multiple of 16.
    pub payload: u64,
    /// Loss from the host to the device beside packet headers, in thousandths of the rate.
    pub loss_h2d: u64,
    /// The same from the device to the host.
    pub loss_d2h: u64,
    /// One-way latency.
    pub one_way: Time,
    /// Host latency of a read.
    pub host_read: Time,
    /// Host memory bandwidth that both directions share while both are busy, bytes per second.
    pub shared: Option<u64>,
}

impl NvLink {
    /// `links` links with the packet size that measured rates imply: 128 B for NVLink2 to a CPU and for
    /// NVLink4, 256 B and 2 % loss for NVLink3; C2C with measured efficiencies (0.825 and 0.66).
    pub fn new(generation: Generation, links: u64) -> NvLink {
        let (rate, payload, loss_h2d, loss_d2h, shared) = match generation {
            Generation::NvLink2 | Generation::NvLink4 => (25_000_000_000, 128, 0, 0, None),
            Generation::NvLink3 => (25_000_000_000, 256, 20, 20, None),
            // 0.825 and 0.66 of the rate (measured, GH200), headers of 1/17 included.
            Generation::C2c => (450_000_000_000, 256, 123, 299, Some(365_000_000_000)),
        };
        NvLink {
            generation,
            links: links.max(1),
            rate,
            payload,
            loss_h2d,
            loss_d2h,
            one_way: Time::from_ns(75),    // assumed, as PCIe
            host_read: Time::from_ns(350), // assumed, as PCIe
            shared,
        }
    }

    /// Flits of a transfer of `bytes`, headers included.
    pub fn flits(&self, bytes: u64) -> u64 {
        let payload = self.payload.clamp(FLIT_BYTES, 256);
        bytes.div_ceil(FLIT_BYTES) + bytes.div_ceil(payload)
    }

    /// Nanoseconds of wire time of a write of `bytes`, without latency and loss.
    pub fn write_ns(&self, bytes: u64) -> f64 {
        (self.flits(bytes) * FLIT_BYTES) as f64 * 1e9 / (self.rate * self.links) as f64
    }

    /// Payload GB/s of a long transfer, alone.
    pub fn gbps(&self, direction: Direction) -> f64 {
        let bytes = 1 << 24;
        bytes as f64 / (self.wire(direction, bytes) as f64 / TICKS_PER_NS as f64)
    }

    /// Ticks of wire time of a transfer.
    fn wire(&self, direction: Direction, bytes: u64) -> u64 {
        let loss = match direction {
            Direction::HostToDevice => self.loss_h2d,
            Direction::DeviceToHost => self.loss_d2h,
        };
        let rate =
            u128::from(self.rate.max(1)) * u128::from(self.links) * u128::from(1000 - loss.min(999)) / 1000;
        let work = u128::from(self.flits(bytes) * FLIT_BYTES) * u128::from(TICKS_PER_NS) * 1_000_000_000;
        (work.div_ceil(rate.max(1))) as u64
    }
}
