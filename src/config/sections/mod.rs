//! The sections of a config as plain structs; each declares its keys.

// The documentation of a key is also printed by `explain`, where backticks would be noise.
#[allow(clippy::doc_markdown)]
mod driver;
#[allow(clippy::doc_markdown)]
mod gpu;
#[allow(clippy::doc_markdown)]
mod host;
#[allow(clippy::doc_markdown)]
mod link;
#[allow(clippy::doc_markdown)]
mod run;

pub use driver::DriverSection;
pub use gpu::GpuConfig;
pub use host::HostCostSection;
pub use link::LinkSection;
pub use run::{
    Capacity, EngineSection, HardwareSection, MemorySection, ParamSection, StudySection, WorkloadSection,
};

use super::schema::Key;

/// The keys of every section, in the order in which they are shown.
pub const ALL: &[&[Key]] = &[
    StudySection::KEYS,
    HardwareSection::KEYS,
    MemorySection::KEYS,
    WorkloadSection::KEYS,
    ParamSection::KEYS,
    EngineSection::KEYS,
    GpuConfig::KEYS,
    LinkSection::KEYS,
    DriverSection::KEYS,
    HostCostSection::KEYS,
];
