//! A Parquet file of flat columns, written one row group at a time.

use std::fs::File;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

/// A column of one row group.
pub(super) struct Column {
    name: String,
    values: Values,
}

/// The values of a column; `None` is null.
enum Values {
    Flags(Vec<Option<bool>>),
    Integers(Vec<Option<i64>>),
    Numbers(Vec<Option<f64>>),
    Texts(Vec<Option<ByteArray>>),
}

impl Column {
    pub(super) fn flags<R>(name: &str, rows: &[R], value: impl Fn(&R) -> bool) -> Self {
        let values = rows.iter().map(|row| Some(value(row))).collect();
        Self::new(name, Values::Flags(values))
    }

    pub(super) fn integers<R>(name: &str, rows: &[R], value: impl Fn(&R) -> u64) -> Self {
        let signed = |row: &R| Some(i64::try_from(value(row)).unwrap_or(i64::MAX));
        Self::new(name, Values::Integers(rows.iter().map(signed).collect()))
    }

    pub(super) fn numbers<R>(name: &str, rows: &[R], value: impl Fn(&R) -> Option<f64>) -> Self {
        Self::new(name, Values::Numbers(rows.iter().map(value).collect()))
    }

    pub(super) fn texts<R>(name: &str, rows: &[R], value: impl Fn(&R) -> Option<ByteArray>) -> Self {
        Self::new(name, Values::Texts(rows.iter().map(value).collect()))
    }

    fn new(name: &str, values: Values) -> Self {
        Self {
            name: name.to_owned(),
            values,
        }
    }

    /// Returns the column's entry in the schema. Every column may have nulls.
    fn field(&self) -> Result<Type> {
        let (physical, logical) = match &self.values {
            Values::Flags(_) => (Physical::BOOLEAN, None),
            Values::Integers(_) => (Physical::INT64, None),
            Values::Numbers(_) => (Physical::DOUBLE, None),
            Values::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        Type::primitive_type_builder(&self.name, physical)
            .with_logical_type(logical)
            .build()
    }

    fn write(&self, to: &mut SerializedColumnWriter<'_>) -> Result<()> {
        match &self.values {
            Values::Flags(values) => put::<BoolType>(to, values),
            Values::Integers(values) => put::<Int64Type>(to, values),
            Values::Numbers(values) => put::<DoubleType>(to, values),
            Values::Texts(values) => put::<ByteArrayType>(to, values),
        }
    }
}

/// Writes values and nulls: a level of 0 marks a null.
fn put<T: DataType>(to: &mut SerializedColumnWriter<'_>, values: &[Option<T::T>]) -> Result<()> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let present: Vec<T::T> = values.iter().flatten().cloned().collect();
    to.typed::<T>()
        .write_batch(present.as_slice(), Some(levels.as_slice()), None)
        .map(drop)
}

/// An open Parquet file.
pub(super) struct Table(SerializedFileWriter<File>);

impl Table {
    /// Begins a file with the names and types of these columns. Their values are not written.
    pub(super) fn create(file: File, columns: &[Column]) -> Result<Self> {
        let fields = columns.iter().map(|column| column.field().map(Arc::new));
        let schema = Type::group_type_builder("samples")
            .with_fields(fields.collect::<Result<Vec<_>>>()?)
            .build()?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build())).map(Self)
    }

    /// Writes a row group. The columns are those of [`Table::create`], in the same order.
    pub(super) fn write(&mut self, columns: &[Column]) -> Result<()> {
        let mut group = self.0.next_row_group()?;
        for column in columns {
            if let Some(mut writer) = group.next_column()? {
                column.write(&mut writer)?;
                writer.close()?;
            }
        }
        group.close().map(drop)
    }

    /// Writes the end of the file.
    pub(super) fn finish(self) -> Result<File> {
        self.0.into_inner()
    }
}
