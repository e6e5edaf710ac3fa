//! Optimizers as PyTorch runs them: lists of tensors op by op (foreach), or one fused kernel.

use super::spec::{Implementation, ModelSpec, Optimizer};
use super::step::{Emitter, Tensor};
use crate::program::Piece;

/// Elements of a chunk, and blocks of one launch, of the multi-tensor kernels (published: PyTorch,
/// `MultiTensorApply.cuh`).
const CHUNK: u64 = 65_536;
const BLOCKS: usize = 320;
/// Tensors of one launch by the number of lists.
const TENSORS: [usize; 5] = [110, 64, 48, 36, 30];

/// State tensors of all parameters; empty before the first step.
#[derive(Default)]
pub(super) struct States {
    /// One or two lists, in order of the parameters.
    lists: Vec<Vec<Tensor>>,
}

/// Launches that a multi-tensor op over `lists` lists makes.
fn launches(elements: &[u64], lists: usize) -> u32 {
    let most = TENSORS[lists.clamp(1, TENSORS.len()) - 1];
    let (mut launches, mut tensors, mut blocks) = (0, 0, 0);
    for n in elements {
        if *n == 0 {
            continue;
        }
        tensors += 1;
        let chunks = n.div_ceil(CHUNK);
        for chunk in 0..chunks {
            blocks += 1;
            let full = (tensors == most && chunk + 1 == chunks) || blocks == BLOCKS;
            if full {
                launches += 1;
                blocks = 0;
                // A tensor that goes on is the first of the next launch.
                tensors = usize::from(chunk + 1 < chunks);
            }
        }
    }
    launches + u32::from(blocks > 0)
}

/// One step over all parameters that have a gradient.
pub(super) fn step(emitter: &mut Emitter<'_>, spec: &ModelSpec, states: &mut States) {
    let Some(optimizer) = spec.optimizer else { return };
    let pairs: Vec<(Tensor, Tensor)> = emitter
        .params
        .iter()
        .zip(&emitter.grads)
        .filter_map(|(param, grad)| Some((*param, (*grad)?)))
        .collect();
    if pairs.is_empty() {
        return;
    }
    let params: Vec<Tensor> = pairs.iter().map(|pair| pair.0).collect();
    let grads: Vec<Tensor> = pairs.iter().map(|pair| pair.1).collect();
    let elements: Vec<u64> = params.iter().map(|p| emitter.whole(*p).2 / 4).collect();
    let first = states.lists.is_empty();
    if first {
        create_state(emitter, optimizer, &grads, states);
    }
    let run = Run { elements: &elements };
    let (p, g) = (run.list(emitter, &params), run.list(emitter, &grads));
    match optimizer {
        Optimizer::Sgd => {
            let op = if spec.implementation == Implementation::Fused {
                "_fused_sgd_"
            } else {
                "_foreach_add_"
            };
            run.op(emitter, op, &[&p, &g], &[&p]);
        }
        Optimizer::Momentum => {
            let m = run.list(emitter, &states.lists[0]);
            if spec.implementation == Implementation::Fused {
                run.op(emitter, "_fused_sgd_", &[&p, &g, &m], &[&p, &m]);
            } else {
                // The first step takes the gradients themselves as momentum.
                if !first {
                    run.op(emitter, "_foreach_mul_", &[&m], &[&m]);
                    run.op(emitter, "_foreach_add_", &[&m, &g], &[&m]);
                }
                run.op(emitter, "_foreach_add_", &[&p, &m], &[&p]);
            }
        }
        Optimizer::Adam | Optimizer::AdamW => {
            let (m, v) = (
                run.list(emitter, &states.lists[0]),
                run.list(emitter, &states.lists[1]),
            );
            if spec.implementation == Implementation::Fused {
                let op = if optimizer == Optimizer::Adam {
                    "_fused_adam_"
                } else {
                    "_fused_adamw_"
                };
                run.op(emitter, op, &[&p, &g, &m, &v], &[&p, &m, &v]);
                return;
            }
            if optimizer == Optimizer::AdamW {
                run.op(emitter, "_foreach_mul_", &[&p], &[&p]);
            }
            run.op(emitter, "_foreach_lerp_", &[&m, &g], &[&m]);
            run.op(emitter, "_foreach_mul_", &[&v], &[&v]);
            run.op(emitter, "_foreach_addcmul_", &[&v, &g, &g], &[&v]);
            // The square roots are as large as the parameters.
            let roots: Vec<Tensor> = params
                .iter()
                .map(|p| emitter.alloc(emitter.whole(*p).2))
                .collect();
            let t = run.list(emitter, &roots);
            run.op(emitter, "_foreach_sqrt", &[&v], &[&t]);
            run.op(emitter, "_foreach_div_", &[&t], &[&t]);
            run.op(emitter, "_foreach_add_", &[&t], &[&t]);
            run.op(emitter, "_foreach_addcdiv_", &[&p, &m, &t], &[&p]);
            for root in roots {
                emitter.free(root);
            }
        }
    }
}

fn create_state(emitter: &mut Emitter<'_>, optimizer: Optimizer, grads: &[Tensor], states: &mut States) {
    let lists = match optimizer {
        Optimizer::Sgd => return,
        Optimizer::Momentum => 1,
        Optimizer::Adam | Optimizer::AdamW => 2,
    };
    states.lists = vec![Vec::new(); lists];
    for grad in grads {
        for list in &mut states.lists {
            let piece = emitter.whole(*grad);
            let state = emitter.alloc(piece.2);
            let target = emitter.whole(state);
            if optimizer == Optimizer::Momentum {
                emitter.kernel("clone", vec![piece], vec![target], 0, 1);
            } else {
                emitter.kernel("zeros_like", Vec::new(), vec![target], 0, 1);
            }
            list.push(state);
        }
    }
}

struct Run<'a> {
    elements: &'a [u64],
}

impl Run<'_> {
    #[allow(clippy::unused_self)] // reads as `run.list`, beside `run.op`
    fn list(&self, emitter: &Emitter<'_>, tensors: &[Tensor]) -> Vec<Piece> {
        tensors.iter().map(|t| emitter.whole(*t)).collect()
    }

    fn op(&self, emitter: &mut Emitter<'_>, op: &'static str, reads: &[&Vec<Piece>], writes: &[&Vec<Piece>]) {
        let lists = reads.len().max(1);
        let join = |lists: &[&Vec<Piece>]| lists.iter().flat_map(|list| list.iter().copied()).collect();
        emitter.kernel(op, join(reads), join(writes), 0, launches(self.elements, lists));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_full_by_blocks_or_by_tensors() {
        assert_eq!(launches(&[1], 1), 1);
        assert_eq!(launches(&vec![1; 110], 1), 1);
        assert_eq!(launches(&vec![1; 111], 1), 2);
        // 320 chunks fill a launch; one more element begins another.
        assert_eq!(launches(&[CHUNK * 320], 2), 1);
        assert_eq!(launches(&[CHUNK * 320 + 1], 2), 2);
        assert_eq!(launches(&[CHUNK * 321, 1, 1], 4), 2);
    }
}
