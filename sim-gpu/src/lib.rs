//! sim-gpu: see the module docs below.
