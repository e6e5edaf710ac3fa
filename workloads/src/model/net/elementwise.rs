//! Element-wise functions.

use super::super::tape::{Dtype, Param, Ref, Var};
use super::Ref::{Grad, GradIn, GradParam, In, Out};
use super::{Net, Parts, back};

impl Net {
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
        self.unary(op, x, (backward, vec![Grad(0), saved]), &[(&shape, dtype)])
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

    /// Dropout with its mask; nothing outside of training.
    pub fn dropout(&mut self, x: Var) -> Var {
        if !self.training {
            return x;
        }
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        let backward = ("native_dropout_backward", vec![Grad(0), Out(1)]);
        let outputs = [(&shape[..], dtype), (&shape[..], Dtype::Bool)];
        self.unary("native_dropout", x, backward, &outputs)
    }
}
