//! Losses.

use super::super::tape::{Dtype, Var};
use super::Ref::{Grad, GradIn, In, Out};
use super::{Net, Parts, back};

impl Net {
    /// Cross entropy of `[rows, classes]`: the log-probabilities and the loss.
    pub fn cross_entropy(&mut self, logits: Var, target: Var) -> Var {
        let logits = self.cast(logits, Dtype::F32);
        let logp = self.activation("_log_softmax", "_log_softmax_backward_data", logits, true);
        let parts = Parts {
            inputs: vec![logp, target],
            backward: vec![back(
                "nll_loss_backward",
                vec![Grad(0), In(0), In(1), Out(1)],
                vec![GradIn(0)],
                0,
            )],
            ..Parts::default()
        };
        let scalar: &[u64] = &[1];
        self.op(
            "nll_loss_forward",
            parts,
            &[(scalar, Dtype::F32), (scalar, Dtype::F32)],
        )[0]
    }

    /// Binary cross entropy of probabilities.
    pub fn binary_cross_entropy(&mut self, x: Var, target: Var) -> Var {
        let x = self.cast(x, Dtype::F32);
        let parts = Parts {
            inputs: vec![x, target],
            backward: vec![back(
                "binary_cross_entropy_backward",
                vec![Grad(0), In(0), In(1)],
                vec![GradIn(0)],
                0,
            )],
            ..Parts::default()
        };
        self.op("binary_cross_entropy", parts, &[(&[1], Dtype::F32)])[0]
    }
}
