//! Optimizer kernels over lists of tensors (`_foreach_*`): block k works on the k-th chunk of the
//! concatenation of every list, in PyTorch chunks of 65,536 elements.

use sim_core::access::{Access, AccessKind, AccessPattern, MappedPages, StepAccesses};
use sim_core::pages::{ByteRange, PAGE_BYTES, Page};

/// Several tensors one after another, addressed as one.
#[derive(Clone, Debug)]
pub struct TensorList {
    tensors: Vec<ByteRange>,
    /// Bytes before each tensor, and in all.
    offsets: Vec<u64>,
}

impl TensorList {
    /// The concatenation of these tensors.
    pub fn new(tensors: Vec<ByteRange>) -> TensorList {
        let mut offsets = Vec::with_capacity(tensors.len() + 1);
        let mut total = 0;
        for tensor in &tensors {
            offsets.push(total);
            total += tensor.bytes;
        }
        offsets.push(total);
        TensorList { tensors, offsets }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    /// The tensor pieces that make up bytes `start..end`, with the position of each.
    fn pieces(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, ByteRange)> + '_ {
        let first = self
            .offsets
            .partition_point(|offset| *offset <= start)
            .saturating_sub(1);
        (first..self.tensors.len())
            .take_while(move |i| self.offsets[*i] < end)
            .filter_map(move |i| {
                let low = start.max(self.offsets[i]);
                let high = end.min(self.offsets[i + 1]);
                (low < high).then(|| {
                    let start = self.tensors[i].start + (low - self.offsets[i]);
                    (
                        low,
                        ByteRange {
                            start,
                            bytes: high - low,
                        },
                    )
                })
            })
    }
}

/// A kernel over lists of tensors.
#[derive(Clone, Debug)]
pub struct Lists {
    /// Lists that are read.
    pub reads: Vec<TensorList>,
    /// Lists that are written.
    pub writes: Vec<TensorList>,
    /// Bytes of a chunk: what one block works on.
    pub chunk_bytes: u64,
    /// Steps of a block.
    pub steps: u32,
    /// Warps of a block.
    pub warps: u16,
}

impl Lists {
    fn total(&self) -> u64 {
        self.reads
            .iter()
            .chain(&self.writes)
            .map(TensorList::bytes)
            .max()
            .unwrap_or(0)
    }

    fn accesses(&self, list: &TensorList, span: (u64, u64), kind: AccessKind, out: &mut Vec<Access>) {
        for (_, piece) in list.pieces(span.0, span.1) {
            let first = piece.first_page();
            let pages = piece.end_page().0 - first.0;
            let bytes_per_page = piece.bytes.div_ceil(pages).min(PAGE_BYTES);
            // A warp moves 512 bytes with one instruction (4 elements of 4 bytes a lane).
            let warps = bytes_per_page.div_ceil(512).clamp(1, u64::from(self.warps)) as u16;
            out.push(Access {
                first,
                pages: pages as u32,
                warps,
                kind,
            });
        }
    }
}

impl AccessPattern for Lists {
    fn blocks(&self) -> u64 {
        self.total().div_ceil(self.chunk_bytes).max(1)
    }

    fn steps(&self) -> u32 {
        self.steps
    }

    fn step(&self, block: u64, step: u32, out: &mut StepAccesses) {
        let at =
            |step: u32| block * self.chunk_bytes + self.chunk_bytes * u64::from(step) / u64::from(self.steps);
        let span = (at(step), at(step + 1));
        for list in &self.reads {
            self.accesses(list, span, AccessKind::Read, &mut out.loads);
        }
        for list in &self.writes {
            self.accesses(list, span, AccessKind::Write, &mut out.stores);
        }
    }

    fn first_unmapped_block(&self, from: u64, mapped: &dyn MappedPages) -> Option<u64> {
        if from >= self.blocks() {
            return None;
        }
        self.reads
            .iter()
            .chain(&self.writes)
            .filter_map(|list| {
                let start = from * self.chunk_bytes;
                list.pieces(start, list.bytes()).find_map(|(position, piece)| {
                    let page = mapped.first_unmapped(piece.first_page(), piece.end_page())?;
                    let offset = page.address().saturating_sub(piece.start);
                    Some(((position + offset) / self.chunk_bytes).max(from))
                })
            })
            .min()
    }

    fn may_touch(&self, first: Page, end: Page) -> bool {
        self.reads
            .iter()
            .chain(&self.writes)
            .flat_map(|list| &list.tensors)
            .any(|range| range.bytes > 0 && range.first_page() < end && first < range.end_page())
    }
}
