//! Escapes text of models, publishers and programs before a terminal, which would obey it.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns true if a terminal may act on the character. These are control characters of both sets,
/// and the marks that turn the direction of text. ESC and CSI begin sequences that move the cursor,
/// set the title, or answer as if typed.
fn acts(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n')
}

/// Returns the text with every character that a terminal acts on in JSON's form (`\u001b`). Line
/// ends stay, so a JSON line stays one line and keeps its meaning.
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

/// Returns [`printable`] text on one line, so that foreign text cannot look like a log line.
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

    /// Clears the screen, sets the title, asks the terminal to answer; the same with the
    /// one-character CSI.
    const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}6n\rok\u{202e}\u{7f}";

    #[test]
    fn no_character_that_a_terminal_acts_on_remains() {
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
    fn json_keeps_its_meaning() {
        let stored = serde_json::to_string(HOSTILE).unwrap();
        assert!(stored.contains('\u{9b}'), "serde_json leaves the second set as it is");
        assert_eq!(serde_json::from_str::<String>(&printable(&stored)).unwrap(), HOSTILE);
    }
}
