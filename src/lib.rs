//! uvmsim: what happens to a GPU program when its memory does not fit.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`cli`] | the command line |
//! | [`config`] | the table of keys, files, hardware profiles, the typed view |
//! | [`link`] | the link on its own: bandwidth by size, measured copies beside it |
//! | [`simulate`] | the interface between all below and the simulation |
//! | [`report`] | summary, tables, output folders, plots |
//! | [`system`] | the simulation: device, driver, link, program around one event queue |
//! | [`sweep`] | grids of configs on all cores |
//! | [`validate`] | published curves, replayed |

pub mod cli;
pub mod config;
pub mod link;
pub mod report;
pub mod simulate;
pub mod sweep;
pub mod system;
pub mod validate;
