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

/// Replaces wide digits and colons with ASCII, because readers look for numbers by these.
pub(crate) fn narrow_numbers(text: &str) -> Cow<'_, str> {
    let is_wide = |c: char| !c.is_ascii() && (c == '：' || digit(c).is_some());
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
    }
}
