//! Writing programs.

use std::io::Write;

use serde::Serialize;

use super::{FORMAT, Op, Program};

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
