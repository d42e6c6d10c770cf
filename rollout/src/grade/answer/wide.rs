//! Signs as Chinese text has them.

use std::borrow::Cow;

/// The sign that means the same and is ASCII: of wide letters, digits and brackets, and of Chinese stops.
pub(crate) fn narrow(c: char) -> char {
    /// Between a wide sign and its narrow one.
    const APART: u32 = 0xfee0;
    match c {
        '。' => '.',
        '、' => ',',
        '【' => '[',
        '】' => ']',
        // But for the wave, which is a range.
        '！'..='｝' => char::from_u32(u32::from(c) - APART).unwrap_or(c),
        c => c,
    }
}

/// A text with ASCII digits and colons for wide ones: numbers are looked for by these.
pub(crate) fn narrow_numbers(text: &str) -> Cow<'_, str> {
    let is_wide = |c: char| ('０'..='９').contains(&c) || c == '：';
    if text.contains(is_wide) {
        text.chars().map(|c| if is_wide(c) { narrow(c) } else { c }).collect()
    } else {
        Cow::Borrowed(text)
    }
}

/// Whether a character is Chinese.
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
