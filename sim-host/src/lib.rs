//! sim-host: see the module docs below.
