//! What a key may hold: kinds, accepted ranges, parsing, printing.

use std::fmt::{self, Write as _};
use std::ops::RangeInclusive;

use sim_core::Time;
use sim_core::units::{Bandwidth, Bytes, Hertz, UnitError};

/// Possible bandwidths, bytes per second: those that the link accepts. Slower devices are mistakes of
/// unit, and take a simulation past the end of simulated time.
const BANDWIDTHS: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000_000;
/// Possible clocks, Hz.
const FREQUENCIES: RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;
/// Possible rates of arithmetic, operations per second.
const FLOPS: RangeInclusive<f64> = 1e6..=1e21;

/// What a key holds, and which values are possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A span of time, `"45 us"`.
    Time {
        /// Smallest possible value.
        min: Time,
        /// Largest possible value.
        max: Time,
    },
    /// An amount of memory, `"24 GiB"`.
    Bytes {
        /// Smallest possible value, bytes.
        min: u64,
        /// Largest possible value, bytes.
        max: u64,
        /// Must the value be a power of two?
        power_of_two: bool,
    },
    /// Bytes per second, `"25.6 GB/s"`, 1 MB/s to 1000 TB/s.
    Bandwidth,
    /// A clock, `"1.41 GHz"`, 1 MHz to 1000 GHz.
    Frequency,
    /// Floating-point operations per second, `"19.5 TFLOP/s"`, 1 MFLOP/s to 10^21 FLOP/s.
    Flops,
    /// A whole number.
    Int {
        /// Smallest possible value.
        min: u64,
        /// Largest possible value.
        max: u64,
    },
    /// A whole number out of a set.
    OneOf(&'static [u64]),
    /// A number without a unit.
    Ratio {
        /// Lower bound.
        min: f64,
        /// Upper bound, itself possible.
        max: f64,
        /// Is the lower bound itself possible?
        inclusive: bool,
    },
    /// `true` or `false`.
    Bool,
    /// A name out of a set.
    Choice(&'static [&'static str]),
    /// A name or a path.
    Text,
}

impl Kind {
    /// Any time up to 1000 s.
    pub const TIME: Kind = Kind::Time {
        min: Time::ZERO,
        max: Time::from_us(1_000_000_000),
    };
    /// A share of a peak rate: a millionth to all of it.
    pub const SHARE: Kind = Kind::Ratio {
        min: 1e-6,
        max: 1.0,
        inclusive: true,
    };

    /// The units a value of this kind is written with; empty where there is none.
    pub fn units(&self) -> &'static str {
        match self {
            Kind::Time { .. } => "ns, us, ms, s",
            Kind::Bytes { .. } => "B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024)",
            Kind::Bandwidth => "B/s, KB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s, TiB/s",
            Kind::Frequency => "Hz, kHz, MHz, GHz",
            Kind::Flops => "FLOP/s, MFLOP/s, GFLOP/s, TFLOP/s, PFLOP/s",
            _ => "",
        }
    }

    /// A well-formed value, for error messages.
    pub fn example(&self) -> String {
        match self {
            Kind::Time { .. } => "\"45 us\"".into(),
            Kind::Bytes {
                power_of_two: true, ..
            } => "\"512 B\"".into(),
            Kind::Bytes { .. } => "\"24 GiB\"".into(),
            Kind::Bandwidth => "\"25.6 GB/s\"".into(),
            Kind::Frequency => "\"1.41 GHz\"".into(),
            Kind::Flops => "\"19.5 TFLOP/s\"".into(),
            Kind::Int { min, max } => 256.clamp(*min, *max).to_string(),
            Kind::OneOf(set) => set.first().map(u64::to_string).unwrap_or_default(),
            Kind::Ratio { min, max, .. } => 1.25f64.clamp(*min, *max).to_string(),
            Kind::Bool => "true".into(),
            Kind::Choice(names) => format!("\"{}\"", names.first().unwrap_or(&"")),
            Kind::Text => "\"name\"".into(),
        }
    }

    /// The name of the kind, with its article.
    pub fn noun(&self) -> &'static str {
        match self {
            Kind::Time { .. } => "a time",
            Kind::Bytes { .. } => "a number of bytes",
            Kind::Bandwidth => "a bandwidth",
            Kind::Frequency => "a frequency",
            Kind::Flops => "a rate of floating-point operations",
            Kind::Int { .. } | Kind::OneOf(_) => "a whole number",
            Kind::Ratio { .. } => "a number",
            Kind::Bool => "true or false",
            Kind::Choice(_) => "a name",
            Kind::Text => "a text",
        }
    }

    /// The possible values, in words.
    pub fn range(&self) -> String {
        match self {
            Kind::Time { min, max } => format!("{min} to {max}"),
            Kind::Bytes {
                min,
                max,
                power_of_two,
            } => {
                let (min, max) = (Bytes(*min), Bytes(*max));
                let what = if *power_of_two { "a power of two from " } else { "" };
                format!("{what}{min} to {max}")
            }
            Kind::Bandwidth => format!(
                "{} to {}",
                Bandwidth(*BANDWIDTHS.start()),
                Bandwidth(*BANDWIDTHS.end())
            ),
            Kind::Frequency => format!("{} to {}", Hertz(*FREQUENCIES.start()), Hertz(*FREQUENCIES.end())),
            Kind::Flops => format!(
                "{} to {}",
                Value::Flops(*FLOPS.start()),
                Value::Flops(*FLOPS.end())
            ),
            Kind::Int { min, max } => format!("{min} to {max}"),
            Kind::OneOf(set) => join(set),
            Kind::Ratio { min, max, inclusive } => match (inclusive, max.is_finite()) {
                (true, true) => format!("{min} to {max}"),
                (false, true) => format!("more than {min}, at most {max}"),
                (true, false) => format!("{min} or more"),
                (false, false) => format!("more than {min}"),
            },
            Kind::Bool => "true, false".into(),
            Kind::Choice(names) => join(names),
            Kind::Text => "any".into(),
        }
    }
}

fn join<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`Kind::Time`].
    Time(Time),
    /// Of [`Kind::Bytes`].
    Bytes(Bytes),
    /// Of [`Kind::Bandwidth`].
    Bandwidth(Bandwidth),
    /// Of [`Kind::Frequency`].
    Hertz(Hertz),
    /// Of [`Kind::Flops`], operations per second.
    Flops(f64),
    /// Of [`Kind::Int`] and [`Kind::OneOf`].
    Int(u64),
    /// Of [`Kind::Ratio`].
    Ratio(f64),
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::Choice`] and [`Kind::Text`].
    Text(String),
    /// One of the words that a key accepts instead of a value (`"unlimited"`).
    Word(&'static str),
}

/// Why a text is not a value of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// What is wrong.
    pub message: String,
    /// What is accepted.
    pub help: String,
}

/// The text forms in which a value reaches the parser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Literal<'a> {
    /// A quoted text of a file.
    Quoted(&'a str),
    /// A number of a file, as written.
    Number(&'a str),
    /// `true` or `false` of a file.
    Bool(bool),
    /// Right of the `=` of a command-line override: any form.
    Free(&'a str),
    /// An array, table or date of a file.
    Other(&'static str),
}

impl Literal<'_> {
    fn describe(&self) -> String {
        match self {
            Literal::Quoted(text) => format!("the text {text:?}"),
            Literal::Number(text) | Literal::Free(text) => format!("`{text}`"),
            Literal::Bool(value) => format!("`{value}`"),
            Literal::Other(what) => (*what).to_string(),
        }
    }
}

impl Kind {
    /// Parses and range-checks a value; `words` are accepted as they stand.
    ///
    /// # Errors
    /// Wrong kind, missing or wrong unit, outside the range: with what is accepted.
    pub fn parse(&self, literal: Literal<'_>, words: &'static [&'static str]) -> Result<Value, ValueError> {
        if let Literal::Quoted(text) | Literal::Free(text) = literal
            && let Some(word) = words.iter().find(|w| **w == text.trim())
        {
            return Ok(Value::Word(word));
        }
        let value = self
            .parse_unchecked(literal)
            .map_err(|reason| self.error(literal, reason.as_deref(), words))?;
        if self.contains(&value) {
            return Ok(value);
        }
        let message = match self {
            Kind::Choice(_) => format!("{} is not one of the names", literal.describe()),
            _ => format!("{} is out of range", literal.describe()),
        };
        let mut help = format!("accepted: {}", self.range());
        if let (Kind::Choice(names), Value::Text(text)) = (self, &value)
            && let Some(close) = nearest(text, names.iter().copied())
        {
            help = format!("did you mean \"{close}\"? {help}");
        }
        Err(ValueError {
            message,
            help: with_words(help, words),
        })
    }

    fn error(&self, literal: Literal<'_>, reason: Option<&str>, words: &[&str]) -> ValueError {
        let found = literal.describe();
        let units = self.units();
        let bare = match literal {
            Literal::Number(_) => true,
            Literal::Free(text) | Literal::Quoted(text) => text.trim().parse::<f64>().is_ok(),
            _ => false,
        };
        let message = match (units.is_empty(), bare, reason) {
            (false, true, _) => format!("{found} has no unit; {} is needed here", self.noun()),
            (_, _, Some(reason)) => format!("{found} is not {}: {reason}", self.noun()),
            _ => format!("expected {}, found {found}", self.noun()),
        };
        let mut help = if units.is_empty() {
            format!("accepted: {}, for example {}", self.range(), self.example())
        } else {
            format!("accepted units: {units}; for example {}", self.example())
        };
        if let Kind::Choice(_) = self {
            help = format!("accepted: {}", self.range());
        }
        ValueError {
            message,
            help: with_words(help, words),
        }
    }

    /// `Err(None)`: wrong kind of literal; `Err(Some(_))`: right kind, not parseable, and why.
    fn parse_unchecked(&self, literal: Literal<'_>) -> Result<Value, Option<String>> {
        let unquoted = |text: &str| text.trim().trim_matches(['"', '\'']).to_string();
        match self {
            Kind::Time { .. } | Kind::Bytes { .. } | Kind::Bandwidth | Kind::Frequency | Kind::Flops => {
                let text = match literal {
                    Literal::Quoted(text) => text.to_string(),
                    Literal::Free(text) => unquoted(text),
                    _ => return Err(None),
                };
                match self {
                    Kind::Time { .. } => text.parse().map(Value::Time).map_err(|e| Some(reason(&e))),
                    Kind::Bytes { .. } => text.parse().map(Value::Bytes).map_err(|e| Some(reason(&e))),
                    Kind::Bandwidth => text.parse().map(Value::Bandwidth).map_err(|e| Some(reason(&e))),
                    Kind::Frequency => text.parse().map(Value::Hertz).map_err(|e| Some(reason(&e))),
                    _ => parse_flops(&text).map(Value::Flops).map_err(Some),
                }
            }
            Kind::Int { .. } | Kind::OneOf(_) => match literal {
                Literal::Number(text) | Literal::Free(text) => parse_int(text).map(Value::Int),
                _ => Err(None),
            },
            Kind::Ratio { .. } => match literal {
                Literal::Number(text) | Literal::Free(text) => {
                    let number: f64 = text.replace('_', "").trim().parse().map_err(|_| None)?;
                    if number.is_finite() {
                        Ok(Value::Ratio(number))
                    } else {
                        Err(Some("it is not finite".into()))
                    }
                }
                _ => Err(None),
            },
            Kind::Bool => match literal {
                Literal::Bool(value) => Ok(Value::Bool(value)),
                Literal::Free(text) => text.trim().parse().map(Value::Bool).map_err(|_| None),
                _ => Err(None),
            },
            Kind::Choice(_) | Kind::Text => match literal {
                Literal::Quoted(text) => Ok(Value::Text(text.to_string())),
                Literal::Free(text) => Ok(Value::Text(unquoted(text))),
                _ => Err(None),
            },
        }
    }

    fn contains(&self, value: &Value) -> bool {
        match (self, value) {
            (Kind::Time { min, max }, Value::Time(time)) => (*min..=*max).contains(time),
            (
                Kind::Bytes {
                    min,
                    max,
                    power_of_two,
                },
                Value::Bytes(bytes),
            ) => (*min..=*max).contains(&bytes.0) && (!power_of_two || bytes.0.is_power_of_two()),
            (Kind::Bandwidth, Value::Bandwidth(rate)) => BANDWIDTHS.contains(&rate.0),
            (Kind::Frequency, Value::Hertz(rate)) => FREQUENCIES.contains(&rate.0),
            (Kind::Flops, Value::Flops(rate)) => FLOPS.contains(rate),
            (Kind::Int { min, max }, Value::Int(number)) => (*min..=*max).contains(number),
            (Kind::OneOf(set), Value::Int(number)) => set.contains(number),
            (Kind::Ratio { min, max, inclusive }, Value::Ratio(number)) => {
                number <= max && (number > min || (*inclusive && number >= min))
            }
            (Kind::Choice(names), Value::Text(text)) => names.contains(&text.as_str()),
            (Kind::Text, Value::Text(text)) => !text.trim().is_empty(),
            (Kind::Bool, Value::Bool(_)) => true,
            _ => false,
        }
    }
}

fn with_words(help: String, words: &[&str]) -> String {
    if words.is_empty() {
        return help;
    }
    let words: Vec<_> = words.iter().map(|w| format!("\"{w}\"")).collect();
    format!("{help}; or {}", words.join(", "))
}

/// The part of a unit error that the message around it does not say already.
fn reason(error: &UnitError) -> String {
    match error {
        UnitError::MissingUnit { .. } => "it has no unit".into(),
        UnitError::WrongKind { unit, found, .. } => format!("`{unit}` is a unit of {found}"),
        UnitError::UnknownUnit { unit, .. } => format!("`{unit}` is not a unit"),
        UnitError::NotANumber { .. } => "it does not begin with a number".into(),
        UnitError::Negative { .. } => "it is negative".into(),
        UnitError::Overflow { .. } => "it is too large".into(),
    }
}

/// Whole numbers as TOML writes them; `Err(None)` where it is no whole number.
fn parse_int(text: &str) -> Result<u64, Option<String>> {
    let text = text.trim().replace('_', "");
    let digits = text.strip_prefix('+').unwrap_or(&text);
    let parsed = match digits.get(..2) {
        Some("0x") => u64::from_str_radix(&digits[2..], 16),
        Some("0o") => u64::from_str_radix(&digits[2..], 8),
        Some("0b") => u64::from_str_radix(&digits[2..], 2),
        _ => digits.parse(),
    };
    parsed.map_err(|_| match text.parse::<i128>() {
        Ok(n) if n < 0 => Some("it is negative".into()),
        Ok(_) => Some("it is too large".into()),
        Err(_) => None,
    })
}

/// `19.5 TFLOP/s` in operations per second.
fn parse_flops(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let end = text
        .find(|c: char| c.is_ascii_alphabetic() && c != 'e')
        .unwrap_or(text.len());
    let (number, unit) = (text[..end].trim(), text[end..].trim());
    let scale = match unit {
        "FLOP/s" => 1.0,
        "MFLOP/s" => 1e6,
        "GFLOP/s" => 1e9,
        "TFLOP/s" => 1e12,
        "PFLOP/s" => 1e15,
        _ => return Err(format!("unknown unit {unit:?}")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{number:?} is not a number"))?;
    if number.is_finite() {
        Ok(number * scale)
    } else {
        Err("it is not finite".into())
    }
}

/// The name nearest to `wanted`, if any is close enough to be meant.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_ascii_lowercase();
    names
        .map(|name| (strsim::jaro_winkler(&wanted, &name.to_ascii_lowercase()), name))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))
        .map(|(_, name)| name)
}

impl fmt::Display for Value {
    /// As it is written in a config, without quotes; parsing it gives the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Time(value) => write!(f, "{value}"),
            Value::Bytes(value) => write!(f, "{value}"),
            Value::Bandwidth(value) => write!(f, "{value}"),
            Value::Hertz(value) => write!(f, "{value}"),
            Value::Flops(value) => write_flops(f, *value),
            Value::Int(value) => write!(f, "{value}"),
            // A whole ratio keeps its point: the file stays readable as a number with a fraction.
            Value::Ratio(value) => write!(f, "{value:?}"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Text(value) => f.write_str(value),
            Value::Word(value) => f.write_str(value),
        }
    }
}

fn write_flops(f: &mut fmt::Formatter<'_>, value: f64) -> fmt::Result {
    // The scaled number is printed only where parsing it gives `value` back.
    for (scale, unit) in [
        (1e15, "PFLOP/s"),
        (1e12, "TFLOP/s"),
        (1e9, "GFLOP/s"),
        (1e6, "MFLOP/s"),
    ] {
        let scaled = value / scale;
        if scaled >= 1.0 && (scaled * scale).to_bits() == value.to_bits() {
            return write!(f, "{scaled} {unit}");
        }
    }
    write!(f, "{value} FLOP/s")
}

impl Value {
    /// As it is written in a TOML file, with quotes where TOML needs them.
    pub fn to_toml(&self) -> String {
        match self {
            Value::Int(_) | Value::Ratio(_) | Value::Bool(_) => self.to_string(),
            _ => toml_string(&self.to_string()),
        }
    }
}

/// `text` as a TOML basic string.
pub fn toml_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
