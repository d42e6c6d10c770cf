//! Separates words and names from products of variables.

use super::names::{PLAIN, is_mathematics};
use super::setting::with_spaces;

/// Short words that could be products by their letters.
const SHORT: [&str; 30] = [
    "no", "on", "up", "ja", "all", "any", "ann", "apr", "boy", "dry", "hot", "low", "nov", "six", "now", "how", "mom",
    "dad", "bob", "non", "nan", "odd", "off", "eve", "eye", "ava", "lee", "egg", "bee", "zoo",
];
/// Commands that set words. One that begins as another stands before it.
pub(crate) const COMMANDS: [&str; 12] = [
    "\\textbf",
    "\\textit",
    "\\textrm",
    "\\textsf",
    "\\texttt",
    "\\textnormal",
    "\\text",
    "\\mbox",
    "\\emph",
    "\\mathrm",
    "\\mathbf",
    "\\operatorname",
];

/// Returns true for words or a name of points in capitals, and false for a product of variables.
pub(crate) fn is_words(text: &str) -> bool {
    let plain = |c: char| c.is_alphabetic() || [' ', '.', ',', '\'', '’', '-', '!', '?'].contains(&c);
    if !text.chars().all(plain) {
        return false;
    }
    let trim = |piece: &'_ str| piece.trim_matches(|c: char| !c.is_alphabetic()).to_owned();
    let pieces: Vec<String> = text
        .split_whitespace()
        .map(trim)
        .filter(|piece| !piece.is_empty())
        .collect();
    let long = |piece: &String| piece.chars().count() >= 2 || ["a", "A", "I"].contains(&piece.as_str());
    match pieces.as_slice() {
        [] => false,
        // A comma at the end separates nothing.
        [one] => is_word(one) && !text.trim_end_matches([',', '.']).contains(','),
        several => several.iter().all(long) && several.iter().any(|piece| is_word(piece)) && !text.contains(','),
    }
}

/// Returns true for a word on its own.
fn is_word(word: &str) -> bool {
    // `ad-bc` is a difference; `x-ray` contains a word.
    if word.contains('-') {
        return word.split('-').any(is_word);
    }
    let lower = word.to_lowercase();
    if is_mathematics(&lower) {
        return false;
    }
    let letters = word.chars().count();
    let capitals = letters >= 2 && word.chars().all(char::is_uppercase);
    let vowel = !lower.is_ascii() || lower.contains(['a', 'e', 'i', 'o', 'u', 'y']);
    let tail_is_small = lower.chars().skip(1).eq(word.chars().skip(1));
    let titled = word.starts_with(char::is_uppercase) && letters == 3 && vowel && tail_is_small;
    let long = letters >= 4 && !is_product_of_functions(&lower);
    let short = SHORT.contains(&lower.as_str()) || (tail_is_small && is_short(&lower));
    word.contains(char::is_alphabetic) && (capitals || titled || long || short)
}

/// Returns true for three letters that read as a word. The factors of a product stand in the order
/// of the alphabet, are neighbours in it, repeat a letter, or have an x or z among them.
fn is_short(word: &str) -> bool {
    let mut letters: Vec<char> = word.chars().collect();
    let vowel = word.contains(['a', 'e', 'i', 'o', 'u']);
    let ordered = letters.is_sorted();
    letters.sort_unstable();
    let next = |pair: &[char]| u32::from(pair[1]) <= u32::from(pair[0]) + 1;
    let neighbours = letters.windows(2).all(next);
    let repeated = letters.windows(2).any(|pair| pair[0] == pair[1]);
    letters.len() == 3 && vowel && !ordered && !neighbours && !repeated && !word.contains(['x', 'z'])
}

/// Returns true for `xsinx`: functions with at most two other letters.
fn is_product_of_functions(word: &str) -> bool {
    let rest = PLAIN.iter().fold(word.to_owned(), |rest, name| rest.replace(name, ""));
    rest.len() < word.len() && rest.len() <= 2
}

/// Words with the meaning of a formula.
const MEANINGS: [(&str, &str); 14] = [
    ("no solution", "\\emptyset"),
    ("no solutions", "\\emptyset"),
    ("no real solution", "\\emptyset"),
    ("no real solutions", "\\emptyset"),
    ("empty set", "\\emptyset"),
    ("infinity", "\\infty"),
    ("positive infinity", "\\infty"),
    ("negative infinity", "-\\infty"),
    ("all real numbers", "\\mathbb{R}"),
    ("all reals", "\\mathbb{R}"),
    ("set of all real numbers", "\\mathbb{R}"),
    ("does not exist", "\\text{dne}"),
    ("limit does not exist", "\\text{dne}"),
    ("dne", "\\text{dne}"),
];

/// Returns the formula that words mean.
pub(crate) fn meaning(text: &str) -> Option<&'static str> {
    if text.len() > 64 || text.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let plain = plain_words(text);
    let found = MEANINGS.iter().find(|(words, _)| *words == plain);
    found.map(|(_, formula)| *formula)
}

/// Removes an article before other words: `an ellipse`.
fn without_article(text: &str) -> &str {
    let rest = ["a ", "an ", "the "]
        .iter()
        .find_map(|article| text.strip_prefix(article));
    rest.filter(|rest| rest.chars().take_while(|c| c.is_alphabetic()).count() > 1)
        .unwrap_or(text)
}

/// Removes the ending of an ordinal from a date: `may 15th`.
fn without_ordinal(text: &str) -> &str {
    let ends = ["st", "nd", "rd", "th"]
        .iter()
        .find_map(|ending| text.strip_suffix(ending));
    ends.filter(|rest| rest.ends_with(|c: char| c.is_ascii_digit()))
        .unwrap_or(text)
}

/// Returns words in lower case with single spaces. Brackets around a single letter are dropped:
/// `(B)` becomes `b`.
pub(crate) fn plain_words(text: &str) -> String {
    let mut text = text.replace('$', "").replace(['’', '‘'], "'");
    if text.contains('\\') {
        text = COMMANDS.iter().fold(text, |text, command| text.replace(command, ""));
    }
    let text = with_spaces(&text);
    let text: String = text.chars().filter(|c| !['{', '}', '\\'].contains(c)).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let text = text.trim_end_matches(['.', ',', ';', '!']).trim().trim_matches('*');
    let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    match inner {
        Some(inner) if inner.chars().count() == 1 => inner.to_owned(),
        _ => without_ordinal(without_article(text)).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_words;

    #[test]
    fn words_and_names_are_no_products() {
        for words in [
            "Yes",
            "no",
            "ODD",
            "DNE",
            "CAB",
            "TTH",
            "on",
            "Paris",
            "no solution",
            "an ellipse",
            "business",
            "Bob",
            "infinitely many",
            "AB",
            "Été",
            "Ñoy",
            "was",
            "saw",
            "Tea",
            "how",
            "x-ray",
            "forty-two",
        ] {
            assert!(is_words(words), "{words}");
        }
        for formula in [
            "ab", "abc", "bca", "xya", "aba", "bab", "nRa", "lwh", "a b c", "xyz", "x", "A", "sin x", "xsinx", "alpha",
            "x and y", "Rt", "n!", "2x", "", "A, B", "a-b", "x-y-z", "ad-bc",
        ] {
            assert!(!is_words(formula), "{formula}");
        }
    }
}
