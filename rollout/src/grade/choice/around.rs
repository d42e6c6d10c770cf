//! Parts of a sentence around the letter of a choice.

/// How much of a text around a letter is read, in bytes.
pub(super) const NEAR: usize = 48;

/// Words between a verb and its letter.
pub(super) const NAMING: [&str; 8] = [
    "option",
    "choice",
    "answer",
    "letter",
    "the",
    "answer choice",
    "statement:",
    "alternative",
];
/// Words behind `the only one that` with which a sentence chooses nothing.
const NEGATIVE: [&str; 9] = [
    "not",
    "n't",
    "n’t",
    "false",
    "incorrect",
    "wrong",
    "except",
    "least",
    "fails",
];

/// Removes the signs set around a letter.
pub(super) fn unset(after: &str) -> &str {
    after.trim_start_matches([')', ']', '*', '_', '"', '\'', '$', '}', '”'])
}

/// Returns what stands before a letter without its signs and naming words.
pub(super) fn named(before: &str) -> &str {
    let mut rest = before;
    loop {
        rest = rest.trim_end_matches(['(', '[', '*', '_', '"', '\'', '$', '{', ' ', '“', ':']);
        match NAMING.iter().find_map(|word| rest.strip_suffix(word)) {
            Some(shorter) => rest = shorter,
            None => return rest,
        }
    }
}

/// Returns the last word of a text.
pub(super) fn last_word(text: &str) -> &str {
    text.rsplit([' ', '\n', '.', ',']).next().unwrap_or(text)
}

/// Removes words in brackets behind a letter: `C (whale) is correct`.
pub(super) fn without_brackets(after: &str) -> &str {
    let inside = after.strip_prefix('(').and_then(|inside| inside.split_once(')'));
    inside.map_or(after, |(_, rest)| rest.trim_start())
}

/// Returns the text up to the end of its sentence.
pub(super) fn sentence(text: &str) -> &str {
    text.split(['.', '\n', '!', '?', ';']).next().unwrap_or(text)
}

/// Returns true if no word denies what the words say.
pub(super) fn is_positive(words: &str) -> bool {
    !words
        .split_whitespace()
        .any(|word| NEGATIVE.iter().any(|negative| word.ends_with(negative)))
}

/// Returns true if a sentence ends right behind a letter.
pub(super) fn ends_sentence(after: &str) -> bool {
    let rest = unset(after);
    rest.trim_start_matches(' ').is_empty()
        || rest.starts_with(['.', '!', '\n', ',', ';'])
        || rest.trim_start().starts_with("\n")
}
