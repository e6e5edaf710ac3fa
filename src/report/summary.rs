//! The summary of a run: every figure with its unit in its name; no figure depends on the machine.

use std::collections::BTreeMap;

use serde::Serialize;

/// Version of the schema of `summary.json`.
pub const SCHEMA: &str = "uvmsim-summary/1";

/// Bytes of one direction and cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// `host_to_device` or `device_to_host`.
    pub direction: String,
    /// The driver's name of the cause.
    pub cause: String,
    /// Bytes moved.
    pub bytes: u64,
    /// Copies made.
    pub copies: u64,
    /// Time of the copy engine in them.
    pub copy_ns: f64,
}

/// Every figure of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Name of the study.
    pub study: String,
    /// Seed.
    pub seed: u64,
    /// From the start of the program to its end.
    pub simulated_ns: f64,
    /// The same with everything resident; absent where no baseline was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline_simulated_ns: Option<f64>,
    /// `simulated_ns / baseline_simulated_ns`; absent where no baseline was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowdown: Option<f64>,
    /// When each iteration began.
    pub iteration_start_ns: Vec<f64>,
    /// Kernels run.
    pub kernels: u64,
    /// Kernels of an unknown class, which stream all their ranges.
    pub unknown_kernels: u64,
    /// What the kernels would take one after another with everything resident.
    pub kernel_time_resident_ns: f64,
    /// SMs of the GPU.
    pub sms: u32,
    /// SM time with a block being served.
    pub sm_computing_ns: f64,
    /// SM time without a block.
    pub sm_idle_ns: f64,
    /// SM time in which all blocks wait for pages, by what the driver was doing.
    pub sm_stalled_ns: BTreeMap<String, f64>,
    /// Time with a migration copy under way.
    pub migrating_ns: f64,
    /// Share of migration time that SMs with work spent computing; absent without migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_share: Option<f64>,
    /// Bytes and copies by direction and cause.
    pub traffic: Vec<Traffic>,
    /// Bytes that evictions wrote back although their tensor was freed or never written; absent where the
    /// program has no tensors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_write_back_bytes: Option<u64>,
    /// Bytes that faults fetched although their contents did not matter any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_fetch_bytes: Option<u64>,
    /// Time that the link carried something towards the device.
    pub link_busy_host_to_device_ns: f64,
    /// Time that the link carried something towards the host.
    pub link_busy_device_to_host_ns: f64,
    /// Entries that the GPU wrote into the fault buffer: raw faults.
    pub fault_entries: u64,
    /// Faults that found the buffer full.
    pub fault_entries_dropped: u64,
    /// Replays carried out.
    pub replays: u64,
    /// Time of a batch, from its fetch to the end of its replay: the median.
    pub batch_time_median_ns: f64,
    /// The same: what 99 % of the batches do not exceed.
    pub batch_time_p99_ns: f64,
    /// What the driver counted.
    pub driver: BTreeMap<String, u64>,
    /// Time of the driver's thread in each of its states.
    pub driver_time_ns: BTreeMap<String, f64>,
    /// Peak of the 2 MiB-rounded managed allocations live at once.
    pub footprint_bytes: u64,
    /// Device memory for managed data; absent when unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// `footprint_bytes / capacity_bytes`; absent when unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oversubscription: Option<f64>,
    /// Events of the simulation: what it cost, which depends on `engine.exact`; in `wall.json`.
    #[serde(skip)]
    pub events: u64,
    /// Events that shared their time with the one before.
    #[serde(skip)]
    pub ties: u64,
}

impl Summary {
    /// Enters the baseline: its time and the slowdown.
    pub fn set_baseline(&mut self, baseline: &Summary) {
        self.baseline_simulated_ns = Some(baseline.simulated_ns);
        self.slowdown = (baseline.simulated_ns > 0.0).then(|| self.simulated_ns / baseline.simulated_ns);
    }

    /// A counter of the driver; 0 where it has none of that name.
    pub fn counter(&self, name: &str) -> u64 {
        self.driver.get(name).copied().unwrap_or(0)
    }

    /// Bytes of one direction.
    pub fn bytes(&self, direction: &str) -> u64 {
        self.traffic
            .iter()
            .filter(|t| t.direction == direction)
            .map(|t| t.bytes)
            .sum()
    }

    /// Copies of one direction.
    pub fn copies(&self, direction: &str) -> u64 {
        self.traffic
            .iter()
            .filter(|t| t.direction == direction)
            .map(|t| t.copies)
            .sum()
    }

    /// Bytes of one cause, both directions.
    pub fn bytes_of_cause(&self, cause: &str) -> u64 {
        self.traffic
            .iter()
            .filter(|t| t.cause == cause)
            .map(|t| t.bytes)
            .sum()
    }

    /// All stalled SM time.
    pub fn sm_stalled_total_ns(&self) -> f64 {
        self.sm_stalled_ns.values().sum()
    }

    /// Mean time of an iteration, the first one left out where there are several, in ns.
    pub fn iteration_ns(&self) -> f64 {
        match self.iteration_start_ns.as_slice() {
            [_, second, rest @ ..] => (self.simulated_ns - second) / (rest.len() + 1) as f64,
            [only] => self.simulated_ns - only,
            [] => self.simulated_ns,
        }
    }

    /// `summary.json`.
    ///
    /// # Errors
    /// None for the figures of a run.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct File<'a> {
            schema: &'static str,
            #[serde(flatten)]
            summary: &'a Summary,
        }
        let mut text = serde_json::to_string_pretty(&File {
            schema: SCHEMA,
            summary: self,
        })?;
        text.push('\n');
        Ok(text)
    }
}

/// What a run cost on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Wall {
    /// Wall-clock time of the run.
    pub wall_s: f64,
    /// Wall-clock time of its baseline; absent where none was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline_wall_s: Option<f64>,
    /// Events of the run.
    pub events: u64,
    /// Events that shared their time with the one before.
    pub ties: u64,
    /// Events of the run by its wall-clock time.
    pub events_per_s: f64,
}
