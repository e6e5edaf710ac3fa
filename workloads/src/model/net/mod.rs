//! Recording a model: the layers that models are written in.
//!
//! Every method stands for one module or function of PyTorch and records the ops that it runs on a GPU. Here
//! is what records them; the layers are in the files beside, by what they do.

mod elementwise;
mod losses;
mod moves;
mod norms;
mod pooling;
mod products;
mod style;

pub use pooling::{Window, window};
pub use products::Mask;

use super::spec::{Precision, Style};
use super::tape::{BackKernel, Columns, Dtype, Node, Param, ParamInfo, Ref, Tape, Value, Var};
use Ref::{Grad, GradIn, GradParam};
use style::Used;

/// A forward pass being recorded.
pub struct Net {
    tape: Tape,
    path: Vec<String>,
    precision: Precision,
    style: Style,
    used: Used,
    training: bool,
    segment: Option<u32>,
    /// Low-precision copies of parameters, made once a pass.
    casts: std::collections::HashMap<Param, Var>,
}

fn back(op: &'static str, reads: Vec<Ref>, writes: Vec<Ref>, flops: u64) -> BackKernel {
    BackKernel {
        op,
        reads,
        writes,
        flops,
        // A fill with zeros, or a product with the output, comes before some.
        launches: match op {
            "max_pool2d_with_indices_backward"
            | "_adaptive_avg_pool2d_backward"
            | "_softmax_backward_data"
            | "nll_loss_backward" => 2,
            _ => 1,
        },
    }
}

/// A step of a backward op that makes no FLOPs worth counting.
fn step(op: &'static str, reads: &[Ref], write: Ref) -> BackKernel {
    back(op, reads.to_vec(), vec![write], 0)
}

/// What a node is made of, beside its outputs.
struct Parts {
    inputs: Vec<Var>,
    params: Vec<Param>,
    flops: u64,
    launches: u32,
    columns: Option<Columns>,
    temporaries: Vec<u64>,
    gathered: Option<u64>,
    backward: Vec<BackKernel>,
    pass: Vec<(usize, usize)>,
}

impl Default for Parts {
    fn default() -> Parts {
        Parts {
            inputs: Vec::new(),
            params: Vec::new(),
            flops: 0,
            launches: 1,
            columns: None,
            temporaries: Vec::new(),
            gathered: None,
            backward: Vec::new(),
            pass: Vec::new(),
        }
    }
}

impl Net {
    /// An empty pass.
    pub fn new(precision: Precision, training: bool, style: Style) -> Net {
        Net {
            tape: Tape::default(),
            path: Vec::new(),
            precision,
            style,
            used: Used::default(),
            training,
            segment: None,
            casts: std::collections::HashMap::new(),
        }
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
            launches: parts.launches,
            columns: parts.columns,
            temporaries: parts.temporaries,
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

    /// An op of one value, with these outputs, whose backward is one kernel that reads so much; its first output.
    fn unary(
        &mut self,
        op: &'static str,
        x: Var,
        (backward, reads): (&'static str, Vec<Ref>),
        outputs: &[(&[u64], Dtype)],
    ) -> Var {
        let parts = Parts {
            inputs: vec![x],
            backward: vec![back(backward, reads, vec![GradIn(0)], 0)],
            ..Parts::default()
        };
        self.op(op, parts, outputs)[0]
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
        self.unary("_to_copy", x, ("_to_copy", vec![Grad(0)]), &[(&shape, dtype)])
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
}
