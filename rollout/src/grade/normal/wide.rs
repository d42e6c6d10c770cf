//! Reads the wide signs of Chinese text.

use std::borrow::Cow;

/// Returns the ASCII sign with the same meaning, for wide letters, digits and brackets and for
/// Chinese stops.
pub(crate) fn narrow(c: char) -> char {
    /// The distance between a wide sign and its ASCII sign.
    const APART: u32 = 0xfee0;
    match c {
        '。' => '.',
        '、' => ',',
        '【' => '[',
        '】' => ']',
        '٫' => '.',
        '٬' => ',',
        c if !c.is_ascii() && digit(c).is_some() => digit(c).unwrap_or(c),
        c if is_styled(c) => plain_letter(c).unwrap_or(c),
        // The range ends before the wave, which stands for a range of numbers.
        '！'..='｝' => char::from_u32(u32::from(c) - APART).unwrap_or(c),
        c => c,
    }
}

/// The zeros of other scripts and of bold mathematics, each with its nine digits behind it.
const ZEROS: [char; 11] = ['٠', '۰', '०', '০', '๐', '０', '𝟎', '𝟘', '𝟢', '𝟬', '𝟶'];

/// Returns the ASCII digit of a digit in another script.
fn digit(c: char) -> Option<char> {
    let of = |zero: &char| u32::from(c).checked_sub(u32::from(*zero)).filter(|value| *value < 10);
    char::from_digit(ZEROS.iter().find_map(of)?, 10)
}

/// Returns true for a letter in a style of mathematics: bold, italic, script and so on.
fn is_styled(c: char) -> bool {
    matches!(c, '\u{1d400}'..='\u{1d7cb}' | 'ℎ' | 'ℯ' | 'ⅇ' | 'ⅈ')
}

/// Returns the plain Latin or Greek letter of a styled one.
fn plain_letter(c: char) -> Option<char> {
    const LATIN: u32 = 0x1d400;
    const GREEK: u32 = 0x1d6a8;
    let code = u32::from(c);
    let small = |first: u32, at: u32| char::from_u32(first + at);
    match c {
        'ℎ' => Some('h'),
        'ℯ' | 'ⅇ' => Some('e'),
        'ⅈ' => Some('i'),
        _ if code < GREEK => match (code - LATIN) % 52 {
            at @ 0..=25 => small(u32::from('A'), at),
            at => small(u32::from('a'), at - 26),
        },
        _ => match (code - GREEK) % 58 {
            at @ 0..=24 => small(u32::from('Α'), at),
            at @ 26..=50 => small(u32::from('α'), at - 26),
            52 => Some('ε'),
            55 => Some('φ'),
            _ => None,
        },
    }
}

/// Replaces wide digits, colons and styled letters with plain ones: readers look for numbers by
/// these.
pub(crate) fn narrow_numbers(text: &str) -> Cow<'_, str> {
    let is_wide = |c: char| !c.is_ascii() && (c == '：' || digit(c).is_some() || is_styled(c));
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    if text.contains(is_wide) {
        text.chars().map(|c| if is_wide(c) { narrow(c) } else { c }).collect()
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns true if a character is Chinese.
pub(crate) fn is_han(c: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::narrow;

    #[test]
    fn wide_signs_are_narrow_ones() {
        let text: String = "（Ａ）：５，b。３～５【】".chars().map(narrow).collect();
        assert_eq!(text, "(A):5,b.3～5[]");
        let text: String = "𝑥𝐀𝜋𝛼𝟓ℎ".chars().map(narrow).collect();
        assert_eq!(text, "xAπα5h");
    }
}
