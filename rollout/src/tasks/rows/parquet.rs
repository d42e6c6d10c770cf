//! Parquet files, one row group at a time, through the reader of records. It is a smaller part of
//! the crate than the Arrow reader.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use parquet::basic::{Compression, ConvertedType, LogicalType, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::schema::types::ColumnDescriptor;

use super::parquet_json;
use super::row::{self, Row, RowPlace, Sink, bad, malformed, unreadable};
use crate::tasks::TasksError;

fn open(path: &Path) -> Result<SerializedFileReader<File>, TasksError> {
    let file = File::open(path).map_err(|source| unreadable(path, source))?;
    guarded(path, || {
        SerializedFileReader::new(file).map_err(|error| broken(path, &error))
    })
}

fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T, TasksError>) -> Result<T, TasksError> {
    row::guarded(path, "Parquet", work)
}

fn broken(path: &Path, error: &ParquetError) -> TasksError {
    malformed(path, format!("cannot be read as Parquet: {error}"))
}

pub(super) fn count(path: &Path) -> Result<u64, TasksError> {
    let rows = open(path)?.metadata().file_metadata().num_rows();
    Ok(u64::try_from(rows).unwrap_or(0))
}

pub(super) fn read(path: &Path, range: &Range<u64>, sink: &mut Sink<'_>) -> Result<u64, TasksError> {
    let reader = open(path)?;
    refuse(&reader).map_err(|message| malformed(path, message))?;
    let nanos = parquet_json::Nanos::of(reader.metadata().file_metadata().schema_descr());
    let mut first: u64 = 0;
    for index in 0..reader.num_row_groups() {
        let rows = u64::try_from(reader.metadata().row_group(index).num_rows()).unwrap_or(0);
        let group = first..first.saturating_add(rows);
        first = group.end;
        if group.end <= range.start || group.start >= range.end {
            continue;
        }
        let group_reader = guarded(path, || {
            reader.get_row_group(index).map_err(|error| broken(path, &error))
        })?;
        let mut records = guarded(path, || {
            RowIter::from_row_group(None, group_reader.as_ref()).map_err(|error| broken(path, &error))
        })?;
        for row in group.start..group.end.min(range.end) {
            let record = guarded(path, || {
                records.next().transpose().map_err(|error| broken(path, &error))
            })?;
            let Some(record) = record else { break };
            if row < range.start {
                continue;
            }
            let place = RowPlace::Row(row);
            let value = parquet_json::row(&record, &nanos).map_err(|message| bad(path, place, message))?;
            sink(Row {
                path,
                place,
                offset: 0,
                parsed: value.into(),
            })?;
        }
    }
    Ok(first)
}

/// Returns the name of a column that the reader cannot take, before the reader meets it.
fn refuse(reader: &SerializedFileReader<File>) -> Result<(), String> {
    let metadata = reader.metadata();
    let columns = metadata.file_metadata().schema_descr().columns();
    row::refuse_repeated(columns.iter().map(|column| column.path().string()))?;
    for column in columns {
        let name = column.path().string();
        if !is_known(column) {
            return Err(format!(
                "the column {name} is of a type that is not read ({}): leave it out of the file",
                kind(column)
            ));
        }
    }
    for group in metadata.row_groups() {
        for column in group.columns() {
            let packed = match column.compression() {
                Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::GZIP(_) | Compression::ZSTD(_) => {
                    continue;
                }
                Compression::BROTLI(_) => "Brotli",
                Compression::LZO => "LZO",
                Compression::LZ4 | Compression::LZ4_RAW => "LZ4",
            };
            let name = column.column_path().string();
            return Err(format!(
                "the column {name} is packed with {packed}: write the file with snappy, gzip or zstd"
            ));
        }
    }
    Ok(())
}

fn kind(column: &ColumnDescriptor) -> String {
    match column.logical_type_ref() {
        Some(logical) => format!("{logical:?}"),
        None => format!("{} {}", column.physical_type(), column.converted_type()),
    }
}

/// Returns true if the reader of records has a value for this type; it would panic for others. It
/// reads nanoseconds as bare numbers: columns of them are turned back into times, and deeper ones
/// are rejected.
fn is_known(column: &ColumnDescriptor) -> bool {
    use ConvertedType as Kind;
    let converted = column.converted_type();
    let inside = column.path().parts().len() > 1;
    let is_time = matches!(
        column.logical_type_ref(),
        Some(LogicalType::Timestamp(_) | LogicalType::Time(_))
    );
    match column.physical_type() {
        Physical::INT32 => matches!(
            converted,
            Kind::NONE
                | Kind::INT_8
                | Kind::INT_16
                | Kind::INT_32
                | Kind::UINT_8
                | Kind::UINT_16
                | Kind::UINT_32
                | Kind::DATE
                | Kind::TIME_MILLIS
                | Kind::DECIMAL
        ),
        Physical::INT64 => match converted {
            Kind::NONE => !(is_time && inside),
            other => matches!(
                other,
                Kind::INT_64
                    | Kind::UINT_64
                    | Kind::TIME_MICROS
                    | Kind::TIMESTAMP_MILLIS
                    | Kind::TIMESTAMP_MICROS
                    | Kind::DECIMAL
            ),
        },
        Physical::BYTE_ARRAY => matches!(
            converted,
            Kind::NONE | Kind::UTF8 | Kind::ENUM | Kind::JSON | Kind::BSON | Kind::DECIMAL
        ),
        Physical::FIXED_LEN_BYTE_ARRAY => matches!(converted, Kind::NONE | Kind::DECIMAL),
        Physical::BOOLEAN | Physical::INT96 | Physical::FLOAT | Physical::DOUBLE => true,
    }
}
