//! Where tensors live: allocators that turn tensor sizes into addresses and managed ranges.

pub mod caching;
pub mod check;
mod per_tensor;
mod space;

use std::str::FromStr;

use sim_core::pages::ByteRange;
use thiserror::Error;

use caching::device::DeviceMemory;
pub use caching::{CachingAllocator, OptionError, Options};
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
        readable(reserved.saturating_sub(*allocated))
    )]
    OutOfMemory {
        /// Bytes asked of the device: the segment that the tensor would have needed.
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
    /// The caching allocator of PyTorch over managed memory: never full at the capacity of the device.
    #[default]
    PytorchCaching,
    /// One managed allocation per tensor, allocated and freed with it.
    PerTensor,
    /// The caching allocator over managed memory as long as its segments fit into device memory; when
    /// they do not, cached segments are freed first (`cudaFree`), and only what is live oversubscribes.
    Pool,
    /// The caching allocator over plain device memory, without UVM: fails when memory is full.
    Device,
    /// The caching allocator with device memory for everything, whatever the capacity.
    Ideal,
}

impl AllocatorKind {
    /// Names in configurations.
    pub const NAMES: [(&'static str, AllocatorKind); 5] = [
        ("pytorch-caching", AllocatorKind::PytorchCaching),
        ("per-tensor", AllocatorKind::PerTensor),
        ("pool", AllocatorKind::Pool),
        ("device", AllocatorKind::Device),
        ("ideal", AllocatorKind::Ideal),
    ];
}

impl FromStr for AllocatorKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        AllocatorKind::NAMES
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, kind)| *kind)
            .ok_or_else(|| {
                let names: Vec<_> = AllocatorKind::NAMES.iter().map(|(name, _)| *name).collect();
                format!("unknown allocator {text:?}; accepted: {}", names.join(", "))
            })
    }
}

/// An allocator, its options, and the device memory that it knows of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatorSpec {
    /// Which.
    pub kind: AllocatorKind,
    /// Options of the caching allocator.
    pub options: Options,
    /// Device memory, bytes; `None`: as much as is asked for.
    pub capacity: Option<u64>,
}

impl From<AllocatorKind> for AllocatorSpec {
    fn from(kind: AllocatorKind) -> Self {
        AllocatorSpec {
            kind,
            ..AllocatorSpec::default()
        }
    }
}

/// An allocator in use.
#[derive(Clone, Debug)]
pub enum Allocator {
    /// All kinds but [`AllocatorKind::PerTensor`].
    Caching(Box<CachingAllocator>),
    /// See [`AllocatorKind::PerTensor`].
    PerTensor(PerTensor),
}

impl Allocator {
    /// An empty allocator.
    pub fn new(spec: &AllocatorSpec) -> Allocator {
        let memory = match (spec.kind, spec.capacity) {
            (AllocatorKind::PerTensor, _) => return Allocator::PerTensor(PerTensor::default()),
            (AllocatorKind::Device, Some(capacity)) => DeviceMemory::device(capacity),
            (AllocatorKind::Pool, Some(capacity)) => DeviceMemory::managed_within(capacity),
            (_, capacity) => DeviceMemory::managed(capacity),
        };
        Allocator::Caching(Box::new(CachingAllocator::new(spec.options.clone(), memory)))
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
