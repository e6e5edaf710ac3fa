//! From a TOML text to settings of known keys.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{ConfigErrors, Diagnostic, Source, line_of};
use super::schema::{self, Key};
use super::sweep::{self, Axis};
use super::value::{Literal, Value};

/// Longest config that is read.
const LONGEST: u64 = 4 << 20;

/// One key with its value, and where that was written.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The key.
    pub key: &'static Key,
    /// Its value.
    pub value: Value,
    /// The text that it was written in.
    pub source: Arc<Source>,
    /// The bytes of the value there.
    pub span: Range<usize>,
}

impl Setting {
    /// The comment that follows the value on its line.
    pub fn comment(&self) -> Option<&str> {
        let rest = self.source.text.get(self.span.end..)?.lines().next()?;
        let comment = rest.split_once('#')?.1.trim();
        (!comment.is_empty()).then_some(comment)
    }
}

/// A parsed text.
#[derive(Debug, Default)]
pub struct Document {
    /// Settings in the order of the text.
    pub settings: Vec<Setting>,
    /// `[sweep]`.
    pub axes: Vec<Axis>,
}

/// Which tables beside the keys a text may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// None: a hardware profile.
    Profile,
    /// `[sweep]` and `[meta]`: a config.
    Config,
    /// `[validation]` and `[[curve]]`: read elsewhere.
    Validation,
}

/// Reads a config as text.
///
/// # Errors
/// Missing, a folder, unreadable, too long, not UTF-8.
pub fn read(path: &Path) -> Result<Arc<Source>, ConfigErrors> {
    let name = path.display().to_string();
    let fail = |message: String| ConfigErrors::one(Diagnostic::new(message));
    let meta =
        std::fs::metadata(path).map_err(|e| fail(format!("cannot read {name}: {}", describe_io(&e))))?;
    if meta.is_dir() {
        return Err(ConfigErrors::one(
            Diagnostic::new(format!("cannot read {name}: it is a folder"))
                .help("give the path of a TOML file"),
        ));
    }
    if meta.len() > LONGEST {
        return Err(ConfigErrors::one(
            Diagnostic::new(format!(
                "cannot read {name}: {} bytes is too long for a config",
                meta.len()
            ))
            .help(format!(
                "at most {LONGEST} bytes; a program belongs under workload.program"
            )),
        ));
    }
    let bytes = std::fs::read(path).map_err(|e| fail(format!("cannot read {name}: {}", describe_io(&e))))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let valid = e.utf8_error().valid_up_to();
        let line = line_of(e.as_bytes(), valid);
        ConfigErrors::one(
            Diagnostic::new(format!("{name} is not UTF-8 text: byte {valid}, line {line}"))
                .help("a config is a TOML file, UTF-8 encoded"),
        )
    })?;
    // A byte-order mark is no part of the text.
    let text = text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text);
    Ok(Arc::new(Source { name, text }))
}

/// The config that runs a program file with everything else at its default; `None` if the name is not
/// that of one.
pub fn of_program(path: &Path) -> Option<Arc<Source>> {
    let name = path.file_name()?.to_str()?;
    let stem = name
        .strip_suffix(".zst")
        .or_else(|| name.strip_suffix(".gz"))
        .unwrap_or(name)
        .strip_suffix(".uvmprog")?;
    let text = |text: &str| toml::Value::from(text).to_string();
    Some(Arc::new(Source {
        name: path.display().to_string(),
        text: format!(
            "study.name = {}\nworkload.program = {}\n",
            text(stem),
            text(path.to_str()?)
        ),
    }))
}

/// An I/O error in words that do not depend on the machine.
pub fn describe_io(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

/// Parses `source`; every error found, not only the first.
///
/// # Errors
/// TOML syntax, unknown keys, wrong kinds, values out of range.
pub fn parse(source: &Arc<Source>, extra: Extra) -> Result<Document, ConfigErrors> {
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    let mut walk = Walk {
        source,
        extra,
        document: Document::default(),
        errors: Vec::new(),
    };
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        walk.errors
            .push(Diagnostic::new(format!("not valid TOML: {}", error.message())).at(source, span, "here"));
    }
    // After a syntax error the rest may be misread; only what is certain is reported.
    if walk.errors.is_empty() {
        walk.table("", table.get_ref());
    }
    let Walk {
        mut document,
        mut errors,
        ..
    } = walk;
    if !errors.is_empty() {
        errors.sort_by_key(|e| e.place.as_ref().map_or(0, |(_, span, _)| span.start));
        return Err(ConfigErrors(errors));
    }
    document.settings.sort_by_key(|s| s.span.start);
    document.axes.sort_by_key(|a| a.span.start);
    Ok(document)
}

struct Walk<'a> {
    source: &'a Arc<Source>,
    extra: Extra,
    document: Document,
    errors: Vec<Diagnostic>,
}

impl Walk<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let text: &str = name.get_ref();
            if prefix.is_empty() && self.special(text, value) {
                continue;
            }
            let path = if prefix.is_empty() {
                text.to_string()
            } else {
                format!("{prefix}.{text}")
            };
            match (schema::key(&path), value.get_ref()) {
                (Some(key), inner) => match key.kind.parse(literal(inner), key.words) {
                    Ok(parsed) => self.document.settings.push(Setting {
                        key,
                        value: parsed,
                        source: self.source.clone(),
                        span: value.span(),
                    }),
                    Err(error) => self.errors.push(
                        Diagnostic::new(format!("{path}: {}", error.message))
                            .at(self.source, value.span(), key.kind.noun())
                            .help(error.help),
                    ),
                },
                (None, DeValue::Table(inner)) if schema::is_table(&path) => self.table(&path, inner),
                (None, inner) if schema::is_table(&path) => {
                    let found = literal_noun(inner);
                    self.errors.push(
                        Diagnostic::new(format!("{path} is a table of keys, found {found}"))
                            .at(self.source, value.span(), "not a table")
                            .help(format!("write [{path}] and its keys below it")),
                    );
                }
                (None, _) => self
                    .errors
                    .push(unknown(&path).at(self.source, name.span(), "unknown")),
            }
        }
    }

    /// Tables that hold no keys. `true`: dealt with.
    fn special(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> bool {
        match (name, self.extra) {
            ("sweep", Extra::Config) => {
                match value.get_ref() {
                    DeValue::Table(table) => {
                        sweep::axes("", table, self.source, &mut self.document.axes, &mut self.errors);
                    }
                    _ => self.errors.push(Diagnostic::new("sweep is a table of keys").at(
                        self.source,
                        value.span(),
                        "not a table",
                    )),
                }
                true
            }
            ("meta", Extra::Config) | ("meta" | "validation" | "curve", Extra::Validation) => true,
            _ => false,
        }
    }
}

/// The diagnostic for an unknown key, with the nearest known one.
pub fn unknown(path: &str) -> Diagnostic {
    let diagnostic = Diagnostic::new(format!("unknown key {path}"));
    match schema::nearest_path(path) {
        Some(close) => diagnostic.help(format!("did you mean {close}? `uvmsim explain` lists every key")),
        None => diagnostic.help("`uvmsim explain` lists every key"),
    }
}

/// How a parsed TOML value looks to the kinds.
pub fn literal<'a>(value: &'a DeValue<'_>) -> Literal<'a> {
    match value {
        DeValue::String(text) => Literal::Quoted(text),
        DeValue::Integer(number) if number.radix() == 10 => Literal::Number(number.as_str()),
        DeValue::Float(number) => Literal::Number(number.as_str()),
        DeValue::Boolean(value) => Literal::Bool(*value),
        other => Literal::Other(literal_noun(other)),
    }
}

fn literal_noun(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(n) if n.radix() != 10 => "a number that is not decimal",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Parses `key=value` of the command line.
///
/// # Errors
/// No `=`, unknown key, wrong value.
pub fn parse_override(argument: &str) -> Result<Setting, Diagnostic> {
    let source = Arc::new(Source {
        name: "--set".into(),
        text: argument.to_string(),
    });
    let Some((path, value)) = argument.split_once('=') else {
        return Err(Diagnostic::new(format!("--set {argument}: no `=`"))
            .at(&source, 0..argument.len(), "key=value expected")
            .help("for example --set gpu.memory=16GiB"));
    };
    let span = path.len() + 1..argument.len();
    let path = path.trim();
    let Some(key) = schema::key(path) else {
        return Err(unknown(path).at(&source, 0..path.len(), "unknown"));
    };
    match key.kind.parse(Literal::Free(value), key.words) {
        Ok(value) => Ok(Setting {
            key,
            value,
            source,
            span,
        }),
        Err(error) => Err(Diagnostic::new(format!("{path}: {}", error.message))
            .at(&source, span, key.kind.noun())
            .help(error.help)),
    }
}
