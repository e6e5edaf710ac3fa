//! `[workload]` keys of built-in deep-learning models.

use crate::config::schema::section;
use crate::config::value::Kind;

section! {
    /// A built-in model and how it is run.
    ModelSection {
        /// A built-in deep-learning model, instead of a program or a kernel; `uvmsim workload` lists them.
        model ("workload.model", "none"): Option<String> = Kind::Choice(super::super::MODELS);
        /// Samples of a step.
        batch_size ("workload.batch_size"): u64 = Kind::Int { min: 1, max: 1 << 20 };
        /// Tokens of a sequence; of the prompt, in inference.
        sequence ("workload.sequence", "default"): Option<u64> = Kind::Int { min: 1, max: 1 << 20 };
        /// Tokens of a sequence in each iteration, as `"470, 509, 506"`, instead of one length for all.
        sequences ("workload.sequences", "none"): Option<String> = Kind::Text;
        /// Height and width of an image, pixels.
        image ("workload.image", "default"): Option<u64> = Kind::Int { min: 1, max: 4096 };
        /// Number format: single precision, TF32 in matrix products, or autocast to bfloat16 or float16.
        precision ("workload.precision"): String = Kind::Choice(&["fp32", "tf32", "bf16", "fp16"]);
        /// Optimizer; `default`: the model's usual one.
        optimizer ("workload.optimizer", "default"): Option<String> =
            Kind::Choice(&["sgd", "momentum", "adam", "adamw"]);
        /// How the optimizer runs: lists of tensors op by op with temporaries, or one fused kernel.
        optimizer_kernels ("workload.optimizer_kernels"): String = Kind::Choice(&["foreach", "fused"]);
        /// Recompute activations in the backward pass instead of keeping them (transformers).
        checkpointing ("workload.checkpointing"): bool = Kind::Bool;
        /// Steps whose gradients are added up before the optimizer runs.
        accumulation ("workload.accumulation"): u32 = Kind::Int { min: 1, max: 1024 };
        /// When gradients are given up: after the optimizer, or between forward and backward.
        zero_grad ("workload.zero_grad"): String = Kind::Choice(&["after-step", "before-backward"]);
        /// Training, or generating text with a key-value cache.
        task ("workload.task"): String = Kind::Choice(&["training", "inference"]);
        /// Tokens generated for each prompt, in inference.
        tokens ("workload.tokens"): u32 = Kind::Int { min: 0, max: 4096 };
        /// Convolutions as one implicit product (cuDNN), or sample by sample over a buffer of columns (PyTorch
        /// without cuDNN).
        convolution ("workload.convolution"): String = Kind::Choice(&["implicit", "native"]);
        /// Attention as one kernel, or with its scores as tensors.
        attention ("workload.attention"): String = Kind::Choice(&["fused", "eager"]);
        /// Layer norm and GELU composed of element-wise ops.
        composed ("workload.composed"): bool = Kind::Bool;
        /// Does dropout act?
        dropout ("workload.dropout"): bool = Kind::Bool;
        /// What the loss of images compares with: numbers of classes, or probabilities.
        targets ("workload.targets"): String = Kind::Choice(&["indices", "probabilities"]);
        /// Classes of images.
        classes ("workload.classes", "default"): Option<u64> = Kind::Int { min: 2, max: 1 << 24 };
        /// Do rectifiers work in place?
        relu_inplace ("workload.relu_inplace"): bool = Kind::Bool;
        /// Have the convolutions of residual blocks a bias?
        conv_bias ("workload.conv_bias"): bool = Kind::Bool;
        /// Do residual blocks copy their input for the shortcut?
        shortcut_clone ("workload.shortcut_clone"): bool = Kind::Bool;
    }
}
