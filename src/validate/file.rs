//! Reading a validation file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::metric::Metric;
use crate::config::diagnostic::{ConfigErrors, Diagnostic, Source};
use crate::config::document::{self, Extra};
use crate::config::value::{Literal, nearest};
use crate::config::{Config, ResolvedConfig, schema};

/// A validation file, ready to run.
#[derive(Clone, Debug)]
pub struct ValidationFile {
    /// File name without folder and extension.
    pub name: String,
    /// Title.
    pub title: String,
    /// Who measured it, and where it was published.
    pub citation: String,
    /// Setup of the measurement, label of the figures, what ours does differently.
    pub notes: Vec<String>,
    /// The curves, in the order of the file.
    pub curves: Vec<Curve>,
}

/// One published curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// What is compared.
    pub metric: Metric,
    /// Unit of the published values.
    pub unit: String,
    /// The key that varies along x; `None` where x is a place inside one run.
    pub x_key: Option<&'static str>,
    /// Name of the x axis of a plot, with the unit.
    pub x_label: String,
    /// Accepted relative error.
    pub tolerance: f64,
    /// What was fitted to this curve, if anything was.
    pub fitted: Option<String>,
    /// Ours is multiplied by it: published totals over more iterations than are run.
    pub scale: f64,
    /// Every published point.
    pub points: Vec<CurvePoint>,
}

/// One published point.
#[derive(Clone, Debug)]
pub struct CurvePoint {
    /// Place, as written.
    pub x: String,
    /// Place, if it is a number.
    pub x_number: Option<f64>,
    /// Published value.
    pub published: f64,
    /// The config there.
    pub config: ResolvedConfig,
    /// The config of the reference run, if the metric needs one.
    pub reference: Option<ResolvedConfig>,
}

#[derive(Deserialize)]
struct RawFile {
    validation: RawHead,
    curve: Vec<Spanned<RawCurve>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHead {
    title: String,
    citation: String,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCurve {
    name: String,
    metric: Spanned<String>,
    #[serde(default)]
    unit: String,
    key: Option<Spanned<String>>,
    /// May be left out where a single value is published.
    #[serde(default)]
    x: Vec<Spanned<toml::Value>>,
    published: Vec<f64>,
    tolerance: f64,
    fitted: Option<String>,
    #[serde(default = "one")]
    scale: f64,
    #[serde(default)]
    set: BTreeMap<String, Spanned<toml::Value>>,
    #[serde(default)]
    reference: BTreeMap<String, Spanned<toml::Value>>,
}

fn one() -> f64 {
    1.0
}

/// Reads a file; `overrides` go on top of every point.
///
/// # Errors
/// Everything wrong with it that can be told before running.
pub fn load(path: &Path, overrides: &[String]) -> Result<ValidationFile, ConfigErrors> {
    let source = document::read(path)?;
    let name = path
        .file_stem()
        .map_or_else(|| "validation".into(), |stem| stem.to_string_lossy().into_owned());
    parse(&name, &source, path.parent(), overrides)
}

/// The same from a text.
///
/// # Errors
/// As [`load`].
pub fn parse(
    name: &str,
    source: &Arc<Source>,
    folder: Option<&Path>,
    overrides: &[String],
) -> Result<ValidationFile, ConfigErrors> {
    let base = Config::from_source(
        source,
        folder.map(Path::to_path_buf),
        overrides,
        Extra::Validation,
    )?;
    let raw: RawFile = toml::from_str(&source.text).map_err(|error| {
        ConfigErrors::one(
            Diagnostic::new(format!("not a validation file: {}", error.message()))
                .at(source, error.span().unwrap_or(0..0), "here")
                .help("it needs [validation] with title and citation, and [[curve]] with name, metric, x, published, tolerance"),
        )
    })?;
    let mut errors = Vec::new();
    let mut curves = Vec::new();
    for raw in &raw.curve {
        match curve(raw, &base, source) {
            Ok(curve) => curves.push(curve),
            Err(found) => errors.extend(found.0),
        }
    }
    if !errors.is_empty() {
        return Err(ConfigErrors(errors));
    }
    let RawHead {
        title,
        citation,
        notes,
    } = raw.validation;
    Ok(ValidationFile {
        name: name.into(),
        title,
        citation,
        notes,
        curves,
    })
}

fn curve(raw: &Spanned<RawCurve>, base: &Config, source: &Arc<Source>) -> Result<Curve, ConfigErrors> {
    let span = raw.span();
    let raw = raw.get_ref();
    let fail = |message: String| {
        ConfigErrors::one(Diagnostic::new(format!("curve {:?}: {message}", raw.name)).at(
            source,
            span.clone(),
            "this curve",
        ))
    };
    let Some(metric) = Metric::named(raw.metric.get_ref()) else {
        let names = || Metric::ALL.iter().map(|m| m.name());
        let guess = nearest(raw.metric.get_ref(), names())
            .map(|n| format!("did you mean {n}? "))
            .unwrap_or_default();
        return Err(ConfigErrors::one(
            Diagnostic::new(format!("unknown metric {:?}", raw.metric.get_ref()))
                .at(source, raw.metric.span(), "unknown")
                .help(format!(
                    "{guess}accepted: {}",
                    names().collect::<Vec<_>>().join(", ")
                )),
        ));
    };
    let x_key = match &raw.key {
        Some(key) => match schema::key(key.get_ref()) {
            Some(found) => Some(found),
            None => {
                return Err(ConfigErrors::one(document::unknown(key.get_ref()).at(
                    source,
                    key.span(),
                    "unknown",
                )));
            }
        },
        None => None,
    };
    let single = raw.x.is_empty() && raw.published.len() == 1 && x_key.is_none() && !metric.takes_x();
    let nowhere = [Spanned::new(0..0, toml::Value::String("-".into()))];
    let xs = if single { &nowhere[..] } else { &raw.x[..] };
    if xs.is_empty() || xs.len() != raw.published.len() {
        return Err(fail(format!(
            "{} values of x, {} published values",
            raw.x.len(),
            raw.published.len()
        )));
    }
    if raw.published.iter().any(|value| !value.is_finite()) {
        return Err(fail("published values are finite numbers".into()));
    }
    if !(raw.tolerance.is_finite() && raw.tolerance >= 0.0 && raw.scale.is_finite() && raw.scale > 0.0) {
        return Err(fail("tolerance is 0 or more, scale more than 0".into()));
    }
    if metric.takes_x() == x_key.is_some() {
        let which = if metric.takes_x() {
            "takes no key: x is a place inside the run"
        } else {
            "needs the key that x varies"
        };
        if metric.takes_x() || raw.x.len() > 1 {
            return Err(fail(format!("the metric {} {which}", metric.name())));
        }
    }
    let fixed = settings(&raw.set, source)?;
    let reference = settings(&raw.reference, source)?;
    let mut points = Vec::new();
    let mut x_label = x_key.map_or("x", |key| key.path).to_string();
    for (x, published) in xs.iter().zip(&raw.published) {
        let text = plain(x.get_ref());
        let mut here = fixed.clone();
        if let Some(key) = x_key {
            let varied = setting(key.path, x, source)?;
            if points.is_empty() {
                x_label.push_str(crate::sweep::unit(&varied.1));
            }
            here.push(varied);
        }
        let config = base.resolve_with(&here)?;
        let reference = match (metric.needs_reference(), reference.is_empty()) {
            (false, _) => None,
            (true, true) => Some(config.baseline()?),
            (true, false) => {
                let mut all = here.clone();
                all.extend(reference.iter().cloned());
                Some(base.resolve_with(&all)?)
            }
        };
        let x_number = match (x.get_ref(), x_key.and_then(|_| here.last())) {
            (toml::Value::Integer(n), None) => Some(*n as f64),
            (toml::Value::Float(n), None) => Some(*n),
            (_, Some((_, value))) => crate::sweep::number(value),
            _ => None,
        };
        points.push(CurvePoint {
            x: text,
            x_number,
            published: *published,
            config,
            reference,
        });
    }
    Ok(Curve {
        name: raw.name.clone(),
        metric,
        unit: raw.unit.clone(),
        x_key: x_key.map(|key| key.path),
        x_label,
        tolerance: raw.tolerance,
        fitted: raw.fitted.clone(),
        scale: raw.scale,
        points,
    })
}

type Point = Vec<(&'static schema::Key, crate::config::value::Value)>;

fn settings(
    raw: &BTreeMap<String, Spanned<toml::Value>>,
    source: &Arc<Source>,
) -> Result<Point, ConfigErrors> {
    raw.iter()
        .map(|(path, value)| setting(path, value, source))
        .collect()
}

fn setting(
    path: &str,
    value: &Spanned<toml::Value>,
    source: &Arc<Source>,
) -> Result<(&'static schema::Key, crate::config::value::Value), ConfigErrors> {
    let Some(key) = schema::key(path) else {
        return Err(ConfigErrors::one(document::unknown(path).at(
            source,
            value.span(),
            "of this key",
        )));
    };
    let number;
    let literal = match value.get_ref() {
        toml::Value::String(text) => Literal::Quoted(text),
        toml::Value::Boolean(value) => Literal::Bool(*value),
        toml::Value::Integer(_) | toml::Value::Float(_) => {
            number = plain(value.get_ref());
            Literal::Number(&number)
        }
        _ => Literal::Other("neither a text nor a number"),
    };
    key.kind
        .parse(literal, key.words)
        .map(|value| (key, value))
        .map_err(|error| {
            ConfigErrors::one(
                Diagnostic::new(format!("{path}: {}", error.message))
                    .at(source, value.span(), key.kind.noun())
                    .help(error.help),
            )
        })
}

fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
