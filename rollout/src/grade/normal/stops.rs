//! Short words of sentences that are neither units nor variables.

/// Words behind a number that belong to a sentence.
const SHORT: [&str; 25] = [
    "of", "the", "in", "per", "for", "are", "at", "on", "by", "is", "as", "an", "we", "it", "its", "all", "men", "her",
    "his", "out", "so", "way", "new", "you", "old",
];

pub(crate) fn is_short(word: &str) -> bool {
    SHORT.contains(&word)
}
