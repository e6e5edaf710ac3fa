//! Copies with their fixed costs: doorbell, command fetch, set-up, data, semaphore, interrupt.
//!
//! One engine per direction works its copies off in turn. The semaphore write follows the data: of a
//! device-to-host copy behind it in the same queue, of a host-to-device copy after its last completion.

use super::source::Job;
use super::{Purpose, Side};
use sim_core::Time;
use sim_core::push::Direction;
use std::collections::VecDeque;

/// Fixed costs of a copy; what they add to is the `t0` of `T(n) = t0 + n/B` (measured: 2.6 us host to device,
/// 1.4 to 2.0 us device to host, copies back to back).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyCosts {
    /// From the host's store to the doorbell's start on the link (derived: 0.3 to 0.5 us with the flight).
    pub doorbell: Time,
    /// Bytes of commands that the engine fetches, in one read (assumed).
    pub command_bytes: u32,
    /// From the commands to the first data request (derived: 0.3 to 0.8 us).
    pub setup: Time,
    /// From the end of the data to the semaphore write (derived: 0.3 us with the flight).
    pub semaphore: Time,
    /// Does an interrupt follow the semaphore?
    pub interrupt: bool,
}

impl Default for CopyCosts {
    fn default() -> Self {
        CopyCosts {
            doorbell: Time::from_ns(300),
            command_bytes: 64,
            setup: Time::from_ns(550),
            semaphore: Time::from_ns(200),
            interrupt: false,
        }
    }
}

/// A copy whose semaphore has reached host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyDone {
    /// Its number, in order of submission from 1.
    pub copy: u32,
    /// When.
    pub time: Time,
}

/// One submitted copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    pub direction: Direction,
    pub address: u64,
    pub bytes: u64,
    /// Bytes that have not arrived.
    pub left: u64,
}

/// The engines.
#[derive(Clone, Debug, Default)]
pub(super) struct Engines {
    pub costs: CopyCosts,
    pub copies: Vec<Copy>,
    waiting: [VecDeque<u32>; 2],
    busy: [bool; 2],
    pub done: Vec<CopyDone>,
}

fn engine(direction: Direction) -> usize {
    match direction {
        Direction::HostToDevice => 0,
        Direction::DeviceToHost => 2,
    }
}

/// A job for a source of the device: posted (`true`) or reads, which source, what.
pub(super) type Order = (bool, usize, Job);

impl Engines {
    /// A new copy; its number, and the doorbell that starts it.
    pub fn submit(&mut self, at: u64, direction: Direction, address: u64, bytes: u64) -> Job {
        self.copies.push(Copy {
            direction,
            address,
            bytes,
            left: bytes,
        });
        Job {
            at: at + self.costs.doorbell.0,
            address: 0,
            bytes: 8,
            limit: 64,
            purpose: Purpose::Doorbell,
            copy: self.copies.len() as u32,
        }
    }

    /// The next copy of an engine, if it is free: fetch its commands.
    fn start(&mut self, slot: usize, now: u64, orders: &mut Vec<Order>) {
        if self.busy[slot] {
            return;
        }
        let Some(copy) = self.waiting[slot].pop_front() else {
            return;
        };
        self.busy[slot] = true;
        let job = Job {
            at: now,
            address: 0,
            bytes: u64::from(self.costs.command_bytes.clamp(1, 4096)),
            limit: 4096,
            purpose: Purpose::CommandFetch,
            copy,
        };
        orders.push((false, 2 * slot, job));
    }

    fn end(&self, copy: u32, slot: usize, at: u64, orders: &mut Vec<Order>) {
        for purpose in [Purpose::Semaphore, Purpose::Interrupt] {
            if purpose == Purpose::Semaphore || self.costs.interrupt {
                let job = Job {
                    at,
                    address: 0,
                    bytes: 4,
                    limit: 64,
                    purpose,
                    copy,
                };
                orders.push((true, 2 * slot, job));
            }
        }
    }

    /// A packet of copy `number` has been accepted: what the engine does next.
    #[expect(clippy::too_many_arguments, reason = "one packet, and the limits of its kind")]
    pub fn delivered(
        &mut self,
        side: Side,
        number: u32,
        purpose: Purpose,
        bytes: u64,
        last: bool,
        now: u64,
        limits: [u64; 2],
        orders: &mut Vec<Order>,
    ) {
        let Some(copy) = self.copies.get_mut((number as usize).wrapping_sub(1)) else {
            return;
        };
        let (direction, slot) = (copy.direction, engine(copy.direction) / 2);
        match (purpose, side) {
            (Purpose::Doorbell, _) => {
                self.waiting[slot].push_back(number);
                self.start(slot, now, orders);
            }
            (Purpose::CommandFetch, Side::Down) if last => {
                let at = now + self.costs.setup.0;
                let read = direction == Direction::HostToDevice;
                let job = Job {
                    at,
                    address: copy.address,
                    bytes: copy.bytes,
                    limit: limits[usize::from(read)],
                    purpose: if read {
                        Purpose::CopyRead
                    } else {
                        Purpose::CopyWrite
                    },
                    copy: number,
                };
                orders.push((!read, engine(direction), job));
                if !read {
                    self.end(number, slot, at, orders);
                }
            }
            (Purpose::CopyRead, Side::Down) => {
                copy.left = copy.left.saturating_sub(bytes);
                if copy.left == 0 {
                    let at = now + self.costs.semaphore.0;
                    self.end(number, slot, at, orders);
                }
            }
            (Purpose::Semaphore, _) => {
                self.done.push(CopyDone {
                    copy: number,
                    time: Time(now),
                });
                self.busy[slot] = false;
                self.start(slot, now, orders);
            }
            _ => {}
        }
    }

    /// The same but for bytes on their way?
    pub fn same(&self, other: &Engines) -> bool {
        self.copies.len() == other.copies.len()
            && self.busy == other.busy
            && self.waiting == other.waiting
            && self.done.len() == other.done.len()
    }

    /// Moves on by `times` periods since `before`.
    pub fn shift(&mut self, times: u64, before: &Engines) {
        for (copy, old) in self.copies.iter_mut().zip(&before.copies) {
            copy.left -= (old.left - copy.left) * times;
        }
    }
}
