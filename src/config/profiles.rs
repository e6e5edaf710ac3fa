//! Hardware profiles: those in the binary, and the user's own files.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::ProfileError;
use super::diagnostic::{ConfigErrors, Diagnostic, Source};
use super::document::{self, Extra, Setting};
use super::value::nearest;

/// What a profile describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileKind {
    /// `[gpu]`.
    Gpu,
    /// `[link]`.
    Link,
    /// `[host]`.
    Host,
}

impl ProfileKind {
    /// The table that its keys are in, and its folder in `configs/hardware`.
    pub fn table(self) -> &'static str {
        match self {
            ProfileKind::Gpu => "gpu",
            ProfileKind::Link => "link",
            ProfileKind::Host => "host",
        }
    }
}

/// The key that names the profile of each kind.
pub const KINDS: &[(&str, ProfileKind)] = &[
    ("hardware.gpu", ProfileKind::Gpu),
    ("hardware.link", ProfileKind::Link),
    ("hardware.host", ProfileKind::Host),
];

/// A profile in the binary.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// What it describes.
    pub kind: ProfileKind,
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! embedded {
    ($($kind:ident $folder:literal { $($name:literal),* $(,)? })*) => {
        /// Every profile in the binary.
        pub const EMBEDDED: &[Embedded] = &[$($(
            Embedded {
                kind: ProfileKind::$kind,
                name: $name,
                text: include_str!(concat!("../../configs/hardware/", $folder, "/", $name, ".toml")),
            },
        )*)*];
    };
}

embedded! {
    Gpu "gpu" {
        "a100-80gb-pcie", "a100-40gb-sxm4", "a100-40gb-pcie", "v100-16gb-pcie", "titan-v", "gtx-1080-ti", "rtx-3090",
        "rtx-4090", "rtx-5090", "h100-pcie",
    }
    Link "link" { "pcie3-x16", "pcie4-x16", "pcie5-x16", "a100-sxm-epyc-7763", "a100-pcie-epyc-7713" }
    Host "host" { "generic", "epyc-7763", "epyc-7551p", "xeon-gold-5320" }
}

const DEFAULTS: &str = include_str!("../../configs/defaults.toml");

/// The default of every key that no profile sets.
///
/// # Errors
/// None, unless the file in the binary is wrong; a test reads it.
pub fn defaults() -> Result<Vec<Setting>, ConfigErrors> {
    static PARSED: OnceLock<Result<Vec<Setting>, ConfigErrors>> = OnceLock::new();
    PARSED
        .get_or_init(|| {
            let source = Arc::new(Source {
                name: "configs/defaults.toml".into(),
                text: DEFAULTS.into(),
            });
            document::parse(&source, Extra::Profile).map(|document| document.settings)
        })
        .clone()
}

/// The profile called `name`: one of the binary, or a file if the name looks like a path.
///
/// # Errors
/// No such profile; a file that is wrong, or that sets keys of another table.
pub fn load(
    kind: ProfileKind,
    name: &str,
    folder: Option<&Path>,
) -> Result<(String, Vec<Setting>), ProfileError> {
    let table = kind.table();
    let source = if name.contains(['/', '.']) {
        let beside = folder
            .map(|folder| folder.join(name))
            .filter(|path| path.exists());
        document::read(&beside.unwrap_or_else(|| name.into())).map_err(ProfileError::Bad)?
    } else {
        let known = || EMBEDDED.iter().filter(move |profile| profile.kind == kind);
        let Some(profile) = known().find(|profile| profile.name == name) else {
            let names: Vec<_> = known().map(|profile| profile.name).collect();
            let guess = nearest(name, names.iter().copied())
                .map(|close| format!("did you mean \"{close}\"? "))
                .unwrap_or_default();
            return Err(ProfileError::Unknown(
                Diagnostic::new(format!("hardware.{table}: there is no profile {name:?}")).help(format!(
                    "{guess}accepted: {}, or the path of a .toml file",
                    names.join(", ")
                )),
            ));
        };
        Arc::new(Source {
            name: format!("configs/hardware/{table}/{name}.toml"),
            text: profile.text.into(),
        })
    };
    let document = document::parse(&source, Extra::Profile).map_err(ProfileError::Bad)?;
    let foreign: Vec<_> = document
        .settings
        .iter()
        .filter(|setting| setting.key.path.split('.').next() != Some(table))
        .map(|setting| {
            Diagnostic::new(format!("a {table} profile cannot set {}", setting.key.path))
                .at(&setting.source, setting.span.clone(), "of another table")
                .help(format!("keys of [{table}] only"))
        })
        .collect();
    if foreign.is_empty() {
        Ok((name.to_string(), document.settings))
    } else {
        Err(ProfileError::Bad(ConfigErrors(foreign)))
    }
}
