//! From the sections of a config to the parameters of the crates.

use sim_pcie::LinkConfig;
use sim_pcie::config::{AckPolicy, Arbiter, CompletionPolicy, DllpModel, Generation};

use super::Sections;

/// Resolution of `link.completion_rcb_share`.
const SHARE_STEPS: u32 = 1000;

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
                "mixed" => CompletionPolicy::Mixed {
                    rcb: (link.completion_rcb_share * f64::from(SHARE_STEPS)).round() as u32,
                    of: SHARE_STEPS,
                },
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
}
