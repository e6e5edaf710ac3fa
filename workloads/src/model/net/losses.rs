//! Losses.

use super::super::tape::{Dtype, Var};
use super::Ref::{Grad, GradIn, In, Out};
use super::{Net, Parts, back};

impl Net {
    /// What a loss compares `[rows, classes]` with: an input of indices or of probabilities.
    pub fn targets(&mut self, rows: u64, classes: u64) -> Var {
        if self.probabilities() {
            self.input(&[rows, classes], Dtype::F32)
        } else {
            self.input(&[rows], Dtype::I64)
        }
    }

    /// Cross entropy of `[rows, classes]`: the log-probabilities and the loss.
    pub fn cross_entropy(&mut self, logits: Var, target: Var) -> Var {
        let logits = self.cast(logits, Dtype::F32);
        let logp = self.activation("_log_softmax", "_log_softmax_backward_data", logits, true);
        if self.dtype(target) == Dtype::F32 {
            // The mean over rows of -sum(target * logp).
            let y = self.mul(logp, target);
            let parts = Parts {
                inputs: vec![y],
                pass: vec![(0, 0)],
                ..Parts::default()
            };
            let y = self.op("sum", parts, &[(&[1], Dtype::F32)])[0];
            let y = self.scalar("neg", y);
            return self.scalar("div", y);
        }
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
