//! Products: matrix, batched, sparse, convolution, attention.

use super::super::tape::{Columns, Dtype, Param, Ref, Var};
use super::Ref::{Grad, GradIn, GradParam, In, Out};
use super::{Net, Parts, Window, back, step};

/// What attention must not see.
#[derive(Clone, Copy, Debug)]
pub enum Mask {
    /// Nothing is hidden.
    None,
    /// Later tokens, known from the shape.
    Causal,
    /// Padding, known from the input.
    Padding,
    /// A tensor that is added to the scores.
    Added(Var),
}

impl Net {
    /// A parameter as an operand of a product: its low-precision copy, if there is one, or itself. Answers
    /// what backward reads, and where it writes the gradient.
    fn product_param(&mut self, param: Param, parts: &mut Parts) -> (Ref, Ref) {
        if let Some(low) = self.weight(param) {
            parts.inputs.push(low);
            let at = parts.inputs.len() - 1;
            (In(at), GradIn(at))
        } else {
            parts.params.push(param);
            let at = parts.params.len() - 1;
            (Ref::Param(at), GradParam(at))
        }
    }

    /// `x @ w (+ b)`: a linear layer with its own parameters.
    pub fn linear(&mut self, name: &str, x: Var, out: u64, bias: bool) -> Var {
        self.scope(name, |net| {
            let features = net.shape(x).last().copied().unwrap_or(1);
            let weight = net.param("weight", &[out, features]);
            let bias = bias.then(|| net.param("bias", &[out]));
            net.matmul_param(x, weight, out, bias)
        })
    }

    /// `x @ w (+ b)` with given parameters.
    pub fn matmul_param(&mut self, x: Var, weight: Param, out: u64, bias: Option<Param>) -> Var {
        let x = self.operand(x);
        let shape = self.shape(x);
        let features = shape.last().copied().unwrap_or(1);
        let rows = shape.iter().product::<u64>() / features;
        let flops = 2 * rows * features * out;
        let dtype = self.compute_dtype();
        let flat = if shape.len() == 2 {
            x
        } else {
            self.view(x, &[rows, features])
        };
        let op = if bias.is_some() { "addmm" } else { "mm" };
        let first = !self.tape.value(x).requires_grad;
        let mut parts = Parts {
            inputs: vec![flat],
            flops,
            ..Parts::default()
        };
        let (w, grad_w) = self.product_param(weight, &mut parts);
        if !first {
            let back_x = back("mm", vec![Grad(0), w], vec![GradIn(0)], flops);
            parts.backward.push(back_x);
        }
        let back_w = back("mm", vec![Grad(0), In(0)], vec![grad_w], flops);
        parts.backward.push(back_w);
        if let Some(bias) = bias {
            let (_, target) = self.product_param(bias, &mut parts);
            parts.backward.push(back("sum", vec![Grad(0)], vec![target], 0));
        }
        let y = self.op(op, parts, &[(&[rows, out], dtype)])[0];
        let mut full = shape;
        if let Some(last) = full.last_mut() {
            *last = out;
        }
        if full.len() == 2 { y } else { self.view(y, &full) }
    }

    /// A batched product of two values: `[b, m, k] @ [b, k, n]`.
    pub fn bmm(&mut self, a: Var, b: Var) -> Var {
        let (a, b) = (self.operand(a), self.operand(b));
        let (sa, sb) = (self.shape(a), self.shape(b));
        let (batch, m, k, n) = (sa[0], sa[1], sa[2], sb[2]);
        let flops = 2 * batch * m * k * n;
        let dtype = self.compute_dtype();
        let parts = Parts {
            inputs: vec![a, b],
            flops,
            backward: vec![
                back("bmm", vec![Grad(0), In(1)], vec![GradIn(0)], flops),
                back("bmm", vec![Grad(0), In(0)], vec![GradIn(1)], flops),
            ],
            ..Parts::default()
        };
        self.op("bmm", parts, &[(&[batch, m, n], dtype)])[0]
    }

    /// A product without gradient, of a value with a constant: output of this shape.
    pub fn bmm_helper(&mut self, x: Var, shape: &[u64]) -> Var {
        let parts = Parts {
            inputs: vec![x],
            flops: 2 * shape.iter().product::<u64>(),
            ..Parts::default()
        };
        self.op("bmm", parts, &[(shape, Dtype::F32)])[0]
    }

    /// A convolution.
    pub fn conv2d(&mut self, name: &str, x: Var, out: u64, window: Window, bias: bool) -> Var {
        self.scope(name, |net| {
            let x = net.operand(x);
            let (batch, channels, size) = net.size(x);
            let (height, width) = window.output(size);
            let (kh, kw) = window.kernel;
            let flops = 2 * batch * out * height * width * channels * kh * kw;
            let weight = net.param("weight", &[out, channels, kh, kw]);
            let bias = bias.then(|| net.param("bias", &[out]));
            let first = !net.tape.value(x).requires_grad;
            let dtype = net.compute_dtype();
            let mut parts = Parts {
                inputs: vec![x],
                flops,
                ..Parts::default()
            };
            let (w, grad_w) = net.product_param(weight, &mut parts);
            let mut writes = if first { Vec::new() } else { vec![GradIn(0)] };
            writes.push(grad_w);
            if let Some(bias) = bias {
                writes.push(net.product_param(bias, &mut parts).1);
            }
            let cost = if first { flops } else { 2 * flops };
            let reads = vec![Grad(0), In(0), w];
            parts
                .backward
                .push(back("convolution_backward", reads, writes, cost));
            if net.native_convolution() {
                parts.columns = Some(Columns {
                    samples: batch,
                    bytes: channels * kh * kw * height * width * dtype.bytes(),
                    pointwise: (kh, kw, window.stride, window.padding) == (1, 1, 1, (0, 0)),
                });
            }
            net.op("convolution", parts, &[(&[batch, out, height, width], dtype)])[0]
        })
    }

    /// Attention of `[batch, heads, tokens, dim]`. Fused, the row sums are padded to 32 rows, and a mask that
    /// is a tensor is read and saved.
    pub fn attention(&mut self, [q, k, v]: [Var; 3], mask: Mask, dropout: bool) -> Var {
        let [q, k, v] = [self.operand(q), self.operand(k), self.operand(v)];
        if self.eager() {
            return self.eager_attention([q, k, v], mask, dropout);
        }
        let mask = match mask {
            Mask::Added(mask) => Some(mask),
            Mask::None | Mask::Causal | Mask::Padding => None,
        };
        let (shape, keys) = (self.shape(q), self.shape(k)[2]);
        let (batch, heads, tokens, width) = (shape[0], shape[1], shape[2], shape[3]);
        let flops = 4 * batch * heads * tokens * keys * width;
        let dtype = self.compute_dtype();
        let mut inputs = vec![q, k, v];
        let mut reads = vec![Grad(0), In(0), In(1), In(2), Out(0), Out(1), Out(2), Out(3)];
        if let Some(mask) = mask {
            inputs.push(mask);
            reads.push(In(3));
        }
        let parts = Parts {
            inputs,
            flops,
            backward: vec![back(
                "_scaled_dot_product_efficient_attention_backward",
                reads,
                vec![GradIn(0), GradIn(1), GradIn(2)],
                (flops / 2).saturating_mul(5),
            )],
            ..Parts::default()
        };
        let sums: &[u64] = &[batch, heads, tokens.next_multiple_of(32)];
        let seed: &[u64] = &[1];
        let outputs = [
            (&shape[..], dtype),
            (sums, Dtype::F32),
            (seed, Dtype::I64),
            (seed, Dtype::I64),
        ];
        self.op("_scaled_dot_product_efficient_attention", parts, &outputs)[0]
    }

    /// Attention whose scores, masked scores and probabilities are tensors. Batched products want each head's
    /// rows behind each other, and the result goes back to rows of all heads: copies, there and back.
    fn eager_attention(&mut self, qkv: [Var; 3], mask: Mask, dropout: bool) -> Var {
        let shape = self.shape(qkv[0]);
        let (batch, heads, tokens, width) = (shape[0], shape[1], shape[2], shape[3]);
        let keys = self.shape(qkv[1])[2];
        let rows = [[tokens, width], [width, keys], [keys, width]];
        let [q, k] = [0, 1].map(|i| self.reorder(qkv[i], &[batch * heads, rows[i][0], rows[i][1]]));
        let scores = self.bmm(q, k);
        let scores = self.view(scores, &[batch, heads, tokens, keys]);
        let scores = self.scalar("div", scores);
        let scores = self.masked(scores, mask);
        let scores = self.cast(scores, Dtype::F32);
        let probabilities = self.activation("_softmax", "_softmax_backward_data", scores, true);
        let probabilities = if dropout {
            self.dropout(probabilities)
        } else {
            probabilities
        };
        let probabilities = self.operand(probabilities);
        let probabilities = self.view(probabilities, &[batch * heads, tokens, keys]);
        let v = self.reorder(qkv[2], &[batch * heads, keys, width]);
        let y = self.bmm(probabilities, v);
        self.reorder(y, &shape)
    }

    /// Scores with what must not be seen made very small.
    fn masked(&mut self, scores: Var, mask: Mask) -> Var {
        let shape = self.shape(scores);
        let [batch, _, tokens, keys] = shape[..] else {
            return scores;
        };
        match mask {
            Mask::None => scores,
            // w b - 10^4 (1 - b), with b of ones and zeros, as OpenAI's code has it.
            Mask::Causal => {
                let kept = self.scalar("mul", scores);
                let hidden = self.helper("rsub", &[], &[tokens, keys], Dtype::F32);
                let hidden = self.helper("mul", &[hidden], &[tokens, keys], Dtype::F32);
                let outputs = [(&shape[..], self.dtype(kept))];
                let parts = Parts {
                    inputs: vec![kept, hidden],
                    pass: vec![(0, 0)],
                    ..Parts::default()
                };
                self.op("sub", parts, &outputs)[0]
            }
            Mask::Padding => {
                let hidden = self.helper("eq", &[], &[batch, tokens, keys], Dtype::Bool);
                let outputs = [(&shape[..], self.dtype(scores))];
                let parts = Parts {
                    inputs: vec![scores, hidden],
                    backward: vec![step("masked_fill", &[Grad(0), In(1)], GradIn(0))],
                    ..Parts::default()
                };
                self.op("masked_fill", parts, &outputs)[0]
            }
            Mask::Added(mask) => {
                let outputs = [(&shape[..], self.dtype(scores))];
                let parts = Parts {
                    inputs: vec![scores, mask],
                    pass: vec![(0, 0)],
                    ..Parts::default()
                };
                self.op("add", parts, &outputs)[0]
            }
        }
    }

    /// Sums of rows over the edges of a graph (a sparse matrix product); the gradient goes along the edges
    /// the other way.
    pub fn spmm(&mut self, edges: Var, x: Var) -> Var {
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        let count = self.shape(edges)[1];
        let flops = 2 * count * shape[1];
        let parts = Parts {
            inputs: vec![edges, x],
            flops,
            backward: vec![back("spmm", vec![Grad(0), In(0)], vec![GradIn(1)], flops)],
            ..Parts::default()
        };
        self.op("spmm", parts, &[(&shape, dtype)])[0]
    }
}
