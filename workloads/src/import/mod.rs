//! Programs from recordings of others' tools: one file per format.

pub mod train_trace;
