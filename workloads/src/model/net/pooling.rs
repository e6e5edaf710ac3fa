//! Windows, pooling, means.

use super::super::tape::{Dtype, Var};
use super::Net;
use super::Ref::{Grad, In, Out};

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
    pub(super) fn output(&self, (height, width): (u64, u64)) -> (u64, u64) {
        let side =
            |n: u64, kernel: u64, padding: u64| (n + 2 * padding).saturating_sub(kernel) / self.stride + 1;
        (
            side(height, self.kernel.0, self.padding.0),
            side(width, self.kernel.1, self.padding.1),
        )
    }
}

impl Net {
    /// Maximum pooling with the places of the maxima.
    pub fn max_pool(&mut self, x: Var, window: Window) -> Var {
        let (batch, channels, size) = self.size(x);
        let (height, width) = window.output(size);
        let shape: &[u64] = &[batch, channels, height, width];
        let dtype = self.dtype(x);
        let reads = vec![Grad(0), In(0), Out(1)];
        let outputs = [(shape, dtype), (shape, Dtype::I64)];
        let backward = "max_pool2d_with_indices_backward";
        self.unary("max_pool2d_with_indices", x, (backward, reads), &outputs)
    }

    /// Average pooling.
    pub fn avg_pool(&mut self, x: Var, window: Window) -> Var {
        let (batch, channels, size) = self.size(x);
        let (height, width) = window.output(size);
        let outputs = [(&[batch, channels, height, width][..], self.dtype(x))];
        let backward = ("avg_pool2d_backward", vec![Grad(0), In(0)]);
        self.unary("avg_pool2d", x, backward, &outputs)
    }

    /// Average pooling to a given size.
    pub fn adaptive_avg_pool(&mut self, x: Var, side: u64) -> Var {
        let (batch, channels, _) = self.size(x);
        let outputs = [(&[batch, channels, side, side][..], self.dtype(x))];
        let backward = ("_adaptive_avg_pool2d_backward", vec![Grad(0), In(0)]);
        self.unary("_adaptive_avg_pool2d", x, backward, &outputs)
    }

    /// The mean over height and width, flattened to `[batch, channels]`.
    pub fn global_mean(&mut self, x: Var) -> Var {
        let (batch, channels, _) = self.size(x);
        let y = self.mean(x, &[batch, channels, 1, 1]);
        self.view(y, &[batch, channels])
    }

    /// A mean over some dimensions; backward divides and spreads.
    pub fn mean(&mut self, x: Var, shape: &[u64]) -> Var {
        let outputs = [(shape, self.dtype(x))];
        self.unary("mean", x, ("div", vec![Grad(0)]), &outputs)
    }
}
