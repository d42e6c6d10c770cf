//! A row of a record batch as the same JSON that Parquet files give.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Fields, TimeUnit};
use serde_json::{Map, Value};

use super::values::{MILLIS_OF_DAY, bytes, decimal, float, of_day, short_float};

type F16 = <Float16Type as ArrowPrimitiveType>::Native;

/// Returns the row of this number in the batch. The error names the column.
pub(super) fn row(batch: &RecordBatch, row: usize) -> Result<Value, String> {
    object(batch.schema_ref().fields(), batch.columns(), row)
}

fn object(fields: &Fields, columns: &[ArrayRef], row: usize) -> Result<Value, String> {
    let mut object = Map::with_capacity(columns.len());
    for (field, column) in fields.iter().zip(columns) {
        let name = field.name();
        let value = value(column.as_ref(), row).map_err(|message| format!("{name}: {message}"))?;
        object.insert(name.clone(), value);
    }
    Ok(Value::Object(object))
}

fn value(array: &dyn Array, row: usize) -> Result<Value, String> {
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    Ok(match array.data_type() {
        // Nulls of this type have no validity mark.
        DataType::Null => Value::Null,
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).into(),
        DataType::Utf8View => array.as_string_view().value(row).into(),
        DataType::Binary => bytes(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => bytes(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => bytes(array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary().value(row)),
        DataType::List(_) => list(array.as_list::<i32>().value(row).as_ref())?,
        DataType::LargeList(_) => list(array.as_list::<i64>().value(row).as_ref())?,
        DataType::FixedSizeList(..) => list(array.as_fixed_size_list().value(row).as_ref())?,
        DataType::Struct(fields) => object(fields, array.as_struct().columns(), row)?,
        DataType::Map(..) => entries(array.as_map().value(row).columns())?,
        DataType::Dictionary(..) => word(array, row)?,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => date(array, row)?.into(),
        DataType::Time32(_) | DataType::Time64(_) => Value::String(of_day(micros_of_day(array, row)?)),
        _ => number(array, row)?,
    })
}

fn list(items: &dyn Array) -> Result<Value, String> {
    let items = (0..items.len()).map(|row| value(items, row));
    Ok(Value::Array(items.collect::<Result<_, _>>()?))
}

/// Returns a map as a list of `[key, value]`.
fn entries(columns: &[ArrayRef]) -> Result<Value, String> {
    let length = columns.first().map_or(0, |keys| keys.len());
    let entry = |row| {
        let pair = columns.iter().map(|column| value(column.as_ref(), row));
        Ok(Value::Array(pair.collect::<Result<_, String>>()?))
    };
    Ok(Value::Array((0..length).map(entry).collect::<Result<_, String>>()?))
}

/// Returns the value of a dictionary under this row's key.
fn word(array: &dyn Array, row: usize) -> Result<Value, String> {
    let dictionary = array.as_any_dictionary();
    let key = number(dictionary.keys(), row)?.as_u64();
    let key = key.and_then(|key| usize::try_from(key).ok());
    let words = dictionary.values();
    match key.filter(|key| *key < words.len()) {
        Some(key) => value(words.as_ref(), key),
        None => Err("its dictionary has no value for a row's key: the file is damaged".to_owned()),
    }
}

/// Returns the value of a column of one primitive type.
fn of<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

fn number(array: &dyn Array, row: usize) -> Result<Value, String> {
    let digits = |number: i128, scale: i8| Value::String(decimal(number, usize::try_from(scale).unwrap_or(0)));
    Ok(match array.data_type() {
        DataType::Int8 => of::<Int8Type>(array, row).into(),
        DataType::Int16 => of::<Int16Type>(array, row).into(),
        DataType::Int32 => of::<Int32Type>(array, row).into(),
        DataType::Int64 => of::<Int64Type>(array, row).into(),
        DataType::UInt8 => of::<UInt8Type>(array, row).into(),
        DataType::UInt16 => of::<UInt16Type>(array, row).into(),
        DataType::UInt32 => of::<UInt32Type>(array, row).into(),
        DataType::UInt64 => of::<UInt64Type>(array, row).into(),
        DataType::Float16 => {
            let value = of::<Float16Type>(array, row);
            short_float(value.to_f64(), |short| F16::from_f64(short) == value)
        }
        DataType::Float32 => {
            let value = of::<Float32Type>(array, row);
            short_float(value.into(), |short| short as f32 == value)
        }
        DataType::Float64 => float(of::<Float64Type>(array, row)),
        DataType::Decimal32(_, scale) => digits(i128::from(of::<Decimal32Type>(array, row)), *scale),
        DataType::Decimal64(_, scale) => digits(i128::from(of::<Decimal64Type>(array, row)), *scale),
        DataType::Decimal128(_, scale) => digits(of::<Decimal128Type>(array, row), *scale),
        other => return Err(unread(other)),
    })
}

/// Returns a day or a moment, from milliseconds since 1970.
fn date(array: &dyn Array, row: usize) -> Result<i64, String> {
    Ok(match array.data_type() {
        DataType::Date32 => i64::from(of::<Date32Type>(array, row)) * MILLIS_OF_DAY,
        DataType::Date64 => of::<Date64Type>(array, row),
        DataType::Timestamp(TimeUnit::Second, _) => {
            let millis = of::<TimestampSecondType>(array, row).checked_mul(1000);
            millis.ok_or_else(|| "a time so far away does not go into milliseconds".to_owned())?
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => of::<TimestampMillisecondType>(array, row),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of::<TimestampMicrosecondType>(array, row).div_euclid(1000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => of::<TimestampNanosecondType>(array, row).div_euclid(1_000_000),
        other => return Err(unread(other)),
    })
}

/// Returns a time of day, from microseconds.
fn micros_of_day(array: &dyn Array, row: usize) -> Result<i64, String> {
    Ok(match array.data_type() {
        DataType::Time32(TimeUnit::Second) => i64::from(of::<Time32SecondType>(array, row)) * 1_000_000,
        DataType::Time32(TimeUnit::Millisecond) => i64::from(of::<Time32MillisecondType>(array, row)) * 1000,
        DataType::Time64(TimeUnit::Microsecond) => of::<Time64MicrosecondType>(array, row),
        DataType::Time64(TimeUnit::Nanosecond) => of::<Time64NanosecondType>(array, row).div_euclid(1000),
        other => return Err(unread(other)),
    })
}

fn unread(kind: &DataType) -> String {
    format!("values of the type {kind} are not read: leave the column out")
}
