//! Accel-Sim instruction traces (NVBit): `kernelslist.g` with its `kernel-N.traceg` files, or one kernel.
//!
//! Every address of every active lane of a global load or store counts, by 4 KiB page. Tensors are the 2 MiB
//! granules that any kernel or copy touches, neighbours merged; a kernel reads and writes runs of pages, and
//! its blocks touch them as recorded, in steps ([`steps`]).

mod instruction;
mod steps;

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use instruction::{Effect, Instruction, Layout, MOST_ADDRESS, head, hexadecimal};
use steps::{Block, PAGE, Touch};

use super::builder::{Builder, NewKernel, Tensor};
use super::source::{self, Limits};
use super::{ImportError, Imported};
use crate::pattern::{MOST_RECORDED, PatternSpec, RecordedSpec, Walk};
use crate::program::Piece;

const FORMAT: &str = "an Accel-Sim trace (.traceg or kernelslist.g)";
const GRANULE: u64 = 2 << 20;
/// A trace line longer than this is none.
const MOST_LINE: u64 = 1 << 20;

/// What one kernel touched: pages, and whether it read (1) or wrote (2) them.
#[derive(Default)]
struct Kernel {
    name: String,
    stream: u32,
    /// Threads of a block.
    threads: u32,
    /// Registers of a thread; 0: not known.
    registers: u32,
    /// Bytes of shared memory of a block.
    shared: u64,
    /// Of the machine code: 80 for compute capability 8.0.
    capability: u32,
    warps: u64,
    instructions: u64,
    accesses: u64,
    pages: BTreeMap<u64, u8>,
    blocks: u64,
    /// The steps of each block; `None`: more touches than a program holds.
    order: Option<Vec<Vec<Vec<Touch>>>>,
    /// Bytes of the sectors read and written.
    traffic: (u64, u64),
}

enum Command {
    CopyIn { address: u64, bytes: u64 },
    Kernel(Kernel),
}

struct Lines<'a> {
    reader: Box<dyn BufRead>,
    file: &'a Path,
    limits: &'a Limits,
    number: u64,
    buffer: Vec<u8>,
}

impl<'a> Lines<'a> {
    fn open(file: &'a Path, limits: &'a Limits) -> Result<Lines<'a>, ImportError> {
        Ok(Lines {
            reader: source::open(file, limits)?,
            file,
            limits,
            number: 0,
            buffer: Vec::new(),
        })
    }

    fn next(&mut self) -> Result<Option<&str>, ImportError> {
        self.buffer.clear();
        self.number += 1;
        let read = std::io::Read::take(&mut self.reader, MOST_LINE)
            .read_until(b'\n', &mut self.buffer)
            .map_err(|error| source::read_error(self.file, FORMAT, &error, self.limits))?;
        if read == 0 {
            return Ok(None);
        }
        if read as u64 == MOST_LINE {
            return Err(self.wrong(format!("the line has more than {MOST_LINE} bytes")));
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(Some(text.trim())),
            Err(_) => Err(ImportError::Malformed {
                file: self.file.to_path_buf(),
                format: FORMAT,
                place: format!("line {}", self.number),
                what: "not text".to_owned(),
            }),
        }
    }

    fn wrong(&self, what: String) -> ImportError {
        ImportError::Malformed {
            file: self.file.to_path_buf(),
            format: FORMAT,
            place: format!("line {}", self.number),
            what,
        }
    }
}

/// Imports a list of kernels with its files, or one kernel.
///
/// # Errors
/// Which line breaks, or which file of the list is missing.
pub fn import(file: &Path, limits: &Limits) -> Result<Imported, ImportError> {
    let mut lines = Lines::open(file, limits)?;
    let mut commands = Vec::new();
    let mut is_kernel = false;
    let mut missing = Vec::new();
    while let Some(line) = lines.next()?.map(str::to_owned) {
        let line = line.as_str();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('-') {
            is_kernel = true;
            break;
        }
        if commands.len() as u64 >= limits.max_events {
            return Err(source::too_many(file, limits, "commands"));
        }
        if let Some(copy) = line.strip_prefix("MemcpyHtoD,") {
            let parts = copy.split_once(',').and_then(|(address, bytes)| {
                let address = hexadecimal(address.trim()).filter(|a| *a < MOST_ADDRESS)?;
                let bytes: u64 = bytes.trim().parse().ok()?;
                (bytes > 0 && bytes < 1 << 50).then_some((address, bytes))
            });
            let (address, bytes) = parts
                .ok_or_else(|| lines.wrong(format!("{line:?}: MemcpyHtoD,0xADDRESS,BYTES is expected")))?;
            commands.push(Command::CopyIn { address, bytes });
        } else if line.starts_with("Memcpy") {
            // Copies to the host touch nothing on the device anew.
        } else if let Some(found) = beside(file, line) {
            commands.push(Command::Kernel(kernel(&found, limits)?));
        } else if line.contains(".trace") {
            missing.push(line.to_owned());
        } else {
            return Err(lines.wrong(format!(
                "{line:?}: the name of a kernel's file or MemcpyHtoD,0xADDRESS,BYTES is expected"
            )));
        }
    }
    if is_kernel {
        commands.push(Command::Kernel(kernel(file, limits)?));
    }
    if !commands
        .iter()
        .any(|command| matches!(command, Command::Kernel(_)))
    {
        let what = if missing.is_empty() {
            "there is no kernel in it".to_owned()
        } else {
            format!("none of its kernels is beside it, not {} either", missing[0])
        };
        return Err(ImportError::Malformed {
            file: file.to_path_buf(),
            format: FORMAT,
            place: "the list".to_owned(),
            what,
        });
    }
    build(file, &commands, &missing)
}

/// The file of a kernel that a list names: beside the list, as it is or compressed.
fn beside(list: &Path, name: &str) -> Option<PathBuf> {
    // Only a plain name: a list cannot reach elsewhere.
    if name.contains(['/', '\\']) || !name.contains(".trace") {
        return None;
    }
    let folder = list.parent()?;
    ["", ".gz", ".zst", ".xz"]
        .into_iter()
        .map(|ending| folder.join(format!("{name}{ending}")))
        .find(|path| path.is_file())
}

/// The blocks of a kernel while its file is read.
#[derive(Default)]
struct Blocks {
    /// Those that are complete.
    done: Vec<Vec<Vec<Touch>>>,
    /// The one under way.
    open: Option<Block>,
    /// Those under way in traces that name the block on every line, in the order of their first lines.
    named: Vec<Block>,
    numbers: HashMap<[u32; 3], usize>,
    touches: usize,
}

impl Blocks {
    fn instruction(&mut self, warp: u32, instruction: &Instruction) {
        if self.touches > MOST_RECORDED {
            return;
        }
        let (block, warp) = match instruction.owner {
            Some((block, warp)) => {
                let number = *self.numbers.entry(block).or_insert(self.named.len());
                if number == self.named.len() {
                    self.named.push(Block::default());
                }
                (&mut self.named[number], warp)
            }
            None => (self.open.get_or_insert_default(), warp),
        };
        self.touches += block.instruction(warp, instruction);
    }

    /// The block under way ends.
    fn end(&mut self, kernel: &mut Kernel) {
        let block = self.open.take().unwrap_or_default();
        kernel.traffic.0 += block.traffic.0;
        kernel.traffic.1 += block.traffic.1;
        self.done.push(block.finish());
    }

    /// The file ends.
    fn finish(mut self, kernel: &mut Kernel) {
        for block in std::mem::take(&mut self.named) {
            kernel.blocks += 1;
            self.open = Some(block);
            self.end(kernel);
        }
        kernel.order = (self.touches <= MOST_RECORDED).then_some(self.done);
    }
}

fn kernel(file: &Path, limits: &Limits) -> Result<Kernel, ImportError> {
    let mut lines = Lines::open(file, limits)?;
    let mut kernel = Kernel::default();
    let mut layout = Layout::default();
    let mut in_block = false;
    let (mut blocks, mut warp, mut instruction) = (Blocks::default(), 0, Instruction::new());
    // A line is owned, so that `lines` can be asked for its number.
    while let Some(text) = lines.next()?.map(str::to_owned) {
        if let Some(header) = text.strip_prefix('-') {
            let Some((key, value)) = header.split_once('=') else {
                continue;
            };
            let value = value.trim();
            match key.trim() {
                "kernel name" => value.clone_into(&mut kernel.name),
                "cuda stream id" => kernel.stream = value.parse().unwrap_or(0),
                "block dim" => kernel.threads = volume(value).unwrap_or(0),
                "nregs" => kernel.registers = value.parse().unwrap_or(0),
                "shmem" => kernel.shared = value.parse().unwrap_or(0),
                "binary version" => kernel.capability = value.parse().unwrap_or(0),
                "shmem base_addr" => layout.windows[0] = hexadecimal(value),
                "local mem base_addr" => layout.windows[1] = hexadecimal(value),
                "accelsim tracer version" => layout.version = value.parse().unwrap_or(layout.version),
                "enable lineinfo" => layout.line_numbers = value == "1",
                _ => {}
            }
        } else if text.starts_with("#BEGIN_TB") {
            in_block = true;
            kernel.blocks += 1;
        } else if text.starts_with("#END_TB") {
            if std::mem::take(&mut in_block) {
                blocks.end(&mut kernel);
            }
        } else if text.is_empty()
            || text.starts_with('#')
            || text.starts_with("thread block")
            || text.starts_with("insts")
        {
        } else if let Some(number) = text.strip_prefix("warp") {
            kernel.warps += 1;
            warp = number.trim_matches([' ', '=']).parse().unwrap_or(0);
        } else if in_block || layout.version < 3 {
            kernel.instructions += 1;
            instruction
                .parse(&text, &layout)
                .map_err(|what| lines.wrong(what))?;
            pages(&mut kernel, &instruction);
            blocks.instruction(warp, &instruction);
            if kernel.pages.len() as u64 > limits.max_events {
                return Err(source::too_many(file, limits, "pages"));
            }
        } else {
            return Err(lines.wrong(format!(
                "{:?}: neither a header nor inside a thread block",
                head(&text)
            )));
        }
    }
    if in_block {
        return Err(lines.wrong("the file ends inside a thread block; is it truncated?".to_owned()));
    }
    blocks.finish(&mut kernel);
    if kernel.blocks == 0 {
        return Err(lines.wrong("there is no thread block in it".to_owned()));
    }
    if kernel.name.is_empty() {
        kernel.name = super::builder_name(file);
    }
    Ok(kernel)
}

/// Threads of `(x,y,z)`.
fn volume(text: &str) -> Option<u32> {
    text.trim_matches(['(', ')'])
        .split(',')
        .map(|part| part.trim().parse::<u32>().ok())
        .try_fold(1_u32, |product, part| product.checked_mul(part?))
}

fn pages(kernel: &mut Kernel, instruction: &Instruction) {
    let kind = match instruction.effect {
        Effect::None => return,
        Effect::Load => 1,
        Effect::Store => 2,
        Effect::Atomic => 3,
    };
    kernel.accesses += 1;
    for address in &instruction.addresses {
        for page in address / PAGE..=(address + instruction.bytes - 1) / PAGE {
            *kernel.pages.entry(page).or_default() |= kind;
        }
    }
}

impl Kernel {
    /// Blocks that an SM holds at most by registers and shared memory; `None`: no less than by threads.
    ///
    /// Sources: 65,536 registers an SM, handed to warps of 32 threads by multiples of 256; shared memory by
    /// compute capability (CUDA C++ programming guide, technical specifications per compute capability).
    fn blocks_per_sm(&self) -> Option<u32> {
        let warps = u64::from(self.threads.div_ceil(32).max(1));
        let registers = (u64::from(self.registers) * 32).next_multiple_of(256) * warps;
        let of_registers = 65_536_u64.checked_div(registers);
        let kib = match self.capability {
            61 | 70 | 72 => Some(96),
            60 | 75 => Some(64),
            80 | 87 => Some(164),
            86 | 89 | 120 => Some(100),
            90 | 100 => Some(228),
            _ => None,
        };
        let of_shared = kib.and_then(|kib: u64| (kib << 10).checked_div(self.shared));
        let most = of_registers.into_iter().chain(of_shared).min()?;
        Some(most.max(1) as u32)
    }
}

fn build(file: &Path, commands: &[Command], missing: &[String]) -> Result<Imported, ImportError> {
    let mut builder = Builder::new(&super::builder_name(file), FORMAT);
    // Granules that anything touches, neighbours merged: start to (end, tensor).
    let mut granules: Vec<u64> = Vec::new();
    for command in commands {
        match command {
            Command::CopyIn { address, bytes } => {
                granules.extend(address / GRANULE..=(address + bytes - 1) / GRANULE);
            }
            Command::Kernel(kernel) => granules.extend(kernel.pages.keys().map(|page| page * PAGE / GRANULE)),
        }
        granules.sort_unstable();
        granules.dedup();
    }
    let mut tensors: BTreeMap<u64, (u64, Tensor)> = BTreeMap::new();
    for run in granules.chunk_by(|a, b| b - a == 1) {
        if let (Some(first), Some(last)) = (run.first(), run.last()) {
            let (start, end) = (first * GRANULE, (last + 1) * GRANULE);
            tensors.insert(start, (end, builder.alloc_before(end - start)));
        }
    }
    let piece = |address: u64, bytes: u64| {
        let (start, (_, tensor)) = tensors.range(..=address).next_back()?;
        Some(Piece(*tensor, address - start, bytes))
    };
    builder.iteration();
    let mut unordered = 0_u64;
    let (mut copies, mut copied, mut blocks, mut accesses, mut instructions) = (0_u64, 0_u64, 0, 0, 0);
    for command in commands {
        match command {
            Command::CopyIn { address, bytes } => {
                copies += 1;
                copied = copied.saturating_add(*bytes);
                builder.copy_in(piece(*address, *bytes).into_iter().collect());
            }
            Command::Kernel(kernel) => {
                blocks += kernel.blocks;
                accesses += kernel.accesses;
                instructions += kernel.instructions;
                let runs = |kind: u8| {
                    let pages: Vec<u64> = kernel
                        .pages
                        .iter()
                        .filter(|(_, kinds)| **kinds & kind != 0)
                        .map(|(page, _)| *page)
                        .collect();
                    // A run ends where its tensor does: granules that do not touch.
                    pages
                        .chunk_by(|a, b| b - a == 1)
                        .filter_map(|run| piece(run[0] * PAGE, run.len() as u64 * PAGE))
                        .collect::<Vec<Piece>>()
                };
                let (reads, writes) = (runs(1), runs(2));
                let pattern = recorded(kernel, &reads, &writes, &tensors);
                unordered += u64::from(pattern.is_none());
                let whole = |pieces: &[Piece]| {
                    pieces
                        .iter()
                        .fold(0_u64, |sum, piece| sum.saturating_add(piece.2))
                };
                // What is read again comes from the cache, as far as it goes.
                let traffic = pattern.as_ref().map(|_| {
                    (
                        kernel.traffic.0.min(whole(&reads)),
                        kernel.traffic.1.min(whole(&writes)),
                    )
                });
                builder.kernel(NewKernel {
                    name: &kernel.name,
                    reads,
                    writes,
                    stream: kernel.stream,
                    launches: 1,
                    traffic,
                    pattern,
                    ..NewKernel::default()
                });
            }
        }
    }
    let report = builder.report();
    let mut fact = |name: &str, value: String| report.facts.push((name.to_owned(), value));
    fact("thread blocks", blocks.to_string());
    fact("instructions", instructions.to_string());
    fact("global loads and stores", accesses.to_string());
    fact("copies from the host", format!("{copies}, {copied} bytes"));
    report.assumed.push(
        "allocations are the 2 MiB granules that are touched, neighbours merged; all live from the start"
            .to_owned(),
    );
    report.assumed.push(
        "blocks are launched in the order of the trace; a warp waits where an instruction needs what it loads, and the warps of a block go in step"
            .to_owned(),
    );
    if unordered > 0 {
        report.assumed.push(format!(
            "{unordered} kernels touch more than {MOST_RECORDED} pages by block: their blocks walk over the pages in ascending order"
        ));
    }
    report
        .missing
        .push("durations and FLOPs: a kernel takes as long as the sectors it touches".to_owned());
    if !missing.is_empty() {
        report.missing.push(format!(
            "{} kernels of the list whose files are not beside it, the first {:?}",
            missing.len(),
            missing[0]
        ));
    }
    builder.finish(file)
}

/// The walk of a kernel's blocks over its runs of pages.
fn recorded(
    kernel: &Kernel,
    reads: &[Piece],
    writes: &[Piece],
    tensors: &BTreeMap<u64, (u64, Tensor)>,
) -> Option<PatternSpec> {
    // Where each run begins, with its number among the operands.
    let starts: HashMap<Tensor, u64> = tensors
        .iter()
        .map(|(start, (_, tensor))| (*tensor, *start))
        .collect();
    let runs = |pieces: &[Piece], first: usize| {
        let numbered = pieces.iter().enumerate().filter_map(|(number, piece)| {
            let start = starts.get(&piece.0)? + piece.1;
            Some((start, (first + number) as u32))
        });
        numbered.collect::<BTreeMap<u64, u32>>()
    };
    let operands = [runs(reads, 0), runs(writes, reads.len())];
    let blocks: Vec<Vec<_>> = kernel
        .order
        .as_ref()?
        .iter()
        .map(|steps| {
            let mut accesses = Vec::new();
            for (step, touches) in steps.iter().enumerate() {
                for touch in touches {
                    let address = touch.page * PAGE;
                    let (start, operand) =
                        operands[usize::from(touch.store)].range(..=address).next_back()?;
                    accesses.push((step as u32, *operand, address - start, PAGE, touch.warps));
                }
            }
            // Neighbours by the same warps are one access.
            accesses.dedup_by(|next, last| {
                let adjoins = (last.0, last.1, last.2 + last.3, last.4) == (next.0, next.1, next.2, next.4);
                last.3 += if adjoins { PAGE } else { 0 };
                adjoins
            });
            Some(accesses)
        })
        .collect::<Option<_>>()?;
    let steps = kernel.order.as_ref()?.iter().map(Vec::len).max()?.max(1) as u32;
    let threads = match kernel.threads {
        0 => 32 * kernel.warps.div_ceil(kernel.blocks.max(1)).max(1) as u32,
        threads => threads,
    };
    let walk = Walk::Recorded(Arc::new(RecordedSpec { steps, blocks }));
    Some(PatternSpec {
        blocks_per_sm: kernel.blocks_per_sm(),
        ..PatternSpec::new(threads.min(1024), walk)
    })
}
