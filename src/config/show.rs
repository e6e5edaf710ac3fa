//! What users see of a config: `explain`, `config show`, the resolved file.

use std::fmt::Write as _;

use super::ResolvedConfig;
use super::schema::{self, Key};
use super::value::toml_string;

/// Meaning, unit, range, value, origin and source of one key.
pub fn explain(key: &Key, config: Option<&ResolvedConfig>) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", key.path);
    let _ = writeln!(out, "  meaning  {}", key.doc.trim());
    let _ = writeln!(
        out,
        "  kind     {}, for example {}",
        key.kind.noun(),
        key.kind.example()
    );
    let units = key.kind.units();
    if !units.is_empty() {
        let _ = writeln!(out, "  units    {units}");
    }
    let _ = writeln!(out, "  range    {}", key.kind.range());
    if !key.words.is_empty() {
        let words: Vec<_> = key.words.iter().map(|word| toml_string(word)).collect();
        let _ = writeln!(out, "  or       {}", words.join(", "));
    }
    if let Some(resolved) = config.and_then(|config| config.resolved(key.path)) {
        let _ = writeln!(out, "  value    {}", resolved.setting.value.to_toml());
        let _ = writeln!(out, "  from     {}", resolved.origin);
        if let Some(comment) = resolved.setting.comment() {
            let _ = writeln!(out, "  source   {comment}");
        }
    }
    out
}

/// Every key with its meaning, one a line.
pub fn list() -> String {
    let width = schema::keys().map(|key| key.path.len()).max().unwrap_or(0);
    let mut out = String::new();
    for key in schema::keys() {
        let doc = key.doc.trim();
        let first = doc.split_once(". ").map_or(doc, |(first, _)| first);
        let _ = writeln!(out, "{:width$}  {first}", key.path);
    }
    out
}

/// The config as a file that gives the same result when run: every key, grouped by table.
///
/// With `origins`, each line says where its value comes from.
pub fn resolved_toml(config: &ResolvedConfig, origins: bool) -> String {
    let mut out = String::from("# Every key of the run, resolved.\n");
    let mut table = "";
    for (key, resolved) in config.all() {
        // The first dot ends the table's name, except for [host.cost]: dotted keys below it.
        let head = if key.path.starts_with("host.cost.") {
            "host.cost"
        } else {
            key.path.split('.').next().unwrap_or("")
        };
        if head != table {
            table = head;
            let _ = write!(out, "\n[{table}]\n");
        }
        let mut value = resolved.setting.value.to_toml();
        match key.path {
            // A profile of the user's own may have moved: its values are all written below.
            "hardware.gpu" | "hardware.link" | "hardware.host" if value.contains(['/', '.']) => continue,
            "workload.program" => {
                if let Some(path) = config.program_path() {
                    value = toml_string(&path.to_string_lossy());
                }
            }
            _ => {}
        }
        let _ = write!(out, "{} = {value}", &key.path[head.len() + 1..]);
        if origins {
            let _ = write!(out, "  # {}", resolved.origin);
            if let Some(comment) = resolved.setting.comment() {
                let _ = write!(out, ": {comment}");
            }
        }
        out.push('\n');
    }
    out
}
