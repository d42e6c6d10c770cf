//! Words that change the number before them.

use super::token::Token;

/// Words of scale with their power of ten.
const TENS: [(&str, usize); 14] = [
    ("hundred", 2),
    ("thousand", 3),
    ("million", 6),
    ("mn", 6),
    ("mln", 6),
    ("mio", 6),
    ("billion", 9),
    ("bn", 9),
    ("mrd", 9),
    ("trillion", 12),
    ("quadrillion", 15),
    ("lakh", 5),
    ("lac", 5),
    ("crore", 7),
];
/// Letters of scale behind an amount of money: `€2M`.
const LETTERS: [(&str, &str); 9] = [
    ("k", "thousand"),
    ("K", "thousand"),
    ("m", "million"),
    ("M", "million"),
    ("mn", "million"),
    ("b", "billion"),
    ("B", "billion"),
    ("bn", "billion"),
    ("T", "trillion"),
];
/// Chinese, Japanese and Korean words of scale with their power of ten.
const HAN: [(&str, usize); 8] = [
    ("十", 1),
    ("百", 2),
    ("千", 3),
    ("万", 4),
    ("萬", 4),
    ("亿", 8),
    ("億", 8),
    ("兆", 12),
];
/// Words of parts, in the singular. Their value depends on the words around them.
const PARTS: [&str; 17] = [
    "half",
    "halve",
    "third",
    "quarter",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "twelfth",
    "twentieth",
    "hundredth",
    "thousandth",
    "millionth",
    "billionth",
];
const PERCENT: [&str; 6] = ["percent", "pct", "percentage", "percents", "prozent", "pour cent"];

/// Words next to a number that change it or take it back.
const CHANGING: [&str; 62] = [
    "times",
    "over",
    "plus",
    "minus",
    "negative",
    "squared",
    "cubed",
    "factorial",
    "choose",
    "divided",
    "multiplied",
    "percent",
    "percentage",
    "percents",
    "mod",
    "modulo",
    "power",
    "wrong",
    "incorrect",
    "unless",
    "otherwise",
    "or",
    "and",
    "not",
    "no",
    "never",
    "isn't",
    "isnt",
    "cannot",
    "least",
    "most",
    "less",
    "greater",
    "fewer",
    "under",
    "above",
    "below",
    "between",
    "until",
    "to",
    "through",
    "except",
    "without",
    "if",
    "when",
    "either",
    "neither",
    "nor",
    "maybe",
    "perhaps",
    "possibly",
    "false",
    "nicht",
    "kein",
    "pas",
    "dozen",
    "twice",
    "double",
    "triple",
    "base",
    "root",
    "inverse",
];

/// Returns the power of ten of a word of scale.
fn power_of_ten(word: &str) -> Option<usize> {
    let find = |word: &str| TENS.iter().find(|(known, _)| *known == word).map(|(_, power)| *power);
    find(word).or_else(|| find(word.strip_suffix('s')?))
}

/// Returns the factor of a word: `million`, `Dozens`, `万`.
pub(super) fn factor(word: &str) -> Option<String> {
    let word = word.to_lowercase();
    if ["dozen", "dozens"].contains(&word.as_str()) {
        return Some("12".to_owned());
    }
    let han = HAN.iter().find(|(known, _)| *known == word).map(|(_, power)| *power);
    let power = power_of_ten(&word).or(han)?;
    Some(format!("1{}", "0".repeat(power)))
}

/// Returns true for a word of scale: `million`, `dozens`.
pub(crate) fn is_factor(word: &str) -> bool {
    factor(word).is_some()
}

/// Returns the word of a letter of scale behind money.
pub(crate) fn of_money(letters: &str) -> Option<&'static str> {
    let found = LETTERS.iter().find(|(known, _)| *known == letters);
    found.map(|(_, word)| *word)
}

/// Returns true for a word of scale or of parts, also in the plural: `million`, `Thirds`.
pub(crate) fn is_scale(word: &str) -> bool {
    let lower = word.to_lowercase();
    let singular = lower.strip_suffix('s').unwrap_or(&lower);
    factor(&lower).is_some() || PARTS.contains(&singular)
}

/// Returns true for a word that stands for the percent sign.
pub(super) fn is_percent(word: &str) -> bool {
    PERCENT.contains(&word.to_lowercase().as_str())
}

/// Bytes in which the words of a rounding stand.
const NEAR: usize = 64;

/// Returns true for words that say how a number is rounded: `to 2 decimal places`.
pub(crate) fn is_rounding(words: &str) -> bool {
    let words = words.trim().trim_start_matches('(');
    let words = ["rounded ", "correct ", "accurate "]
        .iter()
        .find_map(|word| words.strip_prefix(word))
        .unwrap_or(words);
    let places = [
        "decimal place",
        "significant figure",
        "significant digit",
        "d.p.",
        "s.f.",
    ];
    let words = &words[..words.floor_char_boundary(NEAR)];
    words.starts_with("to ") && (words.starts_with("to the nearest ") || places.iter().any(|word| words.contains(word)))
}

/// Returns true for a word that changes a number or takes it back.
pub(crate) fn changes(word: &str) -> bool {
    let lower = word.to_lowercase();
    CHANGING.contains(&lower.as_str()) || is_scale(&lower)
}

/// Returns the tokens of a word behind a number: a factor, or the percent sign.
pub(super) fn tokens(word: &str) -> Option<Vec<Token>> {
    if is_percent(word) {
        return Some(vec![Token::Symbol('%')]);
    }
    Some(vec![Token::Symbol('*'), Token::Number(factor(word)?, false)])
}
