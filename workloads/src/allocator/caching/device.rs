//! Device memory as the allocator sees it: addresses, and whether there is room.

use sim_core::pages::ByteRange;

use crate::allocator::{AddressSpace, AllocError};

/// Where expandable ranges begin, as the recordings have it.
const RANGES: u64 = 0x6000_0000_0000;
/// They end where plain segments begin.
const RANGES_END: u64 = super::super::space::BASE;
/// Reserved addresses are rounded up to this.
const RANGE_ROUNDING: u64 = 1 << 30;

/// Device memory behind an allocator.
#[derive(Clone, Debug, Default)]
pub struct DeviceMemory {
    space: AddressSpace,
    /// Addresses reserved so far; the recordings never use any twice.
    reserved: u64,
    /// `None`: managed memory, which takes whatever is asked.
    capacity: Option<u64>,
    used: u64,
}

impl DeviceMemory {
    /// Managed memory: never full at the capacity of the device.
    pub fn managed() -> DeviceMemory {
        DeviceMemory::default()
    }

    /// Memory of a device.
    pub fn device(capacity: u64) -> DeviceMemory {
        DeviceMemory {
            capacity: Some(capacity),
            ..DeviceMemory::default()
        }
    }

    /// Bytes of the device; the largest number if it is not limited.
    pub fn total(&self) -> u64 {
        self.capacity.unwrap_or(u64::MAX)
    }

    /// Bytes that are left.
    pub fn free_bytes(&self) -> u64 {
        self.total() - self.used.min(self.total())
    }

    /// `cudaMalloc`; `None` if memory is full.
    ///
    /// # Errors
    /// No addresses are left.
    pub fn allocate(&mut self, bytes: u64) -> Result<Option<ByteRange>, AllocError> {
        if bytes > self.free_bytes() {
            return Ok(None);
        }
        let range = self.space.allocate(bytes)?;
        self.used += bytes;
        Ok(Some(range))
    }

    /// `cudaFree`.
    pub fn free(&mut self, range: ByteRange) {
        self.space.free(range);
        self.used -= range.bytes;
    }

    /// Reserves addresses without memory, behind all earlier ones.
    ///
    /// # Errors
    /// No addresses are left.
    pub fn reserve(&mut self, bytes: u64) -> Result<u64, AllocError> {
        let full = AllocError::AddressSpace { bytes };
        let size = bytes
            .checked_next_multiple_of(RANGE_ROUNDING)
            .ok_or(full.clone())?;
        let start = RANGES + self.reserved;
        if RANGES_END - start < size {
            return Err(full);
        }
        self.reserved += size;
        Ok(start)
    }

    /// Puts memory behind reserved addresses; false if memory is full.
    pub fn map(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free_bytes();
        if fits {
            self.used += bytes;
        }
        fits
    }

    /// Takes it away.
    pub fn unmap(&mut self, bytes: u64) {
        self.used -= bytes;
    }
}
