//! What a run leaves: a summary, tables, an output folder, plots.

pub mod events;
pub mod folder;
pub mod plot;
pub mod records;
pub mod summary;
pub mod table;

pub use summary::{Summary, Traffic, Wall};
