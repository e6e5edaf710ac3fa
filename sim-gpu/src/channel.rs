//! The driver's channels: in-order FIFOs of pushes, each on its copy engine.
//!
//! A push starts when it is at the head of its channel, its submit time has come and all the pushes
//! that it acquires have completed. Its methods run one after another; then its semaphore is released.

use std::collections::VecDeque;

use sim_core::Time;
use sim_core::push::{CHANNELS, ChannelKind, Method, Push, Ticket};

use crate::params::GpuParams;

/// All channels, by kind.
pub const KINDS: [ChannelKind; CHANNELS] = [
    ChannelKind::HostToDevice,
    ChannelKind::DeviceToHost,
    ChannelKind::GpuInternal,
    ChannelKind::MemOps,
];

/// What a channel is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing: no push, or the head waits for an acquire.
    Idle,
    /// An event will come at the head's submit time.
    AwaitingSubmit,
    /// The head is being fetched.
    Fetching,
    /// Method `0` runs, its end is an event.
    Running(usize),
    /// Method `0`, a copy, is being set up by the engine.
    SettingUp(usize),
    /// Method `0`, a copy, is on the link.
    OnLink(usize),
}

/// One in-order channel.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Pushes submitted and not completed, in order; the head is being carried out.
    pub queue: VecDeque<Push>,
    /// What the head is doing.
    pub state: State,
    /// When the method under way began.
    pub began: Time,
    submitted: u64,
    completed: u64,
}

impl Default for Channel {
    fn default() -> Self {
        Channel {
            queue: VecDeque::new(),
            state: State::Idle,
            began: Time::ZERO,
            submitted: 0,
            completed: 0,
        }
    }
}

/// The channels of one GPU.
#[derive(Clone, Debug, Default)]
pub struct Channels([Channel; CHANNELS]);

impl Channels {
    /// The channel of one kind.
    pub fn of(&mut self, kind: ChannelKind) -> &mut Channel {
        &mut self.0[kind as usize]
    }

    /// Appends a push and names it.
    pub fn submit(&mut self, push: Push) -> Ticket {
        let kind = push.channel;
        let channel = self.of(kind);
        channel.submitted += 1;
        channel.queue.push_back(push);
        Ticket {
            channel: kind,
            value: channel.submitted,
        }
    }

    /// Has this push completed?
    pub fn is_complete(&self, ticket: Ticket) -> bool {
        self.0[ticket.channel as usize].completed >= ticket.value
    }

    /// Is the head of `kind` free to start as far as acquires go?
    pub fn acquired(&self, kind: ChannelKind) -> bool {
        self.0[kind as usize]
            .queue
            .front()
            .is_some_and(|push| push.acquire.iter().all(|ticket| self.is_complete(*ticket)))
    }

    /// The head of `kind` has completed: takes it off.
    pub fn complete(&mut self, kind: ChannelKind) -> Option<(Ticket, Push)> {
        let channel = self.of(kind);
        let push = channel.queue.pop_front()?;
        channel.completed += 1;
        channel.state = State::Idle;
        Some((
            Ticket {
                channel: kind,
                value: channel.completed,
            },
            push,
        ))
    }

    /// No push is anywhere.
    pub fn is_idle(&self) -> bool {
        self.0.iter().all(|channel| channel.queue.is_empty())
    }
}

/// How long a method takes that does not use the link.
pub fn method_time(method: &Method, params: &GpuParams) -> Time {
    match *method {
        Method::Copy { .. } | Method::Replay => Time::ZERO,
        Method::Memset { bytes } => {
            let ticks = u128::from(bytes) * 1_024_000_000_000 / u128::from(params.memset_bytes_per_s.max(1));
            params.memset_fixed + Time(ticks as u64)
        }
        Method::MapPtes { entries, .. }
        | Method::MapShared { entries, .. }
        | Method::UnmapPtes { entries, .. } => params.pte_write.times(u64::from(entries)),
        Method::TlbInvalidate { targeted: Some(n) } => params.tlb_invalidate.times(u64::from(n)),
        Method::TlbInvalidate { targeted: None } => params.tlb_invalidate_all,
    }
}
