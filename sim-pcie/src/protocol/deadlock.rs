//! Who waits for what when nothing can move.

use super::ordering::Hold;
use super::run::State;
use super::{Class, Side};
use sim_core::Time;
use std::fmt;

/// What the next packet of a class waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// A header credit of its class.
    HeaderCredit,
    /// Data credits of its class.
    DataCredits {
        /// Credits that it needs.
        need: u64,
        /// Credits that are left.
        have: u64,
    },
    /// Room in the retry buffer, that is, an ACK.
    RetryBuffer,
    /// The posted packet before it, which it may not pass.
    PostedAhead,
}

/// One blocked class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The transmitter.
    pub side: Side,
    /// The class.
    pub class: Class,
    /// What for.
    pub waits_for: WaitsFor,
}

/// Nothing can ever move again, although packets are queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// Since when.
    pub time: Time,
    /// Who waits for what.
    pub blocked: Vec<Blocked>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link deadlock at {}", self.time)?;
        for b in &self.blocked {
            write!(f, "; {:?} {:?} waits for ", b.side, b.class)?;
            match b.waits_for {
                WaitsFor::HeaderCredit => write!(f, "a header credit")?,
                WaitsFor::DataCredits { need, have } => write!(f, "{need} data credits (has {have})")?,
                WaitsFor::RetryBuffer => write!(f, "room in the retry buffer")?,
                WaitsFor::PostedAhead => write!(f, "the posted packet before it")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Deadlock {}

impl State {
    /// Every class with a packet that cannot start.
    pub(super) fn blocked(&self) -> Vec<Blocked> {
        let mut blocked = Vec::new();
        for side in Side::BOTH {
            let port = &self.ports[side as usize];
            for tlp in port.heads.iter().flatten() {
                let waits_for = match port.hold(tlp) {
                    None => continue,
                    Some(Hold::Headers) => WaitsFor::HeaderCredit,
                    Some(Hold::Data { need, have }) => WaitsFor::DataCredits { need, have },
                    Some(Hold::Retry) => WaitsFor::RetryBuffer,
                    Some(Hold::Posted) => WaitsFor::PostedAhead,
                };
                blocked.push(Blocked {
                    side,
                    class: tlp.class(),
                    waits_for,
                });
            }
        }
        blocked
    }
}
