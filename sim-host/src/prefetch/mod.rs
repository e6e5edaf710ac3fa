//! Prefetch policies: which pages a service adds to the faulted ones.
//!
//! A policy sees one service of one VA block ([`Service`]) and returns pages; the service takes those
//! that are not resident. To add one: a file here with a function of this signature, a variant of
//! [`Policy`], its name in [`Policy::NAMES`], its arm in [`Policy::pages`].

mod big_page;
mod tree;

use std::str::FromStr;

use sim_core::pages::PageMask;

pub use tree::{Service, prefetch as tree_prefetch};

use crate::params::ParamError;

/// Which prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// The driver's own tree.
    #[default]
    Tree,
    /// Only faulted pages.
    None,
    /// The 64 KiB big pages of the faulted pages.
    BigPage,
    /// The whole VA block.
    WholeBlock,
}

impl Policy {
    /// Names in configurations.
    pub const NAMES: [(&'static str, Policy); 4] = [
        ("tree", Policy::Tree),
        ("none", Policy::None),
        ("64k", Policy::BigPage),
        ("2m", Policy::WholeBlock),
    ];

    /// The pages to add to a service.
    pub fn pages(self, service: &Service<'_>, threshold: u32) -> PageMask {
        match self {
            Policy::Tree => tree::prefetch(service, threshold),
            Policy::None => PageMask::EMPTY,
            Policy::BigPage => big_page::pages(service),
            Policy::WholeBlock => PageMask::range(0, service.pages).without(service.faulted),
        }
    }
}

impl FromStr for Policy {
    type Err = ParamError;
    fn from_str(text: &str) -> Result<Self, ParamError> {
        Policy::NAMES
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, policy)| *policy)
            .ok_or_else(|| ParamError {
                name: "prefetch.policy",
                value: text.to_owned(),
                accepted: "tree, none, 64k, 2m",
            })
    }
}
