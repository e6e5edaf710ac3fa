//! One line of a trace: an instruction of a warp.

/// Addresses from here on are no device addresses.
pub(super) const MOST_ADDRESS: u64 = 1 << 57;
/// Addresses below are offsets into shared memory (at most 228 KiB), as `LDGSTS` lists them beside its
/// global ones.
const LEAST_ADDRESS: u64 = 1 << 20;

/// What an instruction does to global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// None: arithmetic, control, other memories.
    None,
    Load,
    Store,
    /// Reads and writes.
    Atomic,
}

/// An instruction, reused from line to line.
#[derive(Debug)]
pub(super) struct Instruction {
    /// Thread block and warp, in traces that name them on every line.
    pub owner: Option<([u32; 3], u32)>,
    /// Registers written and read, by number.
    pub destinations: Vec<u32>,
    pub sources: Vec<u32>,
    pub effect: Effect,
    /// Of one lane's access.
    pub bytes: u64,
    /// Of the active lanes.
    pub addresses: Vec<u64>,
}

/// What the head of a trace says about its lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Version of the tracer: before 3, every line names its block and warp.
    pub version: u32,
    /// Every line begins with a source line.
    pub line_numbers: bool,
    /// Where the windows of shared and local memory begin in the generic address space.
    pub windows: [Option<u64>; 2],
}

/// Size of the windows of shared and of local memory in the generic address space: the traces at hand have
/// them on multiples of 16 MiB.
const WINDOW: u64 = 16 << 20;

impl Default for Layout {
    fn default() -> Layout {
        Layout {
            version: 5,
            line_numbers: false,
            windows: [None; 2],
        }
    }
}

impl Instruction {
    pub fn new() -> Instruction {
        Instruction {
            owner: None,
            destinations: Vec::new(),
            sources: Vec::new(),
            effect: Effect::None,
            bytes: 0,
            addresses: Vec::new(),
        }
    }

    /// Reads `[block, warp] [line] PC mask n destinations... opcode n sources... width [mode addresses...]`.
    pub fn parse(&mut self, text: &str, layout: &Layout) -> Result<(), String> {
        self.owner = None;
        self.effect = Effect::None;
        self.destinations.clear();
        self.sources.clear();
        self.addresses.clear();
        let mut tokens = text.split_whitespace();
        let bad = |what: &str| format!("{:?}: {what}", head(text));
        let mut next = |what: &str| {
            tokens
                .next()
                .ok_or_else(|| bad(&format!("{what} is missing; is the file truncated?")))
        };
        if layout.version < 3 {
            let mut number = |what: &str| -> Result<u32, String> {
                next(what)?
                    .parse()
                    .map_err(|_| bad(&format!("{what} is no number")))
            };
            let block = [number("block x")?, number("block y")?, number("block z")?];
            self.owner = Some((block, number("the warp")?));
        }
        if layout.line_numbers {
            next("the line number")?;
        }
        next("the program counter")?;
        let mask =
            u32::from_str_radix(next("the mask")?, 16).map_err(|_| bad("the mask is not hexadecimal"))?;
        let count = |text: &str| text.parse::<u32>().ok().filter(|n| *n <= 16);
        let register = |text: &str| {
            text.strip_prefix('R')
                .and_then(|number| number.parse::<u32>().ok())
        };
        for _ in
            0..count(next("the number of destinations")?).ok_or_else(|| bad("no number of destinations"))?
        {
            self.destinations.extend(register(next("a destination")?));
        }
        let opcode = next("the opcode")?;
        for _ in 0..count(next("the number of sources")?).ok_or_else(|| bad("no number of sources"))? {
            self.sources.extend(register(next("a source")?));
        }
        let width: u64 = next("the width")?
            .parse()
            .map_err(|_| bad("the width is no number"))?;
        let base = opcode.split('.').next().unwrap_or_default();
        let effect = match base {
            "LDG" | "LD" | "LDGSTS" => Effect::Load,
            "STG" | "ST" => Effect::Store,
            "ATOM" | "ATOMG" | "RED" => Effect::Atomic,
            _ => return Ok(()),
        };
        let lanes = mask.count_ones();
        if width == 0 || lanes == 0 {
            return Ok(());
        }
        self.bytes = access_bytes(opcode);
        // A copy to shared memory lists an address of each: as many groups as there are.
        let groups = if base == "LDGSTS" { 2 } else { 1 };
        for group in 0..groups {
            let mode = match (group, next("the address mode")) {
                (1, Err(_)) => break,
                (_, mode) => mode?,
            };
            let before = self.addresses.len();
            match self.group(mode, lanes, &mut next, &bad) {
                // What follows may be the immediate instead of a second group.
                Err(_) if group == 1 => self.addresses.truncate(before),
                read => read?,
            }
        }
        if base == "LDGSTS" {
            self.addresses.retain(|address| *address >= LEAST_ADDRESS);
        }
        let generic = matches!(base, "LD" | "ST" | "ATOM");
        if generic {
            let inside = |address: u64, start: u64| address >= start && address - start < WINDOW;
            let windows = layout.windows;
            self.addresses
                .retain(|address| !windows.iter().flatten().any(|window| inside(*address, *window)));
        }
        if let Some(address) = self.addresses.iter().find(|address| **address >= MOST_ADDRESS) {
            return Err(bad(&format!("{address:#x} is no address of a device")));
        }
        if !self.addresses.is_empty() {
            self.effect = effect;
        }
        Ok(())
    }

    /// The addresses of the active lanes, in one of three encodings.
    fn group<'t>(
        &mut self,
        mode: &str,
        lanes: u32,
        next: &mut impl FnMut(&str) -> Result<&'t str, String>,
        bad: &impl Fn(&str) -> String,
    ) -> Result<(), String> {
        let address = |text: &str| hexadecimal(text).ok_or_else(|| bad("an address is not 0x..."));
        match mode {
            "0" => {
                for _ in 0..lanes {
                    self.addresses.push(address(next("an address")?)?);
                }
            }
            "1" => {
                let start = address(next("the base address")?)?;
                let stride: i64 = next("the stride")?
                    .parse()
                    .map_err(|_| bad("the stride is no number"))?;
                let lane = |lane| start.wrapping_add_signed(stride.wrapping_mul(lane));
                self.addresses.extend((0..i64::from(lanes)).map(lane));
            }
            "2" => {
                let mut at = address(next("the base address")?)?;
                self.addresses.push(at);
                for _ in 1..lanes {
                    let delta: i64 = next("a delta")?
                        .parse()
                        .map_err(|_| bad("a delta is no number"))?;
                    at = at.wrapping_add_signed(delta);
                    self.addresses.push(at);
                }
            }
            mode => return Err(bad(&format!("address mode {mode:?}; accepted: 0, 1, 2"))),
        }
        Ok(())
    }
}

pub(super) fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// The beginning of a line, for a message.
pub(super) fn head(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Bytes of one lane's access, from the opcode: the recorded width can be wrong.
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
