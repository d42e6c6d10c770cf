//! Reads the lines behind `####`, with which answers of GSM8K end.

use super::steps;
use crate::grade::normal::setting::unset;

/// Endings of ordinals.
const ORDINALS: [&str; 4] = ["st", "nd", "rd", "th"];
/// Nouns of a heading that begins with their number.
const TITLES: [&str; 8] = [
    "ways", "steps", "facts", "things", "methods", "reasons", "checks", "ideas",
];

/// The most lines that are looked at.
const MOST: usize = 32;

/// Returns the lines behind `####` that are no headings, the last first.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let found = text.rmatch_indices("####").take(MOST);
    let lines: Vec<&str> = found
        .filter_map(|(at, _)| text[at..].trim_start_matches('#').lines().next())
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let counted = are_counted(text, &lines);
    let kept = lines
        .into_iter()
        .filter(move |line| !counted && !is_heading(text, line));
    kept.collect::<Vec<_>>().into_iter()
}

/// Returns true if the lines only count the parts of a text: 1, 2 and so on, with words below the
/// last. The lines are in reverse order.
fn are_counted(text: &str, lines: &[&str]) -> bool {
    let mut counted = lines.iter().rev().zip(1..);
    lines.len() > 1 && counted.all(|(line, number)| *line == number.to_string()) && !ends(text, lines[0])
}

/// Returns true if nothing stands below a line of a text.
fn ends(text: &str, line: &str) -> bool {
    let end = line.as_ptr().addr() - text.as_ptr().addr() + line.len();
    text[end..].trim().is_empty()
}

/// Returns true if a line begins with a word, or with a number of several: `#### Step 2`,
/// `#### 2. Money`.
fn is_heading(text: &str, line: &str) -> bool {
    if let Some(("", number, rest)) = steps::numbered(line)
        && rest.contains(char::is_alphanumeric)
        && (rest.contains(char::is_alphabetic) || line.starts_with('('))
    {
        let start = line.as_ptr().addr() - text.as_ptr().addr();
        return !ends(text, line) || steps::stands(&text[..start], "", number.wrapping_sub(1));
    }
    if is_numbered_heading(line, ends(text, line)) {
        return true;
    }
    let word: String = unset(line).chars().take_while(|c| c.is_alphabetic()).collect();
    // Codes of currencies are short and in capitals.
    let code = word.chars().all(char::is_uppercase) || ["Rs", "Rp", "kr"].contains(&word.as_str());
    word.chars().count() > 1 && !(code && word.chars().count() <= 3)
}

/// Returns true if words make a heading of the number before them: `2nd step`, and `3 ways to
/// check` above other lines. In `18 dollars a day` they say what the number is for.
fn is_numbered_heading(line: &str, ends: bool) -> bool {
    let line = unset(line);
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() == line.len() {
        return false;
    }
    let mut words = rest
        .split(|c: char| !(c.is_alphabetic() || c == '\''))
        .filter(|word| !word.is_empty());
    let (first, second) = (words.next().unwrap_or_default(), words.next());
    let ordinal = rest.starts_with(first) && ORDINALS.contains(&first);
    let compound = rest.starts_with('-') && !first.is_empty();
    if ordinal || compound {
        return !ends || second.is_some();
    }
    let titled = [Some(first), second]
        .into_iter()
        .flatten()
        .any(|word| TITLES.contains(&word));
    rest.starts_with(' ') && !ends && titled
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn headings_are_no_answers() {
        for (text, kept) in [
            ("#### 18", vec!["18"]),
            ("#### 1. Eggs\n9\n#### 2. Money\n18", vec![]),
            ("#### 1. Eggs\n9\n#### 2. Money", vec![]),
            ("#### (1) 16 - 7\n9\n#### (2) 9 * 2\n18", vec![]),
            ("#### 1\n16 - 7 = 9\n#### 2\n9 * 2 = 18", vec![]),
            ("#### 1\n#### 2", vec!["2", "1"]),
            ("#### Step 2\n#### 18 eggs", vec!["18 eggs"]),
            ("#### 18. Well done!", vec!["18. Well done!"]),
            ("#### USD 18", vec!["USD 18"]),
            ("#### 18\n\n#### 2nd step\nWe multiply.", vec!["18"]),
            ("#### 2nd step", vec![]),
            ("#### 1st\nWe multiply.", vec![]),
            ("#### 3 ways to check\nWe multiply.", vec![]),
            ("#### 4 key facts\nWe multiply.\n#### 18 eggs", vec!["18 eggs"]),
            ("#### 2-step check\nWe multiply.", vec![]),
            ("#### 18 dollars a day\nWe are done.", vec!["18 dollars a day"]),
            ("#### 18 dollars\nWe are done.", vec!["18 dollars"]),
        ] {
            assert_eq!(lines(text).collect::<Vec<_>>(), kept, "{text}");
        }
    }
}
