//! What a link has carried, and where its time went.

use crate::wire::{Wire, WireCount};
use sim_core::Time;

/// Counters of one direction of a link. `busy + ordered_sets + idle` is the elapsed time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Bytes of packets on the wire: TLPs and DLLPs, with headers and framing.
    pub wire_bytes: u64,
    /// Bytes of user data in them.
    pub payload_bytes: u64,
    /// Transaction layer packets.
    pub tlps: u64,
    /// Data-link layer packets.
    pub dllps: u64,
    /// SKP ordered sets.
    pub skps: u64,
    /// Time in which packets were on the wire.
    pub busy: Time,
    /// Time of SKP ordered sets, padded to whole symbol times.
    pub ordered_sets: Time,
    /// The rest (for Gen6 with the overhead of flits).
    pub idle: Time,
}

/// Counters of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Device to host: writes, read requests.
    pub up: DirectionStats,
    /// Host to device: completions.
    pub down: DirectionStats,
}

impl DirectionStats {
    pub(crate) fn new(
        count: WireCount,
        (slot, skp): (u64, u64),
        payload_bytes: u64,
        now: u64,
    ) -> DirectionStats {
        let slots = count.tlp_slots + count.dllp_slots;
        let (busy, ordered_sets) = (slots * slot, count.skps * skp);
        DirectionStats {
            wire_bytes: slots * 4,
            payload_bytes,
            tlps: count.tlps,
            dllps: count.dllps,
            skps: count.skps,
            busy: Time(busy),
            ordered_sets: Time(ordered_sets),
            idle: Time(now.saturating_sub(busy + ordered_sets)),
        }
    }

    pub(crate) fn of(wire: &Wire, payload_bytes: u64, now: u64) -> DirectionStats {
        Self::new(wire.count(now), wire.ticks(), payload_bytes, now)
    }
}
