//! Normalisation.

use super::super::tape::{Dtype, Ref, Var};
use super::Ref::{Grad, GradIn, GradParam, In, Out};
use super::{Net, Parts, back};

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
}
