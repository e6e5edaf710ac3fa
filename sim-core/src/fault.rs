//! What the GMMU writes into the replayable fault buffer.

use crate::Time;
use crate::access::AccessKind;
use crate::pages::Page;

/// One 32-byte entry of the fault buffer, as far as a driver reads it (uvm-driver.md 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultEntry {
    /// Faulting page (the address is reported 4 KiB-aligned).
    pub page: Page,
    /// Strength of the access.
    pub access: AccessKind,
    /// uTLB that raised it: what the driver computes from GPC id and client id.
    pub utlb: u16,
    /// Instance pointer: which channel (address space) faulted.
    pub instance: u32,
    /// GPU time stamp: when the entry was written.
    pub raised: Time,
}
