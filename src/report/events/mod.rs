//! Events of a run as files: one table per kind of event, CSV or Parquet, and a database file in the
//! schema of Nsight Systems exports.
//!
//! Events are written while the simulation runs, so that memory does not grow with their number. They
//! lie in a folder of their own until the run's output folder takes them over.

mod csv;
mod nsys;
mod parquet;
pub mod tables;

use std::io;
use std::path::{Path, PathBuf};

pub use nsys::{Device, NsysExport};
pub use tables::{Cell, Kind, Table};

use crate::system::{Probe, Record};

/// How tables are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated values.
    Csv,
    /// Apache Parquet, zstd-compressed.
    Parquet,
}

/// A table that is being written.
trait TableWriter {
    fn row(&mut self, row: &[Cell<'_>]) -> io::Result<()>;
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Writes each record to the table of its kind; a table without rows has no file.
pub struct TableSink {
    folder: PathBuf,
    format: Format,
    writers: Vec<Option<Box<dyn TableWriter>>>,
    written: Vec<PathBuf>,
    failed: Option<io::Error>,
}

impl TableSink {
    /// Files go to `folder`, which exists.
    pub fn new(folder: &Path, format: Format) -> TableSink {
        TableSink {
            folder: folder.to_path_buf(),
            format,
            writers: (0..tables::TABLES.len()).map(|_| None).collect(),
            written: Vec::new(),
            failed: None,
        }
    }

    fn write(&mut self, table: usize, row: &[Cell<'_>]) -> io::Result<()> {
        if self.writers[table].is_none() {
            let spec = &tables::TABLES[table];
            let ending = match self.format {
                Format::Csv => "csv",
                Format::Parquet => "parquet",
            };
            let path = self.folder.join(format!("{}.{ending}", spec.name));
            self.writers[table] = Some(match self.format {
                Format::Csv => Box::new(csv::CsvTable::create(&path, spec)?),
                Format::Parquet => Box::new(parquet::ParquetTable::create(&path, spec)?),
            });
            self.written.push(path);
        }
        match &mut self.writers[table] {
            Some(writer) => writer.row(row),
            None => Ok(()),
        }
    }

    /// Closes all files; their paths, in order of their first row.
    ///
    /// # Errors
    /// The first error of any write.
    pub fn finish(self) -> io::Result<Vec<PathBuf>> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        for writer in self.writers.into_iter().flatten() {
            writer.finish()?;
        }
        Ok(self.written)
    }
}

impl Probe for TableSink {
    fn record(&mut self, record: &Record) {
        if self.failed.is_some() {
            return;
        }
        let (table, row) = tables::row(record);
        self.failed = self.write(table, &row).err();
    }
}

/// Several probes as one.
#[derive(Default)]
pub struct Fan<'a>(pub Vec<&'a mut dyn Probe>);

impl Probe for Fan<'_> {
    fn record(&mut self, record: &Record) {
        for probe in &mut self.0 {
            probe.record(record);
        }
    }
}
