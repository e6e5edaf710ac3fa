//! Which link: a PCIe profile or file, or an NVLink by name.

use std::path::Path;
use std::sync::Arc;

use sim_core::Time;
use sim_pcie::nvlink::{Generation, NvLink, NvLinkTransfers};
use sim_pcie::{Completion, Link, LinkConfig, Transfer, TransferId};

use crate::config::Config;
use crate::config::diagnostic::{ConfigErrors, Diagnostic, Source};
use crate::config::document::Extra;

/// `NVLink`s by name, with their number of links (pcie-link 4.7).
const NVLINKS: &[(&str, Generation, u64)] = &[
    ("nvlink2-ac922", Generation::NvLink2, 3),
    ("nvlink2-v100", Generation::NvLink2, 6),
    ("nvlink3-a100", Generation::NvLink3, 12),
    ("nvlink4-h800", Generation::NvLink4, 8),
    ("nvlink4-h100", Generation::NvLink4, 18),
    ("c2c-gh200", Generation::C2c, 1),
];

/// A link that can be built again and again.
#[derive(Clone, Debug)]
pub enum LinkModel {
    /// PCIe, by packets.
    Pcie(Box<LinkConfig>),
    /// NVLink or C2C, by rates.
    NvLink(NvLink),
}

/// A link at work.
#[derive(Clone, Debug)]
pub enum AnyLink {
    /// PCIe.
    Pcie(Box<Link>),
    /// NVLink or C2C.
    NvLink(Box<NvLinkTransfers>),
}

impl LinkModel {
    /// The link called `name`: a profile, a `.toml` file with `[link]` or `[hardware]`, or an NVLink;
    /// `overrides` are `link.KEY=VALUE`.
    ///
    /// # Errors
    /// No such link; a file or an override that is wrong, or that no NVLink has.
    pub fn load(name: &str, overrides: &[String]) -> Result<LinkModel, ConfigErrors> {
        for text in overrides {
            if !text.trim_start().starts_with("link.") {
                let key = text.split('=').next().unwrap_or_default().trim();
                return Err(ConfigErrors::one(
                    Diagnostic::new(format!("--set {key}: not a key of the link"))
                        .help("keys of [link] only, as link.mps; `uvmsim explain` lists them"),
                ));
            }
        }
        if let Some((_, generation, links)) = NVLINKS.iter().find(|known| known.0 == name) {
            return match overrides.first() {
                None => Ok(LinkModel::NvLink(NvLink::new(*generation, *links))),
                Some(text) => Err(ConfigErrors::one(
                    Diagnostic::new(format!("--set {text}: {name} has no keys"))
                        .help("--set changes PCIe links only"),
                )),
            };
        }
        let config = if name.contains(['/', '.']) {
            Config::load(Path::new(name), overrides)?
        } else {
            let source = Arc::new(Source {
                name: "command line".into(),
                text: format!("[hardware]\nlink = {}\n", crate::config::value::toml_string(name)),
            });
            Config::from_source(&source, None, overrides, Extra::Config)?
        };
        let resolved = config.resolve().map_err(|mut errors| {
            if let Some(help) = errors.0.first_mut().and_then(|first| first.help.as_mut())
                && help.contains("accepted:")
            {
                let names: Vec<_> = NVLINKS.iter().map(|known| known.0).collect();
                *help = format!("{help}; NVLink: {}", names.join(", "));
            }
            errors
        })?;
        Ok(LinkModel::Pcie(Box::new(resolved.link_config())))
    }

    /// An idle link of this kind.
    ///
    /// # Errors
    /// A field that no link can have, by key.
    pub fn build(&self) -> Result<AnyLink, sim_pcie::LinkConfigError> {
        Ok(match self {
            LinkModel::Pcie(config) => AnyLink::Pcie(Box::new(Link::new((**config).clone())?)),
            LinkModel::NvLink(link) => AnyLink::NvLink(Box::new(NvLinkTransfers::new(*link))),
        })
    }
}

impl AnyLink {
    /// Queues a transfer at time zero.
    pub fn submit(&mut self, transfer: Transfer) -> TransferId {
        match self {
            AnyLink::Pcie(link) => link.submit(Time::ZERO, transfer),
            AnyLink::NvLink(link) => link.submit(Time::ZERO, transfer),
        }
    }

    /// Runs until nothing is left; the completions in time order.
    pub fn drain(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        loop {
            match self {
                AnyLink::Pcie(link) => match link.next_event() {
                    Some(time) => link.advance(time, &mut done),
                    None => return done,
                },
                AnyLink::NvLink(link) => match link.next_event() {
                    Some(time) => link.advance(time, &mut done),
                    None => return done,
                },
            }
        }
    }
}
