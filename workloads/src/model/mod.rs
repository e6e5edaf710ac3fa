//! Built-in deep-learning models: training steps and inference, generated op by op.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`spec`] | what is asked for: model, batch, precision, optimizer, ... |
//! | [`tape`] | a recorded forward pass with the rule of each op's backward |
//! | `net` | the layers that models are written in |
//! | `cnn`, `transformer`, `sparse` | the models |
//! | `native` | convolutions without cuDNN |
//! | `step` | lifetimes, backward pass, recomputation: from the recorded pass to a program |
//! | `optimizer` | optimizer steps |
//!
//! Parameter counts and the forward ops (shapes, bytes, FLOPs) of the models that this project has tables
//! of ("dl-models") equal these row by row. A matrix product of low precision costs as many FLOPs as one of
//! single precision; the GPU's rate for it is the device's business.

// Layers are written with the letters of papers: x, y, q, k, v.
#![allow(clippy::many_single_char_names)]

mod cnn;
mod native;
mod net;
mod optimizer;
mod sparse;
pub mod spec;
mod step;
pub mod tape;
mod transformer;

use net::Net;
pub use spec::{
    Attention, Convolution, Implementation, ModelError, ModelSpec, Optimizer, Precision, Style, Targets,
    Task, ZeroGrad,
};
use tape::Tape;
use transformer::{Bert, Gpt2, Whisper};

use crate::program::Program;

/// A built-in model.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub what: &'static str,
    /// Optimizer that it is usually trained with.
    pub optimizer: Optimizer,
    /// Tokens of a sequence: default and most; none for models without sequences.
    pub sequence: Option<(u64, u64)>,
    /// Side of an image: default and least.
    pub image: Option<(u64, u64)>,
    /// Can it generate text with a cache?
    pub generates: bool,
    /// Has it layers that can be checkpointed?
    pub checkpoints: bool,
}

const fn cnn(name: &'static str, what: &'static str, side: u64, least: u64) -> Entry {
    Entry {
        name,
        what,
        optimizer: Optimizer::Momentum,
        sequence: None,
        image: Some((side, least)),
        generates: false,
        checkpoints: false,
    }
}

const fn text(
    name: &'static str,
    what: &'static str,
    optimizer: Optimizer,
    sequence: (u64, u64),
    generates: bool,
) -> Entry {
    Entry {
        name,
        what,
        optimizer,
        sequence: Some(sequence),
        image: None,
        generates,
        checkpoints: true,
    }
}

/// All models.
pub const CATALOG: &[Entry] = &[
    cnn("resnet18", "ResNet-18, 11.7 M parameters", 224, 32),
    cnn("resnet50", "ResNet-50, 25.6 M parameters", 224, 32),
    cnn("resnet101", "ResNet-101, 44.5 M parameters", 224, 32),
    cnn("resnet152", "ResNet-152, 60.2 M parameters", 224, 32),
    cnn("vgg16", "VGG-16, 138.4 M parameters", 224, 32),
    cnn("alexnet", "AlexNet, 61.1 M parameters", 224, 63),
    cnn("densenet121", "DenseNet-121, 8.0 M parameters", 224, 32),
    cnn(
        "inception-v3",
        "Inception-v3 with auxiliary classifier, 27.2 M parameters",
        299,
        299,
    ),
    Entry {
        checkpoints: true,
        optimizer: Optimizer::AdamW,
        ..cnn("vit-b-16", "Vision transformer B/16, 86.6 M parameters", 224, 16)
    },
    text(
        "bert-base",
        "BERT base with pre-training heads, 110.1 M parameters",
        Optimizer::Adam,
        (512, 512),
        false,
    ),
    text(
        "bert-large",
        "BERT large with pre-training heads, 336.2 M parameters",
        Optimizer::Adam,
        (512, 512),
        false,
    ),
    text(
        "bert-encoder",
        "BERT base without heads, normalising first, 108.5 M parameters",
        Optimizer::AdamW,
        (512, 512),
        false,
    ),
    text(
        "gpt2",
        "GPT-2, 124.4 M parameters",
        Optimizer::AdamW,
        (1024, 1024),
        true,
    ),
    text(
        "gpt2-medium",
        "GPT-2 medium, 354.8 M parameters",
        Optimizer::AdamW,
        (1024, 1024),
        true,
    ),
    text(
        "gpt2-large",
        "GPT-2 large, 774.0 M parameters",
        Optimizer::AdamW,
        (1024, 1024),
        true,
    ),
    text(
        "gpt2-xl",
        "GPT-2 XL, 1557.6 M parameters",
        Optimizer::AdamW,
        (1024, 1024),
        true,
    ),
    text(
        "llama2-7b",
        "Llama 2 7B, 6738.4 M parameters",
        Optimizer::AdamW,
        (2048, 4096),
        true,
    ),
    text(
        "whisper-small",
        "encoder-decoder for speech in the style of Whisper small",
        Optimizer::AdamW,
        (448, 448),
        false,
    ),
    Entry {
        name: "dlrm",
        what: "DLRM on Criteo Kaggle, 540.7 M parameters in 26 tables",
        optimizer: Optimizer::Sgd,
        sequence: None,
        image: None,
        generates: false,
        checkpoints: false,
    },
    Entry {
        name: "gcn",
        what: "graph convolutional network of two layers; the batch is thousands of nodes",
        optimizer: Optimizer::Adam,
        sequence: None,
        image: None,
        generates: false,
        checkpoints: false,
    },
];

/// The model of this name.
pub fn entry(name: &str) -> Option<&'static Entry> {
    CATALOG.iter().find(|entry| entry.name == name)
}

/// Most samples, and tokens generated: beyond them no GPU is meant.
const MOST_BATCH: u64 = 1 << 20;
const MOST_TOKENS: u32 = 4096;
/// Most lengths of sequences, and classes.
const MOST_LENGTHS: usize = 256;
const MOST_CLASSES: u64 = 1 << 24;

impl ModelSpec {
    #[allow(clippy::needless_pass_by_value)] // values and words alike
    fn refuse(&self, key: &'static str, value: impl ToString, accepted: impl Into<String>) -> ModelError {
        ModelError::Parameter {
            key,
            value: value.to_string(),
            model: self.name.clone(),
            accepted: accepted.into(),
        }
    }

    /// Checks everything; the entry of the model.
    ///
    /// # Errors
    /// An unknown model, or a parameter that it cannot have.
    pub fn validate(&self) -> Result<&'static Entry, ModelError> {
        let entry = entry(&self.name).ok_or_else(|| ModelError::Unknown {
            name: self.name.clone(),
            accepted: CATALOG
                .iter()
                .map(|entry| entry.name)
                .collect::<Vec<_>>()
                .join(", "),
        })?;
        if self.batch == 0 || self.batch > MOST_BATCH {
            return Err(self.refuse("batch_size", self.batch, format!("1 to {MOST_BATCH}")));
        }
        match (self.sequence, entry.sequence) {
            (Some(tokens), Some((_, most))) if tokens == 0 || tokens > most => {
                return Err(self.refuse("sequence", tokens, format!("1 to {most} tokens")));
            }
            (Some(tokens), None) => return Err(self.refuse("sequence", tokens, "no sequence")),
            _ => {}
        }
        match (self.image, entry.image) {
            (Some(side), Some((_, least))) if side < least || side > 4096 => {
                return Err(self.refuse("image", side, format!("{least} to 4096 pixels")));
            }
            (Some(side), Some(_)) if self.name == "vit-b-16" && side % 16 != 0 => {
                return Err(self.refuse("image", side, "a multiple of 16"));
            }
            (Some(side), None) => return Err(self.refuse("image", side, "no images")),
            _ => {}
        }
        if !self.sequences.is_empty() {
            let lengths = || {
                self.sequences
                    .iter()
                    .map(u64::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            let Some((_, most)) = entry.sequence else {
                return Err(self.refuse("sequences", lengths(), "no sequence"));
            };
            if self.sequences.iter().any(|tokens| *tokens == 0 || *tokens > most) {
                return Err(self.refuse("sequences", lengths(), format!("1 to {most} tokens each")));
            }
            if self.sequences.len() > MOST_LENGTHS {
                return Err(self.refuse("sequences", lengths(), format!("at most {MOST_LENGTHS} lengths")));
            }
            if self.sequence.is_some() {
                return Err(self.refuse("sequences", lengths(), "none beside workload.sequence"));
            }
            if self.task == Task::Inference {
                return Err(self.refuse("sequences", lengths(), "none in inference"));
            }
        }
        if self
            .style
            .classes
            .is_some_and(|n| !(2..=MOST_CLASSES).contains(&n))
        {
            let value = self.style.classes.unwrap_or_default();
            return Err(self.refuse("classes", value, format!("2 to {MOST_CLASSES}")));
        }
        if self.checkpointing && !entry.checkpoints {
            return Err(self.refuse("checkpointing", true, "false: it has no layers to checkpoint"));
        }
        if self.task == Task::Inference {
            if !entry.generates {
                return Err(self.refuse("task", "inference", "training; GPT-2 and Llama 2 generate"));
            }
            let prompt = self.tokens_of(entry);
            let most = entry.sequence.map_or(0, |sequence| sequence.1);
            if self.tokens > MOST_TOKENS || prompt + u64::from(self.tokens) > most {
                return Err(self.refuse(
                    "tokens",
                    self.tokens,
                    format!("a prompt and generated tokens of together {most}"),
                ));
            }
        }
        if self.accumulation == 0 || self.accumulation > 1024 {
            return Err(self.refuse("accumulation", self.accumulation, "1 to 1024 steps"));
        }
        Ok(entry)
    }

    /// Reads the lengths of the iterations, as `"470, 509, 506"`; nothing means one length for all.
    ///
    /// # Errors
    /// Something else than numbers.
    pub fn read_sequences(&mut self, text: &str) -> Result<(), ModelError> {
        self.sequences = match text.trim() {
            "" => Vec::new(),
            text => text
                .split(',')
                .map(|length| length.trim().parse())
                .collect::<Result<_, _>>()
                .map_err(|_| self.refuse("sequences", text, "lengths as \"470, 509, 506\""))?,
        };
        Ok(())
    }

    fn tokens_of(&self, entry: &Entry) -> u64 {
        let default = entry.sequence.map_or(1, |sequence| sequence.0);
        // A prompt leaves room for what is generated.
        let default = if self.task == Task::Inference {
            default / 2
        } else {
            default
        };
        self.sequence.unwrap_or(default)
    }
}

/// Records the forward pass of a model.
///
/// # Errors
/// See [`ModelSpec::validate`].
pub fn forward(spec: &ModelSpec) -> Result<Tape, ModelError> {
    let entry = spec.validate()?;
    let tokens = spec.tokens_of(entry);
    let cache = (spec.task == Task::Inference).then(|| tokens + u64::from(spec.tokens));
    record(spec, entry, tokens, cache)
}

fn record(spec: &ModelSpec, entry: &Entry, tokens: u64, cache: Option<u64>) -> Result<Tape, ModelError> {
    let mut net = Net::new(spec.precision, spec.task == Task::Training, spec.style.clone());
    let net_ = &mut net;
    let batch = spec.batch;
    let side = spec.image.or(entry.image.map(|image| image.0)).unwrap_or(1);
    let save = spec.checkpointing;
    let gpt2 = |width, layers, heads| Gpt2 { width, layers, heads };
    match entry.name {
        "resnet18" => cnn::resnet(net_, batch, side, [2, 2, 2, 2], false),
        "resnet50" => cnn::resnet(net_, batch, side, [3, 4, 6, 3], true),
        "resnet101" => cnn::resnet(net_, batch, side, [3, 4, 23, 3], true),
        "resnet152" => cnn::resnet(net_, batch, side, [3, 8, 36, 3], true),
        "vgg16" => cnn::vgg16(net_, batch, side),
        "alexnet" => cnn::alexnet(net_, batch, side),
        "densenet121" => cnn::densenet121(net_, batch, side),
        "inception-v3" => cnn::inception_v3(net_, batch, side),
        "vit-b-16" => transformer::vit_b_16(net_, batch, side, save),
        "bert-base" | "bert-large" => {
            let large = entry.name == "bert-large";
            let size = Bert {
                width: if large { 1024 } else { 768 },
                layers: if large { 24 } else { 12 },
                heads: if large { 16 } else { 12 },
            };
            transformer::bert(net_, batch, tokens, size, save);
        }
        "bert-encoder" => {
            let size = Bert {
                width: 768,
                layers: 12,
                heads: 12,
            };
            transformer::bert_encoder(net_, batch, tokens, size, save);
        }
        "gpt2" => transformer::gpt2(net_, batch, tokens, gpt2(768, 12, 12), save, cache),
        "gpt2-medium" => transformer::gpt2(net_, batch, tokens, gpt2(1024, 24, 16), save, cache),
        "gpt2-large" => transformer::gpt2(net_, batch, tokens, gpt2(1280, 36, 20), save, cache),
        "gpt2-xl" => transformer::gpt2(net_, batch, tokens, gpt2(1600, 48, 25), save, cache),
        "llama2-7b" => transformer::llama2_7b(net_, batch, tokens, save, cache),
        "whisper-small" => {
            let size = Whisper {
                width: 768,
                layers: 12,
                heads: 12,
            };
            transformer::whisper(net_, batch, tokens, size, save);
        }
        "dlrm" => sparse::dlrm(net_, batch),
        _ => sparse::gcn(net_, batch * 1000),
    }
    let tape = net
        .finish()
        .map_err(|(key, value, accepted)| spec.refuse(key, value, accepted))?;
    let samples = tape.nodes.iter().filter_map(|node| node.columns);
    if samples.fold(0, |sum: u64, columns| sum.saturating_add(columns.samples)) > MOST_NATIVE {
        let accepted = format!("fewer samples with native convolutions: {MOST_NATIVE} products in a pass");
        return Err(spec.refuse("batch_size", spec.batch, accepted));
    }
    Ok(tape)
}

/// The program of a model: its parameters in the setup, then the iterations.
///
/// # Errors
/// See [`ModelSpec::validate`].
pub fn generate(spec: &ModelSpec) -> Result<Program, ModelError> {
    let entry = spec.validate()?;
    let spec = ModelSpec {
        optimizer: spec.optimizer.or(Some(entry.optimizer)),
        ..spec.clone()
    };
    let tapes = passes(&spec)?;
    let mut decode = Vec::new();
    if spec.task == Task::Inference {
        let tokens = spec.tokens_of(entry);
        let length = tokens + u64::from(spec.tokens);
        for _ in 0..spec.tokens {
            decode.push(record(&spec, entry, 1, Some(length))?);
        }
    }
    Ok(step::program(&tapes, &spec, &decode))
}

/// The forward pass of each iteration: one, or as many as lengths are given.
fn passes(spec: &ModelSpec) -> Result<Vec<Tape>, ModelError> {
    if spec.sequences.is_empty() {
        return Ok(vec![forward(spec)?]);
    }
    let of = |tokens: &u64| {
        let one = ModelSpec {
            sequence: Some(*tokens),
            sequences: Vec::new(),
            ..spec.clone()
        };
        forward(&one)
    };
    spec.sequences.iter().map(of).collect()
}

/// Launches that a program of native convolutions may make in a forward pass: a convolution launches kernels
/// for every sample.
const MOST_NATIVE: u64 = 1 << 22;
