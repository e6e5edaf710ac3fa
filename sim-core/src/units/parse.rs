//! Reading "24 GiB": exact decimal arithmetic, a unit of the right kind, errors that say what is
//! accepted.

use std::fmt;

use thiserror::Error;

use crate::time::TICKS_PER_NS;

/// A kind of quantity; each has its own units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`Bytes`](super::Bytes), counted in bytes.
    Size,
    /// [`Bandwidth`](super::Bandwidth), counted in bytes per second.
    Bandwidth,
    /// [`Time`](crate::Time), counted in ticks.
    Time,
    /// [`Hertz`](super::Hertz), counted in cycles per second.
    Frequency,
}

/// A unit's spelling and how many base units it holds.
pub(super) type Unit = (&'static str, u64);

const SIZE: &[Unit] = &[
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const BANDWIDTH: &[Unit] = &[
    ("B/s", 1),
    ("KB/s", 1_000),
    ("MB/s", 1_000_000),
    ("GB/s", 1_000_000_000),
    ("TB/s", 1_000_000_000_000),
    ("KiB/s", 1 << 10),
    ("MiB/s", 1 << 20),
    ("GiB/s", 1 << 30),
    ("TiB/s", 1 << 40),
];

const TIME: &[Unit] = &[
    ("ns", TICKS_PER_NS),
    ("us", 1_000 * TICKS_PER_NS),
    ("ms", 1_000_000 * TICKS_PER_NS),
    ("s", 1_000_000_000 * TICKS_PER_NS),
];

const FREQUENCY: &[Unit] = &[
    ("Hz", 1),
    ("kHz", 1_000),
    ("MHz", 1_000_000),
    ("GHz", 1_000_000_000),
];

/// Other spellings that are common enough to accept.
const ALIASES: &[(&str, &str)] = &[
    ("µs", "us"),
    ("μs", "us"),
    ("kB", "KB"),
    ("kB/s", "KB/s"),
    ("KHz", "kHz"),
    ("sec", "s"),
];

impl Kind {
    const ALL: [Kind; 4] = [Kind::Size, Kind::Bandwidth, Kind::Time, Kind::Frequency];

    pub(super) const fn table(self) -> &'static [Unit] {
        match self {
            Kind::Size => SIZE,
            Kind::Bandwidth => BANDWIDTH,
            Kind::Time => TIME,
            Kind::Frequency => FREQUENCY,
        }
    }

    /// The units that a quantity of this kind can be written in, smallest first.
    pub fn units(self) -> impl Iterator<Item = &'static str> {
        self.table().iter().map(|unit| unit.0)
    }

    /// A quantity of this kind, as an example for messages.
    pub const fn example(self) -> &'static str {
        match self {
            Kind::Size => "24 GiB",
            Kind::Bandwidth => "25.6 GB/s",
            Kind::Time => "45 us",
            Kind::Frequency => "1.41 GHz",
        }
    }

    fn factor(self, unit: &str) -> Option<u64> {
        let unit = ALIASES
            .iter()
            .find(|alias| alias.0 == unit)
            .map_or(unit, |alias| alias.1);
        self.table()
            .iter()
            .find(|known| known.0 == unit)
            .map(|known| known.1)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Size => "size",
            Kind::Bandwidth => "bandwidth",
            Kind::Time => "time",
            Kind::Frequency => "frequency",
        })
    }
}

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    /// A number alone: what it counts is not known.
    #[error("`{input}` has no unit: {}", accepted(*.kind))]
    MissingUnit {
        /// The text.
        input: String,
        /// What was expected.
        kind: Kind,
    },
    /// A unit of another kind, such as a size where a time is expected.
    #[error("`{unit}` in `{input}` is a unit of {found}: {}", accepted(*.kind))]
    WrongKind {
        /// The text.
        input: String,
        /// The unit in it.
        unit: String,
        /// What that unit measures.
        found: Kind,
        /// What was expected.
        kind: Kind,
    },
    /// No unit that is known.
    #[error("`{unit}` in `{input}` is not a unit: {}", accepted(*.kind))]
    UnknownUnit {
        /// The text.
        input: String,
        /// The unit in it.
        unit: String,
        /// What was expected.
        kind: Kind,
    },
    /// Does not begin with a plain decimal number; exponents, NaN and infinities are none.
    #[error("`{input}` does not begin with a decimal number: {}", accepted(*.kind))]
    NotANumber {
        /// The text.
        input: String,
        /// What was expected.
        kind: Kind,
    },
    /// Below zero.
    #[error("`{input}` is negative: {}", accepted(*.kind))]
    Negative {
        /// The text.
        input: String,
        /// What was expected.
        kind: Kind,
    },
    /// Larger than the simulator can represent.
    #[error("`{input}` is too large: the largest {kind} is {}", largest(*.kind))]
    Overflow {
        /// The text.
        input: String,
        /// What was expected.
        kind: Kind,
    },
}

impl UnitError {
    /// What was expected; its [`units`](Kind::units) are those that would have been accepted.
    pub fn kind(&self) -> Kind {
        match self {
            UnitError::MissingUnit { kind, .. }
            | UnitError::WrongKind { kind, .. }
            | UnitError::UnknownUnit { kind, .. }
            | UnitError::NotANumber { kind, .. }
            | UnitError::Negative { kind, .. }
            | UnitError::Overflow { kind, .. } => *kind,
        }
    }
}

fn accepted(kind: Kind) -> String {
    let units: Vec<_> = kind.units().collect();
    format!(
        "expected a {kind} such as \"{}\", in {}",
        kind.example(),
        units.join(", ")
    )
}

fn largest(kind: Kind) -> String {
    let (unit, factor) = kind.table()[kind.table().len() - 1];
    format!("{} {unit}", u64::MAX / factor)
}

/// Decimals that count; more cannot change a value by a base unit.
const DECIMALS: usize = 22;

/// The quantity in base units, rounded to the nearest (halves up). All arithmetic is exact.
pub(super) fn parse(text: &str, kind: Kind) -> Result<u64, UnitError> {
    let text = text.trim();
    let input = || shorten(text);
    let not_a_number = || UnitError::NotANumber { input: input(), kind };
    let overflow = || UnitError::Overflow { input: input(), kind };

    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(rest.len());
    let (number, unit) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if !is_digits(whole) || !is_digits(fraction) {
        return Err(not_a_number());
    }
    if negative {
        return Err(UnitError::Negative { input: input(), kind });
    }
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Err(UnitError::MissingUnit { input: input(), kind });
    }
    let Some(factor) = kind.factor(unit) else {
        let unit = shorten(unit);
        return Err(
            match Kind::ALL.into_iter().find(|other| other.factor(&unit).is_some()) {
                Some(found) => UnitError::WrongKind {
                    input: input(),
                    unit,
                    found,
                    kind,
                },
                None => UnitError::UnknownUnit {
                    input: input(),
                    unit,
                    kind,
                },
            },
        );
    };

    let mut whole_value = 0u64;
    for digit in whole.bytes().filter(u8::is_ascii_digit) {
        whole_value = whole_value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(digit - b'0')))
            .ok_or_else(overflow)?;
    }
    let (mut numerator, mut denominator) = (0u128, 1u128);
    for digit in fraction.bytes().filter(u8::is_ascii_digit).take(DECIMALS) {
        numerator = numerator * 10 + u128::from(digit - b'0');
        denominator *= 10;
    }
    // Below 10^22 * 1.1e12 and 1.9e19 * 1.1e12: both far inside 128 bits.
    let fraction = (numerator * u128::from(factor) + denominator / 2) / denominator;
    let value = u128::from(whole_value) * u128::from(factor) + fraction;
    u64::try_from(value).map_err(|_| overflow())
}

/// One digit at least, underscores only between digits.
fn is_digits(text: &str) -> bool {
    !text.is_empty()
        && text
            .split('_')
            .all(|part| !part.is_empty() && !part.contains('.'))
}

/// What an error message can show of a text.
fn shorten(text: &str) -> String {
    const SHOWN: usize = 60;
    if text.chars().count() <= SHOWN {
        return text.to_owned();
    }
    text.chars().take(SHOWN).chain("...".chars()).collect()
}

/// Writes `value / unit` as the shortest exact decimal followed by the unit's name. `unit` must
/// have no prime factors but 2 and 5, so that the decimal ends.
pub(super) fn write_exact(f: &mut fmt::Formatter<'_>, value: u64, (name, unit): Unit) -> fmt::Result {
    if let Some(precision) = f.precision() {
        return write!(f, "{:.precision$} {name}", value as f64 / unit as f64);
    }
    write!(f, "{}", value / unit)?;
    let mut rest = u128::from(value % unit);
    if rest > 0 {
        f.write_str(".")?;
    }
    while rest > 0 {
        rest *= 10;
        write!(f, "{}", rest / u128::from(unit))?;
        rest %= u128::from(unit);
    }
    write!(f, " {name}")
}
