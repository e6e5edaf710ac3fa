//! Lines of a program file, plain or compressed, and going back to one of them.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::ProgramError;

/// A line longer than this is refused: no honest operation needs it.
const MAX_LINE: u64 = 64 << 20;

/// Where a line begins, in the text as it is without compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Bytes before it.
    pub offset: u64,
    /// Lines before it.
    pub lines: u64,
}

/// The text of a program.
pub(super) type Text = Box<dyn BufRead + Send>;

/// Reads line by line; knows its place.
pub(super) struct Lines<R> {
    reader: R,
    /// For messages.
    file: String,
    buffer: Vec<u8>,
    place: Place,
}

impl<R> fmt::Debug for Lines<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("file", &self.file)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl<R: BufRead> Lines<R> {
    /// From `place` on, where `reader` already is; `file` is for messages.
    pub fn new(reader: R, file: &str, place: Place) -> Lines<R> {
        Lines {
            reader,
            file: file.to_owned(),
            buffer: Vec::new(),
            place,
        }
    }

    /// Where the next line begins.
    pub fn place(&self) -> Place {
        self.place
    }

    /// An error in the line read last; after the end, in the line that is missing.
    pub fn wrong(&self, what: String) -> ProgramError {
        ProgramError::Line {
            file: self.file.clone(),
            line: self.place.lines,
            what,
        }
    }

    /// The next line that is not blank, trimmed; `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read, or the line is too long or not UTF-8.
    pub fn next(&mut self) -> Result<Option<&str>, ProgramError> {
        loop {
            self.buffer.clear();
            self.place.lines += 1;
            let read = (&mut self.reader)
                .take(MAX_LINE)
                .read_until(b'\n', &mut self.buffer)
                .map_err(|error| {
                    self.wrong(format!(
                        "cannot be read: {error}; is the file truncated or not what its name says?"
                    ))
                })?;
            if read == 0 {
                return Ok(None);
            }
            self.place.offset += read as u64;
            if read as u64 == MAX_LINE {
                return Err(self.wrong(format!("the line has more than {MAX_LINE} bytes")));
            }
            if !std::str::from_utf8(&self.buffer).is_ok_and(|text| trimmed(text).is_empty()) {
                break;
            }
        }
        let text = std::str::from_utf8(&self.buffer).map_err(|error| {
            self.wrong(format!(
                "not UTF-8 at byte {} of the line",
                error.valid_up_to() + 1
            ))
        })?;
        Ok(Some(trimmed(text)))
    }
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(['\u{feff}', ' ', '\t', '\r', '\n'])
}

/// The text of `file` from `offset` on; compressed or not is seen from its first bytes.
///
/// # Errors
/// Those of the file system.
pub(super) fn text_at(file: File, offset: u64) -> std::io::Result<Text> {
    let mut reader = BufReader::new(file);
    let magic = reader.fill_buf()?;
    let (gzip, zstd) = (
        magic.starts_with(&[0x1f, 0x8b]),
        magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]),
    );
    let mut text: Text = if gzip {
        Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(reader)))
    } else if zstd {
        Box::new(BufReader::new(zstd::stream::read::Decoder::with_buffer(reader)?))
    } else {
        if offset > 0 {
            reader.seek(SeekFrom::Start(offset))?;
        }
        return Ok(Box::new(reader));
    };
    // A compressed text can only be read from its beginning.
    std::io::copy(&mut (&mut text).take(offset), &mut std::io::sink())?;
    Ok(text)
}

/// Opens `path`.
///
/// # Errors
/// [`ProgramError::Io`].
pub(super) fn open(path: &Path) -> Result<File, ProgramError> {
    File::open(path).map_err(|source| io(path, source))
}

/// An error of the file system.
pub(super) fn io(path: &Path, source: std::io::Error) -> ProgramError {
    ProgramError::Io {
        file: path.display().to_string(),
        source,
    }
}
