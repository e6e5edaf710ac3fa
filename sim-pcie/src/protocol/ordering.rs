//! Which packets may pass which.
//!
//! | this packet \ passes an earlier | posted | non-posted | completion |
//! | --- | --- | --- | --- |
//! | posted | with relaxed ordering | must be able to | may |
//! | non-posted | never | no (one queue) | may |
//! | completion | with relaxed ordering | must be able to | no (one queue) |
//!
//! Classes wait for credits each on its own; what one queue holds stays in order, but for a relaxed write behind
//! one of another requester that lacks data credits. A read request waits while the write at the head waits for credits. The rules
//! allow more where this says "one queue"; nothing that a rule forbids happens, and nothing that must be possible
//! is blocked.

use super::Class;
use super::port::{MOST_UNACKED, Port, Tlp};

/// Why the head of a queue cannot go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    Headers,
    Data { need: u64, have: u64 },
    Retry,
    Posted,
}

impl Port {
    /// Does the class lack credits for `tlp`?
    #[inline]
    fn lacks(&self, tlp: &Tlp) -> Option<Hold> {
        let account = &self.accounts[tlp.class() as usize];
        if account.headers_left() == Some(0) {
            return Some(Hold::Headers);
        }
        let need = u64::from(tlp.units());
        let have = account.data_left().filter(|&have| have < need)?;
        Some(Hold::Data { need, have })
    }

    /// Why `tlp` cannot start now, credits, retry space and order being what they are.
    #[inline]
    pub fn hold(&self, tlp: &Tlp) -> Option<Hold> {
        if let Some(hold) = self.lacks(tlp) {
            return Some(hold);
        }
        let ordered = match tlp.class() {
            Class::Posted => false,
            Class::NonPosted => true,
            Class::Completion => !self.options.relaxed_completions,
        };
        if ordered
            && let Some(write) = &self.heads[0]
            && self.lacks(write).is_some()
        {
            return Some(Hold::Posted);
        }
        let full = self
            .options
            .retry_bytes
            .is_some_and(|limit| self.retry_used + u64::from(tlp.wire_bytes) > limit);
        (full || self.retry.len() >= MOST_UNACKED).then_some(Hold::Retry)
    }

    /// Can the relaxed write pass the posted head, which waits for credits?
    #[inline]
    pub fn passes(&self) -> bool {
        let waits = |write: &Tlp| self.lacks(write).is_some();
        self.relaxed.is_some_and(|tlp| self.hold(&tlp).is_none()) && self.heads[0].as_ref().is_some_and(waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkConfig;
    use crate::packet::Kind;
    use crate::protocol::Purpose;
    use crate::protocol::port::{Credit, Frame, PortOptions};

    fn tlp(kind: Kind, payload: u16) -> Tlp {
        Tlp {
            address: 0,
            copy: 0,
            payload,
            wire_bytes: payload + 24,
            sequence: 0,
            tag: 0,
            kind,
            purpose: Purpose::CopyWrite,
            source: 0,
            attempt: 0,
            last: true,
            bad: false,
        }
    }

    /// Each entry of the table: the column's class waits for data credits, or a header, and the row's has all.
    #[test]
    fn every_entry_of_the_table() {
        let kinds = [Kind::MWr, Kind::MRd, Kind::CplD];
        for relaxed in [false, true] {
            for (column, waits) in kinds.into_iter().enumerate() {
                for (row, moves) in kinds.into_iter().enumerate() {
                    if row == column && moves != Kind::MWr {
                        continue; // one queue
                    }
                    let mut options = PortOptions::new(&LinkConfig::default(), true);
                    (options.relaxed_completions, options.relaxed_writes) = (relaxed, relaxed);
                    options.credits[column] = match waits {
                        Kind::MRd => Credit {
                            headers: Some(1),
                            data: None,
                        },
                        Kind::MWr | Kind::CplD => Credit {
                            headers: None,
                            data: Some(4),
                        },
                    };
                    let mut port = Port::new(options);
                    if waits == Kind::MRd {
                        port.heads[column] = Some(tlp(waits, 128));
                        port.pick(0); // takes the only header
                    }
                    port.heads[column] = Some(tlp(waits, 128));
                    assert_eq!(port.pick(0), None);
                    if row == column {
                        // Only a relaxed write is ever put here.
                        port.relaxed = relaxed.then(|| tlp(moves, 32));
                    } else {
                        port.heads[row] = Some(tlp(moves, 32));
                    }
                    let may = match (moves, waits) {
                        (Kind::MWr | Kind::CplD, Kind::MWr) => relaxed,
                        (Kind::MRd, Kind::MWr) => false,
                        _ => true,
                    };
                    assert_eq!(
                        port.ready(0).is_some(),
                        may,
                        "{moves:?} passes {waits:?}, relaxed {relaxed}"
                    );
                    let sent = port.pick(0).map(|frame| match frame {
                        Frame::Tlp(tlp) => (tlp.kind, tlp.payload),
                        Frame::Dllp(_) => (waits, 0),
                    });
                    assert_eq!(sent, may.then_some((moves, 32)));
                    if may && waits == Kind::MWr {
                        // The write that was passed goes as soon as it has credits.
                        port.accounts[0].freed.1 = 100;
                        assert!(matches!(port.pick(0), Some(Frame::Tlp(t)) if t.payload == 128));
                    }
                }
            }
        }
    }
}
