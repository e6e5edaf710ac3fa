//! Normalisation.

use super::super::tape::{Dtype, Ref, Var};
use super::Ref::{Grad, GradIn, GradParam, In, Out, Temp};
use super::{Net, Parts, back, step};

impl Net {
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
                // Without cuDNN: statistics, running statistics, the normalisation.
                launches: if net.native() { 3 } else { 1 },
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
            let stats = rows_of(&shape);
            if net.composed() {
                // (x - mean) / sqrt(mean of (x - mean)^2 + eps); the difference is made twice.
                let mean = net.mean(x, &stats);
                let centred = net.sub_rows(x, mean);
                let square = net.pow(centred, 2);
                let variance = net.mean(square, &stats);
                let centred = net.sub_rows(x, mean);
                let variance = net.scalar("add", variance);
                let deviation = net.sqrt(variance);
                let y = net.div_rows(centred, deviation);
                let y = net.mul_param(y, weight);
                return net.add_param(y, bias);
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

    /// Layer normalisation by the standard deviation, composed of element-wise ops:
    /// a (x - mean) / (std + eps) + b.
    pub fn layer_norm_by_deviation(&mut self, name: &str, x: Var) -> Var {
        self.scope(name, |net| {
            let x = net.cast(x, Dtype::F32);
            let shape = net.shape(x);
            let width = shape.last().copied().unwrap_or(1);
            let (weight, bias) = (net.param("a_2", &[width]), net.param("b_2", &[width]));
            let stats = rows_of(&shape);
            let mean = net.mean(x, &stats);
            let deviation = net.deviation(x, &stats);
            let y = net.sub_rows(x, mean);
            let y = net.mul_param(y, weight);
            let deviation = net.scalar("add", deviation);
            let y = net.div_rows(y, deviation);
            net.add_param(y, bias)
        })
    }

    /// The standard deviation of rows; its gradient is grad / (s (n - 1)) * (x - mean), none where s = 0.
    fn deviation(&mut self, x: Var, stats: &[u64]) -> Var {
        let (bytes, rows) = (self.tape.value(x).bytes(), stats.iter().product::<u64>());
        let parts = Parts {
            inputs: vec![x],
            temporaries: vec![4 * rows, 4 * rows, rows, 4 * rows, bytes, 4 * rows],
            backward: vec![
                step("mul", &[Out(0)], Temp(0)),
                step("div", &[Grad(0), Temp(0)], Temp(1)),
                step("eq", &[Out(0)], Temp(2)),
                step("masked_fill_", &[Temp(1), Temp(2)], Temp(1)),
                step("mean", &[In(0)], Temp(3)),
                step("sub", &[In(0), Temp(3)], Temp(4)),
                step("mul", &[Temp(1)], Temp(5)),
                step("mul", &[Temp(5), Temp(4)], GradIn(0)),
            ],
            ..Parts::default()
        };
        self.op("std", parts, &[(stats, Dtype::F32)])[0]
    }
}

/// The shape with its last dimension reduced.
fn rows_of(shape: &[u64]) -> Vec<u64> {
    let mut rows = shape.to_vec();
    if let Some(last) = rows.last_mut() {
        *last = 1;
    }
    rows
}
