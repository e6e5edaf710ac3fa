//! workloads: see the module docs below.
