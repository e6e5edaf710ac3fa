//! What is known of machines in tables of measurements: `configs/hardware/platforms.toml`.

use serde::Deserialize;

/// Packet size of a device's writes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceEntry {
    /// Texts that name it; none: everything else.
    pub r#match: Vec<String>,
    /// Payload of the engine's writes, bytes.
    pub write_tlp: u32,
    /// Where it comes from.
    pub source: String,
    /// The measurement it was read off.
    pub from: Option<String>,
}

/// How a host cuts read data.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostEntry {
    /// Texts that name it; none: everything else.
    pub r#match: Vec<String>,
    /// Only for links of this generation.
    pub generation: Option<u8>,
    /// Share of reads cut at every read completion boundary.
    pub rcb_share: f64,
    /// Where it comes from.
    pub source: String,
    /// The measurement it was read off.
    pub from: Option<String>,
}

/// `NVLink`s whose rate is not that of their generation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvLinkEntry {
    /// Texts that name the device.
    pub r#match: Vec<String>,
    /// Bytes per second of one link, per direction.
    pub link_rate: u64,
    /// Where it comes from.
    pub source: String,
}

/// How a tool times its copies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MethodEntry {
    /// Texts that name it.
    pub r#match: Vec<String>,
    /// Its name.
    pub name: String,
}

/// Fixed cost of a copy where nothing better is known, ns.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixed {
    /// Host to device.
    pub h2d_ns: f64,
    /// Device to host.
    pub d2h_ns: f64,
}

/// The table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platforms {
    /// Devices, most specific first.
    pub device: Vec<DeviceEntry>,
    /// Hosts, most specific first.
    pub host: Vec<HostEntry>,
    /// `NVLink`s of other rates.
    pub nvlink: Vec<NvLinkEntry>,
    /// Methods of measuring.
    pub method: Vec<MethodEntry>,
    /// The fallback.
    pub fixed: Fixed,
}

fn named(texts: &[String], row: &str) -> bool {
    let row = row.to_lowercase();
    texts.iter().any(|text| row.contains(&text.to_lowercase()))
}

impl Platforms {
    /// The table in the binary.
    ///
    /// # Errors
    /// None, unless the file in the binary is wrong; a test reads it.
    pub fn embedded() -> Result<Platforms, String> {
        toml::from_str(include_str!("../../configs/hardware/platforms.toml")).map_err(|e| e.to_string())
    }

    /// The entry of a device called `gpu`.
    pub fn device(&self, gpu: &str) -> Option<&DeviceEntry> {
        let mut all = self.device.iter();
        all.find(|entry| entry.r#match.is_empty() || named(&entry.r#match, gpu))
    }

    /// The entry of the host that `gpu` and `note` tell of, for a link of `generation`.
    pub fn host(&self, gpu: &str, note: &str, generation: u8) -> Option<&HostEntry> {
        let row = format!("{gpu}\n{note}");
        self.host.iter().find(|entry| {
            entry.generation.is_none_or(|only| only == generation)
                && (entry.r#match.is_empty() || named(&entry.r#match, &row))
        })
    }

    /// The entry of a device called `gpu`, if its NVLink has a rate of its own.
    pub fn nvlink(&self, gpu: &str) -> Option<&NvLinkEntry> {
        self.nvlink.iter().find(|entry| named(&entry.r#match, gpu))
    }

    /// The method that `note` or `source` names.
    pub fn method(&self, note: &str, source: &str) -> Option<&str> {
        let row = format!("{note}\n{source}");
        let found = self.method.iter().find(|entry| named(&entry.r#match, &row));
        found.map(|entry| entry.name.as_str())
    }
}
