//! Mutates recordings and feeds them to the importers and to the reader of programs: nothing may panic,
//! and memory and time stay bounded.
//!
//! ```console
//! $ cargo run --release -p workloads --example fuzz_importers -- TARGET SECONDS SEED_FILE...
//! ```
//!
//! TARGET is `import` (any format, by content) or `program` (`.uvmprog`). Seeds are whole recordings, as
//! those in `workloads/tests/corpus/` or larger ones;
//! mutations flip, insert, delete, repeat and splice bytes, and replace numbers by extreme ones. It prints
//! the inputs tried and the slowest; an input that panics is kept in `fuzz-failure-N`.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sim_core::rng::Stream;
use workloads::import::{Limits, import};

/// Numbers and words that parsers stumble over.
const TOKENS: [&[u8]; 16] = [
    b"0",
    b"-1",
    b"18446744073709551615",
    b"9223372036854775808",
    b"1e308",
    b"-1e-308",
    b"4294967296",
    b"null",
    b"[]",
    b"{}",
    b"\"\"",
    b"[[[[[[[[",
    b"\x00",
    b"\xff\xff\xff\xff",
    b"\\u0000",
    b"NaN",
];

fn mutate(seed: &[u8], other: &[u8], stream: &mut Stream) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=stream.below(6) {
        if bytes.is_empty() {
            bytes.push(b'{');
        }
        let at = stream.below(bytes.len() as u64) as usize;
        let length = (stream.below(64) as usize).min(bytes.len() - at);
        match stream.below(8) {
            0 => bytes[at] ^= 1 << stream.below(8),
            1 => bytes[at] = stream.below(256) as u8,
            2 => {
                bytes.drain(at..at + length);
            }
            3 => {
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => bytes.truncate(at),
            5 => {
                let token = TOKENS[stream.below(TOKENS.len() as u64) as usize];
                bytes.splice(at..at, token.iter().copied());
            }
            6 => {
                // A number becomes another one.
                let is_digit = |byte: &u8| byte.is_ascii_digit();
                if let Some(first) = bytes[at..].iter().position(is_digit).map(|n| at + n) {
                    let end = bytes[first..]
                        .iter()
                        .position(|byte| !is_digit(byte))
                        .map_or(bytes.len(), |n| first + n);
                    let token = TOKENS[stream.below(8) as usize];
                    bytes.splice(first..end, token.iter().copied());
                }
            }
            _ => {
                if !other.is_empty() {
                    let from = stream.below(other.len() as u64) as usize;
                    let end = (from + length).min(other.len());
                    bytes.splice(at..at, other[from..end].iter().copied());
                }
            }
        }
    }
    bytes
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(target), Some(seconds)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: fuzz_importers import|program SECONDS SEED_FILE...");
        std::process::exit(2);
    };
    let seconds: u64 = seconds.parse().unwrap_or(60);
    let seeds: Vec<Vec<u8>> = arguments
        .filter_map(|path| std::fs::read(PathBuf::from(path)).ok())
        .collect();
    if seeds.is_empty() {
        eprintln!("no seed file can be read");
        std::process::exit(2);
    }
    let limits = Limits {
        max_bytes: 64 << 20,
        max_events: 1_000_000,
    };
    // Found, not told: what a panic says is printed by the hook, once.
    let file = std::env::temp_dir().join(format!("fuzz-{}", std::process::id()));
    let mut stream = Stream::new(std::process::id().into(), "fuzz");
    let (start, mut tried, mut accepted, mut failures) = (Instant::now(), 0_u64, 0_u64, 0_u32);
    let mut slowest = Duration::ZERO;
    while start.elapsed() < Duration::from_secs(seconds) {
        let pick = |stream: &mut Stream| stream.below(seeds.len() as u64) as usize;
        let (seed, other) = (pick(&mut stream), pick(&mut stream));
        let bytes = mutate(&seeds[seed], &seeds[other], &mut stream);
        let began = Instant::now();
        let attempt = std::panic::catch_unwind(|| {
            if target == "program" {
                workloads::program::parse(bytes.as_slice(), "fuzz").is_ok()
            } else {
                std::fs::write(&file, &bytes).expect("a scratch file can be written");
                import(std::slice::from_ref(&file), &limits).is_ok()
            }
        });
        slowest = slowest.max(began.elapsed());
        tried += 1;
        if let Ok(good) = attempt {
            accepted += u64::from(good);
        } else {
            failures += 1;
            let kept = format!("fuzz-failure-{failures}");
            let _ = std::fs::write(&kept, &bytes);
            eprintln!("panic; input kept in {kept}");
        }
    }
    // The scratch file may not be there if nothing was tried.
    let _ = std::fs::remove_file(&file);
    let _ = writeln!(
        std::io::stdout(),
        "{target}: {tried} inputs in {seconds} s, {accepted} accepted, {failures} panics, slowest {slowest:?}"
    );
    std::process::exit(i32::from(failures > 0));
}
