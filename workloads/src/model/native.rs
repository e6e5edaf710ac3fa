//! Convolutions without cuDNN: sample by sample, an image's windows as columns of a matrix, and its product
//! with the filters (PyTorch, `slow_conv2d`; kernel by kernel as the recorded runs without cuDNN have them).

use super::step::Emitter;
use super::tape::Columns;
use crate::program::Piece;

/// Sample `s` of a tensor of `samples`.
fn sample(whole: Piece, s: u64, samples: u64) -> Piece {
    let bytes = whole.2 / samples;
    Piece(whole.0, whole.1 + s * bytes, bytes)
}

/// `reads`: images, filters, perhaps a bias. The output starts as the bias, or zeros; products are added.
pub(super) fn forward(emitter: &mut Emitter<'_>, columns: Columns, reads: &[Piece], y: Piece, flops: u64) {
    let (x, filters) = (reads[0], reads[1]);
    let buffer = (!columns.pointwise).then(|| emitter.alloc(columns.bytes));
    match reads.get(2) {
        Some(bias) => emitter.kernel("convolution:bias", vec![*bias], vec![y], 0, 1),
        None => emitter.kernel("convolution:fill", Vec::new(), vec![y], 0, 1),
    }
    for s in 0..columns.samples {
        let (image, out) = (sample(x, s, columns.samples), sample(y, s, columns.samples));
        let matrix = buffer.map_or(image, |buffer| {
            let matrix = emitter.whole(buffer);
            emitter.kernel("convolution:im2col", vec![image], vec![matrix], 0, 1);
            matrix
        });
        let flops = flops / columns.samples;
        emitter.kernel(
            "convolution:gemm",
            vec![matrix, filters, out],
            vec![out],
            flops,
            1,
        );
    }
    if let Some(buffer) = buffer {
        emitter.free(buffer);
    }
}

/// `reads`: gradient of the output, images, filters. `writes`: gradient of the images if they have one, of
/// the filters, of the bias if there is one.
pub(super) fn backward(
    emitter: &mut Emitter<'_>,
    columns: Columns,
    reads: &[Piece],
    (images, writes): (bool, &[Piece]),
    flops: u64,
) {
    let [grad, x, filters] = *reads else { return };
    let (grad_x, rest) = writes.split_at(usize::from(images));
    let [grad_filters, grad_bias @ ..] = rest else {
        return;
    };
    let n = columns.samples;
    let flops = flops / (1 + u64::from(images)) / n;
    let buffer = emitter.alloc(columns.bytes);
    let matrix = emitter.whole(buffer);
    if let [grad_x] = grad_x {
        for s in 0..n {
            let (out, image) = (sample(grad, s, n), sample(*grad_x, s, n));
            emitter.kernel(
                "convolution_backward:gemm",
                vec![out, filters],
                vec![matrix],
                flops,
                1,
            );
            emitter.kernel("convolution_backward:col2im", vec![matrix], vec![image], 0, 1);
        }
    }
    if let [grad_bias] = grad_bias {
        emitter.kernel("convolution_backward:sum", vec![grad], vec![*grad_bias], 0, 1);
    }
    let filters = *grad_filters;
    emitter.kernel("convolution_backward:fill", Vec::new(), vec![filters], 0, 1);
    for s in 0..n {
        let (image, out) = (sample(x, s, n), sample(grad, s, n));
        let factor = if columns.pointwise {
            image
        } else {
            emitter.kernel("convolution_backward:im2col", vec![image], vec![matrix], 0, 1);
            matrix
        };
        let reads = vec![factor, out, filters];
        emitter.kernel("convolution_backward:gemm", reads, vec![filters], flops, 1);
    }
    emitter.free(buffer);
}
