//! A record of a Parquet file as the JSON that `datasets.Dataset.to_json` writes. There are two
//! differences: floats keep all their digits, and whole numbers in a column with nulls stay whole.

use std::collections::BTreeMap;

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::data_type::Decimal;
use parquet::record::{Field, Row};
use parquet::schema::types::SchemaDescriptor;
use serde_json::{Map, Value};

use super::values::{MILLIS_OF_DAY, bytes, decimal, float, of_day, short_float};

type F16 = <arrow_array::types::Float16Type as arrow_array::types::ArrowPrimitiveType>::Native;

/// Columns of nanoseconds, which the reader gives as bare numbers.
pub(super) struct Nanos(BTreeMap<String, Clock>);

#[derive(Clone, Copy)]
enum Clock {
    Date,
    OfDay,
}

impl Nanos {
    pub(super) fn of(schema: &SchemaDescriptor) -> Self {
        let of_column = |column: &parquet::schema::types::ColumnDescPtr| {
            if column.physical_type() != Physical::INT64 || column.converted_type() != ConvertedType::NONE {
                return None;
            }
            let clock = match column.logical_type_ref()? {
                LogicalType::Timestamp(time) if time.unit == TimeUnit::NANOS => Clock::Date,
                LogicalType::Time(time) if time.unit == TimeUnit::NANOS => Clock::OfDay,
                _ => return None,
            };
            Some((column.path().string(), clock))
        };
        Self(schema.columns().iter().filter_map(of_column).collect())
    }
}

/// Returns the record as JSON. The error names the column.
pub(super) fn row(record: &Row, nanos: &Nanos) -> Result<Value, String> {
    let mut object = Map::with_capacity(record.len());
    for (name, field) in record.get_column_iter() {
        let value = match (field, nanos.0.get(name)) {
            (Field::Long(time), Some(Clock::Date)) => time.div_euclid(1_000_000).into(),
            (Field::Long(time), Some(Clock::OfDay)) => Value::String(of_day(time.div_euclid(1000))),
            _ => value(field).map_err(|message| format!("{name}: {message}"))?,
        };
        object.insert(name.clone(), value);
    }
    Ok(Value::Object(object))
}

fn value(field: &Field) -> Result<Value, String> {
    Ok(match field {
        Field::Null => Value::Null,
        Field::Bool(value) => (*value).into(),
        Field::Byte(value) => (*value).into(),
        Field::Short(value) => (*value).into(),
        Field::Int(value) => (*value).into(),
        Field::Long(value) => (*value).into(),
        Field::UByte(value) => (*value).into(),
        Field::UShort(value) => (*value).into(),
        Field::UInt(value) => (*value).into(),
        Field::ULong(value) => (*value).into(),
        Field::Float16(value) => short_float(value.to_f64(), |short| F16::from_f64(short) == *value),
        Field::Float(value) => short_float((*value).into(), |short| short as f32 == *value),
        Field::Double(value) => float(*value),
        Field::Decimal(value) => Value::String(digits(value)?),
        Field::Str(value) => value.as_str().into(),
        Field::Bytes(value) => bytes(value.data()),
        Field::Date(days) => (i64::from(*days) * MILLIS_OF_DAY).into(),
        Field::TimeMillis(time) => Value::String(of_day(i64::from(*time) * 1000)),
        Field::TimeMicros(time) => Value::String(of_day(*time)),
        Field::TimestampMillis(time) => (*time).into(),
        Field::TimestampMicros(time) => time.div_euclid(1000).into(),
        Field::Group(record) => {
            let fields = record.get_column_iter();
            let fields = fields.map(|(name, field)| Ok((name.clone(), value(field)?)));
            Value::Object(fields.collect::<Result<_, String>>()?)
        }
        Field::ListInternal(list) => Value::Array(list.elements().iter().map(value).collect::<Result<_, _>>()?),
        Field::MapInternal(map) => {
            let entry = |(key, field): &(Field, Field)| Ok(Value::Array(vec![value(key)?, value(field)?]));
            Value::Array(map.entries().iter().map(entry).collect::<Result<_, String>>()?)
        }
    })
}

/// Returns all digits, as a text.
fn digits(value: &Decimal) -> Result<String, String> {
    let data = value.data();
    if data.is_empty() || data.len() > 16 {
        return Err("a decimal of more than 38 digits is not read: leave the column out".into());
    }
    let begin = if data[0] & 0x80 == 0 { 0 } else { -1_i128 };
    let number = data.iter().fold(begin, |number, byte| number << 8 | i128::from(*byte));
    Ok(decimal(number, usize::try_from(value.scale()).unwrap_or(0)))
}
