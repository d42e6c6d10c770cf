//! Reads the digits of one number, with the separators that can be nothing else.

/// Separators between groups of three digits that are no separators of lists. A plain comma or
/// space may be one, so the kind `math` decides these by what stands around the number.
const GROUPING: [&str; 14] = [
    "\\,",
    "\\;",
    "\\:",
    "\\ ",
    "~",
    "{,}",
    "{\\,}",
    ",\\!",
    "\\!,",
    "\\thinspace ",
    "'",
    "’",
    "_",
    "{~}",
];
/// A comma that braces keep from being a separator of lists.
const BRACED_COMMA: &str = "{,}";

/// A number at the beginning of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Numeral {
    /// The digits, with at most one point.
    pub(crate) digits: String,
    /// The number of bytes that it takes.
    pub(crate) length: usize,
}

fn digits(text: &str) -> &str {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    &text[..end]
}

/// Returns the number at the beginning of a text: `1{,}080.5`, `1\,250`, `1.234.567`, `.5`.
pub(crate) fn read(text: &str) -> Option<Numeral> {
    let whole = digits(text);
    let mut found = whole.to_owned();
    let mut at = whole.len();
    let short = (1..=3).contains(&whole.len()) && !whole.starts_with('0');
    if let Some((group, length)) = grouped(&text[at..]).filter(|_| short) {
        found.push_str(&group);
        at += length;
    } else if let Some((group, length)) = dotted(&text[at..]).filter(|_| short) {
        found.push_str(&group);
        at += length;
        // Behind points between groups, a comma is the sign of the decimals.
        let fraction = text[at..].strip_prefix(',').map_or("", digits);
        if !fraction.is_empty() {
            found = format!("{found}.{fraction}");
            at += 1 + fraction.len();
        }
        return Some(Numeral {
            digits: found,
            length: at,
        });
    }
    if let Some((fraction, length)) = fraction(&text[at..], whole) {
        found = format!("{found}.{fraction}");
        at += length;
    }
    found.bytes().any(|byte| byte.is_ascii_digit()).then_some(Numeral {
        digits: found,
        length: at,
    })
}

/// Returns the decimals and the length of their sign and digits.
fn fraction<'a>(text: &'a str, whole: &str) -> Option<(&'a str, usize)> {
    for sign in [BRACED_COMMA, "{.}"] {
        let found = text.strip_prefix(sign).map_or("", digits);
        if !found.is_empty() && !whole.is_empty() {
            return Some((found, sign.len() + found.len()));
        }
    }
    let rest = text.strip_prefix('.')?;
    let found = digits(rest);
    // `5.` is a number too, but `5...` is not the decimal `5.`.
    let closed = !whole.is_empty() && !rest.starts_with('.');
    (closed || !found.is_empty()).then_some((found, 1 + found.len()))
}

/// Returns the groups of three digits behind separators of one kind, and their length.
fn grouped(text: &str) -> Option<(String, usize)> {
    let separator = GROUPING.iter().find(|sign| text.starts_with(**sign))?;
    groups(text, separator, 1)
}

/// Returns two or more groups behind points: a single one would be a decimal.
fn dotted(text: &str) -> Option<(String, usize)> {
    groups(text, ".", 2)
}

fn groups(text: &str, separator: &str, least: usize) -> Option<(String, usize)> {
    let (mut found, mut at) = (String::new(), 0);
    while let Some(rest) = text[at..].strip_prefix(separator) {
        let rest_at = text.len() - at - rest.len();
        let spaces = if separator.ends_with('!') {
            rest.len() - rest.trim_start().len()
        } else {
            0
        };
        let group = digits(&rest[spaces..]);
        if group.len() != 3 {
            break;
        }
        found.push_str(group);
        at += rest_at + spaces + 3;
    }
    (found.len() >= 3 * least).then_some((found, at))
}

/// Returns the digits before a period, and the period, of a decimal that dots follow: `0.1666...`.
pub(crate) fn repeated(number: &str) -> Option<(&str, &str)> {
    let (_, decimals) = number.split_once('.')?;
    (1..=6).find_map(|length| {
        let period = &decimals[decimals.len().checked_sub(length)?..];
        let least = if length == 1 { 3 } else { 2 };
        let before = (0..least).try_fold(decimals, |rest, _| rest.strip_suffix(period))?;
        let before = number.len() - decimals.len() + before.len();
        Some((&number[..before], period))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_their_separators() {
        for (text, number, rest) in [
            ("72", "72", ""),
            ("72.00 cm", "72.00", " cm"),
            ("1{,}080", "1080", ""),
            ("1{,}234{,}567.5", "1234567.5", ""),
            ("1\\,250", "1250", ""),
            ("1\\,0000", "1", "\\,0000"),
            ("1'234'567", "1234567", ""),
            ("1_000_000", "1000000", ""),
            ("1010_2", "1010", "_2"),
            ("1.234.567", "1234567", ""),
            ("1.234.567,89", "1234567.89", ""),
            ("1.234", "1.234", ""),
            ("3{,}14", "3.14", ""),
            ("0{,}125", "0.125", ""),
            ("1,234", "1", ",234"),
            (".5", ".5", ""),
            ("5.", "5.", ""),
            ("5...", "5", "..."),
            ("11,\\! 111,\\! 111", "11111111", ""),
        ] {
            let found = read(text).unwrap();
            assert_eq!((found.digits.as_str(), &text[found.length..]), (number, rest), "{text}");
        }
        assert_eq!(repeated("0.333"), Some(("0.", "3")));
        assert_eq!(repeated("0.1666"), Some(("0.1", "6")));
        assert_eq!(repeated("0.1212"), Some(("0.", "12")));
        assert_eq!(repeated("3.14159"), None);
        assert_eq!(read("x"), None);
        assert_eq!(read("."), None);
    }
}
