//! Writing programs.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde::Serialize;

use super::{FORMAT, Op, Program, ProgramError};

/// Level of compression: programs shrink tenfold at little cost.
const LEVEL: i32 = 9;

/// Writes a program to a file, compressed if its name ends in `.zst` or `.gz`.
///
/// # Errors
/// The file cannot be written.
pub fn save(program: &Program, path: &Path) -> Result<(), ProgramError> {
    let io = |source| ProgramError::Io {
        file: path.display().to_string(),
        source,
    };
    let mut file = BufWriter::new(File::create(path).map_err(io)?);
    match path.extension().and_then(|end| end.to_str()) {
        Some("zst") => {
            let mut out = zstd::stream::write::Encoder::new(&mut file, LEVEL).map_err(io)?;
            write(program, &mut out).map_err(io)?;
            out.finish().map_err(io)?;
        }
        Some("gz") => {
            let mut out = flate2::write::GzEncoder::new(&mut file, flate2::Compression::default());
            write(program, &mut out).map_err(io)?;
            out.finish().map_err(io)?;
        }
        _ => write(program, &mut file).map_err(io)?,
    }
    file.flush().map_err(io)
}

#[derive(Serialize)]
struct Header<'a> {
    format: &'a str,
    name: &'a str,
    iterations: u32,
}

/// Writes a program as JSON Lines.
///
/// # Errors
/// The writer's.
pub fn write(program: &Program, out: &mut impl Write) -> std::io::Result<()> {
    let iterations = program.iterations.len() as u32;
    let mut line = |value: &dyn erased::Line| value.write(out);
    line(&Header {
        format: FORMAT,
        name: &program.name,
        iterations,
    })?;
    for op in &program.setup {
        line(op)?;
    }
    for (i, ops) in program.iterations.iter().enumerate() {
        line(&Op::Iter { i: i as u32 })?;
        for op in ops {
            line(op)?;
        }
    }
    Ok(())
}

mod erased {
    use std::io::Write;

    use serde::Serialize;

    /// Anything that is one JSON line.
    pub trait Line {
        fn write(&self, out: &mut dyn Write) -> std::io::Result<()>;
    }

    impl<T: Serialize> Line for T {
        fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
            serde_json::to_writer(&mut *out, self)?;
            out.write_all(b"\n")
        }
    }
}
