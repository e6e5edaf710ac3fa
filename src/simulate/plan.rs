//! The plan of a program for the policies that ask for it: its operations once through, before the run.

use std::sync::Arc;

use sim_host::policy::UsePlan;
use workloads::{HostOp, ProgramError};

/// What the launches of `ops` will touch, on a GPU of `sms` SMs.
pub(super) fn plan(
    ops: impl Iterator<Item = Result<HostOp, ProgramError>>,
    sms: u32,
) -> Result<Arc<UsePlan>, ProgramError> {
    let mut plan = UsePlan::default();
    for op in ops {
        if let HostOp::Launch { kernel, .. } = op? {
            plan.add_kernel(&kernel.pattern, u64::from(sms) * u64::from(kernel.blocks_per_sm));
        }
    }
    Ok(Arc::new(plan))
}
