//! The driver's module parameters, under their own names (uvm-driver 12), and which policies it uses.

use std::str::FromStr;

use thiserror::Error;

use crate::policy::PolicyParams;
use crate::thrashing::ThrashingParams;

/// A parameter is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("driver.{name} = {value} is out of range: {accepted}")]
pub struct ParamError {
    /// The parameter, without `uvm_perf_`.
    pub name: &'static str,
    /// What was given.
    pub value: String,
    /// What is accepted.
    pub accepted: &'static str,
}

/// When parked requests are replayed (`uvm_perf_fault_replay_policy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReplayPolicy {
    /// After each VA block.
    Block,
    /// After each batch, without flush or wait.
    Batch,
    /// After each batch: flush the buffer, replay, wait for the replay.
    #[default]
    BatchFlush,
    /// Once, at the end of the bottom half.
    Once,
}

impl FromStr for ReplayPolicy {
    type Err = ParamError;
    fn from_str(text: &str) -> Result<Self, ParamError> {
        match text {
            "block" => Ok(ReplayPolicy::Block),
            "batch" => Ok(ReplayPolicy::Batch),
            "batch_flush" => Ok(ReplayPolicy::BatchFlush),
            "once" => Ok(ReplayPolicy::Once),
            _ => Err(ParamError {
                name: "fault_replay_policy",
                value: text.to_owned(),
                accepted: "block, batch, batch_flush, once",
            }),
        }
    }
}

/// How the copies of a service are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CopySplit {
    /// Host memory of a block is one 2 MiB chunk: one copy per run of pages of one cause.
    #[default]
    Runs,
    /// Host memory is 4 KiB chunks: one copy per page.
    Pages,
}

/// Parameters of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverParams {
    /// Raw entries of one batch.
    pub fault_batch_count: u32,
    /// When to replay.
    pub fault_replay_policy: ReplayPolicy,
    /// Duplicates, in percent of the raw entries, above which the flush reads PUT anew.
    pub fault_replay_update_put_ratio: u32,
    /// Batches of one bottom half.
    pub fault_max_batches_per_service: u32,
    /// Batches of one bottom half in which some page was throttled.
    pub fault_max_throttle_per_service: u32,
    /// Thrashing mitigation.
    pub thrashing: ThrashingParams,
    /// Merge neighbouring entries of the same page.
    pub fault_coalesce: bool,
    /// Use the prefetcher.
    pub prefetch_enable: bool,
    /// Occupancy in percent that a subtree has to exceed.
    pub prefetch_threshold: u32,
    /// Faults in a block before it prefetches.
    pub prefetch_min_faults: u32,
    /// Which prefetcher.
    pub prefetch_policy: crate::prefetch::Policy,
    /// Which root chunk to evict.
    pub eviction_policy: crate::eviction::Policy,
    /// Clean pages whose copy on the host still holds leave without being copied.
    pub dirty_tracking: bool,
    /// Chunks that reserve-LRU spares, percent.
    pub eviction_reserve: u32,
    /// Memory that watermark pre-eviction keeps free, percent.
    pub eviction_watermark: u32,
    /// Pages that sequential and stride prefetchers fetch per fault.
    pub prefetch_degree: u32,
    /// Kernels, or links of a chain, that prefetchers look ahead.
    pub prefetch_window: u32,
    /// Root chunks asked of PMA at a time, as a power of two.
    pub pma_batch_nonpinned_order: u32,
    /// How copies are cut.
    pub copy_split: CopySplit,
    /// Threads of the process: each has its core's TLB emptied when pages are unmapped on the CPU.
    pub host_threads: u32,
    /// Host memory for managed data, bytes; `None`: unlimited.
    pub host_memory: Option<u64>,
    /// Seed of policies that draw.
    pub seed: u64,
}

impl Default for DriverParams {
    /// The driver's own defaults (release 595).
    fn default() -> Self {
        DriverParams {
            fault_batch_count: 256,
            fault_replay_policy: ReplayPolicy::BatchFlush,
            fault_replay_update_put_ratio: 50,
            fault_max_batches_per_service: 20,
            fault_max_throttle_per_service: 5,
            thrashing: ThrashingParams::default(),
            fault_coalesce: true,
            prefetch_enable: true,
            prefetch_threshold: 51,
            prefetch_min_faults: 1,
            prefetch_policy: crate::prefetch::Policy::default(),
            eviction_policy: crate::eviction::Policy::default(),
            dirty_tracking: false,
            eviction_reserve: 10,
            eviction_watermark: 5,
            prefetch_degree: 15,
            prefetch_window: 4,
            pma_batch_nonpinned_order: 6,
            copy_split: CopySplit::Runs,
            host_threads: 1,
            host_memory: None,
            seed: 1,
        }
    }
}

impl DriverParams {
    /// What constructors of policies take.
    pub fn policy_params(&self) -> PolicyParams {
        PolicyParams {
            seed: self.seed,
            reserve: self.eviction_reserve,
            watermark: self.eviction_watermark,
            threshold: self.prefetch_threshold,
            degree: self.prefetch_degree,
            window: self.prefetch_window,
        }
    }

    /// Does anything here need the plan of the program?
    pub fn needs_plan(&self) -> bool {
        let params = self.policy_params();
        self.dirty_tracking
            || self.eviction_policy.make(&params).needs_plan()
            || self.prefetch_policy.make(&params).needs_plan()
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first parameter that is out of its range.
    pub fn validate(&self) -> Result<(), ParamError> {
        let check = |name, value: u32, range: std::ops::RangeInclusive<u32>, accepted| {
            if range.contains(&value) {
                Ok(())
            } else {
                Err(ParamError {
                    name,
                    value: value.to_string(),
                    accepted,
                })
            }
        };
        check(
            "fault_batch_count",
            self.fault_batch_count,
            1..=1 << 20,
            "1 .. 1048576",
        )?;
        check(
            "fault_replay_update_put_ratio",
            self.fault_replay_update_put_ratio,
            0..=100,
            "0 .. 100",
        )?;
        check(
            "fault_max_batches_per_service",
            self.fault_max_batches_per_service,
            1..=1 << 20,
            "1 ..",
        )?;
        check(
            "fault_max_throttle_per_service",
            self.fault_max_throttle_per_service,
            1..=1 << 20,
            "1 ..",
        )?;
        self.thrashing.validate()?;
        check("prefetch.threshold", self.prefetch_threshold, 0..=100, "0 .. 100")?;
        check("eviction.reserve", self.eviction_reserve, 0..=99, "0 .. 99")?;
        check("eviction.watermark", self.eviction_watermark, 0..=50, "0 .. 50")?;
        check("prefetch.degree", self.prefetch_degree, 1..=511, "1 .. 511")?;
        check("prefetch.window", self.prefetch_window, 1..=1024, "1 .. 1024")?;
        check("prefetch.min_faults", self.prefetch_min_faults, 1..=20, "1 .. 20")?;
        check(
            "pma_batch_nonpinned_order",
            self.pma_batch_nonpinned_order,
            0..=10,
            "0 .. 10",
        )
    }
}
