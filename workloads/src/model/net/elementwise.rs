//! Element-wise functions.

use super::super::tape::{Dtype, Param, Ref, Var};
use super::Ref::{Grad, GradIn, GradParam, In, Out, Temp};
use super::{Net, Parts, back, step};

impl Net {
    /// The rectifier, in place unless the style says otherwise.
    pub fn relu_(&mut self, x: Var) -> Var {
        if !self.relu_in_place() {
            return self.activation("relu", "threshold_backward", x, true);
        }
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

    /// GELU: one kernel, or the ops of its tanh approximation.
    pub fn gelu(&mut self, x: Var) -> Var {
        if self.composed() {
            self.gelu_tanh(x)
        } else {
            self.activation("gelu", "gelu_backward", x, false)
        }
    }

    /// The tanh approximation of GELU from element-wise ops:
    /// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    pub fn gelu_tanh(&mut self, x: Var) -> Var {
        let half = self.scalar("mul", x);
        let cube = self.pow(x, 3);
        let cube = self.scalar("mul", cube);
        let sum = self.add(x, cube);
        let scaled = self.scalar("mul", sum);
        let t = self.activation("tanh", "tanh_backward", scaled, true);
        let t = self.scalar("add", t);
        self.mul(half, t)
    }

    /// Times, over, plus a number, or negated: an element-wise op whose gradient is one more of its kind, or
    /// passes.
    pub fn scalar(&mut self, op: &'static str, x: Var) -> Var {
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        let mut parts = Parts {
            inputs: vec![x],
            ..Parts::default()
        };
        if op == "add" || op == "sub" {
            parts.pass = vec![(0, 0)];
        } else {
            parts.backward = vec![step(op, &[Grad(0)], GradIn(0))];
        }
        self.op(op, parts, &[(&shape, dtype)])[0]
    }

    /// To a whole power, 2 or 3; the gradient is grad * (n * x^(n-1)), where x^1 is a copy.
    pub fn pow(&mut self, x: Var, exponent: u32) -> Var {
        // Autocast runs powers in full precision.
        let x = self.cast(x, Dtype::F32);
        let (shape, bytes) = (self.shape(x), self.tape.value(x).bytes());
        let mut power = step("pow", &[In(0)], Temp(0));
        power.launches = u32::from(exponent > 2);
        let parts = Parts {
            inputs: vec![x],
            temporaries: vec![bytes; 2],
            backward: vec![
                power,
                step("mul", &[Temp(0)], Temp(1)),
                step("mul", &[Grad(0), Temp(1)], GradIn(0)),
            ],
            ..Parts::default()
        };
        self.op("pow", parts, &[(&shape, Dtype::F32)])[0]
    }

    /// The square root; the gradient is grad / (2 y).
    pub fn sqrt(&mut self, x: Var) -> Var {
        let (shape, dtype, bytes) = (self.shape(x), self.dtype(x), self.tape.value(x).bytes());
        let parts = Parts {
            inputs: vec![x],
            temporaries: vec![bytes],
            backward: vec![
                step("mul", &[Out(0)], Temp(0)),
                step("div", &[Grad(0), Temp(0)], GradIn(0)),
            ],
            ..Parts::default()
        };
        self.op("sqrt", parts, &[(&shape, dtype)])[0]
    }

    /// A value less one that is broadcast over its rows; the gradient of that is negated and summed up.
    pub fn sub_rows(&mut self, x: Var, rows: Var) -> Var {
        let (shape, dtype, bytes) = (self.shape(x), self.dtype(x), self.tape.value(x).bytes());
        let parts = Parts {
            inputs: vec![x, rows],
            temporaries: vec![bytes],
            backward: vec![
                step("neg", &[Grad(0)], Temp(0)),
                step("sum", &[Temp(0)], GradIn(1)),
            ],
            pass: vec![(0, 0)],
            ..Parts::default()
        };
        self.op("sub", parts, &[(&shape, dtype)])[0]
    }

    /// A value over one that is broadcast over its rows: grad / s, and the sum of -grad * ((x / s) / s).
    pub fn div_rows(&mut self, x: Var, rows: Var) -> Var {
        let (shape, dtype, bytes) = (self.shape(x), self.dtype(x), self.tape.value(x).bytes());
        let parts = Parts {
            inputs: vec![x, rows],
            temporaries: vec![bytes; 4],
            backward: vec![
                step("div", &[Grad(0), In(1)], GradIn(0)),
                step("div", &[In(0), In(1)], Temp(0)),
                step("div", &[Temp(0), In(1)], Temp(1)),
                step("neg", &[Grad(0)], Temp(2)),
                step("mul", &[Temp(2), Temp(1)], Temp(3)),
                step("sum", &[Temp(3)], GradIn(1)),
            ],
            ..Parts::default()
        };
        self.op("div", parts, &[(&shape, dtype)])[0]
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
        let (shape, dtype, bytes) = (self.shape(x), self.dtype(x), self.tape.value(x).bytes());
        let parts = Parts {
            inputs: vec![x],
            params: vec![param],
            temporaries: vec![bytes],
            backward: vec![
                step("mul", &[Grad(0), Ref::Param(0)], GradIn(0)),
                step("mul", &[Grad(0), In(0)], Temp(0)),
                step("sum", &[Temp(0)], GradParam(0)),
            ],
            ..Parts::default()
        };
        self.op("mul", parts, &[(&shape, dtype)])[0]
    }

    /// Dropout with its mask; nothing outside of training.
    pub fn dropout(&mut self, x: Var) -> Var {
        if !self.drops() {
            return x;
        }
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        let backward = ("native_dropout_backward", vec![Grad(0), Out(1)]);
        let outputs = [(&shape[..], dtype), (&shape[..], Dtype::Bool)];
        self.unary("native_dropout", x, backward, &outputs)
    }
}
