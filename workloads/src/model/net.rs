//! Recording a model: the layers that models are written in.
//!
//! Every method stands for one module or function of PyTorch and records the ops that it runs on a GPU.

use super::spec::Precision;
use super::tape::{BackKernel, Dtype, Node, Param, ParamInfo, Ref, Tape, Value, Var};
use Ref::{Grad, GradIn, GradParam, In, Out};

/// A forward pass being recorded.
pub struct Net {
    tape: Tape,
    path: Vec<String>,
    precision: Precision,
    training: bool,
    segment: Option<u32>,
    /// Low-precision copies of parameters, made once a pass.
    casts: std::collections::HashMap<Param, Var>,
}

/// Shape of a convolution or pooling window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Height and width.
    pub kernel: (u64, u64),
    /// Step in both directions.
    pub stride: u64,
    /// Rows and columns added on each side.
    pub padding: (u64, u64),
}

/// A square window.
pub const fn window(kernel: u64, stride: u64, padding: u64) -> Window {
    Window {
        kernel: (kernel, kernel),
        stride,
        padding: (padding, padding),
    }
}

impl Window {
    fn output(&self, (height, width): (u64, u64)) -> (u64, u64) {
        let side =
            |n: u64, kernel: u64, padding: u64| (n + 2 * padding).saturating_sub(kernel) / self.stride + 1;
        (
            side(height, self.kernel.0, self.padding.0),
            side(width, self.kernel.1, self.padding.1),
        )
    }
}

fn back(op: &'static str, reads: Vec<Ref>, writes: Vec<Ref>, flops: u64) -> BackKernel {
    BackKernel {
        op,
        reads,
        writes,
        flops,
    }
}

/// What a node is made of, beside its outputs.
#[derive(Default)]
struct Parts {
    inputs: Vec<Var>,
    params: Vec<Param>,
    flops: u64,
    gathered: Option<u64>,
    backward: Vec<BackKernel>,
    pass: Vec<(usize, usize)>,
}

impl Net {
    /// An empty pass.
    pub fn new(precision: Precision, training: bool) -> Net {
        Net {
            tape: Tape::default(),
            path: Vec::new(),
            precision,
            training,
            segment: None,
            casts: std::collections::HashMap::new(),
        }
    }

    /// The recorded pass.
    pub fn finish(self) -> Tape {
        self.tape
    }

    /// Is it a training pass? Dropout acts, and autograd saves.
    pub fn training(&self) -> bool {
        self.training
    }

    /// Runs `body` inside a module.
    pub fn scope<T>(&mut self, name: impl Into<String>, body: impl FnOnce(&mut Net) -> T) -> T {
        self.path.push(name.into());
        let result = body(self);
        self.path.pop();
        result
    }

    /// Runs `body` as one segment of activation checkpointing if `on`.
    pub fn checkpoint<T>(&mut self, on: bool, body: impl FnOnce(&mut Net) -> T) -> T {
        if on && self.segment.is_none() && self.training {
            self.segment = Some(self.tape.segments);
            self.tape.segments += 1;
            let result = body(self);
            self.segment = None;
            result
        } else {
            body(self)
        }
    }

    /// Dimensions of a value.
    pub fn shape(&self, x: Var) -> Vec<u64> {
        self.tape.value(x).shape.clone()
    }

    fn size(&self, x: Var) -> (u64, u64, (u64, u64)) {
        let shape = &self.tape.value(x).shape;
        (shape[0], shape[1], (shape[2], shape[3]))
    }

    // ---- values ----

    fn storage(&mut self, bytes: u64) -> u32 {
        self.tape.storages.push(bytes);
        self.tape.storages.len() as u32 - 1
    }

    fn add_value(&mut self, value: Value) -> Var {
        self.tape.values.push(value);
        Var(self.tape.values.len() as u32 - 1)
    }

    fn fresh(&mut self, shape: &[u64], dtype: Dtype, requires_grad: bool) -> Var {
        let bytes = shape.iter().product::<u64>() * dtype.bytes();
        let storage = self.storage(bytes);
        self.add_value(Value {
            shape: shape.to_vec(),
            dtype,
            storage,
            requires_grad,
            view_of: None,
        })
    }

    /// A parameter.
    pub fn param(&mut self, name: &str, shape: &[u64]) -> Param {
        let mut full = self.path.join(".");
        if !full.is_empty() {
            full.push('.');
        }
        full.push_str(name);
        self.tape.params.push(ParamInfo {
            name: full,
            shape: shape.to_vec(),
        });
        Param(self.tape.params.len() as u32 - 1)
    }

    /// A buffer: memory that lives as long as the model and has no gradient.
    pub fn buffer(&mut self, bytes: u64) {
        self.tape.buffers.push(bytes);
    }

    /// An input of the step.
    pub fn input(&mut self, shape: &[u64], dtype: Dtype) -> Var {
        let var = self.fresh(shape, dtype, false);
        self.tape.inputs.push(var);
        var
    }

    /// Memory for a cache that outlives the step.
    pub fn cache(&mut self, shape: &[u64]) -> Var {
        let dtype = self.compute_dtype();
        let var = self.fresh(shape, dtype, false);
        let storage = self.tape.value(var).storage;
        self.tape.caches.push(storage);
        var
    }

    /// The same elements in another shape.
    pub fn view(&mut self, x: Var, shape: &[u64]) -> Var {
        let value = self.tape.value(x).clone();
        debug_assert_eq!(value.numel(), shape.iter().product::<u64>());
        self.add_value(Value {
            shape: shape.to_vec(),
            view_of: Some(x),
            ..value
        })
    }

    /// Parts of a value along its last dimension, as views; backward puts their gradients together.
    pub fn split(&mut self, x: Var, sizes: &[u64]) -> Vec<Var> {
        let value = self.tape.value(x).clone();
        let outputs: Vec<Var> = sizes
            .iter()
            .map(|size| {
                let mut shape = value.shape.clone();
                if let Some(last) = shape.last_mut() {
                    *last = *size;
                }
                self.add_value(Value {
                    shape,
                    view_of: None,
                    ..value.clone()
                })
            })
            .collect();
        let grads = (0..outputs.len()).map(Grad).collect();
        self.push(
            None,
            Parts {
                inputs: vec![x],
                backward: vec![back("cat", grads, vec![GradIn(0)], 0)],
                ..Parts::default()
            },
            outputs.clone(),
        );
        outputs
    }

    /// A part of a value, as a view; backward pads its gradient with zeros.
    pub fn slice(&mut self, x: Var, shape: &[u64]) -> Var {
        let value = self.tape.value(x).clone();
        let out = self.add_value(Value {
            shape: shape.to_vec(),
            view_of: None,
            ..value
        });
        self.push(
            None,
            Parts {
                inputs: vec![x],
                backward: vec![back("slice_backward", vec![Grad(0)], vec![GradIn(0)], 0)],
                ..Parts::default()
            },
            vec![out],
        );
        out
    }

    fn push(&mut self, op: Option<&'static str>, parts: Parts, outputs: Vec<Var>) {
        let reaches = self.training
            && (!parts.params.is_empty() || parts.inputs.iter().any(|x| self.tape.value(*x).requires_grad));
        let differentiable = !parts.backward.is_empty() || !parts.pass.is_empty();
        for out in &outputs {
            let value = &mut self.tape.values[out.0 as usize];
            value.requires_grad =
                reaches && differentiable && value.dtype != Dtype::I64 && value.dtype != Dtype::Bool;
        }
        self.tape.nodes.push(Node {
            op,
            layer: self.path.join("."),
            inputs: parts.inputs,
            params: parts.params,
            outputs,
            flops: parts.flops,
            gathered: parts.gathered,
            backward: parts.backward,
            pass: parts.pass,
            segment: self.segment,
        });
    }

    /// An op with new outputs of these shapes and types.
    fn op(&mut self, op: &'static str, parts: Parts, outputs: &[(&[u64], Dtype)]) -> Vec<Var> {
        let outputs: Vec<Var> = outputs
            .iter()
            .map(|(shape, dtype)| self.fresh(shape, *dtype, false))
            .collect();
        self.push(Some(op), parts, outputs.clone());
        outputs
    }

    /// An op that writes into its first input.
    fn in_place(&mut self, op: &'static str, parts: Parts) -> Var {
        let value = self.tape.value(parts.inputs[0]).clone();
        let out = self.add_value(Value {
            view_of: None,
            ..value
        });
        self.push(Some(op), parts, vec![out]);
        out
    }

    /// An op without gradient, for masks and indices: outputs of these bytes.
    pub fn helper(&mut self, op: &'static str, inputs: &[Var], shape: &[u64], dtype: Dtype) -> Var {
        let parts = Parts {
            inputs: inputs.to_vec(),
            ..Parts::default()
        };
        self.op(op, parts, &[(shape, dtype)])[0]
    }

    // ---- precision ----

    /// Type that matrix products run in.
    fn compute_dtype(&self) -> Dtype {
        match self.precision {
            Precision::Fp32 | Precision::Tf32 => Dtype::F32,
            Precision::Bf16 | Precision::Fp16 => Dtype::Half,
        }
    }

    fn dtype(&self, x: Var) -> Dtype {
        self.tape.value(x).dtype
    }

    /// As another type: a copy, unless it is that already.
    fn cast(&mut self, x: Var, dtype: Dtype) -> Var {
        if self.dtype(x) == dtype {
            return x;
        }
        let shape = self.shape(x);
        let parts = Parts {
            inputs: vec![x],
            backward: vec![back("_to_copy", vec![Grad(0)], vec![GradIn(0)], 0)],
            ..Parts::default()
        };
        self.op("_to_copy", parts, &[(&shape, dtype)])[0]
    }

    /// An operand of a matrix product.
    fn operand(&mut self, x: Var) -> Var {
        self.cast(x, self.compute_dtype())
    }

    /// The low-precision copy of a parameter that autocast keeps during a pass; none in full precision.
    fn weight(&mut self, param: Param) -> Option<Var> {
        if self.compute_dtype() == Dtype::F32 {
            return None;
        }
        if let Some(cast) = self.casts.get(&param) {
            return Some(*cast);
        }
        let shape = self.tape.params[param.0 as usize].shape.clone();
        let parts = Parts {
            params: vec![param],
            backward: vec![back("_to_copy", vec![Grad(0)], vec![GradParam(0)], 0)],
            ..Parts::default()
        };
        // Copies outlive a checkpointed segment: they are made outside of it.
        let segment = self.segment.take();
        let copy = self.op("_to_copy", parts, &[(&shape, Dtype::Half)])[0];
        self.segment = segment;
        self.casts.insert(param, copy);
        Some(copy)
    }

    // ---- layers ----

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
        let low = self.weight(weight);
        let low_bias = bias.and_then(|bias| self.weight(bias));
        let (mut inputs, mut params) = (vec![flat], Vec::new());
        let mut backward = Vec::new();
        let w = if let Some(low) = low {
            inputs.push(low);
            (In(1), GradIn(1))
        } else {
            params.push(weight);
            (Ref::Param(0), GradParam(0))
        };
        if !first {
            backward.push(back("mm", vec![Grad(0), w.0], vec![GradIn(0)], flops));
        }
        backward.push(back("mm", vec![Grad(0), In(0)], vec![w.1], flops));
        if let Some(bias) = bias {
            let target = if let Some(low) = low_bias {
                inputs.push(low);
                GradIn(inputs.len() - 1)
            } else {
                params.push(bias);
                GradParam(params.len() - 1)
            };
            backward.push(back("sum", vec![Grad(0)], vec![target], 0));
        }
        let parts = Parts {
            inputs,
            params,
            flops,
            backward,
            ..Parts::default()
        };
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
            let low = net.weight(weight);
            let low_bias = bias.and_then(|bias| net.weight(bias));
            let (mut inputs, mut params) = (vec![x], Vec::new());
            let (w, gw) = if let Some(low) = low {
                inputs.push(low);
                (In(1), GradIn(1))
            } else {
                params.push(weight);
                (Ref::Param(0), GradParam(0))
            };
            let mut writes = if first { Vec::new() } else { vec![GradIn(0)] };
            writes.push(gw);
            if let Some(bias) = bias {
                writes.push(if let Some(low) = low_bias {
                    inputs.push(low);
                    GradIn(inputs.len() - 1)
                } else {
                    params.push(bias);
                    GradParam(params.len() - 1)
                });
            }
            let cost = if first { flops } else { 2 * flops };
            let parts = Parts {
                inputs,
                params,
                flops,
                backward: vec![back(
                    "convolution_backward",
                    vec![Grad(0), In(0), w],
                    writes,
                    cost,
                )],
                ..Parts::default()
            };
            net.op("convolution", parts, &[(&[batch, out, height, width], dtype)])[0]
        })
    }

    /// Batch normalisation with its counter and running statistics.
    pub fn batch_norm(&mut self, name: &str, x: Var) -> Var {
        self.scope(name, |net| {
            let shape = net.shape(x);
            let channels = shape[1];
            let (weight, bias) = (net.param("weight", &[channels]), net.param("bias", &[channels]));
            net.buffer(4 * channels);
            net.buffer(4 * channels);
            net.buffer(8);
            let dtype = net.dtype(x);
            if !net.training {
                let parts = Parts {
                    inputs: vec![x],
                    params: vec![weight, bias],
                    ..Parts::default()
                };
                return net.op("native_batch_norm", parts, &[(&shape, dtype)])[0];
            }
            net.helper("add_", &[], &[1], Dtype::I64);
            let parts = Parts {
                inputs: vec![x],
                params: vec![weight, bias],
                backward: vec![back(
                    "native_batch_norm_backward",
                    vec![Grad(0), In(0), Ref::Param(0), Out(1), Out(2)],
                    vec![GradIn(0), GradParam(0), GradParam(1)],
                    0,
                )],
                ..Parts::default()
            };
            let stats: &[u64] = &[channels];
            let outputs = [(&shape[..], dtype), (stats, Dtype::F32), (stats, Dtype::F32)];
            net.op("native_batch_norm", parts, &outputs)[0]
        })
    }

    /// Layer normalisation over the last dimension.
    pub fn layer_norm(&mut self, name: &str, x: Var) -> Var {
        self.scope(name, |net| {
            let x = net.cast(x, Dtype::F32);
            let shape = net.shape(x);
            let width = shape.last().copied().unwrap_or(1);
            let (weight, bias) = (net.param("weight", &[width]), net.param("bias", &[width]));
            let mut stats = shape.clone();
            if let Some(last) = stats.last_mut() {
                *last = 1;
            }
            let parts = Parts {
                inputs: vec![x],
                params: vec![weight, bias],
                backward: vec![back(
                    "native_layer_norm_backward",
                    vec![Grad(0), In(0), Ref::Param(0), Ref::Param(1), Out(1), Out(2)],
                    vec![GradIn(0), GradParam(0), GradParam(1)],
                    0,
                )],
                ..Parts::default()
            };
            let outputs = [
                (&shape[..], Dtype::F32),
                (&stats[..], Dtype::F32),
                (&stats[..], Dtype::F32),
            ];
            net.op("native_layer_norm", parts, &outputs)[0]
        })
    }

    /// The rectifier, in place.
    pub fn relu_(&mut self, x: Var) -> Var {
        self.in_place(
            "relu_",
            Parts {
                inputs: vec![x],
                backward: vec![back(
                    "threshold_backward",
                    vec![Grad(0), Out(0)],
                    vec![GradIn(0)],
                    0,
                )],
                ..Parts::default()
            },
        )
    }

    /// An element-wise function whose backward reads its input or its output.
    pub fn activation(
        &mut self,
        op: &'static str,
        backward: &'static str,
        x: Var,
        reads_output: bool,
    ) -> Var {
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        let saved = if reads_output { Out(0) } else { In(0) };
        let parts = Parts {
            inputs: vec![x],
            backward: vec![back(backward, vec![Grad(0), saved], vec![GradIn(0)], 0)],
            ..Parts::default()
        };
        self.op(op, parts, &[(&shape, dtype)])[0]
    }

    /// GELU.
    pub fn gelu(&mut self, x: Var) -> Var {
        self.activation("gelu", "gelu_backward", x, false)
    }

    /// Times, plus or to the power of a number: an element-wise op whose gradient is one more.
    pub fn scalar(&mut self, op: &'static str, x: Var, saves_input: bool) -> Var {
        // Autocast runs powers in full precision.
        let x = if op == "pow" { self.cast(x, Dtype::F32) } else { x };
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        let mut parts = Parts {
            inputs: vec![x],
            ..Parts::default()
        };
        if op == "add" || op == "sub" {
            parts.pass = vec![(0, 0)];
        } else {
            let mut reads = vec![Grad(0)];
            if saves_input {
                reads.push(In(0));
            }
            parts.backward = vec![back("mul", reads, vec![GradIn(0)], 0)];
        }
        self.op(op, parts, &[(&shape, dtype)])[0]
    }

    /// The sum of two values of one shape (or with the second broadcast).
    pub fn add(&mut self, a: Var, b: Var) -> Var {
        let (shape, dtype) = (self.shape(a), self.promoted(a, b));
        let parts = Parts {
            inputs: vec![a, b],
            pass: vec![(0, 0), (0, 1)],
            ..Parts::default()
        };
        self.op("add", parts, &[(&shape, dtype)])[0]
    }

    fn promoted(&self, a: Var, b: Var) -> Dtype {
        if self.dtype(a) == Dtype::F32 || self.dtype(b) == Dtype::F32 {
            Dtype::F32
        } else {
            self.dtype(a)
        }
    }

    /// The same, into the first.
    pub fn add_(&mut self, a: Var, b: Var) -> Var {
        self.in_place(
            "add_",
            Parts {
                inputs: vec![a, b],
                pass: vec![(0, 0), (0, 1)],
                ..Parts::default()
            },
        )
    }

    /// The sum of a value and a parameter that is broadcast over the batch.
    pub fn add_param(&mut self, x: Var, param: Param) -> Var {
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        let parts = Parts {
            inputs: vec![x],
            params: vec![param],
            backward: vec![back("sum", vec![Grad(0)], vec![GradParam(0)], 0)],
            pass: vec![(0, 0)],
            ..Parts::default()
        };
        self.op("add", parts, &[(&shape, dtype)])[0]
    }

    /// The product of two values.
    pub fn mul(&mut self, a: Var, b: Var) -> Var {
        let (shape, dtype) = (self.shape(a), self.promoted(a, b));
        let mut backward = Vec::new();
        for (input, other) in [(0, 1), (1, 0)] {
            let var = [a, b][input];
            if self.tape.value(var).requires_grad {
                backward.push(back("mul", vec![Grad(0), In(other)], vec![GradIn(input)], 0));
            }
        }
        let parts = Parts {
            inputs: vec![a, b],
            backward,
            ..Parts::default()
        };
        self.op("mul", parts, &[(&shape, dtype)])[0]
    }

    /// The product of a value and a parameter that is broadcast.
    pub fn mul_param(&mut self, x: Var, param: Param) -> Var {
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        let parts = Parts {
            inputs: vec![x],
            params: vec![param],
            backward: vec![
                back("mul", vec![Grad(0), Ref::Param(0)], vec![GradIn(0)], 0),
                back("mul", vec![Grad(0), In(0)], vec![GradParam(0)], 0),
            ],
            ..Parts::default()
        };
        self.op("mul", parts, &[(&shape, dtype)])[0]
    }

    /// Values side by side; backward hands out slices.
    pub fn cat(&mut self, parts: &[Var], shape: &[u64]) -> Var {
        let dtype = self.dtype(parts[0]);
        let pass = (0..parts.len()).map(|i| (0, i)).collect();
        let parts = Parts {
            inputs: parts.to_vec(),
            pass,
            ..Parts::default()
        };
        self.op("cat", parts, &[(shape, dtype)])[0]
    }

    /// A parameter in front of a value (the class token of a vision transformer).
    pub fn cat_param(&mut self, param: Param, x: Var, shape: &[u64]) -> Var {
        let dtype = self.dtype(x);
        let parts = Parts {
            inputs: vec![x],
            params: vec![param],
            backward: vec![back("sum", vec![Grad(0)], vec![GradParam(0)], 0)],
            pass: vec![(0, 0)],
            ..Parts::default()
        };
        self.op("cat", parts, &[(shape, dtype)])[0]
    }

    /// A contiguous copy in another shape; its gradient passes.
    pub fn clone_as(&mut self, x: Var, shape: &[u64]) -> Var {
        let dtype = self.dtype(x);
        let parts = Parts {
            inputs: vec![x],
            pass: vec![(0, 0)],
            ..Parts::default()
        };
        self.op("clone", parts, &[(shape, dtype)])[0]
    }

    /// Maximum pooling with the places of the maxima.
    pub fn max_pool(&mut self, x: Var, window: Window) -> Var {
        let (batch, channels, size) = self.size(x);
        let (height, width) = window.output(size);
        let shape: &[u64] = &[batch, channels, height, width];
        let dtype = self.dtype(x);
        let parts = Parts {
            inputs: vec![x],
            backward: vec![back(
                "max_pool2d_with_indices_backward",
                vec![Grad(0), In(0), Out(1)],
                vec![GradIn(0)],
                0,
            )],
            ..Parts::default()
        };
        self.op(
            "max_pool2d_with_indices",
            parts,
            &[(shape, dtype), (shape, Dtype::I64)],
        )[0]
    }

    /// Average pooling.
    pub fn avg_pool(&mut self, x: Var, window: Window) -> Var {
        let (batch, channels, size) = self.size(x);
        let (height, width) = window.output(size);
        let dtype = self.dtype(x);
        let parts = Parts {
            inputs: vec![x],
            backward: vec![back(
                "avg_pool2d_backward",
                vec![Grad(0), In(0)],
                vec![GradIn(0)],
                0,
            )],
            ..Parts::default()
        };
        self.op("avg_pool2d", parts, &[(&[batch, channels, height, width], dtype)])[0]
    }

    /// Average pooling to a given size.
    pub fn adaptive_avg_pool(&mut self, x: Var, side: u64) -> Var {
        let (batch, channels, _) = self.size(x);
        let dtype = self.dtype(x);
        let parts = Parts {
            inputs: vec![x],
            backward: vec![back(
                "_adaptive_avg_pool2d_backward",
                vec![Grad(0), In(0)],
                vec![GradIn(0)],
                0,
            )],
            ..Parts::default()
        };
        let shape: &[u64] = &[batch, channels, side, side];
        self.op("_adaptive_avg_pool2d", parts, &[(shape, dtype)])[0]
    }

    /// The mean over height and width, flattened to `[batch, channels]`.
    pub fn global_mean(&mut self, x: Var) -> Var {
        let (batch, channels, _) = self.size(x);
        let y = self.mean(x, &[batch, channels, 1, 1]);
        self.view(y, &[batch, channels])
    }

    /// A mean over some dimensions; backward divides and spreads.
    pub fn mean(&mut self, x: Var, shape: &[u64]) -> Var {
        let dtype = self.dtype(x);
        let parts = Parts {
            inputs: vec![x],
            backward: vec![back("div", vec![Grad(0)], vec![GradIn(0)], 0)],
            ..Parts::default()
        };
        self.op("mean", parts, &[(shape, dtype)])[0]
    }

    /// Dropout with its mask; nothing outside of training.
    pub fn dropout(&mut self, x: Var) -> Var {
        if !self.training {
            return x;
        }
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        let parts = Parts {
            inputs: vec![x],
            backward: vec![back(
                "native_dropout_backward",
                vec![Grad(0), Out(1)],
                vec![GradIn(0)],
                0,
            )],
            ..Parts::default()
        };
        self.op("native_dropout", parts, &[(&shape, dtype), (&shape, Dtype::Bool)])[0]
    }

    /// Rows of a table, `[batch, tokens, dim]`; the gradient of the table is dense.
    pub fn embedding(&mut self, indices: Var, table: Param, shape: &[u64]) -> Var {
        let bytes = shape.iter().product::<u64>() * 4;
        let parts = Parts {
            inputs: vec![indices],
            params: vec![table],
            gathered: Some(bytes),
            backward: vec![back(
                "embedding_dense_backward",
                vec![Grad(0), In(0)],
                vec![GradParam(0)],
                0,
            )],
            ..Parts::default()
        };
        self.op("embedding", parts, &[(shape, Dtype::F32)])[0]
    }

    /// Fused attention of `[batch, heads, tokens, dim]`; the row sums are padded to 32 rows. `mask` is
    /// read, and saved.
    pub fn attention(&mut self, [q, k, v]: [Var; 3], mask: Option<Var>) -> Var {
        let [q, k, v] = [self.operand(q), self.operand(k), self.operand(v)];
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

    /// New keys or values are written into a cache.
    pub fn cache_update(&mut self, cache: Var, new: Var) {
        self.in_place(
            "copy_",
            Parts {
                inputs: vec![cache, new],
                ..Parts::default()
            },
        );
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

    /// Some elements of a value, by index; the gradient is scattered back.
    pub fn gather_pairs(&mut self, x: Var, shape: &[u64]) -> Var {
        let dtype = self.dtype(x);
        let parts = Parts {
            inputs: vec![x],
            backward: vec![back("index_put", vec![Grad(0)], vec![GradIn(0)], 0)],
            ..Parts::default()
        };
        self.op("index", parts, &[(shape, dtype)])[0]
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
