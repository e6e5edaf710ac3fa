//! NVLink 2 to 4 and C2C, simplified: packets of 16-byte flits at a usable rate.
//!
//! A packet is one header flit and up to 16 data flits, so payload moves at d/(d+1) of the rate. Reads are
//! asked for by single flits the other way. There is no arbitration by packet: a direction is a rate, and
//! both directions may share a budget of host memory.

use crate::link::{Completion, Transfer, TransferId};
use sim_core::Time;
use sim_core::push::Direction;
use sim_core::time::TICKS_PER_NS;
use std::collections::VecDeque;

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

/// Full speed, and parts of a tick of work.
const FULL: u64 = 1 << 20;
/// Longest transfer, bytes; keeps work below 2^64 parts of a tick.
const MOST_BYTES: u64 = 1 << 34;
/// Latest submission that is told apart, 13 days.
const LATEST: u64 = 1 << 60;

#[derive(Clone, Copy, Debug)]
struct Job {
    id: TransferId,
    /// Parts of a tick at full speed.
    left: u64,
}

/// Transfers over an [`NvLink`], with the calls of the PCIe [`Link`](crate::Link).
///
/// Each direction serves its transfers in order, as a rate. While both are busy and the host's memory is
/// shared, each is slowed to half of it.
#[derive(Clone, Debug)]
pub struct NvLinkTransfers {
    link: NvLink,
    /// Host to device, device to host.
    queues: [VecDeque<Job>; 2],
    /// Speed while both are busy, of [`FULL`].
    shared_speed: [u64; 2],
    latency: [u64; 2],
    at: u64,
    next_id: u64,
    done: [VecDeque<(u64, TransferId)>; 2],
}

impl NvLinkTransfers {
    /// An idle link at time zero. Rates of zero count as one byte per second.
    pub fn new(link: NvLink) -> NvLinkTransfers {
        let speed = |direction| {
            let half = link.shared.map_or(f64::INFINITY, |budget| budget as f64 / 2e9);
            // Set once; afterwards only integers decide.
            ((half / link.gbps(direction)).min(1.0) * FULL as f64).max(1.0) as u64
        };
        let one_way = link.one_way.0.min(LATEST);
        NvLinkTransfers {
            link,
            queues: Default::default(),
            shared_speed: [speed(Direction::HostToDevice), speed(Direction::DeviceToHost)],
            latency: [2 * one_way + link.host_read.0.min(LATEST), one_way],
            at: 0,
            next_id: 0,
            done: Default::default(),
        }
    }

    fn speeds(&self) -> [u64; 2] {
        if self.queues.iter().all(|queue| !queue.is_empty()) {
            self.shared_speed
        } else {
            [FULL; 2]
        }
    }

    /// Serves until `limit`, or (`first`) until one more transfer has been served.
    fn serve(&mut self, limit: u64, first: bool) {
        while self.at < limit {
            let speeds = self.speeds();
            let heads = [0, 1].map(|i| self.queues[i].front().map(|job| job.left.div_ceil(speeds[i])));
            let Some(step) = heads.into_iter().flatten().min() else {
                break;
            };
            let step = step.min(limit - self.at);
            self.at += step;
            let mut served = false;
            for (i, speed) in speeds.into_iter().enumerate() {
                let Some(job) = self.queues[i].front_mut() else {
                    continue;
                };
                job.left = job.left.saturating_sub(step.saturating_mul(speed));
                if job.left == 0 {
                    self.done[i].push_back((self.at + self.latency[i], job.id));
                    self.queues[i].pop_front();
                    served = true;
                }
            }
            if first && served {
                return;
            }
        }
        if limit < u64::MAX {
            self.at = self.at.max(limit);
        }
    }

    fn first_done(&self) -> Option<u64> {
        self.done
            .iter()
            .filter_map(|done| done.front())
            .map(|&(time, _)| time)
            .min()
    }

    /// Queues a transfer behind those of its direction. A `now` before an earlier call's counts as that.
    pub fn submit(&mut self, now: Time, transfer: Transfer) -> TransferId {
        self.serve(now.0.min(LATEST), false);
        let id = TransferId(self.next_id);
        self.next_id += 1;
        let ticks = self
            .link
            .wire(transfer.direction, transfer.bytes.clamp(1, MOST_BYTES));
        let queue = usize::from(transfer.direction == Direction::DeviceToHost);
        self.queues[queue].push_back(Job {
            id,
            left: ticks.saturating_mul(FULL),
        });
        id
    }

    /// When the next completion occurs if nothing else is submitted; `None` on an idle link.
    pub fn next_event(&mut self) -> Option<Time> {
        let mut ahead = self.clone();
        while ahead.first_done().is_none() {
            ahead.queues.iter().find(|queue| !queue.is_empty())?;
            ahead.serve(u64::MAX, true);
        }
        // The other direction may have less latency.
        let first = ahead.first_done()?;
        ahead.serve(first, false);
        ahead.first_done().map(Time)
    }

    /// Moves to time `to` and appends the completions up to and including it, in time order.
    pub fn advance(&mut self, to: Time, done: &mut Vec<Completion>) {
        self.serve(to.0.min(LATEST), false);
        while let Some(first) = self.first_done().filter(|&time| time <= to.0) {
            for queue in &mut self.done {
                if let Some(&(time, id)) = queue.front()
                    && time == first
                {
                    queue.pop_front();
                    done.push(Completion { id, time: Time(time) });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(link: NvLink, transfers: &[(u64, Direction, u64)]) -> Vec<Completion> {
        let mut sim = NvLinkTransfers::new(link);
        let mut done = Vec::new();
        for &(at, direction, bytes) in transfers {
            sim.advance(Time(at), &mut done);
            sim.submit(
                Time(at),
                Transfer {
                    direction,
                    bytes,
                    address: 0,
                },
            );
        }
        while let Some(next) = sim.next_event() {
            let before = done.len();
            sim.advance(next, &mut done);
            assert!(done.len() > before && done[before].time == next);
        }
        done
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn rates_are_near_the_measured_ones() {
        // Measured: AC922 67.1 and 65.8, A100 pair 276.1, H800 (8 links) 176.1 of write, GH200 370 and 295.
        let rate = |generation, links, direction| NvLink::new(generation, links).gbps(direction);
        for (generation, links, direction, measured) in [
            (Generation::NvLink2, 3, Direction::HostToDevice, 67.1),
            (Generation::NvLink2, 3, Direction::DeviceToHost, 65.8),
            (Generation::NvLink3, 12, Direction::DeviceToHost, 276.1),
            (Generation::NvLink4, 8, Direction::DeviceToHost, 176.1),
            (Generation::C2c, 1, Direction::HostToDevice, 370.1),
            (Generation::C2c, 1, Direction::DeviceToHost, 295.2),
        ] {
            let model = rate(generation, links, direction);
            assert!(
                (model / measured - 1.0).abs() < 0.02,
                "{generation:?} {direction:?}: {model} {measured}"
            );
        }
    }

    #[test]
    fn one_direction_is_a_queue() {
        let link = NvLink::new(Generation::NvLink4, 18);
        let one = run(link, &[(0, Direction::HostToDevice, MIB)])[0].time.0;
        let two = run(
            link,
            &[
                (0, Direction::HostToDevice, MIB),
                (0, Direction::HostToDevice, MIB),
            ],
        );
        let latency = 2 * link.one_way.0 + link.host_read.0;
        assert_eq!(two[1].time.0 - latency, 2 * (one - latency));
    }

    #[test]
    fn both_directions_share_host_memory() {
        use Direction::{DeviceToHost, HostToDevice};
        let link = NvLink::new(Generation::C2c, 1);
        let done = run(link, &[(0, HostToDevice, 64 * MIB), (0, DeviceToHost, 64 * MIB)]);
        // Each at half of the budget, so both end at nearly the same time.
        for c in done {
            let gbps = (64 * MIB) as f64 / c.time.as_ns_f64();
            assert!((gbps / 182.5 - 1.0).abs() < 0.01, "{gbps}");
        }
        let free = NvLink { shared: None, ..link };
        let alone = run(free, &[(0, DeviceToHost, 64 * MIB)])[0].time;
        let beside = run(free, &[(0, DeviceToHost, 64 * MIB), (0, HostToDevice, 64 * MIB)]);
        assert!(beside.iter().any(|c| c.time == alone));
    }
}
