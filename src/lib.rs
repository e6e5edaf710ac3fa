//! uvmsim: what happens to a GPU program when its memory does not fit.
