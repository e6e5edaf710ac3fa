//! Which tensors are live, and which of them an op reads.

use std::collections::{BTreeMap, HashMap};

use super::super::builder::{Builder, Tensor};
use super::trace::Autograd;

/// Live tensors, findable by address and by size.
#[derive(Default)]
pub struct LiveSet {
    pub by_address: HashMap<i64, Tensor>,
    /// Tensors by size of their block, oldest first.
    by_size: BTreeMap<u64, Vec<Tensor>>,
    /// Those that existed before the recording, by size.
    before: BTreeMap<u64, Vec<Tensor>>,
    pub before_count: u64,
    pub before_bytes: u64,
}

impl LiveSet {
    /// A tensor in a block of `bytes` comes to life.
    pub fn add(&mut self, tensor: Tensor, bytes: u64) {
        self.by_size.entry(bytes).or_default().push(tensor);
    }

    /// It dies.
    pub fn remove(&mut self, tensor: Tensor, bytes: u64) {
        if let Some(list) = self.by_size.get_mut(&bytes) {
            list.retain(|other| *other != tensor);
            if list.is_empty() {
                self.by_size.remove(&bytes);
            }
        }
    }

    /// The youngest tensor in a block of just `bytes`.
    pub fn youngest(&self, bytes: u64) -> Option<Tensor> {
        self.by_size.get(&bytes)?.last().copied()
    }

    /// The most recent tensor whose block a request of `bytes` would get; `skip` are taken.
    pub fn find(&self, bytes: u64, skip: &[Tensor]) -> Option<Tensor> {
        let (least, most) = blocks_for(bytes);
        self.by_size
            .range(least..=most)
            .flat_map(|(_, list)| list.iter().rev())
            .find(|tensor| !skip.contains(tensor))
            .copied()
    }

    /// That, or the `nth` tensor of that size that existed before the recording.
    pub fn find_or_before(
        &mut self,
        builder: &mut Builder,
        bytes: u64,
        skip: &[Tensor],
        nth: usize,
    ) -> Tensor {
        self.find(bytes, skip)
            .unwrap_or_else(|| self.older(builder, bytes, nth))
    }

    /// The `nth` tensor of that size that existed before the recording.
    pub fn older(&mut self, builder: &mut Builder, bytes: u64, nth: usize) -> Tensor {
        let list = self.before.entry(bytes).or_default();
        while list.len() <= nth {
            list.push(builder.alloc_before(bytes));
            self.before_count += 1;
            self.before_bytes = self.before_bytes.saturating_add(bytes);
        }
        list[nth]
    }
}

/// Sizes of the blocks that a request of `bytes` can get: rounded to 512, or with the slack that unsplit
/// blocks have, up to 1 MiB.
fn blocks_for(bytes: u64) -> (u64, u64) {
    let least = bytes.next_multiple_of(512);
    (least, if least > 1 << 20 { least + (1 << 20) } else { least })
}

/// What the ops of the forward pass read and wrote, by their numbers in autograd's order: the gradient of an
/// op reads some of it again.
#[derive(Default)]
pub struct Saved(HashMap<i64, Used>);

#[derive(Default)]
struct Used {
    read: Vec<Tensor>,
    written: Vec<Tensor>,
}

/// Functions whose gradient is computed from their result, not from their input (PyTorch, `derivatives.yaml`).
const BY_RESULT: [&str; 9] = [
    "softmax",
    "Softmax",
    "sigmoid",
    "Sigmoid",
    "tanh",
    "Tanh",
    "threshold_backward",
    "Relu",
    "sqrt",
];

impl Saved {
    /// An iteration begins; gradients of earlier ones are done.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Keeps what a kernel of the forward pass used.
    pub fn keep(&mut self, place: Option<Autograd>, read: &[Tensor], written: &[Tensor]) {
        if let Some(place) = place.filter(|place| !place.backward) {
            let used = self.0.entry(place.number).or_default();
            used.read.extend(read);
            used.written.extend(written);
        }
    }

    /// What a kernel of the op `name` reads for inputs of so many `bytes` each, as far as its forward op used
    /// it: none where the most recent tensor of that size is the better guess, as gradients are.
    pub fn inputs(
        &self,
        place: Option<Autograd>,
        name: &str,
        sizes: &[u64],
        builder: &Builder,
        skip: &[Tensor],
    ) -> Vec<Option<Tensor>> {
        let used = place
            .filter(|place| place.backward)
            .and_then(|place| self.0.get(&place.number));
        let Some(used) = used else {
            return vec![None; sizes.len()];
        };
        let fits = |tensor: &Tensor, bytes: u64| {
            let block = builder.size(*tensor).map(|size| size.next_multiple_of(512));
            let (least, most) = blocks_for(bytes);
            block.is_some_and(|block| (least..=most).contains(&block))
        };
        // The gradient has the size of the forward op's result and comes once.
        let mut gradient_came = false;
        let mut taken = skip.to_vec();
        let (first, then) = if BY_RESULT.iter().any(|function| name.contains(function)) {
            (&used.written, &used.read)
        } else {
            (&used.read, &used.written)
        };
        sizes
            .iter()
            .map(|bytes| {
                if !gradient_came && used.written.iter().any(|tensor| fits(tensor, *bytes)) {
                    gradient_came = true;
                    return None;
                }
                let mut candidates = first.iter().chain(then);
                let found = candidates.find(|tensor| fits(tensor, *bytes) && !taken.contains(tensor));
                taken.extend(found);
                found.copied()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_read_what_their_forward_op_used() {
        let mut builder = Builder::new("p", "f");
        let [input, weight, output, other] = [4096, 8192, 4096, 4096].map(|bytes| builder.alloc(bytes));
        let mut saved = Saved::default();
        let at = |number, backward| Some(Autograd { number, backward });
        saved.keep(at(7, false), &[input, weight], &[output]);
        let inputs = |place, name, sizes: &[u64]| saved.inputs(place, name, sizes, &builder, &[]);
        // The gradient of the result is the most recent tensor of its size.
        let gradient = None;
        assert_eq!(
            inputs(at(7, true), "aten::mm", &[4096, 4096]),
            [gradient, Some(input)]
        );
        assert_eq!(
            inputs(at(7, true), "aten::mm", &[4096, 8192]),
            [gradient, Some(weight)]
        );
        assert_eq!(
            inputs(at(7, true), "aten::tanh_backward", &[4096, 4096]),
            [gradient, Some(output)]
        );
        // Nothing is known of other ops, nor of those of the forward pass.
        assert_eq!(inputs(at(8, true), "aten::mm", &[8192]), [None]);
        assert_eq!(inputs(at(7, false), "aten::mm", &[8192]), [None]);
        // What has died is not read.
        builder.free(input);
        assert_eq!(
            saved.inputs(at(7, true), "aten::mm", &[4096, 4096], &builder, &[output]),
            [None, None]
        );
        let _ = other;
    }
}
