//! Reads the lines behind `####`, with which answers of GSM8K end.

use crate::grade::normal::setting::unset;

/// The most lines that are looked at.
const MOST: usize = 32;

/// Returns the lines behind `####` that do not begin like a heading, the last first.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let found = text.rmatch_indices("####").take(MOST);
    let lines = found.filter_map(|(at, _)| text[at..].trim_start_matches('#').lines().next());
    lines
        .map(str::trim)
        .filter(|line| !line.is_empty() && !is_heading(line))
}

/// Returns true if a line begins with a word: `#### Step 2`.
fn is_heading(line: &str) -> bool {
    let word: String = unset(line).chars().take_while(|c| c.is_alphabetic()).collect();
    // Codes of currencies are short and in capitals.
    let code = word.chars().all(char::is_uppercase) || ["Rs", "Rp", "kr"].contains(&word.as_str());
    word.chars().count() > 1 && !(code && word.chars().count() <= 3)
}
