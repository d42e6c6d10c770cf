//! The column types of Arrow files that are read.

use arrow_schema::{DataType, Schema};

use super::row::refuse_repeated;

/// Returns the name of a column that cannot be read, before its rows are met.
pub(super) fn refuse(schema: &Schema) -> Result<(), String> {
    refuse_repeated(schema.fields().iter().map(|column| column.name().clone()))?;
    let mut columns = schema.fields().iter();
    columns.try_for_each(|column| known(column.name(), column.data_type()))
}

fn known(name: &str, kind: &DataType) -> Result<(), String> {
    match kind {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            known(&format!("{name}[]"), item.data_type())
        }
        DataType::Struct(fields) => {
            refuse_repeated(fields.iter().map(|field| format!("{name}.{}", field.name())))?;
            let mut fields = fields.iter();
            fields.try_for_each(|field| known(&format!("{name}.{}", field.name()), field.data_type()))
        }
        DataType::Map(entries, _) => known(name, entries.data_type()),
        DataType::Dictionary(_, values) => known(name, values),
        kind if is_plain(kind) => Ok(()),
        kind => Err(format!(
            "the column {name} is of a type that is not read ({kind}): leave it out of the file"
        )),
    }
}

/// Returns true if the reader can read this type of single values. Decimals of more than 38 digits,
/// and those with a negative scale, are not read.
fn is_plain(kind: &DataType) -> bool {
    match kind {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => *scale >= 0,
        DataType::Null | DataType::Boolean => true,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => true,
        DataType::Date32 | DataType::Date64 => true,
        DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => true,
        kind => kind.is_integer() || kind.is_floating(),
    }
}
