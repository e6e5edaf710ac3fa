//! From the outcome of the simulation to the summary of the run.

use std::collections::BTreeMap;

use sim_core::push::{Cause, Direction};
use sim_core::time::TICKS_PER_NS;

use crate::config::ResolvedConfig;
use crate::report::records::{cause_name, direction_name};
use crate::report::{Summary, Traffic};
use crate::system::Outcome;

const CAUSES: [Cause; 5] = [
    Cause::User,
    Cause::Coherence,
    Cause::Prefetch,
    Cause::Eviction,
    Cause::AccessCounters,
];

fn sm_ns(ticks: u128) -> f64 {
    ticks as f64 / TICKS_PER_NS as f64
}

/// Every figure of `outcome` under its name.
pub(super) fn summary(
    config: &ResolvedConfig,
    outcome: &Outcome,
    footprint: u64,
    capacity: Option<u64>,
) -> Summary {
    let mut traffic = Vec::new();
    for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
        for cause in CAUSES {
            let moved = outcome.traffic.of(direction, cause);
            traffic.push(Traffic {
                direction: direction_name(direction).into(),
                cause: cause_name(cause).into(),
                bytes: moved.bytes,
                copies: moved.copies,
                copy_ns: moved.time.as_ns_f64(),
            });
        }
    }
    let d = &outcome.driver;
    let counters = [
        ("bottom_halves", d.bottom_halves),
        ("batches", d.batches),
        ("raw_faults", d.raw_faults),
        ("coalesced_faults", d.coalesced_faults),
        ("duplicate_faults", d.duplicate_faults),
        ("already_mapped_faults", d.already_mapped_faults),
        ("serviced_reads", d.serviced_reads),
        ("serviced_writes", d.serviced_writes),
        ("block_services", d.block_services),
        ("demand_pages", d.demand_pages),
        ("prefetched_pages", d.prefetched_pages),
        ("populated_pages", d.populated_pages),
        ("evictions", d.evictions),
        ("evicted_pages", d.evicted_pages),
        ("pre_evictions", d.pre_evictions),
        ("ahead_blocks", d.ahead_blocks),
        ("policy_refusals", d.policy_refusals),
        ("clean_pages_dropped", d.clean_pages_dropped),
        ("discarded_entries", d.discarded_entries),
        ("replays", d.replays),
        ("put_updates", d.put_updates),
        ("managed_allocs", d.managed_allocs),
        ("managed_frees", d.managed_frees),
        ("stale_faults", d.stale_faults),
        ("cpu_faults", d.cpu_faults),
        ("cpu_migrated_pages", d.cpu_migrated_pages),
        ("remote_pages", d.remote_pages),
        ("discarded_pages", d.discarded_pages),
        ("thrashing_detections", d.thrashing.detections),
        ("throttles_gpu", d.thrashing.throttles_gpu),
        ("throttles_cpu", d.thrashing.throttles_cpu),
        ("pins_gpu", d.thrashing.pins_gpu),
        ("pins_cpu", d.thrashing.pins_cpu),
        ("unpins", d.thrashing.unpins),
    ];
    Summary {
        study: config.study.name.clone(),
        seed: config.study.seed,
        simulated_ns: outcome.simulated.as_ns_f64(),
        baseline_simulated_ns: None,
        slowdown: None,
        iteration_start_ns: outcome.iteration_starts.iter().map(|t| t.as_ns_f64()).collect(),
        kernels: outcome.kernels,
        unknown_kernels: outcome.unknown_kernels,
        kernel_time_resident_ns: outcome.kernel_time_resident.as_ns_f64(),
        sms: outcome.sms,
        sm_computing_ns: sm_ns(outcome.computing),
        sm_idle_ns: sm_ns(outcome.idle),
        sm_stalled_ns: outcome
            .stalled
            .iter()
            .map(|s| (s.reason.to_string(), sm_ns(s.sm_ticks)))
            .collect(),
        migrating_ns: outcome.migrating.as_ns_f64(),
        hidden_share: outcome.hidden_share,
        traffic,
        dead_write_back_bytes: outcome.dead_bytes.map(|dead| dead.0),
        dead_fetch_bytes: outcome.dead_bytes.map(|dead| dead.1),
        link_busy_host_to_device_ns: outcome.link_busy[0].as_ns_f64(),
        link_busy_device_to_host_ns: outcome.link_busy[1].as_ns_f64(),
        fault_entries: outcome.fault_entries,
        fault_entries_dropped: outcome.fault_entries_dropped,
        replays: outcome.replays,
        batch_time_median_ns: outcome.batch_time_median.as_ns_f64(),
        batch_time_p99_ns: outcome.batch_time_p99.as_ns_f64(),
        driver: counters
            .iter()
            .map(|(name, n)| ((*name).to_string(), *n))
            .collect::<BTreeMap<_, _>>(),
        driver_time_ns: outcome
            .driver_time
            .iter()
            .map(|(n, t)| ((*n).to_string(), t.as_ns_f64()))
            .collect(),
        footprint_bytes: footprint,
        capacity_bytes: capacity,
        oversubscription: capacity.map(|c| footprint as f64 / c as f64),
        events: outcome.events,
        ties: outcome.ties,
    }
}
