//! What must hold between batches (uvm-driver 15.2).

use sim_core::pages::VaBlock;
use thiserror::Error;

use crate::pmm::Pmm;
use crate::va_space::VaSpace;

/// A broken invariant: a defect of the model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} (VA block {block:#x})", block = block.address())]
pub struct InvariantViolation {
    /// Which invariant.
    pub what: &'static str,
    /// Where.
    pub block: VaBlock,
}

/// Checks all blocks and chunks.
pub(crate) fn check(space: &VaSpace, pmm: &Pmm) -> Result<(), InvariantViolation> {
    let mut owned = 0;
    for (block, state) in space.iter() {
        let require = |holds: bool, what| {
            if holds {
                Ok(())
            } else {
                Err(InvariantViolation { what, block })
            }
        };
        require(
            (state.resident & state.cpu_resident).is_subset_of(&state.read_mostly),
            "a page is resident on two processors and not read-duplicated",
        )?;
        require(
            state.mapped.without(&state.remote).is_subset_of(&state.resident),
            "a page is mapped and not resident",
        )?;
        require(
            state.remote.is_subset_of(&state.mapped)
                && state
                    .remote
                    .is_subset_of(&state.cpu_resident.without(&state.resident)),
            "a page is mapped remotely and not only on the host",
        )?;
        require(
            state.read_only.is_subset_of(&state.mapped),
            "a read-only page is not mapped",
        )?;
        require(
            (state.resident & state.cpu_resident & state.mapped).is_subset_of(&state.read_only),
            "a page with two copies can be written",
        )?;
        require(
            state
                .discarded
                .is_subset_of(&(state.resident | state.cpu_resident)),
            "a discarded page is nowhere",
        )?;
        require(
            state.advised || state.read_mostly.is_empty(),
            "advice that nobody looks at",
        )?;
        require(
            state.resident.is_subset_of(&state.valid),
            "a page is resident and not managed",
        )?;
        require(
            state.cpu_mapped.is_subset_of(&state.cpu_resident),
            "the CPU maps a page it does not have",
        )?;
        require(
            state.resident.is_empty() || state.chunk.is_some(),
            "resident pages without a chunk",
        )?;
        if let Some(chunk) = state.chunk {
            owned += 1;
            require(
                pmm.owner(chunk) == Some(block),
                "a chunk belongs to another block",
            )?;
            require(
                pmm.is_evictable(chunk) || pmm.is_pinned(chunk),
                "a chunk stayed pinned after its service",
            )?;
        }
    }
    let what = "chunks in use and blocks with a chunk differ in number";
    if owned == pmm.owned() {
        Ok(())
    } else {
        Err(InvariantViolation {
            what,
            block: VaBlock(0),
        })
    }
}
