//! uvmsim: what happens to a GPU program when its memory does not fit.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`config`] | the table of keys, files, hardware profiles, the typed view |

pub mod config;
