//! Reads letters in brackets: `.. so it must be (C).`

use super::letter::{Chosen, LETTERS, is_one_of_several};
use crate::grade::answer::denied;

/// Words before a letter in brackets that conclude with it.
const CONCLUDING: [&str; 15] = [
    "so",
    "thus",
    "hence",
    "therefore",
    "is",
    "be",
    "it's",
    "choose",
    "pick",
    "select",
    "with",
    "say",
    "leaves",
    "guess",
    "i",
];

/// Returns the last letter in brackets. None of several joined ones is chosen, nor one that is
/// denied.
pub(super) fn bracketed(text: &str) -> Chosen {
    let bytes = text.as_bytes();
    let mut places = (0..bytes.len()).rev().filter(|at| is_bracketed(bytes, *at));
    let Some(last) = places.next().filter(|last| !denied::is_denied(&text[..*last])) else {
        return Chosen::Nothing;
    };
    let letter = |at: usize| char::from(bytes[at + 1].to_ascii_uppercase());
    if !is_concluding(text, last) {
        return Chosen::Nothing;
    }
    match places.next() {
        Some(before)
            if letter(before) != letter(last) && last - before < 12 && is_one_of_several(&text[before + 3..]) =>
        {
            Chosen::Several
        }
        _ => Chosen::Letter(letter(last)),
    }
}

/// Returns true if a letter of a choice stands in brackets here.
pub(super) fn is_bracketed(bytes: &[u8], at: usize) -> bool {
    let call = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'\\');
    match bytes[at..] {
        [b'(', letter, b')', ..] => LETTERS.contains(&char::from(letter.to_ascii_uppercase())) && !call,
        _ => false,
    }
}

/// Returns true if the letter in brackets at this place is the choice of the text: it ends the
/// text, or it stands in a sentence that concludes. A letter in the middle names a choice of which
/// the text goes on to speak.
fn is_concluding(text: &str, at: usize) -> bool {
    let start = text[..at].rfind(['.', '\n', '!', '?', ';', ':']).map_or(0, |at| at + 1);
    let signs = |c: char| !c.is_alphanumeric() && c != '\'';
    let before = text[start..at].trim_end_matches(signs).to_lowercase();
    let word = before.rsplit([' ', ',', '*']).next().unwrap_or_default();
    let behind = text[at + 3..].trim_start_matches([' ', '*', '_', '$', '}', '"']);
    let ends = behind.is_empty() || behind.starts_with(['.', '!', '\n', ',', ';']);
    let item = before.is_empty() && text[..start].ends_with('\n');
    let alone = !behind.contains(|c: char| c.is_alphanumeric() || c == ':') && !item;
    let begun = before
        .trim_start_matches(signs)
        .split([' ', ','])
        .next()
        .unwrap_or_default();
    let whole = CONCLUDING[..4].contains(&begun) && text.trim_end().ends_with(['.', '!', '*']);
    let last = behind
        .find(['.', '\n', '!'])
        .is_some_and(|end| !behind[end..].contains(char::is_alphanumeric));
    (before.is_empty() && start == 0) || alone || (whole && last) || (ends && CONCLUDING.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::super::letter::Chosen;
    use super::bracketed;

    #[test]
    fn a_letter_in_brackets_concludes_a_text() {
        for text in [
            "(C)",
            "It is a bit subtle, but it is (C). I am sure.",
            "A fails. (C)",
            "Thus (C) fits best.",
        ] {
            assert_eq!(bracketed(text), Chosen::Letter('C'), "{text}");
        }
        for text in [
            "We look at (A): red. We look at (C): ",
            "The choices:\n(A) 1\n(C) 2\n\nWe compute 3",
            "In the circle of (C) the area is 3. We know",
            "(A) is not a gas, and (C) is not needed here.",
            "either (A) or (C)",
            "",
        ] {
            assert_eq!(bracketed(text).letter(), None, "{text}");
        }
    }
}
