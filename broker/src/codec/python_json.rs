//! Texts that Python writes as JSON and strict readers reject: half of a surrogate pair, and NaN.

use std::ops::Range;

/// Finds the rejected pieces: escapes of half a pair, and numbers without a value.
fn find(text: &str) -> (Vec<usize>, Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let (mut halves, mut numbers) = (Vec::new(), Vec::new());
    let (mut at, mut in_text) = (0, false);
    while at < bytes.len() {
        let rest = &text.as_bytes()[at..];
        match (in_text, bytes[at]) {
            (_, b'"') => (in_text, at) = (!in_text, at + 1),
            (true, b'\\') => match escape(rest) {
                Some(0xD800..=0xDBFF) if matches!(rest.get(6..).and_then(escape), Some(0xDC00..=0xDFFF)) => at += 12,
                Some(0xD800..=0xDFFF) => {
                    halves.push(at);
                    at += 6;
                }
                _ => at += 2,
            },
            (false, b'N' | b'I' | b'-') => {
                let known = ["NaN", "Infinity", "-Infinity"];
                let length = known
                    .iter()
                    .find(|word| rest.starts_with(word.as_bytes()))
                    .map_or(1, |word| word.len());
                if length > 1 {
                    numbers.push(at..at + length);
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    (halves, numbers)
}

/// Returns the number of a `\uXXXX` at the beginning of a text.
fn escape(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Describes an error of a JSON text, with advice if Python wrote what no strict reader takes.
#[must_use]
pub fn explain_json(text: &[u8], error: &serde_json::Error) -> String {
    let Ok(text) = std::str::from_utf8(text) else {
        return format!("{error}; it is not UTF-8: write it with encoding=\"utf-8\"");
    };
    // Python's writer never makes two faults in one text likely: the first is enough.
    let (halves, numbers) = find(text);
    if let Some(half) = halves.first().and_then(|at| text.get(*at..*at + 6)) {
        return format!(
            "{error}; {half} is half of a surrogate pair, a character that was cut: write the file with ensure_ascii=False and errors=\"replace\""
        );
    }
    match numbers.first().and_then(|at| text.get(at.clone())) {
        Some(number) => {
            format!("{error}; {number} is no JSON: write null or a number (allow_nan=False finds the place)")
        }
        None => error.to_string(),
    }
}

/// Parses a JSON text. Half of a surrogate pair reads as U+FFFD, and NaN as null.
///
/// # Errors
/// It is no JSON even then.
pub fn parse_python_json(text: &str) -> serde_json::Result<serde_json::Value> {
    let error = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let (halves, numbers) = find(text);
    if halves.is_empty() && numbers.is_empty() {
        return Err(error);
    }
    let halves = halves.into_iter().map(|at| (at..at + 6, "\\ufffd"));
    let mut pieces: Vec<_> = halves.chain(numbers.into_iter().map(|at| (at, "null"))).collect();
    pieces.sort_by_key(|(range, _)| range.start);
    let mut repaired = text.to_owned();
    for (range, piece) in pieces.into_iter().rev() {
        repaired.replace_range(range, piece);
    }
    serde_json::from_str(&repaired)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(text: &str) -> String {
        let error = serde_json::from_str::<serde_json::Value>(text).unwrap_err();
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
}
