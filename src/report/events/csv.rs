//! A table as CSV.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use super::{Cell, Table, TableWriter};

pub(super) struct CsvTable {
    writer: csv::Writer<BufWriter<File>>,
}

impl CsvTable {
    pub fn create(path: &Path, table: &Table) -> io::Result<CsvTable> {
        let mut writer = csv::Writer::from_writer(BufWriter::new(File::create(path)?));
        writer.write_record(table.columns.iter().map(|(name, _)| name))?;
        Ok(CsvTable { writer })
    }
}

impl TableWriter for CsvTable {
    fn row(&mut self, row: &[Cell<'_>]) -> io::Result<()> {
        for cell in row {
            match cell {
                Cell::Int(value) => self.writer.write_field(value.to_string())?,
                Cell::Text(text) => self.writer.write_field(text)?,
            }
        }
        self.writer.write_record(None::<&[u8]>)?;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.writer.flush()
    }
}
