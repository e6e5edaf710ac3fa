//! Accel-Sim instruction traces (NVBit): `kernelslist.g` with its `kernel-N.traceg` files, or one kernel.
//!
//! Every address of every active lane of a global load or store counts, by 4 KiB page. Tensors are the 2 MiB
//! granules that any kernel or copy touches, neighbours merged; a kernel reads and writes runs of pages.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use super::builder::{Builder, NewKernel, Tensor};
use super::source::{self, Limits};
use super::{ImportError, Imported};
use crate::program::Piece;

const FORMAT: &str = "an Accel-Sim trace (.traceg or kernelslist.g)";
const PAGE: u64 = 4096;
const GRANULE: u64 = 2 << 20;
/// A trace line longer than this is none.
const MOST_LINE: u64 = 1 << 20;
/// Addresses from here on are no device addresses.
const MOST_ADDRESS: u64 = 1 << 57;

/// What one kernel touched: pages, and whether it read (1) or wrote (2) them.
#[derive(Default)]
struct Kernel {
    name: String,
    stream: u32,
    blocks: u64,
    warps: u64,
    instructions: u64,
    accesses: u64,
    pages: BTreeMap<u64, u8>,
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

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
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
            format!(
                "none of its kernels is beside it, not {} either; unpack .xz files first",
                missing[0]
            )
        };
        return Err(ImportError::Malformed {
            file: file.to_path_buf(),
            format: FORMAT,
            place: "the list".to_owned(),
            what,
        });
    }
    Ok(build(file, &commands, &missing))
}

/// The file of a kernel that a list names: beside the list, as it is or compressed.
fn beside(list: &Path, name: &str) -> Option<PathBuf> {
    // Only a plain name: a list cannot reach elsewhere.
    if name.contains(['/', '\\']) || !name.contains(".trace") {
        return None;
    }
    let folder = list.parent()?;
    ["", ".gz", ".zst"]
        .into_iter()
        .map(|ending| folder.join(format!("{name}{ending}")))
        .find(|path| path.is_file())
}

fn kernel(file: &Path, limits: &Limits) -> Result<Kernel, ImportError> {
    let mut lines = Lines::open(file, limits)?;
    let mut kernel = Kernel::default();
    let (mut version, mut line_numbers) = (5_u32, false);
    let mut in_block = false;
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
                "accelsim tracer version" => version = value.parse().unwrap_or(version),
                "enable lineinfo" => line_numbers = value == "1",
                _ => {}
            }
        } else if text.starts_with("#BEGIN_TB") {
            in_block = true;
            kernel.blocks += 1;
        } else if text.starts_with("#END_TB") {
            in_block = false;
        } else if text.is_empty()
            || text.starts_with('#')
            || text.starts_with("thread block")
            || text.starts_with("insts")
        {
        } else if text.starts_with("warp") {
            kernel.warps += 1;
        } else if in_block || version < 3 {
            kernel.instructions += 1;
            access(&mut kernel, &text, version, line_numbers).map_err(|what| lines.wrong(what))?;
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
    if kernel.blocks == 0 && version >= 3 {
        return Err(lines.wrong("there is no #BEGIN_TB: no thread block".to_owned()));
    }
    if kernel.name.is_empty() {
        kernel.name = super::builder_name(file);
    }
    Ok(kernel)
}

fn head(text: &str) -> String {
    text.chars().take(60).collect()
}

/// One instruction: `[line] PC mask destinations... opcode sources... width [mode addresses...]`.
fn access(kernel: &mut Kernel, text: &str, version: u32, line_numbers: bool) -> Result<(), String> {
    let mut tokens = text.split_whitespace();
    let bad = |what: &str| format!("{:?}: {what}", head(text));
    let mut next = |what: &str| {
        tokens
            .next()
            .ok_or_else(|| bad(&format!("{what} is missing; is the file truncated?")))
    };
    if version < 3 {
        for what in ["block x", "block y", "block z", "the warp"] {
            next(what)?;
        }
    }
    if line_numbers {
        next("the line number")?;
    }
    next("the program counter")?;
    let mask = u32::from_str_radix(next("the mask")?, 16).map_err(|_| bad("the mask is not hexadecimal"))?;
    let count = |text: &str| text.parse::<u32>().ok().filter(|n| *n <= 16);
    for _ in 0..count(next("the number of destinations")?).ok_or_else(|| bad("no number of destinations"))? {
        next("a destination")?;
    }
    let opcode = next("the opcode")?.to_owned();
    for _ in 0..count(next("the number of sources")?).ok_or_else(|| bad("no number of sources"))? {
        next("a source")?;
    }
    let width: u64 = next("the width")?
        .parse()
        .map_err(|_| bad("the width is no number"))?;
    let base = opcode.split('.').next().unwrap_or_default();
    let kind = match base {
        "LDG" | "LD" | "LDGSTS" => 1,
        "STG" | "ST" => 2,
        "ATOM" | "ATOMG" | "RED" => 3,
        _ => return Ok(()),
    };
    let lanes = u64::from(mask.count_ones());
    if width == 0 || lanes == 0 {
        return Ok(());
    }
    let bytes = access_bytes(&opcode);
    let address = |text: &str| hexadecimal(text).ok_or_else(|| bad("an address is not 0x..."));
    let mut addresses = Vec::with_capacity(32);
    match next("the address mode")? {
        "0" => {
            for _ in 0..lanes {
                addresses.push(address(next("an address")?)?);
            }
        }
        "1" => {
            let start = address(next("the base address")?)?;
            let stride: i64 = next("the stride")?
                .parse()
                .map_err(|_| bad("the stride is no number"))?;
            addresses.extend(
                (0..i64::from(mask.count_ones()))
                    .map(|lane| start.wrapping_add_signed(lane.wrapping_mul(stride))),
            );
        }
        "2" => {
            let mut at = address(next("the base address")?)?;
            addresses.push(at);
            for _ in 1..lanes {
                let delta: i64 = next("a delta")?
                    .parse()
                    .map_err(|_| bad("a delta is no number"))?;
                at = at.wrapping_add_signed(delta);
                addresses.push(at);
            }
        }
        mode => return Err(bad(&format!("address mode {mode:?}; accepted: 0, 1, 2"))),
    }
    kernel.accesses += 1;
    for address in addresses {
        if address >= MOST_ADDRESS {
            return Err(bad(&format!("{address:#x} is no address of a device")));
        }
        for page in address / PAGE..=(address + bytes - 1) / PAGE {
            *kernel.pages.entry(page).or_default() |= kind;
        }
    }
    Ok(())
}

/// Bytes of one lane's access, from the opcode.
fn access_bytes(opcode: &str) -> u64 {
    for part in opcode.split('.') {
        match part {
            "128" => return 16,
            "64" => return 8,
            "U8" | "S8" => return 1,
            "U16" | "S16" => return 2,
            _ => {}
        }
    }
    4
}

fn build(file: &Path, commands: &[Command], missing: &[String]) -> Imported {
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
    let (mut copies, mut copied, mut blocks, mut accesses, mut instructions) = (0_u64, 0_u64, 0, 0, 0);
    for command in commands {
        match command {
            Command::CopyIn { address, bytes } => {
                copies += 1;
                copied += bytes;
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
                builder.kernel(NewKernel {
                    name: &kernel.name,
                    reads: runs(1),
                    writes: runs(2),
                    stream: kernel.stream,
                    launches: 1,
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
    report
        .assumed
        .push("blocks walk over a kernel's pages in ascending order, in step in all its ranges".to_owned());
    report
        .missing
        .push("durations: they come from the bytes touched".to_owned());
    if !missing.is_empty() {
        report.missing.push(format!(
            "{} kernels of the list whose files are not beside it, the first {:?}",
            missing.len(),
            missing[0]
        ));
    }
    builder.finish()
}
