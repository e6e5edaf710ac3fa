//! Views, and ops that only move elements.

use super::super::tape::{Dtype, Param, Value, Var};
use super::Ref::{Grad, GradIn, GradParam, In};
use super::{Net, Parts, back};

impl Net {
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

    /// A copy of bytes as they lie: no kernel; its gradient passes.
    pub fn memory_copy(&mut self, x: Var, shape: &[u64]) -> Var {
        let dtype = self.dtype(x);
        let parts = Parts {
            inputs: vec![x],
            launches: 0,
            pass: vec![(0, 0)],
            ..Parts::default()
        };
        self.op("clone", parts, &[(shape, dtype)])[0]
    }

    /// A contiguous copy whose gradient is copied back into the order of the original.
    pub fn reorder(&mut self, x: Var, shape: &[u64]) -> Var {
        let outputs = [(shape, self.dtype(x))];
        self.unary("clone", x, ("clone", vec![Grad(0)]), &outputs)
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

    /// Some elements of a value, by index; the gradient is scattered back.
    pub fn gather_pairs(&mut self, x: Var, shape: &[u64]) -> Var {
        let outputs = [(shape, self.dtype(x))];
        self.unary("index", x, ("index_put", vec![Grad(0)]), &outputs)
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
}
