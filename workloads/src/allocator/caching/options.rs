//! The option string of the allocator (`PYTORCH_CUDA_ALLOC_CONF`).

use thiserror::Error;

/// Size classes of `roundup_power2_divisions`: below 2 MiB, then one per power of two up to 32 GiB.
const CLASSES: usize = 16;
const MIB: u64 = 1 << 20;
/// Default segment for rounded sizes in (1 MiB, 10 MiB), and the least sizes of two options.
const LARGE_SEGMENT_MIB: u64 = 20;
/// No limit: a size that no request reaches.
pub const UNLIMITED: u64 = u64::MAX;

/// Options that exist and do not change what device memory sees.
const WITHOUT_EFFECT: [&str; 6] = [
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",
    "release_lock_on_cudamalloc",
    "graph_capture_record_stream_reuse",
];

const NAMES: [&str; 8] = [
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "expandable_segments",
    "large_segment_size_mb",
    "per_process_memory_fraction",
    "backend",
];

/// An option string that the allocator does not take.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OptionError {
    /// No option has this name.
    #[error("unknown option {name:?}; accepted: {}", NAMES.join(", "))]
    Unknown {
        /// What was given.
        name: String,
    },
    /// Not `name:value` pairs separated by commas.
    #[error("{text:?} is not NAME:VALUE; options are separated by commas")]
    Shape {
        /// What was given.
        text: String,
    },
    /// A value out of range.
    #[error("{name} = {value:?}; accepted: {accepted}")]
    Value {
        /// The option.
        name: &'static str,
        /// What was given.
        value: String,
        /// What is accepted.
        accepted: &'static str,
    },
}

/// Options of the allocator, with PyTorch's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Blocks of this size and more are not split; bytes.
    pub max_split_size: u64,
    /// How much larger than the request an oversize block may be; bytes.
    pub max_non_split_rounding: u64,
    /// Divisions of each power-of-two interval that requests are rounded up to, by size class; 0: none.
    pub roundup_power2_divisions: [u64; CLASSES],
    /// Share of the allowed memory above which unused blocks are given back; 0: never.
    pub garbage_collection_threshold: f64,
    /// One growable range per stream and pool instead of segments.
    pub expandable_segments: bool,
    /// Segment for rounded sizes in (1 MiB, 10 MiB); bytes.
    pub large_segment: u64,
    /// Share of the device's memory that may be reserved (`set_per_process_memory_fraction`).
    pub memory_fraction: Option<f64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            max_split_size: UNLIMITED,
            max_non_split_rounding: LARGE_SEGMENT_MIB * MIB,
            roundup_power2_divisions: [0; CLASSES],
            garbage_collection_threshold: 0.0,
            expandable_segments: false,
            large_segment: LARGE_SEGMENT_MIB * MIB,
            memory_fraction: None,
        }
    }
}

impl Options {
    /// Reads an option string, for example `max_split_size_mb:128,expandable_segments:True`.
    ///
    /// # Errors
    /// The first option that is unknown or out of range.
    pub fn parse(text: &str) -> Result<Options, OptionError> {
        let mut options = Options::default();
        for part in split_top_level(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            let (name, value) = part.split_once(':').ok_or_else(|| OptionError::Shape {
                text: part.to_owned(),
            })?;
            options.set(name.trim(), value.trim())?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        match name {
            "max_split_size_mb" => {
                self.max_split_size = mebibytes("max_split_size_mb", value, LARGE_SEGMENT_MIB, "20 ..")?;
            }
            "max_non_split_rounding_mb" => {
                let name = "max_non_split_rounding_mb";
                self.max_non_split_rounding = mebibytes(name, value, LARGE_SEGMENT_MIB, "20 ..")?;
            }
            "large_segment_size_mb" => {
                self.large_segment = mebibytes("large_segment_size_mb", value, 10, "10 ..")?;
            }
            "roundup_power2_divisions" => self.roundup_power2_divisions = divisions(value)?,
            "garbage_collection_threshold" => {
                let threshold = value.parse().ok().filter(|t: &f64| *t > 0.0 && *t < 1.0);
                self.garbage_collection_threshold = threshold.ok_or_else(|| OptionError::Value {
                    name: "garbage_collection_threshold",
                    value: value.to_owned(),
                    accepted: "above 0, below 1",
                })?;
            }
            "per_process_memory_fraction" => {
                let fraction = value.parse().ok().filter(|f: &f64| *f > 0.0 && *f <= 1.0);
                self.memory_fraction = Some(fraction.ok_or_else(|| OptionError::Value {
                    name: "per_process_memory_fraction",
                    value: value.to_owned(),
                    accepted: "above 0, up to 1",
                })?);
            }
            "expandable_segments" => {
                self.expandable_segments = match value {
                    "True" | "true" => true,
                    "False" | "false" => false,
                    _ => {
                        return Err(OptionError::Value {
                            name: "expandable_segments",
                            value: value.to_owned(),
                            accepted: "True, False",
                        });
                    }
                };
            }
            "backend" if value == "native" => {}
            "backend" => {
                return Err(OptionError::Value {
                    name: "backend",
                    value: value.to_owned(),
                    accepted: "native",
                });
            }
            _ if WITHOUT_EFFECT.contains(&name) => {}
            _ => {
                return Err(OptionError::Unknown {
                    name: name.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Bytes of the block that a request of `bytes` needs; `None` if that exceeds 64 bits.
    pub fn round(&self, bytes: u64) -> Option<u64> {
        const MIN: u64 = super::MIN_BLOCK;
        if bytes < MIN {
            return Some(MIN);
        }
        let power = bytes.ilog2();
        let class = (power as usize).saturating_sub(20).min(CLASSES - 1);
        let divisions = self.roundup_power2_divisions[class];
        if divisions > 1 && bytes > MIN.saturating_mul(divisions) {
            if bytes.is_power_of_two() {
                return Some(bytes);
            }
            let floor = 1_u64 << power;
            let step = floor / divisions;
            return if step == 0 {
                floor.checked_mul(2)
            } else {
                bytes.checked_next_multiple_of(step)
            };
        }
        bytes.checked_next_multiple_of(MIN)
    }
}

/// The parts between commas that are not inside brackets.
fn split_top_level(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth <= 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn mebibytes(
    name: &'static str,
    value: &str,
    least: u64,
    accepted: &'static str,
) -> Result<u64, OptionError> {
    value
        .parse()
        .ok()
        .filter(|mebibytes| (least..=1 << 40).contains(mebibytes))
        .map(|mebibytes: u64| mebibytes * MIB)
        .ok_or_else(|| OptionError::Value {
            name,
            value: value.to_owned(),
            accepted,
        })
}

fn divisions(value: &str) -> Result<[u64; CLASSES], OptionError> {
    let error = || OptionError::Value {
        name: "roundup_power2_divisions",
        value: value.to_owned(),
        accepted: "a power of two, or [MIB:POWER,...,>:POWER] with powers of two (or 0 for POWER)",
    };
    let power = |text: &str, zero: bool| {
        let n: u64 = text.trim().parse().map_err(|_| error())?;
        if n.is_power_of_two() || (zero && n == 0) {
            Ok(n)
        } else {
            Err(error())
        }
    };
    let Some(list) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Ok([power(value, false)?; CLASSES]);
    };
    let mut all = [0; CLASSES];
    // The class named last; `>` covers it too, as in PyTorch's parser (allocator reference 2).
    let mut last = None;
    for pair in list.split(',') {
        let (key, divisions) = pair.split_once(':').ok_or_else(error)?;
        let divisions = power(divisions, true)?;
        if key.trim() == ">" {
            all[last.unwrap_or(0)..].fill(divisions);
            continue;
        }
        let class = power(key, false)?.trailing_zeros() as usize;
        let class = class.min(CLASSES - 1);
        if last.is_none() {
            all[..class].fill(divisions);
        }
        all[class] = divisions;
        last = Some(class);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings() {
        assert_eq!(Options::parse("").unwrap(), Options::default());
        let options = Options::parse(
            "max_split_size_mb:32, garbage_collection_threshold:0.6,expandable_segments:True,backend:native",
        )
        .unwrap();
        assert_eq!(options.max_split_size, 32 << 20);
        assert!(options.expandable_segments);
        let options = Options::parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]").unwrap();
        let expected = [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 8, 8, 8, 8, 8, 8];
        assert_eq!(options.roundup_power2_divisions, expected);
        for (text, says) in [
            ("max_split_size_mb:19", "20 .."),
            ("max_split_size_mb:many", "20 .."),
            ("garbage_collection_threshold:1", "below 1"),
            ("garbage_collection_threshold:nan", "below 1"),
            ("roundup_power2_divisions:3", "power of two"),
            ("roundup_power2_divisions:[512:2,300:1]", "powers of two"),
            ("roundup_power2_divisions:[512:2,256]", "powers of two"),
            ("per_process_memory_fraction:0", "above 0"),
            ("backend:cudaMallocAsync", "native"),
            ("split:3", "unknown option"),
            ("expandable_segments", "NAME:VALUE"),
            ("max_split_size_mb:18446744073709551615", "20 .."),
        ] {
            let error = Options::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn rounding() {
        let plain = Options::default();
        assert_eq!(plain.round(1), Some(512));
        assert_eq!(plain.round(1_048_065), Some(1 << 20));
        assert_eq!(plain.round(u64::MAX), None);
        let quarters = Options::parse("roundup_power2_divisions:4").unwrap();
        for (bytes, rounded) in [
            (1200, 1536),
            (5000, 5120),
            (3_145_729, 3_670_016),
            (2048, 2048),
            (2049, 2560),
        ] {
            assert_eq!(quarters.round(bytes), Some(rounded), "{bytes}");
        }
    }
}
