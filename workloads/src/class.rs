//! Which kind of kernel an op of a trace is: by its name, in one table.

/// How a kernel walks over its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// All operands in step, ascending.
    ElementWise,
    /// Streams its input, writes little.
    Reduction,
    /// Rows: softmax, normalisation, attention in tiles.
    RowWise,
    /// A matrix product.
    Gemm,
    /// Column buffers of convolutions.
    Im2Col,
    /// A whole convolution as one implicit product: images in, images out, in step, the filters with them.
    Convolution,
    /// Pooling and other windows.
    Window,
    /// Rows picked from a table.
    Gather,
    /// Chunked lists of tensors.
    Optimizer,
    /// Writes a constant.
    Fill,
    /// Moves bytes.
    Copy,
    /// Not in the table: streams all its ranges in step, and is counted.
    Unknown,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 12] = [
        Class::Gemm,
        Class::Convolution,
        Class::Im2Col,
        Class::ElementWise,
        Class::RowWise,
        Class::Reduction,
        Class::Window,
        Class::Gather,
        Class::Optimizer,
        Class::Fill,
        Class::Copy,
        Class::Unknown,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Gemm => "matrix product",
            Class::Convolution => "convolution",
            Class::Im2Col => "column buffers",
            Class::ElementWise => "element-wise",
            Class::RowWise => "row-wise",
            Class::Reduction => "reduction",
            Class::Window => "window",
            Class::Gather => "gather",
            Class::Optimizer => "optimizer",
            Class::Fill => "fill",
            Class::Copy => "copy",
            Class::Unknown => "unknown",
        }
    }
}

/// Names (aten ops, without in-place underscores) by class.
const NAMES: &[(Class, &[&str])] = &[
    (
        Class::Gemm,
        &[
            "mm",
            "bmm",
            "addmm",
            "baddbmm",
            "linear",
            "matmul",
            "einsum",
            "bmm_out",
            "addbmm",
            "_scaled_mm",
            "convolution:gemm",
            "convolution_backward:gemm",
        ],
    ),
    (
        Class::Convolution,
        &[
            "convolution",
            "convolution_backward",
            "cudnn_convolution",
            "cudnn_convolution_transpose",
            "convolution_overrideable",
            "convolution_backward_overrideable",
        ],
    ),
    (
        Class::Im2Col,
        &[
            "convolution:im2col",
            "convolution:col2im",
            "convolution_backward:im2col",
            "convolution_backward:col2im",
        ],
    ),
    (
        Class::Gather,
        &[
            "spmm",
            "index_put",
            "embedding",
            "embedding_dense_backward",
            "nll_loss_forward",
            "nll_loss_backward",
            "gather",
            "index",
            "index_select",
            "index_add",
            "scatter_add",
            "_embedding_bag",
            "_embedding_bag_dense_backward",
        ],
    ),
    (
        Class::Reduction,
        &[
            "binary_cross_entropy",
            "sum",
            "mean",
            "std",
            "var",
            "max",
            "min",
            "argmax",
            "norm",
            "linalg_vector_norm",
            "amax",
            "amin",
            "prod",
            "cumsum",
            "argmin",
            "any",
            "all",
            "logsumexp",
            "convolution_backward:sum",
        ],
    ),
    (
        Class::RowWise,
        &[
            "_softmax",
            "_log_softmax",
            "_softmax_backward_data",
            "_log_softmax_backward_data",
            "native_layer_norm",
            "native_layer_norm_backward",
            "native_batch_norm",
            "native_batch_norm_backward",
            "cudnn_batch_norm",
            "cudnn_batch_norm_backward",
            "native_group_norm",
            "native_group_norm_backward",
            "_fused_rms_norm",
            "_safe_softmax",
            "log_softmax",
            "softmax",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_cudnn_attention_backward",
            "_flash_attention_forward",
            "_flash_attention_backward",
            "_efficient_attention_forward",
            "_efficient_attention_backward",
        ],
    ),
    (
        Class::Window,
        &[
            "max_pool2d_with_indices",
            "max_pool2d_with_indices_backward",
            "avg_pool2d",
            "avg_pool2d_backward",
            "_adaptive_avg_pool2d",
            "_adaptive_avg_pool2d_backward",
        ],
    ),
    (
        Class::Fill,
        &[
            "ones",
            "new_ones",
            "scalar_tensor",
            "new_zeros",
            "zeros",
            "zeros_like",
            "ones_like",
            "fill",
            "zero",
            "full",
            "arange",
            "convolution:fill",
            "convolution_backward:fill",
        ],
    ),
    (
        Class::Copy,
        &[
            "slice_backward",
            "constant_pad_nd",
            "select_backward",
            "clone",
            "copy",
            "_to_copy",
            "cat",
            "stack",
            "repeat",
            "contiguous",
        ],
    ),
    (
        Class::ElementWise,
        &[
            "rsqrt_backward",
            "binary_cross_entropy_backward",
            "add",
            "sub",
            "rsub",
            "mul",
            "div",
            "neg",
            "pow",
            "sqrt",
            "rsqrt",
            "exp",
            "log",
            "tanh",
            "tanh_backward",
            "sigmoid",
            "gelu",
            "gelu_backward",
            "silu",
            "relu",
            "threshold_backward",
            "native_dropout",
            "native_dropout_backward",
            "masked_fill",
            "eq",
            "ne",
            "gt",
            "lt",
            "ge",
            "le",
            "where",
            "lerp",
            "addcmul",
            "addcdiv",
            "convolution:bias",
            "clamp",
            "abs",
            "bernoulli",
            "hardtanh",
            "hardtanh_backward",
            "leaky_relu",
            "sigmoid_backward",
            "silu_backward",
            "mse_loss",
            "mse_loss_backward",
            "binary_cross_entropy_with_logits",
            "tril",
            "triu",
            "cos",
            "sin",
            "reciprocal",
            "square",
            "maximum",
            "minimum",
            "floor_divide",
            "bitwise_and",
            "logical_not",
        ],
    ),
];

/// The class of an op.
pub fn class_of(name: &str) -> Class {
    if name.starts_with("_foreach_") || name.starts_with("_fused_") {
        return Class::Optimizer;
    }
    let plain = name.strip_prefix("aten::").unwrap_or(name);
    let plain = if plain.starts_with('_') {
        plain
    } else {
        plain.trim_end_matches('_')
    };
    NAMES
        .iter()
        .find(|(_, names)| names.contains(&plain))
        .map_or(Class::Unknown, |(class, _)| *class)
}

/// Are the FLOPs of an op products of matrices, which libraries run on matrix units where the type allows?
pub fn multiplies(name: &str) -> bool {
    matches!(class_of(name), Class::Gemm | Class::Convolution) || name.contains("_attention")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        assert_eq!(class_of("add_"), Class::ElementWise);
        assert_eq!(class_of("aten::mm"), Class::Gemm);
        assert_eq!(class_of("_foreach_addcdiv_"), Class::Optimizer);
        assert_eq!(class_of("_softmax"), Class::RowWise);
        assert_eq!(class_of("my_fancy_kernel"), Class::Unknown);
        assert!(multiplies("aten::addmm") && multiplies("_scaled_dot_product_flash_attention_backward"));
        assert!(!multiplies("mul") && !multiplies("_softmax"));
    }
}
