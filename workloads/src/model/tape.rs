//! What a model does, op by op, with its autograd: the forward pass is recorded once, and everything else
//! (lifetimes, backward pass, recomputation) follows from it.
//!
//! A [`Value`] is a tensor as an op sees it; several values can share one storage (views, in-place ops).
//! A [`Node`] is one forward op with the rule of its backward: the kernels that run, and what they read and
//! write. What a backward kernel reads of the forward pass is what autograd has to save.

/// Bytes of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// 4 bytes.
    F32,
    /// 2 bytes: bfloat16 or float16.
    Half,
    /// 8 bytes.
    I64,
    /// 1 byte.
    Bool,
}

impl Dtype {
    /// Bytes of an element.
    pub const fn bytes(self) -> u64 {
        match self {
            Dtype::F32 => 4,
            Dtype::Half => 2,
            Dtype::I64 => 8,
            Dtype::Bool => 1,
        }
    }
}

/// A tensor in the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Var(pub u32);

/// A parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Param(pub u32);

/// What a [`Var`] stands for.
#[derive(Clone, Debug)]
pub struct Value {
    /// Dimensions.
    pub shape: Vec<u64>,
    /// Elements.
    pub dtype: Dtype,
    /// Its memory.
    pub storage: u32,
    /// Does autograd reach it?
    pub requires_grad: bool,
    /// A view of all of another value: their gradients are one.
    pub view_of: Option<Var>,
}

impl Value {
    /// Elements.
    pub fn numel(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.numel() * self.dtype.bytes()
    }
}

/// What a backward kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ref {
    /// Gradient of an output.
    Grad(usize),
    /// An input, saved.
    In(usize),
    /// An output, saved.
    Out(usize),
    /// A parameter.
    Param(usize),
    /// Gradient of an input: written.
    GradIn(usize),
    /// Gradient of a parameter: written.
    GradParam(usize),
    /// A temporary of the backward op, of the node's `temporaries`.
    Temp(usize),
}

/// One kernel of a backward op.
#[derive(Clone, Debug)]
pub struct BackKernel {
    /// Op name.
    pub op: &'static str,
    /// What it reads.
    pub reads: Vec<Ref>,
    /// What it writes.
    pub writes: Vec<Ref>,
    /// Floating point operations.
    pub flops: u64,
    /// Kernels that it launches; none for a copy.
    pub launches: u32,
}

/// A convolution that runs sample by sample over a buffer of columns (PyTorch without cuDNN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Samples.
    pub samples: u64,
    /// Bytes of the columns of one sample.
    pub bytes: u64,
    /// The image is its own columns: one weight a channel, no step, no border.
    pub pointwise: bool,
}

/// One forward op.
#[derive(Clone, Debug)]
pub struct Node {
    /// Op name, as `ATen` has it; a pure view has none.
    pub op: Option<&'static str>,
    /// Module that it belongs to.
    pub layer: String,
    /// Inputs.
    pub inputs: Vec<Var>,
    /// Parameters.
    pub params: Vec<Param>,
    /// Outputs; those of an in-place op share the storage of an input.
    pub outputs: Vec<Var>,
    /// Floating point operations, 2 per multiply-add.
    pub flops: u64,
    /// Kernels that it launches; none for a copy.
    pub launches: u32,
    /// It is a convolution over columns.
    pub columns: Option<Columns>,
    /// Rows of a table are picked: only so many bytes of the parameter are read.
    pub gathered: Option<u64>,
    /// Its backward kernels, in order.
    pub backward: Vec<BackKernel>,
    /// Bytes of the temporaries of the backward op.
    pub temporaries: Vec<u64>,
    /// Gradients that pass through unchanged: (output, input).
    pub pass: Vec<(usize, usize)>,
    /// Checkpointed segment that it belongs to.
    pub segment: Option<u32>,
}

/// A parameter tensor.
#[derive(Clone, Debug)]
pub struct ParamInfo {
    /// Name.
    pub name: String,
    /// Dimensions.
    pub shape: Vec<u64>,
}

impl ParamInfo {
    /// Elements.
    pub fn numel(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// A recorded forward pass.
#[derive(Clone, Debug, Default)]
pub struct Tape {
    /// Values.
    pub values: Vec<Value>,
    /// Bytes of each storage.
    pub storages: Vec<u64>,
    /// Parameters, in order of construction.
    pub params: Vec<ParamInfo>,
    /// Bytes of each buffer (running statistics, masks, tables).
    pub buffers: Vec<u64>,
    /// Storages that live for good beside parameters and buffers: key-value caches.
    pub caches: Vec<u32>,
    /// Inputs of the step: copied in from the host.
    pub inputs: Vec<Var>,
    /// Forward ops in order.
    pub nodes: Vec<Node>,
    /// Number of checkpointed segments.
    pub segments: u32,
}

impl Tape {
    /// A value.
    pub fn value(&self, var: Var) -> &Value {
        &self.values[var.0 as usize]
    }

    /// Elements of all parameters.
    pub fn parameters(&self) -> u64 {
        self.params.iter().map(ParamInfo::numel).sum()
    }

    /// Floating point operations of the forward pass, at most `u64::MAX`: a million samples of a large
    /// model are more.
    pub fn flops(&self) -> u64 {
        self.nodes
            .iter()
            .fold(0, |sum, node| sum.saturating_add(node.flops))
    }
}
