//! What is asked of a model generator.

use crate::math::Math;
use std::str::FromStr;

use thiserror::Error;

/// Number format of matrix products and activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single precision.
    #[default]
    Fp32,
    /// Single precision in memory, TF32 in tensor cores.
    Tf32,
    /// Autocast to bfloat16.
    Bf16,
    /// Autocast to float16.
    Fp16,
}

/// Who updates the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// Plain SGD: no state.
    Sgd,
    /// SGD with momentum: one state tensor per parameter.
    Momentum,
    /// Adam: two.
    Adam,
    /// Adam with decoupled weight decay.
    AdamW,
}

/// How an optimizer runs over the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Implementation {
    /// Lists of tensors, one op after another, with temporaries.
    #[default]
    Foreach,
    /// One kernel, without temporaries.
    Fused,
}

/// How convolutions run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Convolution {
    /// As one implicit product over the batch (cuDNN).
    #[default]
    Implicit,
    /// Sample by sample: the image's columns, then their product with the filters (PyTorch without cuDNN).
    Native,
}

/// How attention runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attention {
    /// As one kernel that keeps no scores.
    #[default]
    Fused,
    /// Scores, mask, softmax and dropout as tensors between two batched products.
    Eager,
}

/// What a loss compares with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Targets {
    /// The number of the right class.
    #[default]
    Indices,
    /// A probability of each class.
    Probabilities,
}

/// How the layers of a model are written. What a model has no use for is refused if it is not the default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // independent choices, each a key
pub struct Style {
    /// Convolutions.
    pub convolution: Convolution,
    /// Attention.
    pub attention: Attention,
    /// Layer norm and GELU composed of element-wise ops.
    pub composed: bool,
    /// Dropout acts.
    pub dropout: bool,
    /// What the loss compares with.
    pub targets: Targets,
    /// Classes of images; a thousand if absent.
    pub classes: Option<u64>,
    /// Rectifiers work in place.
    pub relu_inplace: bool,
    /// The convolutions of residual blocks have a bias before their batch norm.
    pub conv_bias: bool,
    /// Residual blocks copy their input for the shortcut.
    pub shortcut_clone: bool,
    /// A further gradient of a value is added into the first one's memory if nothing else holds it, as
    /// PyTorch does; a recorder that holds references makes it take new memory.
    pub adds_in_place: bool,
}

impl Default for Style {
    fn default() -> Style {
        Style {
            convolution: Convolution::Implicit,
            attention: Attention::Fused,
            composed: false,
            dropout: true,
            targets: Targets::Indices,
            classes: None,
            relu_inplace: true,
            conv_bias: false,
            shortcut_clone: false,
            adds_in_place: true,
        }
    }
}

/// What is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// Forward, backward, optimizer.
    #[default]
    Training,
    /// The prompt, then one token after another, with a key-value cache.
    Inference,
}

/// When gradients are given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroGrad {
    /// After the optimizer.
    #[default]
    AfterStep,
    /// Between forward and backward, so that old gradients live through the forward pass.
    BeforeBackward,
}

impl Precision {
    /// Arithmetic of the products.
    pub const fn math(self) -> Math {
        match self {
            Precision::Fp32 => Math::Fp32,
            Precision::Tf32 => Math::Tf32,
            Precision::Bf16 => Math::Bf16,
            Precision::Fp16 => Math::Fp16,
        }
    }

    /// Two bytes an element in matrix products?
    pub const fn is_half(self) -> bool {
        matches!(self, Precision::Bf16 | Precision::Fp16)
    }
}

macro_rules! named {
    ($ty:ty { $($name:literal => $value:expr),+ $(,)? }) => {
        impl $ty {
            /// Names in configurations.
            pub const NAMES: &'static [&'static str] = &[$($name),+];
        }

        impl FromStr for $ty {
            type Err = ();
            fn from_str(text: &str) -> Result<Self, ()> {
                match text {
                    $($name => Ok($value),)+
                    _ => Err(()),
                }
            }
        }
    };
}

named!(Precision { "fp32" => Precision::Fp32, "tf32" => Precision::Tf32, "bf16" => Precision::Bf16, "fp16" => Precision::Fp16 });
named!(Optimizer { "sgd" => Optimizer::Sgd, "momentum" => Optimizer::Momentum, "adam" => Optimizer::Adam, "adamw" => Optimizer::AdamW });
named!(Implementation { "foreach" => Implementation::Foreach, "fused" => Implementation::Fused });
named!(Convolution { "implicit" => Convolution::Implicit, "native" => Convolution::Native });
named!(Attention { "fused" => Attention::Fused, "eager" => Attention::Eager });
named!(Targets { "indices" => Targets::Indices, "probabilities" => Targets::Probabilities });
named!(Task { "training" => Task::Training, "inference" => Task::Inference });
named!(ZeroGrad { "after-step" => ZeroGrad::AfterStep, "before-backward" => ZeroGrad::BeforeBackward });

/// A model and how it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// Its name, one of [`super::CATALOG`].
    pub name: String,
    /// Samples of a step.
    pub batch: u64,
    /// Tokens of a sequence (of the prompt, in inference); the model's own default if absent.
    pub sequence: Option<u64>,
    /// Tokens of a sequence in each iteration, instead of one length for all; the last ones go on.
    pub sequences: Vec<u64>,
    /// Height and width of an image; the model's own default if absent.
    pub image: Option<u64>,
    /// Number format.
    pub precision: Precision,
    /// Optimizer; the model's usual one if absent.
    pub optimizer: Option<Optimizer>,
    /// How it runs.
    pub implementation: Implementation,
    /// Recompute activations in the backward pass.
    pub checkpointing: bool,
    /// Steps whose gradients are added up before the optimizer runs.
    pub accumulation: u32,
    /// When gradients go.
    pub zero_grad: ZeroGrad,
    /// Training or inference.
    pub task: Task,
    /// Tokens generated in inference.
    pub tokens: u32,
    /// Iterations of the program.
    pub iterations: u32,
    /// How its layers are written.
    pub style: Style,
}

impl ModelSpec {
    /// A model with defaults: one training step at a time, batch 8, single precision.
    pub fn new(name: &str) -> ModelSpec {
        ModelSpec {
            name: name.to_owned(),
            batch: 8,
            sequence: None,
            sequences: Vec::new(),
            image: None,
            precision: Precision::Fp32,
            optimizer: None,
            implementation: Implementation::Foreach,
            checkpointing: false,
            accumulation: 1,
            zero_grad: ZeroGrad::AfterStep,
            task: Task::Training,
            tokens: 8,
            iterations: 3,
            style: Style::default(),
        }
    }
}

/// A model that cannot be generated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelError {
    /// No such model.
    #[error("workload.model = {name:?} is not known; accepted: {accepted}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// All names.
        accepted: String,
    },
    /// A parameter that this model cannot have.
    #[error("workload.{key} = {value}: {model} accepts {accepted}")]
    Parameter {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// The model.
        model: String,
        /// What it accepts.
        accepted: String,
    },
}
