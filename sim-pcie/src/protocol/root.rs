//! The root complex behind the protocol model: read latency, IOTLB, service rates, posted buffer.

use crate::config::LinkConfig;
use crate::host::Server;
use sim_core::Time;

/// An IOMMU: a cache of translations in front of a few page walkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IotlbOptions {
    /// Translations that it holds, least recently used out first (measured: 64 on Xeon hosts).
    pub entries: u32,
    /// Bytes of a page: 4096 or 2 MiB.
    pub page: u64,
    /// Walks at once (measured: about 5).
    pub walkers: u32,
    /// Time of a walk (measured: 220 to 290 ns).
    pub walk: Time,
}

impl Default for IotlbOptions {
    fn default() -> Self {
        IotlbOptions {
            entries: 64,
            page: 4096,
            walkers: 5,
            walk: Time::from_ns(255),
        }
    }
}

/// The host beyond what [`LinkConfig`] says (`host_read`, `drain`, `rc_write`, `rc_read`, `rc_total`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// Of every `.1` reads the first `.0` go to DRAM, the others hit the cache.
    pub dram_reads: (u32, u32),
    /// What DRAM adds to a read (measured: 40 to 55 ns).
    pub dram: Time,
    /// What the path to a remote socket adds to a read (measured: 50 to 110 ns); zero: local.
    pub remote: Time,
    /// Translation; `None`: off, or 2 MiB pages within reach.
    pub iotlb: Option<IotlbOptions>,
    /// Does a read wait at the root port until the writes before it have drained (published: NP never
    /// passes P)?
    pub reads_behind_writes: bool,
    /// The device's time from a read of its registers to the completion (assumed).
    pub mmio: Time,
}

impl Default for HostOptions {
    fn default() -> Self {
        HostOptions {
            dram_reads: (0, 1),
            dram: Time::from_ns(50),
            remote: Time::ZERO,
            iotlb: None,
            reads_behind_writes: true,
            mmio: Time::from_ns(300),
        }
    }
}

#[derive(Clone, Debug)]
struct Iotlb {
    options: IotlbOptions,
    /// Pages, most recently used last, and when their translation is there.
    entries: Vec<(u64, u64)>,
    walkers: Vec<u64>,
    misses: u64,
}

impl Iotlb {
    fn translate(&mut self, arrival: u64, address: u64) -> u64 {
        let page = address / self.options.page;
        if let Some(place) = self.entries.iter().rposition(|&(p, _)| p == page) {
            let entry = self.entries.remove(place);
            self.entries.push(entry);
            return arrival.max(entry.1);
        }
        self.misses += 1;
        let Some(walker) = self.walkers.iter_mut().min() else {
            return arrival;
        };
        *walker = arrival.max(*walker) + self.options.walk.0;
        let done = *walker;
        if self.entries.len() >= self.options.entries as usize {
            self.entries.remove(0);
        }
        self.entries.push((page, done));
        done
    }
}

/// State of the root complex.
#[derive(Clone, Debug)]
pub(super) struct Root {
    pub options: HostOptions,
    read_latency: u64,
    drain: u64,
    pub total: Server,
    pub reads: Server,
    pub writes: Server,
    /// When the last posted write will have drained.
    pub drained: u64,
    pub answered: u64,
    iotlb: Option<Iotlb>,
}

impl Root {
    pub fn new(config: &LinkConfig, options: HostOptions, drain: u64) -> Root {
        Root {
            options,
            read_latency: config.host_read.0,
            drain,
            total: Server::new(config.rc_total),
            reads: Server::new(config.rc_read),
            writes: Server::new(config.rc_write),
            drained: 0,
            answered: 0,
            iotlb: options.iotlb.map(|options| Iotlb {
                options,
                entries: Vec::new(),
                walkers: vec![0; options.walkers as usize],
                misses: 0,
            }),
        }
    }

    /// When the completions of a read that arrives now are ready.
    #[inline]
    pub fn read(&mut self, arrival: u64, address: u64, bytes: u64) -> u64 {
        let (of, out_of) = self.options.dram_reads;
        let dram = self.answered % u64::from(out_of) < u64::from(of);
        self.answered += 1;
        // The shared budget is asked at the arrival: a read that waits does not keep it from others.
        let mut t = self.total.serve(arrival, bytes);
        if self.options.reads_behind_writes {
            t = t.max(self.drained);
        }
        if let Some(iotlb) = &mut self.iotlb {
            t = iotlb.translate(t, address);
        }
        t = self.reads.serve(t, bytes) + self.read_latency + self.options.remote.0;
        t + if dram { self.options.dram.0 } else { 0 }
    }

    /// When a posted write that arrives now has left the buffer of the root port.
    #[inline]
    pub fn write(&mut self, arrival: u64, address: u64, bytes: u64) -> u64 {
        let mut t = self.total.serve(arrival, bytes);
        if let Some(iotlb) = &mut self.iotlb {
            t = iotlb.translate(t, address);
        }
        t = self.writes.serve(t, bytes);
        self.drained = self.drained.max(t);
        t + self.drain
    }

    /// Page walks so far.
    pub fn misses(&self) -> u64 {
        self.iotlb.as_ref().map_or(0, |iotlb| iotlb.misses)
    }

    /// Is the state the same at another time, for all that can follow?
    pub fn same(&self, now: u64, other: &Root, other_now: u64) -> bool {
        let period = u64::from(self.options.dram_reads.1);
        self.iotlb.is_none()
            && other.iotlb.is_none()
            && self.answered % period == other.answered % period
            && self.drained.saturating_sub(now) == other.drained.saturating_sub(other_now)
            && self.total.same(now, &other.total, other_now)
            && self.reads.same(now, &other.reads, other_now)
            && self.writes.same(now, &other.writes, other_now)
    }

    /// Moves on by `ticks` and by `answered` reads.
    pub fn shift(&mut self, now: u64, ticks: u64, answered: u64) {
        self.answered += answered;
        if self.drained > now {
            self.drained += ticks;
        }
        for server in [&mut self.total, &mut self.reads, &mut self.writes] {
            server.shift(now, ticks);
        }
    }
}
