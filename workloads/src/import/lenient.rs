//! Values that tools write in more than one way.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A whole number, written as a number or as text; anything else is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Int(pub Option<i64>);

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Int;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }
            fn visit_i64<E>(self, value: i64) -> Result<Int, E> {
                Ok(Int(Some(value)))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Int, E> {
                // Handles and addresses use all 64 bits; only equality matters then.
                Ok(Int(Some(i64::from_ne_bytes(value.to_ne_bytes()))))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Int, E> {
                Ok(Int((value.abs() < 9e15).then_some(value as i64)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Int, E> {
                Ok(Int(text.trim().parse().ok()))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Int, E> {
                Ok(Int(None))
            }
            fn visit_unit<E>(self) -> Result<Int, E> {
                Ok(Int(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Int, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Int(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Int, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Int(None))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// A time: a number, written as one or as text; anything else is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Real(pub f64);

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Real;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_f64<E>(self, value: f64) -> Result<Real, E> {
                Ok(Real(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Real, E> {
                Ok(Real(value as f64))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Real, E> {
                Ok(Real(value as f64))
            }
            fn visit_str<E>(self, text: &str) -> Result<Real, E> {
                Ok(Real(text.trim().parse().unwrap_or(0.0)))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Real, E> {
                Ok(Real(0.0))
            }
            fn visit_unit<E>(self) -> Result<Real, E> {
                Ok(Real(0.0))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Real, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Real(0.0))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Real, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Real(0.0))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// A thread or stream: a number, or a name that holds one or none; only equality matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(pub u64);

impl Id {
    fn of_text(text: &str) -> Id {
        if let Ok(number) = text.trim().parse() {
            return Id(number);
        }
        // FNV-1a: names are few, and numbers are small.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Id(hash | 1 << 63)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Id;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a name")
            }
            fn visit_i64<E>(self, value: i64) -> Result<Id, E> {
                Ok(Id(u64::from_ne_bytes(value.to_ne_bytes())))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Id, E> {
                Ok(Id(value))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Id, E> {
                Ok(Id(value.to_bits()))
            }
            fn visit_str<E>(self, text: &str) -> Result<Id, E> {
                Ok(Id::of_text(text))
            }
            fn visit_unit<E>(self) -> Result<Id, E> {
                Ok(Id::default())
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Dimensions of the tensors among some inputs: one list each, in order; what is no tensor is an empty
/// one. Lists of tensors are flattened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dims(pub Vec<Vec<u64>>);

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut dims = Dims::default();
        match Nested::deserialize(deserializer)? {
            Nested::List(items) => {
                for item in items {
                    item.flatten(&mut dims.0);
                }
            }
            Nested::Number(_) | Nested::Other => {}
        }
        Ok(dims)
    }
}

/// Lists of lists of numbers.
enum Nested {
    Number(u64),
    List(Vec<Nested>),
    Other,
}

impl Nested {
    fn flatten(self, out: &mut Vec<Vec<u64>>) {
        match self {
            Nested::List(items) if items.iter().any(|item| matches!(item, Nested::List(_))) => {
                for item in items {
                    item.flatten(out);
                }
            }
            Nested::List(items) => out.push(
                items
                    .into_iter()
                    .filter_map(|item| match item {
                        Nested::Number(n) => Some(n),
                        _ => None,
                    })
                    .collect(),
            ),
            Nested::Number(_) | Nested::Other => out.push(Vec::new()),
        }
    }
}

impl<'de> Deserialize<'de> for Nested {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Nested;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("lists of numbers")
            }
            fn visit_u64<E>(self, value: u64) -> Result<Nested, E> {
                Ok(Nested::Number(value))
            }
            fn visit_i64<E>(self, _: i64) -> Result<Nested, E> {
                Ok(Nested::Other)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Nested, E> {
                Ok(Nested::Other)
            }
            fn visit_bool<E>(self, _: bool) -> Result<Nested, E> {
                Ok(Nested::Other)
            }
            fn visit_str<E>(self, _: &str) -> Result<Nested, E> {
                Ok(Nested::Other)
            }
            fn visit_unit<E>(self) -> Result<Nested, E> {
                Ok(Nested::Other)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Nested, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Nested::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Nested, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Nested::Other)
            }
        }
        deserializer.deserialize_any(Any)
    }
}
