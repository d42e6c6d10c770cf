//! Values with a unit (`"30s"`, `"256 KiB"`), devices and dates.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Splits `"1.5 m"` into its number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

/// A length of time, written as `"250ms"`, `"30s"`, `"5m"` or `"2h"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

impl HumanDuration {
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text)?;
        let seconds = match unit {
            "ms" => number / 1e3,
            "s" => number,
            "m" | "min" => number * 60.0,
            "h" => number * 3600.0,
            _ => return None,
        };
        Duration::try_from_secs_f64(seconds).ok().map(Self)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_millis();
        if milliseconds.is_multiple_of(1000) {
            write!(f, "{}s", milliseconds / 1000)
        } else {
            write!(f, "{milliseconds}ms")
        }
    }
}

/// A size in bytes, written as `"512"`, `"64 KiB"`, `"1 MiB"` or `"2 GiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text)?;
        let factor: u64 = match unit {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        };
        Some(Self((number * factor as f64) as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units
            .iter()
            .find(|(size, _)| self.0 >= *size && self.0.is_multiple_of(*size))
        {
            Some((size, unit)) => write!(f, "{} {unit}", self.0 / size),
            None => write!(f, "{}", self.0),
        }
    }
}

/// The device of an agent, written as `"cpu"`, `"cuda"` (the first GPU) or `"cuda:1"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DeviceName {
    #[default]
    Cpu,
    Cuda(usize),
}

impl DeviceName {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::Cuda(0)),
            _ => text.strip_prefix("cuda:")?.parse().ok().map(Self::Cuda),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// A day of the Gregorian calendar in the years 1000 to 9999, written as `"2026-11-23"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: i64,
    month: i64,
    day: i64,
}

impl Date {
    fn parse(text: &str) -> Option<Self> {
        let number = |part: &str, digits: usize| {
            let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { part.parse::<i64>().ok() } else { None }
        };
        let mut parts = text.split('-');
        let date = Self {
            year: number(parts.next()?, 4)?,
            month: number(parts.next()?, 2)?,
            day: number(parts.next()?, 2)?,
        };
        (parts.next().is_none() && date.exists()).then_some(date)
    }

    /// Returns true if the calendar has this day and the year has four digits.
    fn exists(self) -> bool {
        let leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let days = match self.month {
            2 => 28 + i64::from(leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        self.year >= 1000 && (1..=12).contains(&self.month) && (1..=days).contains(&self.day)
    }

    /// Returns the first second of the day in UTC, in seconds since 1970 (Hinnant,
    /// "chrono-compatible low-level date algorithms").
    #[must_use]
    pub fn seconds(self) -> i64 {
        // Years begin on March 1, so that a leap day is the last day of its year.
        let year = self.year - i64::from(self.month <= 2);
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let months_since_march = (self.month + 9) % 12;
        let day_of_year = (153 * months_since_march + 2) / 5 + self.day - 1;
        let day_of_era = 365 * year_of_era + year_of_era / 4 - year_of_era / 100 + day_of_year;
        // There are 719 468 days from 0000-03-01 to 1970-01-01.
        86_400 * (146_097 * era + day_of_era - 719_468)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// The schema type of a table that accepts any keys and values.
pub(crate) type AnyTable = BTreeMap<String, serde_json::Value>;

/// Makes a configuration value a string that `parse` reads. `$pattern` describes these strings in
/// the JSON Schema.
macro_rules! serde_as_text {
    ($name:ident, $example:literal, $pattern:literal) => {
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let written = concat!("Written as ", $example, ".");
                json_schema!({ "type": "string", "pattern": $pattern, "description": written })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::parse(text).ok_or_else(|| format!("{text:?} is not understood: write for example {}", $example))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

serde_as_text!(
    HumanDuration,
    "\"30s\"",
    r"^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*(ms|s|m|min|h)\s*$"
);
serde_as_text!(
    ByteSize,
    "\"1 MiB\"",
    r"^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*(B|KiB|MiB|GiB)?\s*$"
);
serde_as_text!(DeviceName, "\"cpu\" or \"cuda:0\"", r"^(cpu|cuda(:[0-9]+)?)$");
serde_as_text!(
    Date,
    "\"2026-11-23\"",
    r"^[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_known_units_are_read_and_others_rejected() {
        for (text, seconds) in [("250ms", 0.25), ("30s", 30.0), ("1.5 m", 90.0), ("2h", 7200.0)] {
            assert_eq!(
                HumanDuration::parse(text),
                Some(HumanDuration(Duration::from_secs_f64(seconds))),
                "{text}"
            );
        }
        for (text, bytes) in [("12", 12), ("64 KiB", 65536), ("1MiB", 1 << 20)] {
            assert_eq!(ByteSize::parse(text), Some(ByteSize(bytes)), "{text}");
        }
        assert_eq!(ByteSize(65536).to_string(), "64 KiB");
        for (text, device) in [
            ("cpu", DeviceName::Cpu),
            ("cuda", DeviceName::Cuda(0)),
            ("cuda:3", DeviceName::Cuda(3)),
        ] {
            assert_eq!(DeviceName::parse(text), Some(device));
        }
        assert_eq!(DeviceName::parse("gpu"), None);
        assert_eq!(DeviceName::Cuda(1).to_string(), "cuda:1");
        assert_eq!(HumanDuration::parse("30"), None);
        assert_eq!(ByteSize::parse("1 furlong"), None);
    }

    #[test]
    fn a_date_gives_its_seconds_and_other_texts_are_rejected() {
        // The values are from Python's calendar.timegm.
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("1969-12-31", -86_400),
            ("2000-02-29", 951_782_400),
            ("2000-03-01", 951_868_800),
            ("2026-11-23", 1_795_392_000),
            ("1000-01-01", -30_610_224_000),
            ("9999-12-31", 253_402_214_400),
        ] {
            let date = Date::parse(text).unwrap();
            assert_eq!((date.seconds(), date.to_string()), (seconds, text.to_owned()));
        }
        for text in [
            "2026-02-29",
            "1900-02-29",
            "2026-04-31",
            "2026-13-01",
            "2026-00-01",
            "2026-01-00",
            "0999-01-01",
            "2026-1-1",
            "+026-01-01",
            "2026-11-23-01",
            "2026-11",
            "26 Jul 2024",
            "",
        ] {
            assert_eq!(Date::parse(text), None, "{text:?}");
        }
    }
}
