//! A record of a Parquet file as the JSON that `datasets.Dataset.to_json` writes, but that floats keep all their digits and whole
//! numbers beside nulls stay whole.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::data_type::Decimal;
use parquet::record::{Field, Row};
use parquet::schema::types::SchemaDescriptor;
use serde_json::{Map, Number, Value};

const MILLIS_OF_DAY: i64 = 86_400_000;

/// Columns of nanoseconds, which are read as bare numbers.
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

/// The error names the column.
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
        Field::Float16(value) => float(value.to_f64()),
        Field::Float(value) => float(f64::from(*value)),
        Field::Double(value) => float(*value),
        Field::Decimal(value) => Value::String(decimal(value)?),
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

/// JSON knows neither infinity nor what is no number.
fn float(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Text if it is any; other bytes, such as those of images, in base64.
fn bytes(data: &[u8]) -> Value {
    match std::str::from_utf8(data) {
        Ok(text) => text.into(),
        Err(_) => STANDARD.encode(data).into(),
    }
}

/// `HH:MM:SS`, and microseconds if there are any, as Python writes a time.
fn of_day(micros: i64) -> String {
    let (seconds, micros) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let whole = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if micros == 0 {
        whole
    } else {
        format!("{whole}.{micros:06}")
    }
}

/// All digits, as a text: JSON's numbers would lose some.
fn decimal(value: &Decimal) -> Result<String, String> {
    let data = value.data();
    if data.is_empty() || data.len() > 16 {
        return Err("a decimal of more than 38 digits is not read: leave the column out".into());
    }
    let begin = if data[0] & 0x80 == 0 { 0 } else { -1_i128 };
    let number = data.iter().fold(begin, |number, byte| number << 8 | i128::from(*byte));
    let scale = usize::try_from(value.scale()).unwrap_or(0);
    let digits = format!("{:0>width$}", number.unsigned_abs(), width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    let sign = if number < 0 { "-" } else { "" };
    Ok(if scale == 0 {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{part}")
    })
}
