//! sim-pcie: see the module docs below.
