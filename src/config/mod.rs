//! Configuration: one table of keys, four layers, a typed view.
//!
//! A key has its value from the last layer that names it: the defaults, the hardware profiles, the
//! file, `--set`. Every value remembers where it was written.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`schema`] | the table of keys |
//! | [`value`] | kinds of values, ranges, parsing and printing |
//! | [`sections`] | the typed view: one struct a section |
//! | [`document`] | from a TOML text to settings |
//! | [`sweep`] | `[sweep]` |
//! | [`profiles`] | the hardware profiles in the binary |
//! | [`pinned`] | what other allocations take of the device memory |
//! | [`rules`] | what no single key can check |
//! | [`show`] | `explain`, `config show`, the resolved file |
//! | [`convert`] | from sections to the parameters of the crates |
//! | [`diagnostic`] | errors with file, line and mark |

pub mod convert;
pub mod diagnostic;
pub mod document;
pub mod pinned;
pub mod profiles;
pub mod rules;
pub mod schema;
pub mod sections;
pub mod show;
pub mod sweep;
pub mod value;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diagnostic::{ConfigErrors, Diagnostic, Source};
use document::{Extra, Setting};
use schema::Key;
use sections::{
    DriverSection, EngineSection, GpuConfig, HardwareSection, HostCostSection, HostSection, LinkSection,
    MemorySection, ModelSection, ParamSection, StudySection, WorkloadSection,
};
use sim_core::units::Bytes;
use sweep::Axis;
use value::Value;

/// Names of the built-in models: those of `workloads::model`, in its order.
pub const MODELS: &[&str] = &[
    "resnet18",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg16",
    "alexnet",
    "densenet121",
    "inception-v3",
    "vit-b-16",
    "bert-base",
    "bert-large",
    "bert-encoder",
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "llama2-7b",
    "whisper-small",
    "dlrm",
    "gcn",
];

/// Names of the built-in kernels: those of `workloads::builtin`, in its order.
pub const KERNELS: &[&str] = &[
    "vector-add-one-block",
    "vector-add",
    "cyclic-scan",
    "stream-triad",
    "stream-triad-per-element",
    "regular",
    "random",
    "page-stride",
    "gemm",
    "add-vectors",
    "triad-f32",
    "strided",
    "random-warp",
    "pointer-chase",
    "gups",
    "random-access",
    "xsbench",
    "gemv",
    "atax",
    "mvt",
    "bicg",
    "gram-schmidt",
    "fft",
    "2dconv",
    "stencil-2d",
    "stencil-3d",
    "gauss-seidel",
    "multigrid",
    "fdtd-2d",
    "hotspot",
    "pathfinder",
    "srad",
    "backprop",
    "nw",
    "bfs",
    "sssp",
    "pagerank",
    "element-wise",
    "reduction",
    "embedding",
    "embedding-backward",
    "adam",
    "softmax",
    "layer-norm",
    "batch-norm",
    "attention",
    "flash-attention",
    "conv-implicit",
    "conv-im2col",
];

/// Advice that `workload.advice` can give: which, and about which processor.
pub const ADVICE: &[&str] = &[
    "read-mostly",
    "preferred-location-gpu",
    "preferred-location-cpu",
    "accessed-by-gpu",
    "accessed-by-cpu",
];

/// Which layer a value comes from; later ones win.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The defaults of the simulator.
    Default,
    /// A hardware profile: its name.
    Profile(String),
    /// The user's file: its name and the line.
    File(String, usize),
    /// The command line, or a point of a sweep.
    Override,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Profile(name) => write!(f, "profile {name}"),
            Origin::File(name, line) => write!(f, "{name}:{line}"),
            Origin::Override => f.write_str("override"),
        }
    }
}

/// A value with its history.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The setting that won.
    pub setting: Setting,
    /// Its layer.
    pub origin: Origin,
}

/// The typed view.
#[derive(Clone, Debug, PartialEq)]
pub struct Sections {
    /// `[study]`.
    pub study: StudySection,
    /// `[hardware]`.
    pub hardware: HardwareSection,
    /// `[memory]`.
    pub memory: MemorySection,
    /// `[workload]`.
    pub workload: WorkloadSection,
    /// `[workload.param]`.
    pub param: ParamSection,
    /// The built-in model, if one is run.
    pub model: ModelSection,
    /// `[host]`.
    pub host: HostSection,
    /// `[engine]`.
    pub engine: EngineSection,
    /// `[gpu]`.
    pub gpu: GpuConfig,
    /// `[link]`.
    pub link: LinkSection,
    /// `[driver]`.
    pub driver: DriverSection,
    /// `[host.cost]`.
    pub cost: HostCostSection,
}

/// A config with every layer applied and every rule checked.
#[derive(Clone, Debug)]
pub struct ResolvedConfig {
    /// The typed view.
    pub sections: Sections,
    values: BTreeMap<&'static str, Resolved>,
    /// Folder that relative paths start from.
    folder: Option<PathBuf>,
}

impl std::ops::Deref for ResolvedConfig {
    type Target = Sections;
    fn deref(&self) -> &Sections {
        &self.sections
    }
}

/// A config as read: its layers, and what varies.
#[derive(Clone, Debug)]
pub struct Config {
    file: Vec<Setting>,
    overrides: Vec<Setting>,
    /// `[sweep]`, in the order written.
    pub axes: Vec<Axis>,
    /// The text it came from, if any.
    pub source: Option<Arc<Source>>,
    folder: Option<PathBuf>,
}

impl Config {
    /// Reads a file and the overrides of the command line. A program file stands for the config that
    /// runs it and says nothing else.
    ///
    /// # Errors
    /// Everything wrong with either, at once.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Config, ConfigErrors> {
        if let Some(source) = document::of_program(path) {
            return Config::from_source(&source, None, overrides, Extra::Config);
        }
        let source = document::read(path)?;
        let folder = path.parent().map(Path::to_path_buf);
        Config::from_source(&source, folder, overrides, Extra::Config)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// Everything wrong with it or the overrides, at once.
    pub fn from_source(
        source: &Arc<Source>,
        folder: Option<PathBuf>,
        overrides: &[String],
        extra: Extra,
    ) -> Result<Config, ConfigErrors> {
        let mut errors = Vec::new();
        let document = match document::parse(source, extra) {
            Ok(document) => document,
            Err(found) => {
                errors.extend(found.0);
                document::Document::default()
            }
        };
        let mut parsed = Vec::new();
        for argument in overrides {
            match document::parse_override(argument) {
                Ok(setting) => parsed.push(setting),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            let (file, axes) = (document.settings, document.axes);
            Ok(Config {
                file,
                overrides: parsed,
                axes,
                source: Some(source.clone()),
                folder,
            })
        } else {
            Err(ConfigErrors(errors))
        }
    }

    /// Applies all layers and checks every rule.
    ///
    /// # Errors
    /// Unknown profiles, values that contradict each other.
    pub fn resolve(&self) -> Result<ResolvedConfig, ConfigErrors> {
        self.resolve_with(&[])
    }

    /// The same with further overrides on top: one point of a sweep.
    ///
    /// # Errors
    /// As [`resolve`](Config::resolve).
    pub fn resolve_with(&self, point: &[(&'static Key, Value)]) -> Result<ResolvedConfig, ConfigErrors> {
        let mut layers = Layers {
            values: BTreeMap::new(),
        };
        let defaults = profiles::defaults()?;
        layers.apply(&defaults, &Origin::Default);
        let point: Vec<Setting> = point
            .iter()
            .map(|(key, value)| {
                let text = format!("{}={value}", key.path);
                let span = key.path.len() + 1..text.len();
                let source = Arc::new(Source {
                    name: "[sweep]".into(),
                    text,
                });
                Setting {
                    key,
                    value: value.clone(),
                    source,
                    span,
                }
            })
            .collect();
        let mut errors = Vec::new();
        for (path, kind) in profiles::KINDS {
            let setting = [&point, &self.overrides, &self.file, &defaults]
                .into_iter()
                .find_map(|layer| layer.iter().rev().find(|s| s.key.path == *path));
            let Some(setting) = setting else { continue };
            match profiles::load(*kind, &setting.value.to_string(), self.folder.as_deref()) {
                Ok((name, settings)) => layers.apply(&settings, &Origin::Profile(name)),
                Err(ProfileError::Unknown(diagnostic)) => {
                    errors.push(diagnostic.at(&setting.source, setting.span.clone(), "no such profile"));
                }
                Err(ProfileError::Bad(found)) => errors.extend(found.0),
            }
        }
        for setting in &self.file {
            let origin = Origin::File(
                setting.source.name.clone(),
                setting.source.line(setting.span.start),
            );
            layers.apply(std::slice::from_ref(setting), &origin);
        }
        layers.apply(&self.overrides, &Origin::Override);
        layers.apply(&point, &Origin::Override);
        rules::same_layer(&self.file, &mut errors);
        if !errors.is_empty() {
            return Err(ConfigErrors(errors));
        }
        let config = ResolvedConfig::from_values(layers.values, self.folder.clone())?;
        rules::check(&config)?;
        Ok(config)
    }
}

/// Why a profile cannot be used.
#[derive(Debug)]
pub enum ProfileError {
    /// There is none of that name.
    Unknown(Diagnostic),
    /// It is wrong.
    Bad(ConfigErrors),
}

/// Does the setting say nothing: the first of its key's words?
fn neutral(setting: &Setting) -> bool {
    matches!(&setting.value, Value::Word(word) if setting.key.words.first() == Some(word))
}

struct Layers {
    values: BTreeMap<&'static str, Resolved>,
}

impl Layers {
    fn apply(&mut self, settings: &[Setting], origin: &Origin) {
        for setting in settings {
            // Of keys that exclude each other the later one wins.
            let others: &[&str] = match setting.key.path {
                "memory.oversubscription" => &["memory.capacity"],
                "memory.capacity" => &["memory.oversubscription"],
                "workload.kernel" => &["workload.program", "workload.model"],
                "workload.program" => &["workload.kernel", "workload.model"],
                "workload.model" => &["workload.program", "workload.kernel"],
                _ => &[],
            };
            for other in others {
                if !neutral(setting)
                    && let Some(resolved) = self.values.get_mut(other)
                    && let Some(key) = schema::key(other)
                    && let Some(word) = key.words.first()
                {
                    resolved.setting.value = Value::Word(word);
                }
            }
            let resolved = Resolved {
                setting: setting.clone(),
                origin: origin.clone(),
            };
            self.values.insert(setting.key.path, resolved);
        }
    }
}

impl ResolvedConfig {
    fn from_values(
        values: BTreeMap<&'static str, Resolved>,
        folder: Option<PathBuf>,
    ) -> Result<ResolvedConfig, ConfigErrors> {
        let get = |path: &str| values.get(path).map(|r: &Resolved| r.setting.value.clone());
        let missing = |path: &'static str| {
            ConfigErrors::one(
                Diagnostic::new(format!("{path} has no value"))
                    .help("give it in the config, or use a complete profile"),
            )
        };
        let sections = Sections {
            study: StudySection::read(&get).map_err(missing)?,
            hardware: HardwareSection::read(&get).map_err(missing)?,
            memory: MemorySection::read(&get).map_err(missing)?,
            workload: WorkloadSection::read(&get).map_err(missing)?,
            param: ParamSection::read(&get).map_err(missing)?,
            model: ModelSection::read(&get).map_err(missing)?,
            host: HostSection::read(&get).map_err(missing)?,
            engine: EngineSection::read(&get).map_err(missing)?,
            gpu: GpuConfig::read(&get).map_err(missing)?,
            link: LinkSection::read(&get).map_err(missing)?,
            driver: DriverSection::read(&get).map_err(missing)?,
            cost: HostCostSection::read(&get).map_err(missing)?,
        };
        Ok(ResolvedConfig {
            sections,
            values,
            folder,
        })
    }

    /// The value of a key, with its origin.
    pub fn resolved(&self, path: &str) -> Option<&Resolved> {
        self.values.get(path)
    }

    /// All values, in the order of the table of keys.
    pub fn all(&self) -> impl Iterator<Item = (&'static Key, &Resolved)> {
        schema::keys().filter_map(|key| self.values.get(key.path).map(|resolved| (key, resolved)))
    }

    /// The same config with everything resident: what a slowdown is measured against.
    ///
    /// # Errors
    /// None that the config itself has not.
    pub fn baseline(&self) -> Result<ResolvedConfig, ConfigErrors> {
        let mut values = self.values.clone();
        for (path, word) in [
            ("memory.oversubscription", "none"),
            ("memory.capacity", "unlimited"),
        ] {
            if let Some(resolved) = values.get_mut(path) {
                resolved.setting.value = Value::Word(word);
                resolved.origin = Origin::Override;
            }
        }
        // With memory for everything there is nothing that other allocations could take.
        if let Some(resolved) = values.get_mut("memory.pinned") {
            resolved.setting.value = Value::Bytes(Bytes(0));
        }
        ResolvedConfig::from_values(values, self.folder.clone())
    }

    /// Everything that decides a result, as text: equal texts give equal results.
    pub fn fingerprint(&self) -> String {
        let mut out = String::new();
        for (key, resolved) in self.all() {
            if !key.path.starts_with("engine.")
                && !key.path.starts_with("hardware.")
                && key.path != "study.name"
            {
                let _ = writeln!(out, "{}={}", key.path, resolved.setting.value);
            }
        }
        out
    }

    /// The program file of the workload: beside the config, else in the current folder; the path as
    /// written where neither has it.
    pub fn program_path(&self) -> Option<PathBuf> {
        Some(self.beside(self.workload.program.as_deref()?))
    }

    /// The edge list of a graph kernel, found in the same way.
    pub fn graph_path(&self) -> Option<PathBuf> {
        Some(self.beside(self.workload.graph.as_deref()?))
    }

    fn beside(&self, written: &str) -> PathBuf {
        let written = PathBuf::from(written);
        let beside = self.folder.as_ref().map(|folder| folder.join(&written));
        match beside {
            Some(beside) if beside.exists() => beside,
            _ => written,
        }
    }
}
