//! What is known of ops by their names: element sizes, views, in-place ops, floating point operations.

/// Bytes of an element by the name of its type in profiles and execution traces.
pub(super) fn element_bytes(name: &str) -> u64 {
    match name.trim_start_matches("c10::") {
        "double" | "long" | "long int" | "Long" | "Double" | "complex<float>" | "ComplexFloat" | "int64" => 8,
        "Half" | "BFloat16" | "short" | "short int" | "Short" | "half" | "bfloat16" => 2,
        "bool" | "Bool" | "signed char" | "unsigned char" | "Char" | "Byte" | "Float8_e4m3fn"
        | "Float8_e5m2" => 1,
        "complex<double>" | "ComplexDouble" => 16,
        _ => 4,
    }
}

/// Ops that only make another view of a tensor: they launch nothing.
pub(super) fn is_view(name: &str) -> bool {
    matches!(
        name.strip_prefix("aten::").unwrap_or(name),
        "view"
            | "t"
            | "transpose"
            | "permute"
            | "expand"
            | "as_strided"
            | "slice"
            | "select"
            | "detach"
            | "detach_"
            | "alias"
            | "unsqueeze"
            | "squeeze"
            | "_unsafe_view"
            | "_reshape_alias"
            | "split"
            | "chunk"
            | "unbind"
            | "narrow"
            | "reshape"
            | "flatten"
            | "set_"
            | "is_pinned"
            | "resize_"
            | "lift_fresh"
            | "result_type"
    )
}

/// Does the op write its first input (or, for lists, all of them)?
pub(super) fn is_in_place(name: &str) -> bool {
    let plain = name.strip_prefix("aten::").unwrap_or(name);
    (plain.ends_with('_') && !plain.ends_with("__")) || plain.starts_with("_fused_")
}

/// Floating point operations of a matrix product by the dimensions of its inputs; 0 for other ops.
pub(super) fn flops(name: &str, dims: &[Vec<u64>]) -> u64 {
    let product = |list: &[u64]| list.iter().fold(1_u64, |all, n| all.saturating_mul(*n));
    let of = |a: &[u64], b: &[u64]| -> u64 {
        // [.., m, k] times [.., k, n].
        match (a, b) {
            ([.., k], [.., k2, n]) if k == k2 => product(a).saturating_mul(*n).saturating_mul(2),
            _ => 0,
        }
    };
    let plain = name.strip_prefix("aten::").unwrap_or(name);
    match (plain, dims) {
        ("mm" | "bmm" | "matmul", [a, b, ..]) | ("addmm" | "baddbmm", [_, a, b, ..]) => of(a, b),
        ("linear", [a, b, ..]) => match (a.as_slice(), b.as_slice()) {
            ([.., k], [n, k2]) if k == k2 => product(a).saturating_mul(*n).saturating_mul(2),
            _ => 0,
        },
        _ => 0,
    }
}

/// Dimensions of what an op makes anew, by its name, the dimensions of its inputs (an empty list where it has
/// no tensor), and the lists of numbers among its arguments, by place (strides, paddings); nothing where
/// that is not known or all of it is written in place.
///
/// Rules: the operators' documentation (PyTorch, `torch` and `torch.nn.functional`).
pub(super) fn outputs(name: &str, inputs: &[Vec<u64>], lists: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let plain = name.strip_prefix("aten::").unwrap_or(name);
    let input = |at: usize| inputs.get(at).filter(|dims| !dims.is_empty());
    let same = |at: usize| input(at).cloned().into_iter().collect::<Vec<_>>();
    let product = |a: usize, b: usize| match (input(a).map(Vec::as_slice), input(b).map(Vec::as_slice)) {
        (Some([batch @ .., m, k]), Some([.., k2, n])) if k == k2 => vec![[batch, &[*m, *n]].concat()],
        _ => Vec::new(),
    };
    match plain {
        "mm" | "bmm" | "matmul" => product(0, 1),
        "addmm" | "baddbmm" => product(1, 2),
        "linear" => match (input(0).map(Vec::as_slice), input(1).map(Vec::as_slice)) {
            (Some([batch @ .., _]), Some([n, _])) => vec![[batch, &[*n]].concat()],
            _ => Vec::new(),
        },
        "embedding" => match (input(0).map(Vec::as_slice), input(1)) {
            (Some([_, width]), Some(indices)) => vec![[indices.as_slice(), &[*width]].concat()],
            _ => Vec::new(),
        },
        "add" | "sub" | "mul" | "div" | "where" | "maximum" | "minimum" | "pow" | "relu" | "gelu"
        | "silu" | "sigmoid" | "tanh" | "exp" | "log" | "sqrt" | "rsqrt" | "neg" | "abs" | "clamp"
        | "clamp_min" | "hardtanh" | "leaky_relu" | "elu" | "softplus" | "clone" | "contiguous" | "to"
        | "_to_copy" | "masked_fill" | "eq" | "ne" | "lt" | "gt" | "le" | "ge" | "dropout" | "addcmul"
        | "addcdiv" | "lerp" | "zeros_like" | "ones_like" | "empty_like" | "full_like" | "tril" | "triu"
        | "cos" | "sin" | "threshold_backward" | "gelu_backward" | "silu_backward" | "tanh_backward"
        | "sigmoid_backward" | "hardtanh_backward" => broadcast(inputs).into_iter().collect(),
        "_softmax"
        | "_log_softmax"
        | "softmax"
        | "log_softmax"
        | "cumsum"
        | "flip"
        | "roll"
        | "_softmax_backward_data"
        | "_log_softmax_backward_data"
        | "native_layer_norm"
        | "native_batch_norm"
        | "cudnn_batch_norm"
        | "native_group_norm"
        | "batch_norm"
        | "layer_norm"
        | "_scaled_dot_product_flash_attention"
        | "_scaled_dot_product_efficient_attention"
        | "_flash_attention_forward"
        | "_efficient_attention_forward" => same(0),
        "native_dropout" | "_fused_dropout" => [same(0), same(0)].concat(),
        "native_layer_norm_backward"
        | "native_batch_norm_backward"
        | "cudnn_batch_norm_backward"
        | "max_pool2d_with_indices_backward"
        | "avg_pool2d_backward"
        | "_adaptive_avg_pool2d_backward"
        | "embedding_renorm" => {
            // Gradient of the input, then of the weights; `cudnn_batch_norm_backward` has the input first.
            let at = usize::from(plain != "cudnn_batch_norm_backward");
            same(at)
        }
        "convolution_backward" => [same(1), same(2)].concat(),
        "cudnn_convolution" | "cudnn_convolution_relu" => convolution(inputs, lists, 3, 2, 4),
        "convolution"
        | "_convolution"
        | "conv1d"
        | "conv2d"
        | "conv3d"
        | "cudnn_convolution_add_relu"
        | "convolution_overrideable"
        | "miopen_convolution" => convolution(inputs, lists, 3, 4, 5),
        _ => Vec::new(),
    }
}

/// The common dimensions of tensors whose dimensions are equal or 1 from the last on.
fn broadcast(inputs: &[Vec<u64>]) -> Option<Vec<u64>> {
    let mut all: Vec<u64> = Vec::new();
    for dims in inputs.iter().filter(|dims| !dims.is_empty()) {
        let rank = all.len().max(dims.len());
        let of = |dims: &[u64], at: usize| (at + dims.len()).checked_sub(rank).map_or(1, |place| dims[place]);
        let merged = (0..rank).map(|at| match (of(&all, at), of(dims, at)) {
            (a, 1) => Some(a),
            (1, b) => Some(b),
            (a, b) => (a == b).then_some(a),
        });
        all = merged.collect::<Option<_>>()?;
    }
    (!all.is_empty()).then_some(all)
}

/// Of a convolution whose strides, paddings and dilations are arguments number `stride`, `padding`, `dilation`.
fn convolution(
    inputs: &[Vec<u64>],
    lists: &[Vec<u64>],
    stride: usize,
    padding: usize,
    dilation: usize,
) -> Vec<Vec<u64>> {
    let (Some([n, _, space @ ..]), Some([out, _, window @ ..])) = (
        inputs.first().map(Vec::as_slice),
        inputs.get(1).map(Vec::as_slice),
    ) else {
        return Vec::new();
    };
    let argument = |place: usize, axis: usize| {
        let list = lists.get(place).filter(|list| !list.is_empty())?;
        // One number stands for all axes.
        list.get(axis).or(list.first()).copied()
    };
    let axis = |at: usize| {
        let reach = argument(dilation, at)?
            .checked_mul(window[at].checked_sub(1)?)?
            .checked_add(1)?;
        let padded = argument(padding, at)?.checked_mul(2)?.checked_add(space[at])?;
        let windows = padded.checked_sub(reach)?.checked_div(argument(stride, at)?)?;
        windows.checked_add(1)
    };
    if space.len() != window.len() {
        return Vec::new();
    }
    let space: Option<Vec<u64>> = (0..space.len()).map(axis).collect();
    space
        .map(|space| [&[*n, *out], space.as_slice()].concat())
        .into_iter()
        .collect()
}

/// Bytes of a tensor of these dimensions; none if it is no tensor or absurd.
pub(super) fn bytes(dims: &[u64], element: u64) -> Option<u64> {
    if dims.is_empty() {
        return None;
    }
    let mut bytes = element;
    for n in dims {
        bytes = bytes.checked_mul(*n)?;
    }
    (bytes > 0 && bytes < 1 << 50).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ops_make() {
        let dims = |list: &[&[u64]]| list.iter().map(|d| d.to_vec()).collect::<Vec<_>>();
        let of = |name: &str, inputs: &[&[u64]], lists: &[&[u64]]| {
            outputs(&format!("aten::{name}"), &dims(inputs), &dims(lists))
        };
        assert_eq!(of("addmm", &[&[5], &[2, 3], &[3, 5]], &[]), [[2, 5]]);
        assert_eq!(of("bmm", &[&[4, 2, 3], &[4, 3, 5]], &[]), [[4, 2, 5]]);
        assert_eq!(of("linear", &[&[7, 2, 3], &[5, 3], &[5]], &[]), [[7, 2, 5]]);
        assert_eq!(of("add", &[&[4, 1, 3], &[2, 1], &[]], &[]), [[4, 2, 3]]);
        assert_eq!(of("embedding", &[&[1000, 16], &[8, 32]], &[]), [[8, 32, 16]]);
        assert_eq!(of("native_dropout", &[&[8]], &[]), [[8], [8]]);
        assert!(
            of("add", &[&[4], &[3]], &[]).is_empty() && of("nll_loss_forward", &[&[4, 3]], &[]).is_empty()
        );
        // The first layers of ResNet-50 and of AlexNet.
        let arguments: [&[u64]; 6] = [&[], &[], &[], &[2, 2], &[3, 3], &[1, 1]];
        let first: [&[u64]; 2] = [&[32, 3, 224, 224], &[64, 3, 7, 7]];
        assert_eq!(of("convolution", &first, &arguments), [[32, 64, 112, 112]]);
        let arguments: [&[u64]; 5] = [&[], &[], &[2, 2], &[4, 4], &[1, 1]];
        let first: [&[u64]; 2] = [&[8, 3, 224, 224], &[64, 3, 11, 11]];
        assert_eq!(of("cudnn_convolution", &first, &arguments), [[8, 64, 55, 55]]);
        assert!(of("convolution", &first, &[]).is_empty());
    }

    #[test]
    fn products() {
        let dims = |list: &[&[u64]]| list.iter().map(|d| d.to_vec()).collect::<Vec<_>>();
        assert_eq!(flops("aten::mm", &dims(&[&[2, 3], &[3, 5]])), 60);
        assert_eq!(flops("aten::addmm", &dims(&[&[5], &[2, 3], &[3, 5]])), 60);
        assert_eq!(flops("aten::bmm", &dims(&[&[4, 2, 3], &[4, 3, 5]])), 240);
        assert_eq!(flops("aten::linear", &dims(&[&[4, 2, 3], &[5, 3]])), 240);
        assert_eq!(flops("aten::mm", &dims(&[&[2, 3], &[4, 5]])), 0);
        assert!(is_in_place("aten::add_") && !is_in_place("aten::add") && !is_in_place("aten::__and__"));
        assert_eq!(bytes(&[2, 3], 4), Some(24));
        assert_eq!(bytes(&[u64::MAX, 3], 4), None);
    }
}
