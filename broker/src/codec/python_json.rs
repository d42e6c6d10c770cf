//! Pieces of JSON texts that strict readers reject or round: half of a surrogate pair and NaN, as
//! Python writes them, and numbers with more digits than a float has.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use super::decimal::keeps_its_value;

/// A piece that strict readers reject or round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// The escape of half a surrogate pair.
    Half,
    /// A number without a value.
    NoNumber,
    /// A number that a float rounds.
    Long,
}

/// Finds these pieces, in order.
fn pieces(text: &str) -> Vec<(Range<usize>, Piece)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut in_text) = (0, false);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (length, piece) = match (in_text, bytes[at]) {
            (_, b'"') => {
                in_text = !in_text;
                (1, None)
            }
            (true, b'\\') => match escape(rest) {
                Some(0xD800..=0xDBFF) if matches!(rest.get(6..).and_then(escape), Some(0xDC00..=0xDFFF)) => (12, None),
                Some(0xD800..=0xDFFF) => (6, Some(Piece::Half)),
                _ => (2, None),
            },
            (false, b'N' | b'I' | b'-' | b'0'..=b'9') => number(&text[at..]),
            _ => (1, None),
        };
        found.extend(piece.map(|piece| (at..at + length, piece)));
        at += length;
    }
    found
}

/// Returns the length of the number at the beginning of a text, and its kind if it is no plain one.
fn number(text: &str) -> (usize, Option<Piece>) {
    let known = ["NaN", "Infinity", "-Infinity"];
    if let Some(word) = known.iter().find(|word| text.starts_with(*word)) {
        return (word.len(), Some(Piece::NoNumber));
    }
    let inside = |c: &u8| c.is_ascii_digit() || b"+-.eE".contains(c);
    let length = text.bytes().take_while(|c| inside(c)).count().max(1);
    (length, (!keeps_its_value(&text[..length])).then_some(Piece::Long))
}

/// Returns the number of a `\uXXXX` at the beginning of a text.
fn escape(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Replaces the pieces for which `other` has another spelling.
fn respelled(text: &str, other: impl Fn(&str, Piece) -> Option<String>) -> Option<String> {
    let (mut made, mut end) = (String::new(), 0);
    for (place, piece) in pieces(text) {
        if let Some(spelling) = other(&text[place.clone()], piece) {
            made.push_str(&text[end..place.start]);
            made.push_str(&spelling);
            end = place.end;
        }
    }
    made.push_str(&text[end..]);
    (end > 0).then_some(made)
}

/// Describes an error of a JSON text, with advice if Python wrote what no strict reader takes.
#[must_use]
pub fn explain_json(text: &[u8], error: &serde_json::Error) -> String {
    let Ok(text) = std::str::from_utf8(text) else {
        return format!("{error}; it is not UTF-8: write it with encoding=\"utf-8\"");
    };
    // Python's writer never makes two faults in one text likely: the first is enough.
    let pieces = pieces(text);
    let first = |kind: Piece| pieces.iter().find(|(_, piece)| *piece == kind);
    if let Some((half, _)) = first(Piece::Half) {
        return format!(
            "{error}; {} is half of a surrogate pair, a character that was cut: write the file with ensure_ascii=False and errors=\"replace\"",
            &text[half.clone()]
        );
    }
    match first(Piece::NoNumber) {
        Some((number, _)) => format!(
            "{error}; {} is no JSON: write null or a number (allow_nan=False finds the place)",
            &text[number.clone()]
        ),
        None => error.to_string(),
    }
}

/// Returns what Python wrote as strict JSON: U+FFFD for half of a surrogate pair, null for NaN.
#[must_use]
pub fn strict_json(text: &str) -> Cow<'_, str> {
    let strict = |_: &str, piece: Piece| match piece {
        Piece::Half => Some("\\ufffd".to_owned()),
        Piece::NoNumber => Some("null".to_owned()),
        Piece::Long => None,
    };
    respelled(text, strict).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Parses a JSON text. Half of a surrogate pair reads as U+FFFD, and NaN as null.
///
/// # Errors
/// It is no JSON even then.
pub fn parse_python_json(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|_| serde_json::from_str(&strict_json(text)))
}

/// A JSON value, and the same value with all digits where floats round some of its numbers.
#[derive(Debug, Clone)]
pub struct Parsed {
    pub value: Value,
    rounded: Option<Value>,
}

impl Parsed {
    /// Returns the value in which numbers are texts if a float rounds them.
    #[must_use]
    pub fn exact(&self) -> &Value {
        self.rounded.as_ref().unwrap_or(&self.value)
    }

    /// Returns the elements of a list. Any other value has none.
    #[must_use]
    pub fn into_list(self) -> Vec<Self> {
        let list = |value| match value {
            Value::Array(list) => list,
            _ => Vec::new(),
        };
        let mut rounded = self.rounded.map(list).map(Vec::into_iter);
        let with_digits = |value| Self {
            value,
            rounded: rounded.as_mut().and_then(Iterator::next),
        };
        list(self.value).into_iter().map(with_digits).collect()
    }
}

impl From<Value> for Parsed {
    fn from(value: Value) -> Self {
        Self { value, rounded: None }
    }
}

/// Parses a JSON text and keeps the digits of its numbers.
///
/// # Errors
/// It is no strict JSON.
pub fn parse_exact_json(text: &[u8]) -> serde_json::Result<Parsed> {
    let value = serde_json::from_slice(text);
    let as_text = |number: &str, piece: Piece| (piece == Piece::Long).then(|| format!("\"{number}\""));
    let spelled = std::str::from_utf8(text).ok().and_then(|text| respelled(text, as_text));
    let rounded = spelled.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    // A number beyond the floats has no other value.
    match (value, rounded) {
        (Err(error), None) => Err(error),
        (Ok(value), rounded) => Ok(Parsed { value, rounded }),
        (Err(_), Some(rounded)) => Ok(rounded.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(text: &str) -> String {
        let error = serde_json::from_str::<Value>(text).unwrap_err();
        explain_json(text.as_bytes(), &error)
    }

    #[test]
    fn what_python_alone_reads_is_explained() {
        for half in [
            r#""cut \ud83d""#,
            r#""\udc00 x""#,
            r#"{"a": "\ud83d\n"}"#,
            r#"["\\", "\ud83d\ud83d\ude00"]"#,
        ] {
            assert!(
                explained(half).contains("half of a surrogate pair"),
                "{half}: {}",
                explained(half)
            );
        }
        for number in [r#"{"label": NaN}"#, "[1, Infinity]", "-Infinity"] {
            assert!(explained(number).contains("write null or a number"), "{number}");
        }
        let other = explained(r#"{"NaN": "Infinity", "#);
        assert!(!other.contains("write"), "{other}");
    }

    #[test]
    fn a_half_pair_reads_as_the_replacement_character() {
        let read = |text: &str| parse_python_json(text).unwrap().to_string();
        assert_eq!(read(r#"{"a": "x\ud83d", "b": NaN}"#), r#"{"a":"x�","b":null}"#);
        assert_eq!(
            read(r#"["\ud83d\ude00", "\\ud83d", "\udc00\ud83d", -Infinity]"#),
            r#"["😀","\\ud83d","��",null]"#
        );
        assert!(parse_python_json("{NaN").is_err());
    }

    #[test]
    fn numbers_that_floats_round_are_texts() {
        let long = "7".repeat(400);
        for (text, exact) in [
            ("18446744073709551616".to_owned(), "\"18446744073709551616\"".to_owned()),
            (
                r#"{"é": [-0.10000000000000000555, 1.5], "b": "18446744073709551616"}"#.to_owned(),
                r#"{"é":["-0.10000000000000000555",1.5],"b":"18446744073709551616"}"#.to_owned(),
            ),
            (format!("[{long}]"), format!("[\"{long}\"]")),
            (
                "[12.50, 18446744073709551615, 911041647744.8802]".to_owned(),
                "[12.5,18446744073709551615,911041647744.8802]".to_owned(),
            ),
        ] {
            assert_eq!(parse_exact_json(text.as_bytes()).unwrap().exact().to_string(), exact);
        }
        let parsed = parse_exact_json(b"[18446744073709551616]").unwrap();
        assert!(parsed.value[0].is_f64());
        let [one] = parsed.into_list().try_into().unwrap();
        assert_eq!(
            (one.value.is_f64(), one.exact()),
            (true, &"18446744073709551616".into())
        );
        for wrong in [
            "[1",
            "12345678901234567890123 4",
            "01",
            r#"["\ud83d", 12345678901234567890123]"#,
        ] {
            assert!(parse_exact_json(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
