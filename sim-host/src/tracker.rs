//! Trackers: sets of pushes that later work must wait for.
//!
//! Channels complete in order, so the latest push of each channel stands for all earlier ones.

use sim_core::push::{CHANNELS, ChannelKind, Ticket};

const KINDS: [ChannelKind; CHANNELS] = [
    ChannelKind::HostToDevice,
    ChannelKind::DeviceToHost,
    ChannelKind::GpuInternal,
    ChannelKind::MemOps,
];

/// The latest push to wait for on each channel; 0 = none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracker([u64; CHANNELS]);

impl Tracker {
    /// Adds one push.
    pub fn add(&mut self, ticket: Ticket) {
        let value = &mut self.0[ticket.channel as usize];
        *value = (*value).max(ticket.value);
    }

    /// Adds all pushes of another tracker.
    pub fn merge(&mut self, other: &Tracker) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = (*mine).max(theirs);
        }
    }

    /// The pushes that a push on `channel` has to acquire. Earlier work of its own channel is
    /// complete by order.
    pub fn acquires(&self, channel: ChannelKind) -> Vec<Ticket> {
        KINDS
            .iter()
            .filter(|kind| **kind != channel && self.0[**kind as usize] > 0)
            .map(|kind| Ticket {
                channel: *kind,
                value: self.0[*kind as usize],
            })
            .collect()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Ticket> {
        KINDS
            .iter()
            .filter(|kind| self.0[**kind as usize] > 0)
            .map(|kind| Ticket {
                channel: *kind,
                value: self.0[*kind as usize],
            })
            .collect()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0 = [0; CHANNELS];
    }
}
