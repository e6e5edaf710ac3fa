//! From the sections of a config to the parameters of the crates.

use sim_gpu::params::{Exactness, GpuParams};
use sim_host::ThrashingParams;
use sim_host::params::CopySplit;
use sim_host::{DriverParams, HostCost, ParamError};
use sim_pcie::LinkConfig;
use sim_pcie::config::{AckPolicy, Arbiter, CompletionPolicy, DllpModel, Generation};

use super::Sections;

impl Sections {
    /// The parameters of the link.
    pub fn link_config(&self) -> LinkConfig {
        let link = &self.link;
        LinkConfig {
            generation: Generation::from_number(u64::from(link.generation)).unwrap_or(Generation::Gen4),
            lanes: link.lanes,
            mps: link.mps.0 as u32,
            mrrs: link.mrrs.0 as u32,
            rcb: link.rcb.0 as u32,
            tags: link.tags,
            address_bits: link.address_bits,
            ecrc: link.ecrc,
            write_tlp: link.write_tlp.0 as u32,
            completions: match link.completion_policy.as_str() {
                "max" => CompletionPolicy::Max,
                "mixed" => CompletionPolicy::mixed(link.completion_rcb_share),
                _ => CompletionPolicy::Rcb,
            },
            one_way: link.one_way_latency,
            host_read: link.host_read_latency,
            skp: link.skp,
            skp_interval: link.skp_interval,
            dllp: if link.dllp == "none" {
                DllpModel::None
            } else {
                DllpModel::Cadence
            },
            arbiter: match link.arbiter.as_str() {
                "posted-first" => Arbiter::PostedFirst,
                "non-posted-first" => Arbiter::NonPostedFirst,
                _ => Arbiter::RoundRobin,
            },
            ack: if link.ack_policy == "immediate" {
                AckPolicy::Immediate
            } else {
                AckPolicy::Timer
            },
            posted_headers: link.posted_headers,
            posted_data: link.posted_data,
            drain: link.drain,
            rc_write: link.rc_write.map(|rate| rate.0),
            rc_read: link.rc_read.map(|rate| rate.0),
            rc_total: link.rc_total.map(|rate| rate.0),
        }
    }
    /// The parameters of the device.
    pub fn gpu_params(&self) -> GpuParams {
        let gpu = &self.gpu;
        GpuParams {
            sms: gpu.sms,
            sms_per_utlb: gpu.utlb_shared_by_sms,
            utlb_outstanding_faults: gpu.utlb_outstanding_faults,
            hit_under_fault: gpu.hit_under_fault,
            utlb_latency: gpu.utlb_latency,
            l2_tlb_latency: gpu.l2_tlb_latency,
            page_walkers: gpu.page_walkers,
            page_walk_latency: gpu.page_walk_latency,
            fault_emission_interval: gpu.fault_emission_interval,
            fault_write_interval: gpu.fault_write_interval,
            fault_burst: gpu.fault_burst,
            fault_order_seed: (gpu.fault_order == "shuffled").then_some(self.study.seed),
            fault_buffer_entries: gpu.fault_buffer_entries,
            replay_latency: gpu.replay_latency,
            launch_gap: gpu.launch_gap,
            h2d_copy_fixed: gpu.h2d_copy_fixed,
            d2h_copy_fixed: gpu.d2h_copy_fixed,
            push_overhead: gpu.push_overhead,
            memset_fixed: gpu.memset_fixed,
            memset_bytes_per_s: gpu.memset_bandwidth.0,
            pte_write: gpu.pte_write,
            tlb_invalidate: gpu.tlb_invalidate,
            tlb_invalidate_all: gpu.tlb_invalidate_all,
            exactness: if self.engine.exact == "stepped" {
                Exactness::Stepped
            } else {
                Exactness::Fast
            },
        }
    }

    fn thrashing_params(&self) -> Result<ThrashingParams, ParamError> {
        let driver = &self.driver;
        // Both are checked against the ranges of their keys, which fit.
        let small = |value: u32| u8::try_from(value).unwrap_or(u8::MAX);
        Ok(ThrashingParams {
            enable: driver.thrashing_enable,
            threshold: small(driver.thrashing_threshold),
            pin_threshold: small(driver.thrashing_pin_threshold),
            lapse: driver.thrashing_lapse,
            nap: driver.thrashing_nap,
            epoch: driver.thrashing_epoch,
            pin: driver.thrashing_pin,
            max_resets: driver.thrashing_max_resets,
            lapse_vote_threshold: driver.thrashing_lapse_vote_threshold,
            adaptive_lapse: driver.thrashing_adaptive_lapse.parse()?,
        })
    }

    /// The parameters of the driver.
    ///
    /// # Errors
    /// None for names that the table of keys accepts.
    pub fn driver_params(&self) -> Result<DriverParams, ParamError> {
        let driver = &self.driver;
        let params = DriverParams {
            fault_batch_count: driver.fault_batch_count,
            fault_replay_policy: driver.fault_replay_policy.parse()?,
            fault_replay_update_put_ratio: driver.fault_replay_update_put_ratio,
            fault_max_batches_per_service: driver.fault_max_batches_per_service,
            fault_max_throttle_per_service: driver.fault_max_throttle_per_service,
            thrashing: self.thrashing_params()?,
            fault_coalesce: driver.fault_coalesce,
            prefetch_enable: driver.prefetch_enable,
            prefetch_threshold: driver.prefetch_threshold,
            prefetch_min_faults: driver.prefetch_min_faults,
            prefetch_policy: driver.prefetch_policy.parse()?,
            eviction_policy: driver.eviction_policy.parse()?,
            dirty_tracking: driver.dirty_tracking,
            eviction_reserve: driver.eviction_reserve,
            eviction_watermark: driver.eviction_watermark,
            prefetch_degree: driver.prefetch_degree,
            prefetch_window: driver.prefetch_window,
            pma_batch_nonpinned_order: driver.pma_batch_nonpinned_order,
            copy_split: if driver.copy_split == "pages" {
                CopySplit::Pages
            } else {
                CopySplit::Runs
            },
            host_threads: self.host.threads,
            host_memory: self.host.memory.map(|bytes| bytes.0),
            seed: self.study.seed,
        };
        params.validate()?;
        Ok(params)
    }

    /// The costs of the host.
    pub fn host_cost(&self) -> HostCost {
        let cost = &self.cost;
        if self.driver.model == "fixed-latency" {
            // Calls of the program cost what they do; a batch costs the latency, however much it holds.
            return HostCost {
                batch_fixed: self.driver.fixed_latency,
                managed_alloc_call: cost.managed_alloc_call,
                managed_free_call: cost.managed_free_call,
                managed_free_block: cost.managed_free_block,
                cpu_touch_page: cost.cpu_touch_page,
                ..HostCost::zero()
            };
        }
        HostCost {
            interrupt: cost.interrupt,
            bottom_half_wakeup: cost.bottom_half_wakeup,
            put_read: cost.put_read,
            fetch_per_entry: cost.fetch_per_entry,
            sort_per_entry: cost.sort_per_entry,
            batch_fixed: cost.batch_fixed,
            block_fixed: cost.block_fixed,
            block_first_touch: cost.block_first_touch,
            fault_page: cost.fault_page,
            migrate_page: cost.migrate_page,
            cpu_unmap_call: cost.cpu_unmap_call,
            cpu_unmap_page: cost.cpu_unmap_page,
            chunk_alloc: cost.chunk_alloc,
            pma_call: cost.pma_call,
            push: cost.push,
            copy_method: cost.copy_method,
            pte_method: cost.pte_method,
            eviction: cost.eviction,
            page_population: cost.page_population,
            flush_per_entry: cost.flush_per_entry,
            replay_push: cost.replay_push,
            completion_poll: cost.completion_poll,
            managed_alloc_call: cost.managed_alloc_call,
            managed_free_call: cost.managed_free_call,
            managed_free_block: cost.managed_free_block,
            cpu_touch_page: cost.cpu_touch_page,
            cpu_fault: cost.cpu_fault,
            cpu_map_page: cost.cpu_map_page,
            cpu_unmap_thread: cost.cpu_unmap_thread,
        }
    }
}
