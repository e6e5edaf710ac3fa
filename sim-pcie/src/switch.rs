//! A PCIe switch: several devices share the link to the host.
//!
//! Transaction level: packets of the devices and of the host go over two hops, store and forward. A hop sends
//! packet by packet on its own wires (slots, symbol alignment, ordered sets as in the rest of the crate); the
//! switch adds a latency per packet and direction, takes the devices in turn, and has a finite buffer for
//! completions per device (published: switch ports may advertise finite completion credits): the host sends a
//! completion only when the buffer of its device has room. A full buffer holds back the completions behind it too,
//! as one queue per class does. Data-link packets cost no wire time here, and freed credits return at once.
//!
//! ```
//! use sim_core::Time;
//! use sim_pcie::LinkConfig;
//! use sim_pcie::switch::{Switch, SwitchOptions};
//!
//! let config = LinkConfig { skp: false, ..LinkConfig::default() };
//! let mut switch = Switch::new(&config, &[config.clone(), config.clone()], SwitchOptions::default())?;
//! switch.read(0, Time::ZERO, 0, 1 << 20);
//! switch.read(1, Time::ZERO, 0, 1 << 20);
//! switch.run();
//! let rate = (2 << 20) as f64 / switch.done().last().unwrap().time.as_ns_f64();
//! assert!(rate < 24.0); // the shared link
//! # Ok::<(), sim_pcie::LinkConfigError>(())
//! ```

use crate::config::{DllpModel, LinkConfig, LinkConfigError};
use crate::packet::{Kind, first_completion, first_request};
use crate::wire::{Side as WireSide, Unit, Wire};
use sim_core::Time;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What a switch adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchOptions {
    /// Per packet and direction (published: 105 to 150 ns by vendor and generation).
    pub latency: Time,
    /// Completion headers that the buffer towards each device holds; `None`: infinite (published default of open
    /// models: 64).
    pub completion_headers: Option<u32>,
    /// Its data, units of 16 bytes (published default of open models: 1024).
    pub completion_data: Option<u32>,
}

impl Default for SwitchOptions {
    fn default() -> Self {
        SwitchOptions {
            latency: Time::from_ns(110),
            completion_headers: Some(64),
            completion_data: Some(1024),
        }
    }
}

/// A transfer that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchDone {
    /// Device.
    pub device: usize,
    /// Its transfer, in order of submission over all devices from 0.
    pub transfer: u32,
    /// When its last byte arrived at the device (reads) or the host (writes).
    pub time: Time,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    kind: Kind,
    device: usize,
    transfer: u32,
    address: u64,
    bytes: u64,
    last: bool,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    at: u64,
    address: u64,
    bytes: u64,
    transfer: u32,
}

#[derive(Clone, Debug)]
struct Device {
    config: LinkConfig,
    up: Wire,
    down: Wire,
    writes: VecDeque<Job>,
    reads: VecDeque<Job>,
    outstanding: u32,
    /// A write (and not a read request) goes next.
    turn: bool,
    /// At the switch, towards the host and towards the device; when each may go on.
    upward: VecDeque<(u64, Packet)>,
    downward: VecDeque<(u64, Packet)>,
    /// Completions between the host and the device's wire: headers and data units.
    held: (u32, u64),
    /// Bytes in the buffer towards the host that were launched and not forwarded.
    waiting: u32,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A transmitter may have something to do: of the device, of the switch up, of the host, of the switch down.
    Try,
    AtSwitchUp(Packet),
    AtHost(Packet),
    AtSwitchDown(Packet),
    AtDevice(Packet),
}

/// Packets of a device that may be in the switch towards the host (published default of open models: 64 headers).
const UP_HEADERS: u32 = 64;

/// See the [module documentation](self).
#[derive(Clone, Debug)]
pub struct Switch {
    config: LinkConfig,
    options: SwitchOptions,
    up: Wire,
    down: Wire,
    devices: Vec<Device>,
    turn: usize,
    /// Reads that the host answers, when their data are ready.
    answers: VecDeque<(u64, Packet)>,
    answered: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    payloads: std::collections::BTreeMap<u64, Event>,
    events_ever: u64,
    /// Times at which a `Try` is pending.
    tries: std::collections::BTreeSet<u64>,
    transfers: u32,
    left: Vec<u64>,
    done: Vec<SwitchDone>,
}

impl Switch {
    /// A switch below `upstream`, with a link to each device. The host is as in `upstream`; each device requests
    /// as its own link says.
    ///
    /// # Errors
    /// A link that cannot be, a generation 6 link, no device, or a completion buffer smaller than a packet.
    pub fn new(
        upstream: &LinkConfig,
        devices: &[LinkConfig],
        options: SwitchOptions,
    ) -> Result<Switch, LinkConfigError> {
        let error = |key, value: String, allowed: String| LinkConfigError { key, value, allowed };
        for config in devices.iter().chain([upstream]) {
            config.validate()?;
            if config.generation.uses_flits() {
                return Err(error(
                    "generation",
                    "6".to_owned(),
                    "1 to 5 behind a switch".to_owned(),
                ));
            }
        }
        if devices.is_empty() || devices.len() > 64 {
            return Err(error("devices", devices.len().to_string(), "1 to 64".to_owned()));
        }
        let least = upstream.mps.div_ceil(16);
        if let Some(data) = options.completion_data.filter(|&data| data < least) {
            return Err(error(
                "switch.completion_data",
                data.to_string(),
                format!("at least mps / 16 = {least}"),
            ));
        }
        if options.completion_headers == Some(0) {
            return Err(error(
                "switch.completion_headers",
                "0".to_owned(),
                "at least 1".to_owned(),
            ));
        }
        if options.latency > Time::from_us(1_000_000) {
            return Err(error(
                "switch.latency",
                options.latency.to_string(),
                "at most 1 s".to_owned(),
            ));
        }
        let plain = |config: &LinkConfig| LinkConfig {
            dllp: DllpModel::None,
            ..config.clone()
        };
        let config = plain(upstream);
        let devices = devices.iter().map(|d| {
            // The smallest payload on the path bounds all packets.
            let own = plain(d);
            let mps = own.mps.min(config.mps);
            let own = LinkConfig {
                mps,
                write_tlp: own.write_tlp.min(mps),
                ..own
            };
            Device {
                up: Wire::new(&own, WireSide::Up),
                down: Wire::new(&own, WireSide::Down),
                config: own,
                writes: VecDeque::new(),
                reads: VecDeque::new(),
                outstanding: 0,
                turn: true,
                upward: VecDeque::new(),
                downward: VecDeque::new(),
                held: (0, 0),
                waiting: 0,
            }
        });
        let devices: Vec<Device> = devices.collect();
        let mps = devices.iter().map(|d| d.config.mps).min().unwrap_or(config.mps);
        Ok(Switch {
            up: Wire::new(&config, WireSide::Up),
            down: Wire::new(&config, WireSide::Down),
            config: LinkConfig {
                mps,
                write_tlp: config.write_tlp.min(mps),
                ..config
            },
            options,
            devices,
            turn: 0,
            answers: VecDeque::new(),
            answered: 0,
            events: BinaryHeap::new(),
            payloads: std::collections::BTreeMap::new(),
            events_ever: 0,
            tries: std::collections::BTreeSet::new(),
            transfers: 0,
            left: Vec::new(),
            done: Vec::new(),
        })
    }

    fn job(&mut self, at: Time, address: u64, bytes: u64) -> Job {
        let (at, bytes) = (at.0.min(1 << 60), bytes.clamp(1, 1 << 40));
        self.left.push(bytes);
        self.transfers += 1;
        self.at(at, Event::Try);
        Job {
            at,
            address: address % (1 << 50),
            bytes,
            transfer: self.transfers - 1,
        }
    }

    /// Device `device` (modulo their number) reads host memory.
    pub fn read(&mut self, device: usize, at: Time, address: u64, bytes: u64) {
        let job = self.job(at, address, bytes);
        let place = device % self.devices.len();
        self.devices[place].reads.push_back(job);
    }

    /// Device `device` (modulo their number) writes host memory.
    pub fn write(&mut self, device: usize, at: Time, address: u64, bytes: u64) {
        let job = self.job(at, address, bytes);
        let place = device % self.devices.len();
        self.devices[place].writes.push_back(job);
    }

    /// Transfers that have arrived, in order of time.
    pub fn done(&self) -> &[SwitchDone] {
        &self.done
    }

    fn at(&mut self, time: u64, event: Event) {
        if matches!(event, Event::Try) && !self.tries.insert(time) {
            return;
        }
        self.events_ever += 1;
        self.events.push(Reverse((time, self.events_ever)));
        self.payloads.insert(self.events_ever, event);
    }

    /// Runs until every transfer has arrived.
    pub fn run(&mut self) {
        while let Some(Reverse((now, number))) = self.events.pop() {
            match self.payloads.remove(&number) {
                Some(Event::AtSwitchUp(packet)) => {
                    let ready = now + self.options.latency.0;
                    self.devices[packet.device].upward.push_back((ready, packet));
                    self.at(ready, Event::Try);
                }
                Some(Event::AtSwitchDown(packet)) => {
                    let ready = now + self.options.latency.0;
                    self.devices[packet.device].downward.push_back((ready, packet));
                    self.at(ready, Event::Try);
                }
                Some(Event::AtHost(packet)) => self.at_host(packet, now),
                Some(Event::AtDevice(packet)) => {
                    if packet.last {
                        self.devices[packet.device].outstanding -= 1;
                    }
                    self.arrived(packet, now);
                }
                Some(Event::Try) | None => {
                    self.tries.remove(&now);
                }
            }
            for device in 0..self.devices.len() {
                self.device_sends(device, now);
                self.switch_sends_down(device, now);
            }
            self.switch_sends_up(now);
            self.host_sends(now);
        }
    }

    fn at_host(&mut self, packet: Packet, now: u64) {
        if packet.kind == Kind::MWr {
            self.arrived(packet, now);
        } else {
            let ready = now + self.config.host_read.0;
            self.answers.push_back((ready, packet));
            self.at(ready, Event::Try);
        }
    }

    fn arrived(&mut self, packet: Packet, now: u64) {
        let left = &mut self.left[packet.transfer as usize];
        *left = left.saturating_sub(packet.bytes);
        if *left == 0 {
            self.done.push(SwitchDone {
                device: packet.device,
                transfer: packet.transfer,
                time: Time(now),
            });
        }
    }

    /// Sends on `wire` if it can start now; its end, or `None` and when it can.
    fn start(wire: &mut Wire, config: &LinkConfig, packet: &Packet, now: u64) -> Result<u64, u64> {
        let data = if packet.kind == Kind::MRd { 0 } else { packet.bytes };
        let start = wire.peek(now);
        if start.time > now {
            return Err(start.time);
        }
        let unit = Unit {
            slots: config.tlp_slots(packet.kind, data),
            count: 0,
        };
        Ok(wire.send_at(start, unit))
    }

    fn device_sends(&mut self, index: usize, now: u64) {
        let device = &mut self.devices[index];
        if device.waiting >= UP_HEADERS {
            return;
        }
        let write = device.writes.front().copied().filter(|job| job.at <= now);
        let read = device.reads.front().copied().filter(|job| job.at <= now);
        let read = read.filter(|_| device.outstanding < device.config.tags);
        let (job, is_write) = match (write, read) {
            (Some(write), Some(read)) => (if device.turn { write } else { read }, device.turn),
            (Some(write), None) => (write, true),
            (None, Some(read)) => (read, false),
            (None, None) => return,
        };
        let limit = u64::from(if is_write {
            device.config.write_tlp
        } else {
            device.config.mrrs
        });
        let bytes = first_request(job.address, job.bytes, limit);
        let packet = Packet {
            kind: if is_write { Kind::MWr } else { Kind::MRd },
            device: index,
            transfer: job.transfer,
            address: job.address,
            bytes,
            last: false,
        };
        match Self::start(&mut device.up, &device.config, &packet, now) {
            Err(later) => self.at(later, Event::Try),
            Ok(end) => {
                let queue = if is_write {
                    &mut device.writes
                } else {
                    &mut device.reads
                };
                if let Some(front) = queue.front_mut() {
                    front.address += bytes;
                    front.bytes -= bytes;
                    if front.bytes == 0 {
                        queue.pop_front();
                    }
                }
                device.outstanding += u32::from(!is_write);
                device.turn = !is_write;
                device.waiting += 1;
                let arrival = end + device.config.one_way.0;
                self.at(end, Event::Try);
                self.at(arrival, Event::AtSwitchUp(packet));
            }
        }
    }

    fn switch_sends_up(&mut self, now: u64) {
        let count = self.devices.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            let front = self.devices[index].upward.front().copied();
            let Some((_, packet)) = front.filter(|f| f.0 <= now) else {
                continue;
            };
            match Self::start(&mut self.up, &self.config, &packet, now) {
                Err(later) => self.at(later, Event::Try),
                Ok(end) => {
                    self.devices[index].upward.pop_front();
                    self.devices[index].waiting -= 1;
                    self.turn = (index + 1) % count;
                    self.at(end, Event::Try);
                    self.at(end + self.config.one_way.0, Event::AtHost(packet));
                }
            }
            return;
        }
    }

    fn host_sends(&mut self, now: u64) {
        let Some((ready, read)) = self.answers.front().copied() else {
            return;
        };
        if ready > now {
            return;
        }
        let max = self.config.completions.is_max(self.answered);
        let (mps, rcb) = (u64::from(self.config.mps), u64::from(self.config.rcb));
        let bytes = first_completion(read.address, read.bytes, mps, rcb, max);
        let (headers, data) = self.devices[read.device].held;
        let units = bytes.div_ceil(16);
        let room = self
            .options
            .completion_headers
            .is_none_or(|limit| headers < limit)
            && self
                .options
                .completion_data
                .is_none_or(|limit| data + units <= u64::from(limit));
        if !room {
            return; // The device's wire will free some.
        }
        let packet = Packet {
            kind: Kind::CplD,
            bytes,
            last: bytes == read.bytes,
            ..read
        };
        match Self::start(&mut self.down, &self.config, &packet, now) {
            Err(later) => self.at(later, Event::Try),
            Ok(end) => {
                if let Some((_, front)) = self.answers.front_mut() {
                    front.address += bytes;
                    front.bytes -= bytes;
                    if front.bytes == 0 {
                        self.answers.pop_front();
                        self.answered += 1;
                    }
                }
                self.devices[read.device].held = (headers + 1, data + units);
                self.at(end, Event::Try);
                self.at(end + self.config.one_way.0, Event::AtSwitchDown(packet));
            }
        }
    }

    fn switch_sends_down(&mut self, index: usize, now: u64) {
        let device = &mut self.devices[index];
        let Some((_, packet)) = device.downward.front().copied().filter(|f| f.0 <= now) else {
            return;
        };
        match Self::start(&mut device.down, &device.config, &packet, now) {
            Err(later) => self.at(later, Event::Try),
            Ok(end) => {
                device.downward.pop_front();
                device.held.0 -= 1;
                device.held.1 -= packet.bytes.div_ceil(16);
                let arrival = end + device.config.one_way.0;
                self.at(end, Event::Try);
                self.at(arrival, Event::AtDevice(packet));
            }
        }
    }
}
