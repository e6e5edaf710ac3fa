//! `uvmsim explain`, `uvmsim config`, `uvmsim profiles`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};

use super::{CliError, Overrides, print};
use crate::config::diagnostic::{ConfigErrors, Source};
use crate::config::document::{self, Extra};
use crate::config::profiles::EMBEDDED;
use crate::config::{Config, schema, show};

/// Arguments of `uvmsim explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// A key, gpu.sms, or a table, gpu.
    key: Option<String>,
    /// Config to take the value from; default: the defaults.
    file: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
}

/// `uvmsim config`.
#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// Print every key of a config, resolved, with the origin of each value.
    Show {
        /// Config, a TOML file.
        file: PathBuf,
        #[command(flatten)]
        overrides: Overrides,
    },
}

/// A config to look values up in.
struct Overridden<'a>(Option<&'a PathBuf>, &'a [String]);

impl Overridden<'_> {
    fn load(&self) -> Result<Config, ConfigErrors> {
        if let Some(path) = self.0 {
            return Config::load(path, self.1);
        }
        let source = Arc::new(Source {
            name: "defaults".into(),
            text: String::new(),
        });
        Config::from_source(&source, None, self.1, Extra::Config)
    }
}

/// Explains a key, a table of keys, or lists all keys.
pub(super) fn explain(args: &ExplainArgs) -> Result<bool, CliError> {
    let config = Overridden(args.file.as_ref(), &args.overrides.set)
        .load()?
        .resolve()?;
    let Some(path) = &args.key else {
        print(&show::list())?;
        return Ok(true);
    };
    if let Some(key) = schema::key(path) {
        print(&show::explain(key, Some(&config)))?;
        return Ok(true);
    }
    if schema::is_table(path) {
        let inside = |p: &str| {
            p.strip_prefix(path.as_str())
                .is_some_and(|rest| rest.starts_with('.'))
        };
        for key in schema::keys().filter(|key| inside(key.path)) {
            print(&show::explain(key, Some(&config)))?;
        }
        return Ok(true);
    }
    Err(CliError::Input(ConfigErrors::one(document::unknown(path))))
}

/// Shows a config.
pub(super) fn config(command: &ConfigCommand) -> Result<bool, CliError> {
    let ConfigCommand::Show { file, overrides } = command;
    let config = Config::load(file, &overrides.set)?.resolve()?;
    print(&show::resolved_toml(&config, true))?;
    Ok(true)
}

/// Lists the hardware profiles.
pub(super) fn profiles() -> Result<bool, CliError> {
    let width = EMBEDDED.iter().map(|p| p.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for profile in EMBEDDED {
        let about = profile.text.lines().next().unwrap_or("").trim_start_matches("# ");
        let _ = writeln!(
            out,
            "{:4}  {:width$}  {about}",
            profile.kind.table(),
            profile.name
        );
    }
    print(&out)?;
    Ok(true)
}
