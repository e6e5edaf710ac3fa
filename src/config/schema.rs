//! The one table of keys. Parsing, checking, `explain`, the resolved file and the typed view all
//! come from it.

use super::sections;
use super::value::{Kind, Value, nearest};

/// One key of a config.
#[derive(Debug)]
pub struct Key {
    /// Dotted path, `gpu.sms`.
    pub path: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Words accepted instead of a value.
    pub words: &'static [&'static str],
    /// What it means.
    pub doc: &'static str,
    /// Must it have a value once all layers are applied?
    pub required: bool,
}

impl Key {
    /// The table that the key is in: everything before the last dot.
    pub fn table(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(table, _)| table)
    }
}

/// All keys, in the order in which `config show` prints them.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    sections::ALL.iter().flat_map(|section| section.iter())
}

/// The key at `path`.
pub fn key(path: &str) -> Option<&'static Key> {
    keys().find(|key| key.path == path)
}

/// Is `path` a table that holds keys?
pub fn is_table(path: &str) -> bool {
    keys().any(|key| {
        key.path
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

/// The key or table nearest to an unknown `path`.
pub fn nearest_path(path: &str) -> Option<&'static str> {
    // A right key in the wrong table is the likeliest mistake after a typing error in its name.
    let last = path.rsplit('.').next().unwrap_or(path);
    let table = path.rsplit_once('.').map_or("", |(table, _)| table);
    let inside = keys()
        .filter(|key| key.table() == table)
        .map(|key| &key.path[table.len() + 1..]);
    if !table.is_empty()
        && let Some(name) = nearest(last, inside)
    {
        return keys()
            .map(|key| key.path)
            .find(|p| p.len() == table.len() + 1 + name.len() && p.starts_with(table) && p.ends_with(name));
    }
    if !path.contains('.') {
        let tables = keys().map(|key| key.path.split('.').next().unwrap_or(key.path));
        if let Some(found) = nearest(path, tables) {
            return Some(found);
        }
    }
    keys()
        .map(|key| key.path)
        .find(|p| p.ends_with(last) && p[..p.len() - last.len()].ends_with('.'))
        .or_else(|| nearest(path, keys().map(|key| key.path)))
}

/// A Rust type that a value turns into.
pub trait Field: Sized {
    /// Must the key have a value?
    const REQUIRED: bool;
    /// `None` where the value does not fit the type.
    fn from_value(value: Option<&Value>) -> Option<Self>;
}

macro_rules! field {
    ($ty:ty, $pattern:pat => $result:expr) => {
        impl Field for $ty {
            const REQUIRED: bool = true;
            fn from_value(value: Option<&Value>) -> Option<Self> {
                match value? {
                    $pattern => $result,
                    _ => None,
                }
            }
        }
    };
}

field!(sim_core::Time, Value::Time(time) => Some(*time));
field!(sim_core::units::Bytes, Value::Bytes(bytes) => Some(*bytes));
field!(sim_core::units::Bandwidth, Value::Bandwidth(rate) => Some(*rate));
field!(sim_core::units::Hertz, Value::Hertz(rate) => Some(*rate));
field!(u64, Value::Int(number) => Some(*number));
field!(u32, Value::Int(number) => (*number).try_into().ok());
field!(f64, Value::Ratio(number) | Value::Flops(number) => Some(*number));
field!(bool, Value::Bool(value) => Some(*value));
field!(String, Value::Text(text) => Some(text.clone()));

impl<T: Field> Field for Option<T> {
    const REQUIRED: bool = false;
    fn from_value(value: Option<&Value>) -> Option<Self> {
        match value {
            None | Some(Value::Word(_)) => Some(None),
            some => T::from_value(some).map(Some),
        }
    }
}

/// Declares a section: a plain struct and its part of the table of keys. The documentation of a
/// field is also what `explain` prints.
macro_rules! section {
    (
        $(#[$meta:meta])*
        $name:ident {
            $( $(#[doc = $doc:literal])+ $field:ident ($path:literal $(, $word:literal)*) : $ty:ty = $kind:expr; )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $field: $ty, )*
        }

        impl $name {
            /// The keys of this section.
            pub const KEYS: &'static [$crate::config::schema::Key] = &[
                $( $crate::config::schema::Key {
                    path: $path,
                    kind: $kind,
                    words: &[$($word),*],
                    doc: concat!($($doc),+),
                    required: <$ty as $crate::config::schema::Field>::REQUIRED,
                }, )*
            ];

            /// Reads the section; the path of the key whose value is missing or does not fit.
            pub(crate) fn read(
                get: &dyn Fn(&str) -> Option<$crate::config::value::Value>,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $( $field: <$ty as $crate::config::schema::Field>::from_value(get($path).as_ref())
                        .ok_or($path)?, )*
                })
            }
        }
    };
}
pub(crate) use section;
