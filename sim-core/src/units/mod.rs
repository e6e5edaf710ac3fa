//! Quantities with units: sizes, bandwidths, frequencies, and the text form of [`Time`].
//!
//! Text is a decimal number and a unit, "24 GiB", "25.6 GB/s", "1.41 GHz", "45 us"; GB = 10^9 and
//! GiB = 2^30. A number without a unit is an error. Values are whole base units (bytes, bytes per
//! second, hertz, ticks), rounded to the nearest. Without a precision, printing is exact: what is
//! printed parses to the same value. With one (`{:.2}`) it rounds, for reports.

mod parse;

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use parse::{Kind, UnitError};
use parse::{parse, write_exact};

use crate::Time;
use crate::time::TICKS_PER_SECOND;

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Nothing.
    pub const ZERO: Bytes = Bytes(0);
    /// Larger than every memory.
    pub const MAX: Bytes = Bytes(u64::MAX);

    /// `n` KiB (2^10 bytes).
    pub const fn from_kib(n: u64) -> Bytes {
        Bytes(n << 10)
    }

    /// `n` MiB (2^20 bytes).
    pub const fn from_mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }

    /// `n` GiB (2^30 bytes).
    pub const fn from_gib(n: u64) -> Bytes {
        Bytes(n << 30)
    }

    /// GiB, for reports.
    pub fn as_gib_f64(self) -> f64 {
        self.0 as f64 / (1u64 << 30) as f64
    }

    /// `self - other`, or zero when `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// `self * n`, saturating.
    #[must_use]
    pub const fn times(self, n: u64) -> Bytes {
        Bytes(self.0.saturating_mul(n))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0 - other.0)
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        self.0 -= other.0;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

/// A rate in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(pub u64);

impl Bandwidth {
    /// `n` GB/s (10^9 bytes per second).
    pub const fn from_gb_per_s(n: u64) -> Bandwidth {
        Bandwidth(n * 1_000_000_000)
    }

    /// GB/s, for reports.
    pub fn as_gb_per_s_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time that `bytes` take, rounded up to a whole tick; [`Time::MAX`] where that is longer
    /// than time can hold, as at zero bandwidth (but no bytes take no time).
    pub const fn time_for(self, bytes: Bytes) -> Time {
        if bytes.0 == 0 {
            return Time::ZERO;
        }
        if self.0 == 0 {
            return Time::MAX;
        }
        let ticks = (bytes.0 as u128 * TICKS_PER_SECOND as u128).div_ceil(self.0 as u128);
        if ticks > u64::MAX as u128 {
            Time::MAX
        } else {
            Time(ticks as u64)
        }
    }

    /// The whole bytes that pass in `time`, rounded down, saturating.
    pub const fn bytes_in(self, time: Time) -> Bytes {
        let bytes = self.0 as u128 * time.0 as u128 / TICKS_PER_SECOND as u128;
        if bytes > u64::MAX as u128 {
            Bytes::MAX
        } else {
            Bytes(bytes as u64)
        }
    }
}

/// A frequency in cycles per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hertz(pub u64);

impl Hertz {
    /// `n` MHz.
    pub const fn from_mhz(n: u64) -> Hertz {
        Hertz(n * 1_000_000)
    }

    /// GHz, for reports.
    pub fn as_ghz_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The binary unit of its magnitude; bytes when that would need more than three decimals,
        // which no one wants to read.
        let binary = Kind::Size
            .table()
            .iter()
            .rev()
            .filter(|unit| unit.1.is_power_of_two());
        let unit = *binary
            .into_iter()
            .find(|unit| unit.1 <= self.0.max(1))
            .filter(|unit| f.precision().is_some() || u128::from(self.0) * 1000 % u128::from(unit.1) == 0)
            .unwrap_or(&("B", 1));
        write_exact(f, self.0, unit)
    }
}

/// Writes in the largest decimal unit that is not larger than the value.
fn write_decimal(f: &mut fmt::Formatter<'_>, value: u64, kind: Kind) -> fmt::Result {
    let is_decimal = |unit: u64| unit == 1 || !unit.is_power_of_two();
    let units = kind.table();
    let fits = units
        .iter()
        .rev()
        .find(|unit| is_decimal(unit.1) && unit.1 <= value);
    write_exact(f, value, *fits.unwrap_or(&units[0]))
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0, Kind::Bandwidth)
    }
}

impl fmt::Display for Hertz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0, Kind::Frequency)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0, Kind::Time)
    }
}

/// Reads a quantity in configuration files: a string with a unit, never a number.
struct Text(Kind);

impl de::Visitor<'_> for Text {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} such as \"{}\"", self.0, self.0.example())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        parse(text, self.0).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<u64, E> {
        self.visit_str(&number.to_string())
    }
}

macro_rules! text_form {
    ($($type:ident: $kind:expr),*) => {$(
        impl FromStr for $type {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                parse(text, $kind).map($type)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Text($kind)).map($type)
            }
        }
    )*};
}

text_form!(Bytes: Kind::Size, Bandwidth: Kind::Bandwidth, Hertz: Kind::Frequency, Time: Kind::Time);

#[cfg(test)]
mod tests;
