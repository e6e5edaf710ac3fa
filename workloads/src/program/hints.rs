//! What a program tells the driver about its memory.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sim_core::tools::Processor;

/// A processor, as programs name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The GPU.
    #[default]
    Gpu,
    /// The host.
    Cpu,
}

impl From<Place> for Processor {
    fn from(place: Place) -> Processor {
        match place {
            Place::Gpu => Processor::Gpu,
            Place::Cpu => Processor::Cpu,
        }
    }
}

/// CUDA's `cudaMemoryAdvise`, without the prefix `cudaMemAdvise` if one likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::enum_variant_names)] // CUDA's names
pub enum AdviceName {
    /// Reads make copies.
    #[serde(rename = "cudaMemAdviseSetReadMostly", alias = "SetReadMostly")]
    SetReadMostly,
    /// Takes that back.
    #[serde(rename = "cudaMemAdviseUnsetReadMostly", alias = "UnsetReadMostly")]
    UnsetReadMostly,
    /// Pages should stay on a device.
    #[serde(rename = "cudaMemAdviseSetPreferredLocation", alias = "SetPreferredLocation")]
    SetPreferredLocation,
    /// Takes that back.
    #[serde(
        rename = "cudaMemAdviseUnsetPreferredLocation",
        alias = "UnsetPreferredLocation"
    )]
    UnsetPreferredLocation,
    /// A device should always have a mapping.
    #[serde(rename = "cudaMemAdviseSetAccessedBy", alias = "SetAccessedBy")]
    SetAccessedBy,
    /// Takes that back.
    #[serde(rename = "cudaMemAdviseUnsetAccessedBy", alias = "UnsetAccessedBy")]
    UnsetAccessedBy,
}

/// Advice and its device together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemAdvise {
    /// Reads make copies, or no longer.
    ReadMostly(bool),
    /// Where pages should stay, if anywhere.
    PreferredLocation(Option<Processor>),
    /// The processor should always have a mapping, or no longer.
    AccessedBy(Processor, bool),
}

impl AdviceName {
    /// With the device that it is about.
    pub fn about(self, device: Place) -> MemAdvise {
        match self {
            AdviceName::SetReadMostly => MemAdvise::ReadMostly(true),
            AdviceName::UnsetReadMostly => MemAdvise::ReadMostly(false),
            AdviceName::SetPreferredLocation => MemAdvise::PreferredLocation(Some(device.into())),
            AdviceName::UnsetPreferredLocation => MemAdvise::PreferredLocation(None),
            AdviceName::SetAccessedBy => MemAdvise::AccessedBy(device.into(), true),
            AdviceName::UnsetAccessedBy => MemAdvise::AccessedBy(device.into(), false),
        }
    }
}

impl FromStr for AdviceName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let name = serde_json::Value::String(text.to_owned());
        serde_json::from_value(name).map_err(|error| error.to_string())
    }
}
