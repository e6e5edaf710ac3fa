//! What allocations of others take from the memory for managed data (uvm-driver 7.1, 7.6).
//!
//! Managed memory is made of whole root chunks that the physical allocator gives. A root chunk in which
//! another allocation lies, however small, cannot be given. How a real allocator scatters pieces over
//! root chunks is not known; here no two pieces share one, which is what an experimenter who wants
//! fragmentation arranges, and the most that pieces of a size can take.

use sim_core::pages::BLOCK_BYTES;

use super::sections::MemorySection;

/// Bytes of the root chunks that `memory.pinned` makes unusable; saturates.
pub fn taken(memory: &MemorySection) -> u64 {
    bytes(memory.pinned.0, memory.pinned_piece.0)
}

/// Bytes of the root chunks in which `pinned` bytes lie, in pieces of `piece` bytes and one of the rest.
fn bytes(pinned: u64, piece: u64) -> u64 {
    let chunks = |bytes: u64| bytes.div_ceil(BLOCK_BYTES);
    let (pieces, rest) = match pinned.checked_div(piece) {
        Some(pieces) => (pieces, pinned % piece),
        None => (1, pinned),
    };
    pieces
        .saturating_mul(chunks(piece))
        .saturating_add(chunks(rest))
        .saturating_mul(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    #[test]
    fn small_pieces_take_whole_root_chunks() {
        assert_eq!(bytes(0, 2 * MIB), 0);
        assert_eq!(bytes(64 * MIB, 2 * MIB), 64 * MIB);
        assert_eq!(bytes(64 * MIB, 64 * MIB), 64 * MIB);
        assert_eq!(bytes(MIB, 64 * KIB), 32 * MIB);
        assert_eq!(bytes(6 * MIB, 3 * MIB), 8 * MIB);
        assert_eq!(bytes(5 * MIB, 2 * MIB), 6 * MIB);
        assert_eq!(bytes(1 << 44, 4 * KIB), 1 << 53);
    }

    proptest! {
        /// Against placing the pieces one after the other and counting the root chunks that they touch.
        #[test]
        fn as_when_the_pieces_are_placed(pages in 0_u64..20_000, piece_pages in 1_u64..3_000) {
            let (pinned, piece) = (pages * 4 * KIB, piece_pages * 4 * KIB);
            let mut touched = BTreeSet::new();
            let (mut left, mut next) = (pinned, 0);
            while left > 0 {
                let size = left.min(piece);
                let end = next + size;
                touched.extend(next / BLOCK_BYTES..=(end - 1) / BLOCK_BYTES);
                left -= size;
                next = end.next_multiple_of(BLOCK_BYTES);
            }
            prop_assert_eq!(bytes(pinned, piece), touched.len() as u64 * BLOCK_BYTES);
        }
    }
}
