//! What the fuzz targets try: any bytes as a recording of each format, and as a program.
//!
//! Nothing may panic, time and memory stay bounded, and a recording that is accepted gives a program that the
//! reader of programs accepts.

use std::cell::RefCell;
use std::io::{Seek, Write};
use std::path::Path;

use tempfile::NamedTempFile;
use workloads::import::{self, ImportError, Imported, Limits};
use workloads::program;

/// Small, so that an input that would need much fails early.
const LIMITS: Limits = Limits {
    max_bytes: 16 << 20,
    max_events: 100_000,
};

thread_local! {
    /// Importers read files: one file for all inputs.
    static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().expect("a temporary file"));
}

fn try_import(bytes: &[u8], import: impl Fn(&Path) -> Result<Imported, ImportError>) {
    let imported = FILE.with_borrow_mut(|file| {
        file.rewind().and_then(|()| file.write_all(bytes)).expect("written");
        file.as_file().set_len(bytes.len() as u64).expect("cut");
        import(file.path())
    });
    if let Ok(imported) = imported {
        let mut text = Vec::new();
        program::write(&imported.program, &mut text).expect("written");
        let again = program::parse(text.as_slice(), "written").expect("an accepted recording is a valid program");
        assert!(again == imported.program, "the program changes when it is written and read");
    }
}

/// PyTorch profiler.
pub fn kineto(bytes: &[u8]) {
    try_import(bytes, |file| import::kineto::import(file, &LIMITS));
}

/// PyTorch execution trace.
pub fn execution_trace(bytes: &[u8]) {
    try_import(bytes, |file| import::execution_trace::import(file, None, &LIMITS));
}

/// PyTorch memory snapshot.
pub fn snapshot(bytes: &[u8]) {
    try_import(bytes, |file| import::snapshot::import(file, &LIMITS));
}

/// Nsight Systems.
pub fn nsys(bytes: &[u8]) {
    try_import(bytes, |file| import::nsys::import(file));
}

/// Accel-Sim.
pub fn accelsim(bytes: &[u8]) {
    try_import(bytes, |file| import::accelsim::import(file, &LIMITS));
}

/// G10.
pub fn g10(bytes: &[u8]) {
    try_import(bytes, |file| import::g10::import(file, &LIMITS));
}

/// Training traces of our own; any format that is told by its content.
pub fn train_trace(bytes: &[u8]) {
    try_import(bytes, |file| import::import(&[file.to_path_buf()], &LIMITS));
}

/// Programs.
pub fn program(bytes: &[u8]) {
    let Ok(program) = program::parse(bytes, "fuzz") else {
        return;
    };
    let mut text = Vec::new();
    program::write(&program, &mut text).expect("written");
    let again = program::parse(text.as_slice(), "written").expect("a valid program stays one");
    assert!(again == program, "the program changes when it is written and read");
}
