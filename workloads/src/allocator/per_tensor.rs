//! One managed allocation per tensor: `PYTORCH_NO_CUDA_MEMORY_CACHING` over `cudaMallocManaged`.

use std::collections::HashMap;

use sim_core::pages::{ByteRange, PAGE_BYTES};

use super::{AddressSpace, AllocError, Backing};

/// Every tensor has a range of its own, which is freed with it.
#[derive(Clone, Debug, Default)]
pub struct PerTensor {
    space: AddressSpace,
    live: HashMap<u64, ByteRange>,
}

impl PerTensor {
    /// A new range.
    ///
    /// # Errors
    /// No addresses are left.
    pub fn allocate(&mut self, bytes: u64, backing: &mut Vec<Backing>) -> Result<u64, AllocError> {
        let pages = bytes.max(1).checked_next_multiple_of(PAGE_BYTES);
        let range = self
            .space
            .allocate(pages.ok_or(AllocError::AddressSpace { bytes })?)?;
        self.live.insert(range.start, range);
        backing.push(Backing::Allocate(range));
        Ok(range.start)
    }

    /// Frees the range of the tensor at `address`.
    pub fn free(&mut self, address: u64, backing: &mut Vec<Backing>) {
        if let Some(range) = self.live.remove(&address) {
            self.space.free(range);
            backing.push(Backing::Free(range));
        }
    }
}
