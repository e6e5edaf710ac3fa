//! `[sweep]`: the keys that vary, each with a list of values or a range.

use std::ops::Range;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Source};
use super::document::{literal, unknown};
use super::schema::{self, Key};
use super::value::{Kind, Value};

/// Most values of one axis.
const MOST: usize = 100_000;

/// One key that varies.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The key.
    pub key: &'static Key,
    /// Its values, in the order written.
    pub values: Vec<Value>,
    /// Where the axis was written.
    pub span: Range<usize>,
}

/// Reads the axes below `table`.
pub(super) fn axes(
    prefix: &str,
    table: &DeTable<'_>,
    source: &Arc<Source>,
    out: &mut Vec<Axis>,
    errors: &mut Vec<Diagnostic>,
) {
    for (name, value) in table {
        let text: &str = name.get_ref();
        let path = if prefix.is_empty() {
            text.to_string()
        } else {
            format!("{prefix}.{text}")
        };
        let Some(key) = schema::key(&path) else {
            match value.get_ref() {
                DeValue::Table(inner) if schema::is_table(&path) => axes(&path, inner, source, out, errors),
                _ => errors.push(unknown(&path).at(source, name.span(), "unknown")),
            }
            continue;
        };
        if path.starts_with("study.") {
            errors.push(
                Diagnostic::new(format!("sweep.{path}: a study has one name and one seed")).at(
                    source,
                    name.span(),
                    "cannot vary",
                ),
            );
            continue;
        }
        let parsed = match value.get_ref() {
            DeValue::Array(items) => {
                let mut values = Vec::new();
                for item in items {
                    match key.kind.parse(literal(item.get_ref()), key.words) {
                        Ok(value) => values.push(value),
                        Err(error) => errors.push(
                            Diagnostic::new(format!("sweep.{path}: {}", error.message))
                                .at(source, item.span(), key.kind.noun())
                                .help(error.help),
                        ),
                    }
                }
                if items.is_empty() {
                    Err((format!("sweep.{path}: the list is empty"), "give at least one value".to_string()))
                } else {
                    Ok(values)
                }
            }
            DeValue::Table(table) => range(key, table).map_err(|reason| {
                let help = "{ from = 1.0, to = 4.0, step = 0.25 } or { from = 1.0, to = 8.0, count = 4, log = true }";
                (format!("sweep.{path}: {reason}"), help.to_string())
            }),
            _ => Err((format!("sweep.{path}: neither a list nor a range"), "for example [1.0, 1.5, 2.0]".to_string())),
        };
        match parsed {
            Ok(values) => out.push(Axis {
                key,
                values,
                span: name.span(),
            }),
            Err((message, help)) => {
                errors.push(
                    Diagnostic::new(message)
                        .at(source, value.span(), "here")
                        .help(help),
                );
            }
        }
    }
}

/// `{ from, to, step }` or `{ from, to, count, log }` for keys that hold plain numbers.
fn range(key: &Key, table: &DeTable<'_>) -> Result<Vec<Value>, String> {
    if !matches!(key.kind, Kind::Ratio { .. } | Kind::Int { .. }) {
        return Err(format!(
            "a range needs a key of plain numbers; {} takes {}",
            key.path,
            key.kind.noun()
        ));
    }
    let (mut from, mut to, mut step, mut count, mut log) = (None, None, None, None, false);
    for (name, value) in table {
        let name: &str = name.get_ref();
        let number = match value.get_ref() {
            DeValue::Integer(n) => n.as_str().replace('_', "").parse().ok(),
            DeValue::Float(n) => n.as_str().replace('_', "").parse().ok(),
            _ => None,
        }
        .filter(|n: &f64| n.is_finite());
        match (name, value.get_ref(), number) {
            ("from", _, Some(n)) => from = Some(n),
            ("to", _, Some(n)) => to = Some(n),
            ("step", _, Some(n)) => step = Some(n),
            ("count", _, Some(n)) if n.fract() == 0.0 && (1.0..=MOST as f64).contains(&n) => {
                count = Some(n as usize);
            }
            ("log", DeValue::Boolean(value), _) => log = *value,
            ("from" | "to" | "step" | "count" | "log", ..) => {
                return Err(format!("{name} has an impossible value"));
            }
            _ => return Err(format!("unknown name {name} in a range")),
        }
    }
    let (Some(from), Some(to)) = (from, to) else {
        return Err("a range needs from and to".into());
    };
    let numbers: Vec<f64> = match (step, count) {
        (Some(step), None) if step > 0.0 && to >= from && !log => {
            // A hair of tolerance, so that rounding does not lose the last value.
            let steps = ((to - from) / step + 1e-9).floor();
            if steps >= MOST as f64 {
                return Err(format!("more than {MOST} values"));
            }
            (0..=steps as usize)
                .map(|i| round(from + i as f64 * step))
                .collect()
        }
        (None, Some(1)) => vec![from],
        (None, Some(count)) => {
            let share = |i: usize| i as f64 / (count - 1) as f64;
            if log && (from <= 0.0 || to <= 0.0) {
                return Err("a logarithmic range needs from and to above 0".into());
            }
            let inner = |i: usize| {
                if log {
                    from * (to / from).powf(share(i))
                } else {
                    from + (to - from) * share(i)
                }
            };
            (0..count)
                .map(|i| if i + 1 == count { to } else { round(inner(i)) })
                .collect()
        }
        (Some(_), Some(_)) => return Err("step or count, not both".into()),
        (Some(_), None) => return Err("step needs to be above 0, to at least from, without log".into()),
        (None, None) => return Err("step or count is missing".into()),
    };
    let mut values = Vec::with_capacity(numbers.len());
    for number in numbers {
        let text = if matches!(key.kind, Kind::Int { .. }) {
            format!("{}", number.round())
        } else {
            format!("{number}")
        };
        let value = key
            .kind
            .parse(super::value::Literal::Number(&text), key.words)
            .map_err(|e| e.message)?;
        if values.last() != Some(&value) {
            values.push(value);
        }
    }
    Ok(values)
}

/// Nine significant digits: 1.0 + 2 * 0.1 reads as 1.2.
fn round(number: f64) -> f64 {
    format!("{number:.8e}").parse().unwrap_or(number)
}
