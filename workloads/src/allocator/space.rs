//! Addresses of managed ranges: first fit, lowest address first, in 2 MiB granules.

use std::collections::BTreeMap;

use sim_core::pages::{BLOCK_BYTES, ByteRange};

use super::AllocError;

/// Where managed addresses begin: as the recordings of this project have it.
pub const BASE: u64 = 0x7000_0000_0000;
/// Addresses for managed ranges: 128 TiB of a 47-bit user space end here.
const END: u64 = 0x8000_0000_0000;

/// Free and used addresses.
#[derive(Clone, Debug)]
pub struct AddressSpace {
    /// Free gaps by start.
    gaps: BTreeMap<u64, u64>,
    live: u64,
}

impl Default for AddressSpace {
    fn default() -> Self {
        AddressSpace {
            gaps: BTreeMap::from([(BASE, END - BASE)]),
            live: 0,
        }
    }
}

impl AddressSpace {
    /// Bytes of ranges in use, in whole granules.
    pub fn live_bytes(&self) -> u64 {
        self.live
    }

    /// Takes `bytes`, rounded up to whole granules; the range has the bytes asked for.
    ///
    /// # Errors
    /// No gap is large enough.
    pub fn allocate(&mut self, bytes: u64) -> Result<ByteRange, AllocError> {
        let full = AllocError::AddressSpace { bytes };
        let size = bytes
            .max(1)
            .checked_next_multiple_of(BLOCK_BYTES)
            .ok_or(full.clone())?;
        let (&start, &gap) = self.gaps.iter().find(|(_, gap)| **gap >= size).ok_or(full)?;
        self.gaps.remove(&start);
        if gap > size {
            self.gaps.insert(start + size, gap - size);
        }
        self.live += size;
        Ok(ByteRange { start, bytes })
    }

    /// Gives a range back.
    pub fn free(&mut self, range: ByteRange) {
        let mut start = range.start;
        let mut size = range.bytes.max(1).next_multiple_of(BLOCK_BYTES);
        self.live -= size;
        if let Some((&before, &gap)) = self.gaps.range(..start).next_back()
            && before + gap == start
        {
            self.gaps.remove(&before);
            start = before;
            size += gap;
        }
        if let Some(gap) = self.gaps.remove(&(start + size)) {
            size += gap;
        }
        self.gaps.insert(start, size);
    }
}
