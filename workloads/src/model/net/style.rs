//! How the layers of a model are written: what it asked for, and what it has no use for.

use super::super::spec::{Attention, Convolution, Targets};
use super::super::tape::{Tape, Var};
use super::Net;

/// Classes of `ImageNet`.
const IMAGENET_CLASSES: u64 = 1000;

/// Parts of the style that a model has asked for.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // one for each part
pub(super) struct Used {
    pub convolution: bool,
    pub attention: bool,
    pub composed: bool,
    pub dropout: bool,
    pub targets: bool,
    pub classes: bool,
    pub relu: bool,
    pub residual: bool,
}

/// A part of the style that a model has no use for: key, value, what is accepted.
type Unused = (&'static str, String, &'static str);

impl Net {
    /// The recorded pass.
    ///
    /// # Errors
    /// A part of the style that is not the default, and that the model has no use for.
    pub fn finish(self) -> Result<Tape, Unused> {
        let (style, used) = (&self.style, self.used);
        let native = style.convolution == Convolution::Native;
        let eager = style.attention == Attention::Eager;
        let probabilities = style.targets == Targets::Probabilities;
        let classes = style.classes.map(|n| n.to_string()).unwrap_or_default();
        let residual = "false: it has no residual blocks of convolutions";
        // Key, is it set, has it been asked for, value, accepted.
        let parts = [
            (
                "convolution",
                native,
                used.convolution,
                "native",
                "implicit: it has no convolutions",
            ),
            (
                "attention",
                eager,
                used.attention,
                "eager",
                "fused: it has no attention",
            ),
            (
                "composed",
                style.composed,
                used.composed,
                "true",
                "false: it has no layer norm and no GELU",
            ),
            (
                "dropout",
                !style.dropout,
                used.dropout,
                "false",
                "true: it has no dropout that acts",
            ),
            (
                "targets",
                probabilities,
                used.targets,
                "probabilities",
                "indices: it has no cross entropy",
            ),
            (
                "classes",
                style.classes.is_some(),
                used.classes,
                &classes,
                "default: it does not classify images",
            ),
            (
                "relu_inplace",
                !style.relu_inplace,
                used.relu,
                "false",
                "true: it has no rectifiers that work in place",
            ),
            ("conv_bias", style.conv_bias, used.residual, "true", residual),
            (
                "shortcut_clone",
                style.shortcut_clone,
                used.residual,
                "true",
                residual,
            ),
        ];
        match parts.iter().find(|(_, set, used, _, _)| *set && !used) {
            Some((key, _, _, value, accepted)) => Err((key, (*value).to_owned(), accepted)),
            None => Ok(self.tape),
        }
    }

    /// Do convolutions run over columns?
    pub(super) fn native_convolution(&mut self) -> bool {
        self.used.convolution = true;
        self.native()
    }

    /// Is it PyTorch without cuDNN?
    pub(super) fn native(&self) -> bool {
        self.style.convolution == Convolution::Native
    }

    /// Do attention's scores exist as tensors?
    pub fn eager(&mut self) -> bool {
        self.used.attention = true;
        self.style.attention == Attention::Eager
    }

    /// Are layer norm and GELU composed of element-wise ops?
    pub fn composed(&mut self) -> bool {
        self.used.composed = true;
        self.style.composed
    }

    /// Does dropout act?
    pub(super) fn drops(&mut self) -> bool {
        self.used.dropout |= self.training;
        self.training && self.style.dropout
    }

    /// Does the loss compare with probabilities?
    pub fn probabilities(&mut self) -> bool {
        self.used.targets = true;
        self.style.targets == Targets::Probabilities
    }

    /// Classes of images.
    pub fn classes(&mut self) -> u64 {
        self.used.classes = true;
        self.style.classes.unwrap_or(IMAGENET_CLASSES)
    }

    /// Do rectifiers work in place?
    pub(super) fn relu_in_place(&mut self) -> bool {
        self.used.relu = true;
        self.style.relu_inplace
    }

    /// Are residual blocks' convolutions biased?
    pub fn conv_bias(&mut self) -> bool {
        self.used.residual = true;
        self.style.conv_bias
    }

    /// What a residual block adds in the end: its input, or a copy of it.
    pub fn shortcut(&mut self, x: Var) -> Var {
        self.used.residual = true;
        if self.style.shortcut_clone {
            let shape = self.shape(x);
            self.memory_copy(x, &shape)
        } else {
            x
        }
    }
}
