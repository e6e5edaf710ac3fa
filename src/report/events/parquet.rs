//! A table as Parquet: required INT64 and UTF-8 columns, zstd, row groups of bounded size.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::{Cell, Kind, Table, TableWriter};

/// Rows of a row group: bounds what is held in memory.
const ROW_GROUP: usize = 1 << 16;

enum Column {
    Int(Vec<i64>),
    Text(Vec<ByteArray>),
}

pub(super) struct ParquetTable {
    writer: SerializedFileWriter<File>,
    columns: Vec<Column>,
    rows: usize,
}

fn failed(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

impl ParquetTable {
    pub fn create(path: &Path, table: &Table) -> io::Result<ParquetTable> {
        let mut fields = Vec::new();
        for (name, kind) in table.columns {
            let field = match kind {
                Kind::Int => Type::primitive_type_builder(name, Physical::INT64),
                Kind::Text => Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
                    .with_logical_type(Some(LogicalType::String)),
            };
            let field = field.with_repetition(Repetition::REQUIRED).build();
            fields.push(Arc::new(field.map_err(failed)?));
        }
        let schema = Type::group_type_builder(table.name).with_fields(fields).build();
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let writer = SerializedFileWriter::new(
            File::create(path)?,
            Arc::new(schema.map_err(failed)?),
            Arc::new(properties),
        )
        .map_err(failed)?;
        let columns = table.columns.iter().map(|(_, kind)| match kind {
            Kind::Int => Column::Int(Vec::new()),
            Kind::Text => Column::Text(Vec::new()),
        });
        Ok(ParquetTable {
            writer,
            columns: columns.collect(),
            rows: 0,
        })
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let Some(mut out) = group.next_column()? else {
                return Err(ParquetError::General("a column is missing".to_owned()));
            };
            match column {
                Column::Int(values) => {
                    out.typed::<Int64Type>().write_batch(values, None, None)?;
                    values.clear();
                }
                Column::Text(values) => {
                    out.typed::<ByteArrayType>().write_batch(values, None, None)?;
                    values.clear();
                }
            }
            out.close()?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }
}

impl TableWriter for ParquetTable {
    fn row(&mut self, row: &[Cell<'_>]) -> io::Result<()> {
        for (column, cell) in self.columns.iter_mut().zip(row) {
            match (column, cell) {
                (Column::Int(values), Cell::Int(value)) => values.push(*value),
                (Column::Text(values), Cell::Text(text)) => values.push(ByteArray::from(*text)),
                _ => return Err(io::Error::other("a value of the wrong kind")),
            }
        }
        self.rows += 1;
        if self.rows == ROW_GROUP {
            self.flush().map_err(failed)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.flush().map_err(failed)?;
        self.writer.close().map_err(failed)?;
        Ok(())
    }
}
