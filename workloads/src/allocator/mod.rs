//! Where tensors live: allocators that turn tensor sizes into addresses and managed ranges.

pub mod caching;
pub mod check;
mod per_tensor;
mod space;

use std::str::FromStr;

use sim_core::pages::ByteRange;
use thiserror::Error;

pub use caching::CachingAllocator;
pub use per_tensor::PerTensor;
pub use space::AddressSpace;

/// What an allocator asks of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A managed range is allocated.
    Allocate(ByteRange),
    /// A managed range is freed.
    Free(ByteRange),
}

/// An allocation that failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AllocError {
    /// No address range is left.
    #[error("{bytes} bytes do not fit into the address space")]
    AddressSpace {
        /// Requested.
        bytes: u64,
    },
    /// Memory of the device is used up (worded as PyTorch does).
    #[error(
        "CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of {} of which {} is free. \
         {}Of the allocated memory {} is allocated by PyTorch, and {} is reserved by PyTorch but unallocated.",
        readable(*requested),
        readable(*capacity),
        readable(*free),
        allowed.map_or(String::new(), |bytes| format!("{} allowed. ", readable(bytes))),
        readable(*allocated),
        readable(reserved - allocated)
    )]
    OutOfMemory {
        /// Requested bytes.
        requested: u64,
        /// Device memory.
        capacity: u64,
        /// Device memory not reserved.
        free: u64,
        /// Bytes of live blocks.
        allocated: u64,
        /// Bytes of segments.
        reserved: u64,
        /// Bytes that the memory fraction allows, if one is set.
        allowed: Option<u64>,
    },
}

/// Bytes as PyTorch prints them.
fn readable(bytes: u64) -> String {
    let n = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.2} KiB", n / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.2} MiB", n / 1_048_576.0),
        _ => format!("{:.2} GiB", n / 1_073_741_824.0),
    }
}

/// Which allocator a program runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AllocatorKind {
    /// The caching allocator of PyTorch over managed memory.
    #[default]
    PytorchCaching,
    /// One managed allocation per tensor.
    PerTensor,
}

impl AllocatorKind {
    /// Names in configurations.
    pub const NAMES: [(&'static str, AllocatorKind); 2] = [
        ("pytorch-caching", AllocatorKind::PytorchCaching),
        ("per-tensor", AllocatorKind::PerTensor),
    ];
}

impl FromStr for AllocatorKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        AllocatorKind::NAMES
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, kind)| *kind)
            .ok_or_else(|| format!("unknown allocator {text:?}; accepted: pytorch-caching, per-tensor"))
    }
}

/// An allocator in use.
#[derive(Clone, Debug)]
pub enum Allocator {
    /// See [`AllocatorKind::PytorchCaching`].
    Caching(Box<CachingAllocator>),
    /// See [`AllocatorKind::PerTensor`].
    PerTensor(PerTensor),
}

impl Allocator {
    /// An empty allocator.
    pub fn new(kind: AllocatorKind) -> Allocator {
        match kind {
            AllocatorKind::PytorchCaching => Allocator::Caching(Box::default()),
            AllocatorKind::PerTensor => Allocator::PerTensor(PerTensor::default()),
        }
    }

    /// Allocates a tensor; what the runtime has to do is appended to `backing`.
    ///
    /// # Errors
    /// No room.
    pub fn allocate(&mut self, bytes: u64, backing: &mut Vec<Backing>) -> Result<u64, AllocError> {
        match self {
            Allocator::Caching(allocator) => {
                let address = allocator.malloc(bytes, 0);
                allocator.drain_backing(backing);
                address
            }
            Allocator::PerTensor(allocator) => allocator.allocate(bytes, backing),
        }
    }

    /// Frees the tensor at `address`.
    pub fn free(&mut self, address: u64, backing: &mut Vec<Backing>) {
        match self {
            Allocator::Caching(allocator) => {
                allocator.free(address);
                allocator.drain_backing(backing);
            }
            Allocator::PerTensor(allocator) => allocator.free(address, backing),
        }
    }
}
