//! Text of models, publishers and programs on its way to a terminal, which would obey what it says.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal may act on it: control characters of both sets (ESC and CSI begin sequences that move the cursor, set
/// the title, answer as if typed), and the marks that turn the direction of what follows.
fn acts(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n')
}

/// The text with everything that a terminal would act on written as JSON writes it: `\u001b`. Line ends stay, so a JSON line
/// stays one and means the same.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) {
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// As [`printable`], on one line: nobody's text can look like a line of ours.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    match printable(text) {
        shown if shown.contains('\n') => Cow::Owned(shown.replace('\n', "\\n")),
        shown => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clears the screen, sets the title, asks the terminal to answer; the same with the one-character CSI.
    const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}6n\rok\u{202e}\u{7f}";

    #[test]
    fn nothing_that_a_terminal_acts_on_is_left() {
        let shown = printable(HOSTILE);
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert_eq!(
            shown,
            "\\u001b[2J\\u001b]0;owned\\u0007\\u009b6n\\u000dok\\u202e\\u007f"
        );
        assert_eq!(printable("zwei\nZeilen, 名前"), "zwei\nZeilen, 名前");
        assert_eq!(one_line("a\nb\u{1b}"), "a\\nb\\u001b");
    }

    #[test]
    fn json_means_the_same_afterwards() {
        let stored = serde_json::to_string(HOSTILE).unwrap();
        assert!(stored.contains('\u{9b}'), "serde_json leaves the second set as it is");
        assert_eq!(serde_json::from_str::<String>(&printable(&stored)).unwrap(), HOSTILE);
    }
}
