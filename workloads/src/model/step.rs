//! From a recorded pass to the operations of training steps: allocations and frees as PyTorch makes them,
//! forward and backward kernels, the optimizer.
//!
//! A forward value is freed after its last use unless autograd saved it; a saved one after the backward op
//! that reads it last; a gradient when all ops that need it are done. Gradients that only pass through
//! (additions, copies) share memory; two contributions to one value are added into a new tensor.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::spec::{ModelSpec, Task, ZeroGrad};
use super::tape::{Node, Ref, Tape, Var};
use super::{native, optimizer};
use crate::class::multiplies;
use crate::math::Math;
use crate::program::{Op, Piece, Program};

/// A live tensor of the program.
pub(super) type Tensor = u32;

/// Writes operations.
pub(super) struct Emitter<'a> {
    pub tape: &'a Tape,
    pub ops: Vec<Op>,
    next: Tensor,
    bytes: HashMap<Tensor, u64>,
    /// Names of ops, and the arithmetic of each.
    names: HashMap<&'static str, (Arc<str>, Math)>,
    /// Arithmetic of the products.
    products: Math,
    /// Gradients are added into one that nothing else holds.
    adds_in_place: bool,
    pub params: Vec<Tensor>,
    pub grads: Vec<Option<Tensor>>,
    /// Tensor of each storage that is live.
    storages: Vec<Option<Tensor>>,
    /// Forward ops, and backward ops, that still need a storage.
    forward_uses: Vec<u32>,
    backward_uses: Vec<u32>,
    permanent: Vec<bool>,
    /// The checkpointed segment whose node makes a storage.
    made_in: Vec<Option<u32>>,
}

/// Gradients of values: the part of a tensor (a concatenation hands out slices of its own gradient), and how
/// many values refer to each tensor.
#[derive(Default)]
struct Gradients {
    of: HashMap<Var, Piece>,
    holders: HashMap<Tensor, u32>,
    /// Parameters whose gradient began in this pass.
    params: HashSet<usize>,
}

impl<'a> Emitter<'a> {
    fn new(tape: &'a Tape, products: Math, adds_in_place: bool) -> Emitter<'a> {
        let mut made_in = vec![None; tape.storages.len()];
        for node in tape.nodes.iter().filter(|node| node.segment.is_some()) {
            for y in &node.outputs {
                made_in[tape.value(*y).storage as usize] = node.segment;
            }
        }
        Emitter {
            made_in,
            tape,
            ops: Vec::new(),
            next: 0,
            bytes: HashMap::new(),
            names: HashMap::new(),
            products,
            adds_in_place,
            params: Vec::new(),
            grads: vec![None; tape.params.len()],
            storages: vec![None; tape.storages.len()],
            forward_uses: vec![0; tape.storages.len()],
            backward_uses: vec![0; tape.storages.len()],
            permanent: vec![false; tape.storages.len()],
        }
    }

    /// A new tensor.
    pub fn alloc(&mut self, bytes: u64) -> Tensor {
        let t = self.next;
        self.next += 1;
        let n = bytes.max(1);
        self.bytes.insert(t, n);
        self.ops.push(Op::Alloc { t, n });
        t
    }

    /// It goes.
    pub fn free(&mut self, t: Tensor) {
        self.bytes.remove(&t);
        self.ops.push(Op::Free { t });
    }

    /// All of a tensor.
    pub fn whole(&self, t: Tensor) -> Piece {
        Piece(t, 0, self.bytes.get(&t).copied().unwrap_or(1))
    }

    /// A kernel over whole tensors.
    pub fn kernel(&mut self, op: &'static str, r: Vec<Piece>, w: Vec<Piece>, flops: u64, launches: u32) {
        self.sparse_kernel(op, r, w, flops, launches, None);
    }

    fn sparse_kernel(
        &mut self,
        op: &'static str,
        r: Vec<Piece>,
        w: Vec<Piece>,
        flops: u64,
        launches: u32,
        gathered: Option<u64>,
    ) {
        let products = self.products;
        let (name, math) = self.names.entry(op).or_insert_with(|| {
            let math = if multiplies(op) { products } else { Math::Fp32 };
            (Arc::from(op), math)
        });
        let (name, math) = (Arc::clone(name), *math);
        let sum = |pieces: &[Piece]| pieces.iter().map(|piece| piece.2).sum::<u64>();
        let largest = r.iter().map(|piece| piece.2).max().unwrap_or(0);
        let rb = gathered.map_or_else(|| sum(&r), |bytes| sum(&r) - largest + bytes.min(largest));
        let wb = sum(&w);
        self.ops.push(Op::Kernel {
            name,
            r,
            w,
            flops,
            math,
            rb,
            wb,
            nk: launches,
            sparse: gathered.is_some(),
            stream: 0,
            ns: None,
            pattern: None,
        });
    }

    fn storage_of(&self, var: Var) -> usize {
        self.tape.value(var).storage as usize
    }

    fn tensor(&mut self, storage: usize) -> Tensor {
        if let Some(tensor) = self.storages[storage] {
            return tensor;
        }
        let tensor = self.alloc(self.tape.storages[storage]);
        self.storages[storage] = Some(tensor);
        tensor
    }

    /// Piece of a value: its bytes at the start of its storage.
    fn piece(&mut self, var: Var) -> Piece {
        let value = self.tape.value(var);
        let (storage, bytes) = (value.storage as usize, value.bytes());
        let tensor = self.tensor(storage);
        Piece(tensor, 0, bytes.min(self.tape.storages[storage]).max(1))
    }

    fn drop_storage(&mut self, storage: usize) {
        if self.forward_uses[storage] == 0
            && self.backward_uses[storage] == 0
            && !self.permanent[storage]
            && let Some(tensor) = self.storages[storage].take()
        {
            self.free(tensor);
        }
    }

    /// Another pass over the same parameters; nothing of the one before is left.
    fn begin(&mut self, tape: &'a Tape) {
        let next = Emitter::new(tape, self.products, self.adds_in_place);
        self.tape = tape;
        self.made_in = next.made_in;
        self.storages = next.storages;
        self.forward_uses = next.forward_uses;
        self.backward_uses = next.backward_uses;
        self.permanent = next.permanent;
    }

    fn forward_node(&mut self, node: &Node, inputs_count: bool) {
        if let Some(op) = node.op {
            let mut reads: Vec<Piece> = node.inputs.iter().map(|x| self.piece(*x)).collect();
            reads.extend(node.params.iter().map(|p| self.whole(self.params[p.0 as usize])));
            let writes: Vec<Piece> = node.outputs.iter().map(|y| self.piece(*y)).collect();
            if let Some(columns) = node.columns {
                native::forward(self, columns, &reads, writes[0], node.flops);
            } else {
                self.sparse_kernel(op, reads, writes, node.flops, node.launches, node.gathered);
            }
        }
        if inputs_count {
            for x in &node.inputs {
                let storage = self.storage_of(*x);
                self.forward_uses[storage] = self.forward_uses[storage].saturating_sub(1);
                self.drop_storage(storage);
            }
            // Outputs that nobody uses.
            for y in &node.outputs {
                let storage = self.storage_of(*y);
                self.drop_storage(storage);
            }
        }
    }
}

/// Is the backward of this node run at all?
fn has_backward(tape: &Tape, node: &Node) -> bool {
    node.outputs.iter().any(|y| tape.value(*y).requires_grad)
}

/// Values that the backward kernels of a node read.
fn saved<'n>(tape: &'n Tape, node: &'n Node) -> impl Iterator<Item = Var> + 'n {
    let runs = has_backward(tape, node);
    node.backward
        .iter()
        .filter(move |_| runs)
        .flat_map(|kernel| kernel.reads.iter())
        .filter_map(|read| match read {
            Ref::In(i) => Some(node.inputs[*i]),
            Ref::Out(k) => Some(node.outputs[*k]),
            _ => None,
        })
}

/// The program of a model.
///
/// # Panics
/// Without a pass.
pub(super) fn program(tapes: &[Tape], spec: &ModelSpec, decode: &[Tape]) -> Program {
    let tape = &tapes[0];
    let mut emitter = Emitter::new(tape, spec.precision.math(), spec.style.adds_in_place);
    let mut program = Program {
        name: spec.name.clone(),
        setup: Vec::new(),
        iterations: Vec::new(),
    };
    // Parameters and buffers come to the device once, before the first step.
    let half = spec.task == Task::Inference && spec.precision.is_half();
    for info in &tape.params {
        let tensor = emitter.alloc(info.numel() * if half { 2 } else { 4 });
        emitter.params.push(tensor);
    }
    let mut resident = emitter.params.clone();
    for bytes in &tape.buffers {
        resident.push(emitter.alloc(*bytes));
    }
    for storage in &tape.caches {
        emitter.permanent[*storage as usize] = true;
        let tensor = emitter.tensor(*storage as usize);
        resident.push(tensor);
    }
    for tensor in resident {
        let piece = emitter.whole(tensor);
        emitter.ops.push(Op::H2d { w: vec![piece] });
    }
    program.setup = std::mem::take(&mut emitter.ops);
    let mut states = optimizer::States::default();
    for iteration in 0..(spec.iterations.max(1) as usize).max(tapes.len()) {
        if tapes.len() > 1 {
            emitter.begin(&tapes[iteration.min(tapes.len() - 1)]);
        }
        match spec.task {
            Task::Training => {
                for micro in 0..spec.accumulation.max(1) {
                    forward(&mut emitter);
                    if spec.zero_grad == ZeroGrad::BeforeBackward && micro == 0 {
                        zero_grad(&mut emitter);
                    }
                    backward(&mut emitter);
                }
                optimizer::step(&mut emitter, spec, &mut states);
                if spec.zero_grad == ZeroGrad::AfterStep {
                    zero_grad(&mut emitter);
                }
            }
            Task::Inference => {
                forward(&mut emitter);
                for pass in decode {
                    decode_pass(&mut emitter, pass);
                }
            }
        }
        program.iterations.push(std::mem::take(&mut emitter.ops));
    }
    program
}

fn zero_grad(emitter: &mut Emitter<'_>) {
    for at in 0..emitter.grads.len() {
        if let Some(grad) = emitter.grads[at].take() {
            emitter.free(grad);
        }
    }
}

/// One token: a pass whose caches are those of the prompt's pass.
fn decode_pass(emitter: &mut Emitter<'_>, pass: &Tape) {
    let mut inner = Emitter {
        ops: std::mem::take(&mut emitter.ops),
        next: emitter.next,
        bytes: std::mem::take(&mut emitter.bytes),
        names: std::mem::take(&mut emitter.names),
        params: emitter.params.clone(),
        ..Emitter::new(pass, emitter.products, emitter.adds_in_place)
    };
    for (ours, theirs) in pass.caches.iter().zip(&emitter.tape.caches) {
        inner.permanent[*ours as usize] = true;
        inner.storages[*ours as usize] = emitter.storages[*theirs as usize];
    }
    forward(&mut inner);
    emitter.next = inner.next;
    emitter.ops = inner.ops;
    emitter.bytes = inner.bytes;
    emitter.names = inner.names;
}

/// The forward pass: inputs arrive, values live until their last use, saved ones for the backward pass.
fn forward(emitter: &mut Emitter<'_>) {
    let tape = emitter.tape;
    emitter.forward_uses.fill(0);
    emitter.backward_uses.fill(0);
    for node in &tape.nodes {
        for x in &node.inputs {
            emitter.forward_uses[tape.value(*x).storage as usize] += 1;
        }
        // Values inside a checkpointed segment are not saved; its inputs are.
        for var in saved(tape, node) {
            let value = tape.value(var);
            let made_in = emitter.made_in[value.storage as usize];
            if node.segment.is_none() || made_in != node.segment {
                emitter.backward_uses[value.storage as usize] += 1;
            }
        }
    }
    for segment in 0..tape.segments {
        for storage in segment_inputs(tape, segment) {
            emitter.backward_uses[storage] += 1;
        }
    }
    for input in &tape.inputs {
        let piece = emitter.piece(*input);
        emitter.ops.push(Op::H2d { w: vec![piece] });
    }
    for node in &tape.nodes {
        emitter.forward_node(node, true);
    }
    // The loss: read by the host.
    if let Some(loss) = tape.nodes.last().and_then(|node| node.outputs.first()) {
        let storage = emitter.storage_of(*loss);
        if !has_backward_pass(tape) {
            emitter.drop_storage(storage);
        }
    }
}

fn has_backward_pass(tape: &Tape) -> bool {
    tape.nodes.iter().any(|node| has_backward(tape, node))
}

/// Storages that a segment takes from outside.
fn segment_inputs(tape: &Tape, segment: u32) -> Vec<usize> {
    let inside: Vec<&Node> = tape
        .nodes
        .iter()
        .filter(|node| node.segment == Some(segment))
        .collect();
    let mut made = HashSet::new();
    let mut taken = Vec::new();
    for node in inside {
        for x in &node.inputs {
            let storage = tape.value(*x).storage as usize;
            if !made.contains(&storage) && !taken.contains(&storage) {
                taken.push(storage);
            }
        }
        made.extend(node.outputs.iter().map(|y| tape.value(*y).storage as usize));
    }
    taken
}

/// The backward pass from the last op's first output.
fn backward(emitter: &mut Emitter<'_>) {
    let tape = emitter.tape;
    let mut gradients = Gradients::default();
    let Some(loss) = tape.nodes.last().and_then(|node| node.outputs.first()).copied() else {
        return;
    };
    if !tape.value(loss).requires_grad {
        return;
    }
    let seed = emitter.alloc(4);
    let piece = emitter.whole(seed);
    emitter.kernel("ones_like", Vec::new(), vec![piece], 0, 1);
    gradients.of.insert(loss, piece);
    gradients.holders.insert(seed, 1);
    let mut recomputed: Option<u32> = None;
    for at in (0..tape.nodes.len()).rev() {
        let node = &tape.nodes[at];
        if let Some(segment) = node.segment
            && recomputed != Some(segment)
        {
            recompute(emitter, segment);
            recomputed = Some(segment);
        }
        if has_backward(tape, node) {
            backward_node(emitter, node, &mut gradients);
        }
        for var in saved(tape, node).collect::<Vec<_>>() {
            let storage = emitter.storage_of(var);
            emitter.backward_uses[storage] = emitter.backward_uses[storage].saturating_sub(1);
            emitter.drop_storage(storage);
        }
        // The first node of a segment ends it: its inputs are no longer held for it.
        let ends = node.segment.is_some() && (at == 0 || tape.nodes[at - 1].segment != node.segment);
        if ends && let Some(segment) = node.segment {
            for storage in segment_inputs(tape, segment) {
                emitter.backward_uses[storage] = emitter.backward_uses[storage].saturating_sub(1);
                emitter.drop_storage(storage);
            }
        }
    }
    // What the pass did not consume: the loss, values without users.
    let left: Vec<usize> = (0..emitter.storages.len())
        .filter(|s| emitter.storages[*s].is_some())
        .collect();
    for storage in left {
        emitter.forward_uses[storage] = 0;
        emitter.backward_uses[storage] = 0;
        emitter.drop_storage(storage);
    }
    let mut rest: Vec<Tensor> = gradients.holders.into_keys().collect();
    rest.sort_unstable();
    for tensor in rest {
        emitter.free(tensor);
    }
}

/// Runs a segment's forward ops again; what their backward needs is kept.
fn recompute(emitter: &mut Emitter<'_>, segment: u32) {
    let tape = emitter.tape;
    let nodes: Vec<&Node> = tape
        .nodes
        .iter()
        .filter(|node| node.segment == Some(segment))
        .collect();
    for node in &nodes {
        for x in &node.inputs {
            emitter.forward_uses[tape.value(*x).storage as usize] += 1;
        }
        for var in saved(tape, node) {
            if emitter.made_in[tape.value(var).storage as usize] == node.segment {
                emitter.backward_uses[tape.value(var).storage as usize] += 1;
            }
        }
    }
    for node in nodes {
        emitter.forward_node(node, true);
    }
}

/// Temporaries of a backward op: each goes after the kernel that reads it last.
struct Temporaries {
    live: Vec<Option<Tensor>>,
    last: Vec<usize>,
}

impl Temporaries {
    fn of(node: &Node) -> Temporaries {
        let mut last = vec![0; node.temporaries.len()];
        for (at, kernel) in node.backward.iter().enumerate() {
            for read in &kernel.reads {
                if let Ref::Temp(k) = read {
                    last[*k] = at;
                }
            }
        }
        Temporaries {
            live: vec![None; last.len()],
            last,
        }
    }

    fn free_after(&mut self, emitter: &mut Emitter<'_>, at: usize) {
        for (live, last) in self.live.iter_mut().zip(&self.last) {
            if *last == at
                && let Some(t) = live.take()
            {
                emitter.free(t);
            }
        }
    }
}

fn backward_node(emitter: &mut Emitter<'_>, node: &Node, gradients: &mut Gradients) {
    let tape = emitter.tape;
    // Gradients of the outputs, through views.
    let outputs: Vec<Option<Piece>> = node
        .outputs
        .iter()
        .map(|y| gradients.of.get(&root(tape, *y)).copied())
        .collect();
    if outputs.iter().all(Option::is_none) {
        return;
    }
    let mut temporaries = Temporaries::of(node);
    for (at, kernel) in node.backward.iter().enumerate() {
        let mut reads = Vec::new();
        for read in &kernel.reads {
            match read {
                Ref::Grad(k) => reads.extend(outputs[*k]),
                Ref::In(i) => reads.push(emitter.piece(node.inputs[*i])),
                Ref::Out(k) => reads.push(emitter.piece(node.outputs[*k])),
                Ref::Param(p) => reads.push(emitter.whole(emitter.params[node.params[*p].0 as usize])),
                Ref::Temp(k) => reads.extend(temporaries.live[*k].map(|t| emitter.whole(t))),
                Ref::GradIn(_) | Ref::GradParam(_) => {}
            }
        }
        let mut writes = Vec::new();
        let mut made = Vec::new();
        for write in &kernel.writes {
            match write {
                Ref::GradIn(i) => {
                    let x = node.inputs[*i];
                    if tape.value(x).requires_grad {
                        let t = emitter.alloc(tape.value(x).bytes());
                        writes.push(emitter.whole(t));
                        made.push((Some(x), None, t));
                    }
                }
                Ref::GradParam(p) => {
                    let param = node.params[*p].0 as usize;
                    let t = emitter.alloc(tape.params[param].numel() * 4);
                    writes.push(emitter.whole(t));
                    made.push((None, Some(param), t));
                }
                Ref::Temp(k) => {
                    let t = temporaries.live[*k].unwrap_or_else(|| emitter.alloc(node.temporaries[*k]));
                    temporaries.live[*k] = Some(t);
                    writes.push(emitter.whole(t));
                }
                _ => {}
            }
        }
        if writes.is_empty() {
            continue;
        }
        if let Some(columns) = node.columns {
            let images = kernel.writes.first() == Some(&Ref::GradIn(0));
            native::backward(emitter, columns, &reads, (images, &writes), kernel.flops);
        } else {
            emitter.kernel(kernel.op, reads, writes, kernel.flops, kernel.launches);
        }
        temporaries.free_after(emitter, at);
        for (input, param, t) in made {
            if let Some(x) = input {
                give(emitter, gradients, root(tape, x), t);
            } else if let Some(param) = param {
                match emitter.grads[param] {
                    None => {
                        emitter.grads[param] = Some(t);
                        gradients.params.insert(param);
                    }
                    Some(grad) => {
                        let (a, b) = (emitter.whole(grad), emitter.whole(t));
                        if gradients.params.contains(&param) {
                            // A second use in this pass: added before the gradient is kept.
                            let sum = emitter.alloc(a.2);
                            let w = emitter.whole(sum);
                            emitter.kernel("add", vec![a, b], vec![w], 0, 1);
                            emitter.free(grad);
                            emitter.grads[param] = Some(sum);
                        } else {
                            emitter.kernel("add_", vec![a, b], vec![a], 0, 1);
                        }
                        emitter.free(t);
                    }
                }
            }
        }
    }
    for (output, input) in &node.pass {
        let x = node.inputs[*input];
        if let Some(Piece(t, offset, bytes)) = outputs[*output]
            && tape.value(x).requires_grad
        {
            *gradients.holders.entry(t).or_default() += 1;
            let part = Piece(t, offset, tape.value(x).bytes().min(bytes));
            give_held(emitter, gradients, root(tape, x), part);
        }
    }
    // The outputs' gradients have been used.
    for y in &node.outputs {
        if let Some(piece) = gradients.of.remove(&root(tape, *y)) {
            release(emitter, gradients, piece.0);
        }
    }
}

/// The value that a view stands for.
fn root(tape: &Tape, var: Var) -> Var {
    let mut at = var;
    while let Some(of) = tape.value(at).view_of {
        at = of;
    }
    at
}

fn release(emitter: &mut Emitter<'_>, gradients: &mut Gradients, t: Tensor) {
    if let Some(holders) = gradients.holders.get_mut(&t) {
        *holders -= 1;
        if *holders == 0 {
            gradients.holders.remove(&t);
            emitter.free(t);
        }
    }
}

/// A value gets a gradient of its own.
fn give(emitter: &mut Emitter<'_>, gradients: &mut Gradients, x: Var, t: Tensor) {
    gradients.holders.insert(t, 1);
    let piece = emitter.whole(t);
    give_held(emitter, gradients, x, piece);
}

/// A value gets a gradient that is counted for it already; a second one is added into the first if nothing
/// else holds that (PyTorch's autograd, `InputBuffer::accumulate`), else both go into a new tensor.
fn give_held(emitter: &mut Emitter<'_>, gradients: &mut Gradients, x: Var, second: Piece) {
    let Some(first) = gradients.of.get(&x).copied() else {
        gradients.of.insert(x, second);
        return;
    };
    let alone = gradients.holders.get(&first.0) == Some(&1);
    let whole = first == emitter.whole(first.0) && first.2 == emitter.tape.value(x).bytes();
    if emitter.adds_in_place && alone && whole {
        emitter.kernel("add_", vec![first, second], vec![first], 0, 1);
        release(emitter, gradients, second.0);
        return;
    }
    let sum = emitter.alloc(first.2);
    let w = emitter.whole(sum);
    emitter.kernel("add", vec![first, second], vec![w], 0, 1);
    gradients.holders.insert(sum, 1);
    gradients.of.insert(x, w);
    release(emitter, gradients, first.0);
    release(emitter, gradients, second.0);
}
