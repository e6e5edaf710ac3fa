//! Transaction layer packets: their sizes, and how a transfer is cut into them.

use crate::config::{CompletionPolicy, Generation, LinkConfig};
use sim_core::pages::PAGE_BYTES;

/// Bytes of a data-link packet on the wire: SDP, 4 bytes, CRC, END (or token and CRC). In Gen6 it
/// rides in the flit's own field and costs nothing.
pub const DLLP_BYTES: u64 = 8;
/// Start token, sequence number, LCRC and end of a packet of Gen1-5.
pub const FRAME_BYTES: u64 = 8;
/// Header of a completion.
pub const COMPLETION_HEADER: u64 = 12;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Memory write, posted.
    MWr,
    /// Memory read request, non-posted.
    MRd,
    /// Completion with data.
    CplD,
}

/// Wire bytes of a packet (stream bytes for Gen6): header, payload padded to 4 bytes, framing.
///
/// `address_bits` and `ecrc` as in [`LinkConfig`]. A read request carries no payload.
#[inline]
pub fn tlp_bytes(generation: Generation, kind: Kind, payload: u64, address_bits: u32, ecrc: bool) -> u64 {
    let header = match kind {
        Kind::CplD => COMPLETION_HEADER,
        Kind::MWr | Kind::MRd => {
            if address_bits == 64 {
                16
            } else {
                12
            }
        }
    };
    let data = if kind == Kind::MRd {
        0
    } else {
        payload.next_multiple_of(4)
    };
    header + data + if ecrc { 4 } else { 0 } + if generation.uses_flits() { 0 } else { FRAME_BYTES }
}

impl LinkConfig {
    /// Wire bytes of a packet on this link; see [`tlp_bytes`].
    #[inline]
    pub fn tlp_bytes(&self, kind: Kind, payload: u64) -> u64 {
        tlp_bytes(self.generation, kind, payload, self.address_bits, self.ecrc)
    }

    /// Slots (of 4 bytes) of a packet on this link.
    pub fn tlp_slots(&self, kind: Kind, payload: u64) -> u64 {
        self.tlp_bytes(kind, payload) / 4
    }
}

/// Consecutive bytes at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// First byte.
    pub address: u64,
    /// Length.
    pub bytes: u64,
}

/// Length of the first piece of a request: up to the next multiple of `limit` (a power of two), never
/// across 4 KiB.
#[inline]
pub fn first_request(address: u64, bytes: u64, limit: u64) -> u64 {
    let limit = limit.min(PAGE_BYTES);
    bytes.min(limit - (address & (limit - 1)))
}

/// Cuts writes at multiples of the write size and reads at multiples of the largest read, so that only
/// the first and last pieces are short. No piece crosses 4 KiB.
pub fn split_request(address: u64, bytes: u64, limit: u64) -> impl Iterator<Item = Piece> {
    let end = address.saturating_add(bytes);
    let mut at = address;
    std::iter::from_fn(move || {
        let length = first_request(at, end - at, limit);
        let piece = Piece {
            address: at,
            bytes: length,
        };
        at += length;
        (length > 0).then_some(piece)
    })
}

/// Length of the first completion of a read of `bytes` at `address`; `mps` and `rcb` are powers of two.
///
/// Cut at every boundary, or (`max`) only where `mps` forces it; every completion but the last ends on a
/// boundary.
#[inline]
pub fn first_completion(address: u64, bytes: u64, mps: u64, rcb: u64, max: bool) -> u64 {
    if max {
        if bytes <= mps {
            bytes
        } else {
            ((address + mps) & !(rcb - 1)) - address
        }
    } else {
        bytes.min(rcb - (address & (rcb - 1)))
    }
}

/// The completions of one read, in address order. `max` as in [`first_completion`].
pub fn split_completions(
    address: u64,
    bytes: u64,
    mps: u64,
    rcb: u64,
    max: bool,
) -> impl Iterator<Item = Piece> {
    let end = address.saturating_add(bytes);
    let mut at = address;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let length = first_completion(at, end - at, mps, rcb, max);
        let piece = Piece {
            address: at,
            bytes: length,
        };
        at += length;
        Some(piece)
    })
}

impl CompletionPolicy {
    /// Cuts `share` of the reads at every boundary, in thousandths.
    pub fn mixed(share: f64) -> CompletionPolicy {
        let (of, rcb) = (1000, (share.clamp(0.0, 1.0) * 1000.0).round() as u32);
        let (mut a, mut b) = (of, rcb);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        CompletionPolicy::Mixed {
            rcb: rcb / a,
            of: of / a,
        }
    }

    /// Is read number `index` answered with the fewest completions?
    #[inline]
    pub fn is_max(self, index: u64) -> bool {
        self.run(index).0
    }

    /// The same, and how many reads from `index` on are answered alike.
    pub fn run(self, index: u64) -> (bool, u64) {
        match self {
            CompletionPolicy::Rcb => (false, u64::MAX),
            CompletionPolicy::Max | CompletionPolicy::Mixed { rcb: 0, .. } => (true, u64::MAX),
            CompletionPolicy::Mixed { rcb, of } if rcb == of => (false, u64::MAX),
            CompletionPolicy::Mixed { rcb, of } => {
                // Of the first n reads of a cycle, floor(n rcb / of) are cut: as even as can be.
                let (rcb, of, place) = (u64::from(rcb), u64::from(of), index % u64::from(of));
                let cut = place * rcb / of;
                let next_cut = ((cut + 1) * of).div_ceil(rcb) - 1;
                let next_max = (place - cut) * of / (of - rcb);
                if next_cut == place {
                    (false, next_max - place)
                } else {
                    (true, next_cut - place)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_on_the_wire() {
        for (generation, ecrc, expect) in [
            (Generation::Gen3, false, [280, 24, 84]),
            (Generation::Gen6, false, [272, 16, 76]),
            (Generation::Gen1, true, [284, 28, 88]),
        ] {
            let size = |kind, payload| tlp_bytes(generation, kind, payload, 64, ecrc);
            assert_eq!(
                [size(Kind::MWr, 256), size(Kind::MRd, 512), size(Kind::CplD, 64)],
                expect
            );
        }
        assert_eq!(tlp_bytes(Generation::Gen3, Kind::MWr, 3, 32, false), 24);
    }

    #[test]
    fn unaligned_read() {
        let requests: Vec<_> = split_request(0x1030, 512, 512)
            .map(|p| (p.address, p.bytes))
            .collect();
        assert_eq!(requests, [(0x1030, 464), (0x1200, 48)]);
        let cut = |rcb, mps, max| {
            split_completions(0x1030, 512, mps, rcb, max)
                .map(|p| p.bytes)
                .collect::<Vec<_>>()
        };
        for rcb in [64, 128] {
            assert_eq!(cut(rcb, 128, true), [80, 128, 128, 128, 48]);
            assert_eq!(cut(rcb, 256, true), [208, 256, 48]);
            assert_eq!(cut(rcb, 512, true), [512]);
        }
        assert_eq!(cut(64, 256, false), [16, 64, 64, 64, 64, 64, 64, 64, 48]);
        assert_eq!(cut(128, 256, false), [80, 128, 128, 128, 48]);
    }

    #[test]
    fn shares_in_smallest_numbers() {
        let mixed = |rcb, of| CompletionPolicy::Mixed { rcb, of };
        assert_eq!(CompletionPolicy::mixed(0.52), mixed(13, 25));
        assert_eq!(CompletionPolicy::mixed(1.0), mixed(1, 1));
        assert_eq!(CompletionPolicy::mixed(0.0), mixed(0, 1));
    }

    #[test]
    fn mixed_keeps_the_given_ratio() {
        for (rcb, of) in [(0, 1), (1, 1), (1, 3), (5, 7), (999, 1000)] {
            let policy = CompletionPolicy::Mixed { rcb, of };
            let max = (0..u64::from(of) * 3).filter(|&i| policy.is_max(i)).count() as u32;
            assert_eq!(max, 3 * (of - rcb));
            // Any few reads in a row have their share, within one read; runs end where they say.
            let (mut cut, mut until) = (0_u64, (policy.is_max(0), 0));
            for i in 0..u64::from(of) * 3 {
                let (max, alike) = policy.run(i);
                assert!(alike > 0);
                assert!(
                    i >= until.1 || (max, i.saturating_add(alike)) == until,
                    "{policy:?} {i}"
                );
                until = (max, i.saturating_add(alike));
                cut += u64::from(!max);
                let share = (i + 1) * u64::from(rcb);
                assert!(
                    (cut * u64::from(of)).abs_diff(share) < u64::from(of),
                    "{policy:?} {i}"
                );
            }
        }
    }
}
