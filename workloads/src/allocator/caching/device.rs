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
    /// Of the device; `None`: as much as is asked for.
    total: Option<u64>,
    policy: WhenFull,
    used: u64,
}

/// What happens to a request that exceeds the memory of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WhenFull {
    /// Managed memory: it is granted.
    #[default]
    Grant,
    /// Managed memory that one would rather not oversubscribe: granted if cached memory does not do.
    GrantAfterRelease,
    /// Device memory: it fails.
    Fail,
}

impl DeviceMemory {
    /// Managed memory over a device of `total` bytes: never full.
    pub fn managed(total: Option<u64>) -> DeviceMemory {
        DeviceMemory {
            total,
            ..DeviceMemory::default()
        }
    }

    /// Managed memory that exceeds the device only if nothing cached can be given back.
    pub fn managed_within(total: u64) -> DeviceMemory {
        DeviceMemory {
            total: Some(total),
            policy: WhenFull::GrantAfterRelease,
            ..DeviceMemory::default()
        }
    }

    /// Memory of a device.
    pub fn device(total: u64) -> DeviceMemory {
        DeviceMemory {
            total: Some(total),
            policy: WhenFull::Fail,
            ..DeviceMemory::default()
        }
    }

    /// Bytes of the device; the largest number if it is not limited.
    pub fn total(&self) -> u64 {
        self.total.unwrap_or(u64::MAX)
    }

    /// Bytes that are left.
    pub fn free_bytes(&self) -> u64 {
        self.total().saturating_sub(self.used)
    }

    /// From now on everything is granted, until [`limited_again`](Self::limited_again); false if that is
    /// not how this memory is.
    pub fn exceed(&mut self) -> bool {
        let may = self.policy == WhenFull::GrantAfterRelease;
        if may {
            self.policy = WhenFull::Grant;
        }
        may
    }

    /// Ends [`exceed`](Self::exceed).
    pub fn limited_again(&mut self) {
        self.policy = WhenFull::GrantAfterRelease;
    }

    fn refuses(&self, bytes: u64) -> bool {
        self.policy != WhenFull::Grant && bytes > self.free_bytes()
    }

    /// `cudaMalloc`; `None` if memory is full.
    ///
    /// # Errors
    /// No addresses are left.
    pub fn allocate(&mut self, bytes: u64) -> Result<Option<ByteRange>, AllocError> {
        if self.refuses(bytes) {
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
        let refused = self.refuses(bytes);
        if !refused {
            self.used += bytes;
        }
        !refused
    }

    /// Takes it away.
    pub fn unmap(&mut self, bytes: u64) {
        self.used -= bytes;
    }
}
