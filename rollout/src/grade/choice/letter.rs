//! Reads the letter of a choice at the beginning of a text.

use crate::grade::normal::setting::{unset, without_closing};
use crate::grade::normal::wide::is_han;

/// The letters that a choice may have.
pub(super) const LETTERS: std::ops::RangeInclusive<char> = 'A'..='J';

/// Words before a letter that say that it names a choice.
const NAMING: [&str; 45] = [
    "probably",
    "most likely",
    "likely",
    "definitely",
    "simply",
    "indeed",
    "thus",
    "then",
    "hence",
    "a letra",
    "a opção",
    "a alternativa",
    "answer choice",
    "option",
    "choice",
    "letter",
    "answer",
    "alternative",
    "the",
    "选项",
    "選項",
    "opción",
    "opcion",
    "alternativa",
    "letra",
    "opção",
    "opzione",
    "lettera",
    "lettre",
    "l'option",
    "optie",
    "variante",
    "buchstabe",
    "вариант",
    "буква",
    "pilihan",
    "seçenek",
    "la",
    "die",
    "der",
    "das",
    "le",
    "selection",
    "clearly",
    "therefore",
];
/// Words that may follow the letters `A` and `I`, which are words too.
const BEHIND: [&str; 26] = [
    "because", "since", "as", "due", "for", "which", "and", "but", "is", "given", "from", "in", "by", "with", "per",
    "based", "so", "then", "not", "weil", "da", "porque", "car", "perché", "ya", "puisque",
];
/// Words and signs between two choices of which none is the only one.
const JOINING: [&str; 13] = [
    "or", "and", "und", "oder", "y", "o", "et", "ou", "e", "&", "/", "+", "或",
];

/// The choice of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chosen {
    Letter(char),
    /// Several letters, which is no choice.
    Several,
    Nothing,
}

impl Chosen {
    pub(super) fn letter(self) -> Option<char> {
        match self {
            Self::Letter(letter) => Some(letter),
            Self::Several | Self::Nothing => None,
        }
    }

    pub(super) fn is_something(self) -> bool {
        self != Self::Nothing
    }
}

/// Returns the letter that a text consists of, in any of the usual forms: `B`, `(b)`, `B.`,
/// `**B**`, `B) a tree`, `B - a tree`, `Option B`, `\textbf{(B) } 12`, `（B）`.
pub(super) fn alone(text: &str) -> Chosen {
    beginning(without_name(text), false)
}

/// Returns the letter after an announcement: `: **B**`, ` option (b).`, `B because ..`.
pub(super) fn announced(behind: &str) -> Chosen {
    beginning(
        without_name(behind.trim_start_matches([':', ' ', '*', '\n', '=', '#'])),
        true,
    )
}

/// Removes words that say that a letter follows: `Option (B)`.
fn without_name(text: &str) -> &str {
    let mut rest = unset(text);
    for _ in 0..4 {
        let named = NAMING.iter().find_map(|word| {
            let (begun, behind) = rest.split_at_checked(word.len())?;
            let apart = is_han_word(word) || behind.starts_with(|c: char| c.is_whitespace() || "(*:$[~".contains(c));
            (begun.to_lowercase() == *word && apart).then_some(behind.trim_start_matches([':', ' ']))
        });
        match named {
            Some(behind) => rest = unset(behind),
            None => break,
        }
    }
    // The Portuguese article: `a C`.
    match rest.strip_prefix("a ") {
        Some(behind) if is_single_capital(behind) => behind,
        _ => rest,
    }
}

fn is_han_word(word: &str) -> bool {
    word.starts_with(is_han)
}

fn is_single_capital(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| LETTERS.contains(&c)) && !chars.next().is_some_and(char::is_alphanumeric)
}

/// Returns the letter at the beginning of a text. With `said`, the text follows an announcement,
/// and words may follow a capital letter: `B because ..`, `B因为 ..`.
fn beginning(text: &str, said: bool) -> Chosen {
    let inner = unset(text);
    let inside = unset(inner.trim_start_matches(['(', '[']));
    let mut chars = inside.chars();
    let Some(first) = chars.next() else {
        return Chosen::Nothing;
    };
    let letter = first.to_ascii_uppercase();
    if !LETTERS.contains(&letter) {
        return Chosen::Nothing;
    }
    // Inside a sentence, a small letter and `I` are words.
    let small = first.is_ascii_lowercase() || letter == 'I';
    let (rest, closed) = without_closing(chars.as_str());
    let bracketed = inner.len() > inside.len();
    if is_one_of_several(rest) {
        return Chosen::Several;
    }
    if ends(
        rest,
        Form {
            said,
            small,
            closed,
            bracketed,
            letter,
        },
    ) {
        Chosen::Letter(letter)
    } else {
        Chosen::Nothing
    }
}

/// How a letter is written.
#[derive(Clone, Copy)]
struct Form {
    said: bool,
    small: bool,
    closed: bool,
    bracketed: bool,
    letter: char,
}

/// Returns true if what follows a letter shows that it stands for a choice.
fn ends(rest: &str, form: Form) -> bool {
    match rest.chars().next() {
        None | Some(')' | ']') => true,
        // `e.g.`, `B.12`
        // A question is no choice: `The answer is C? No.`
        Some('?') if form.said => false,
        Some('.' | ',' | ':' | ';' | '!' | '?') => !form.small || !rest[1..].starts_with(char::is_alphanumeric),
        Some('→' | '—' | '–') => form.said && !form.small,
        Some(next) if is_of_asia(next) => form.said && !form.small,
        Some(next) if form.closed => !next.is_alphanumeric(),
        Some(next) if next.is_whitespace() => ends_before_space(rest, form),
        _ => false,
    }
}

/// Returns true for a sign of scripts that put no space behind a letter.
fn is_of_asia(c: char) -> bool {
    is_han(c) || ('\u{3040}'..='\u{30ff}').contains(&c) || ('\u{ac00}'..='\u{d7a3}').contains(&c)
}

fn ends_before_space(rest: &str, form: Form) -> bool {
    let behind = rest.trim_start();
    let line = form.said && rest.trim_start_matches([' ', '\t', '\r']).starts_with('\n');
    let bracket = form.bracketed && behind.starts_with([')', ']']);
    let words =
        form.said && !form.small && !is_article(form.letter, behind) && !behind.starts_with(['=', '<', '>', '+']);
    let reason = ["because ", "since "].iter().any(|word| behind.starts_with(word));
    behind.is_empty() || line || bracket || words || (!form.small && (reason || is_explained(behind)))
}

/// Returns true if words in brackets or behind a dash explain the letter: `C (Paris)`, `C - Paris`.
fn is_explained(behind: &str) -> bool {
    let explained = |text: &str| {
        let word = unset(text);
        word.chars().take(2).filter(|c| c.is_alphabetic()).count() == 2
    };
    if behind.starts_with('(') {
        return behind.len() > 1;
    }
    let dash = ["-", "–", "—", "\\-"].iter().find_map(|dash| behind.strip_prefix(dash));
    dash.is_some_and(explained)
}

/// Returns true if `A` or `I` is a word of a sentence: `A tree`.
fn is_article(letter: char, behind: &str) -> bool {
    let word: String = behind.chars().take_while(|c| c.is_alphabetic()).collect();
    ['A', 'I'].contains(&letter) && word.starts_with(char::is_lowercase) && !BEHIND.contains(&word.as_str())
}

/// Returns true if several letters are the subject of a sentence: `A, B, and C are wrong`.
pub(super) fn are_subject(text: &str) -> bool {
    let letter = |word: &&str| word.len() == 1 && word.starts_with(|c| LETTERS.contains(&c));
    let mut words = text.split([' ', ',']).filter(|word| !word.is_empty()).peekable();
    let mut letters = 0;
    while let Some(word) = words.next_if(|word| letter(word) || JOINING.contains(word)) {
        letters += usize::from(letter(&word));
    }
    letters > 1
        && words
            .next()
            .is_some_and(|verb| ["are", "were", "can", "cannot", "all", "both"].contains(&verb))
}

/// Returns true if another letter follows: `A, C` and `A or (B)` are several choices.
pub(super) fn is_one_of_several(rest: &str) -> bool {
    let rest = rest.trim_start_matches([')', ']', ' ', '}', '*', '$', '.']);
    let is_choice = |word: &str| word.len() == 1 && word.starts_with(|c| LETTERS.contains(&c));
    if let Some(rest) = rest.strip_prefix(',') {
        let words = |text: &'_ str| {
            text.split(|c: char| !c.is_alphanumeric())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mut others = words(rest)
            .into_iter()
            .filter(|word| !word.is_empty() && word != "and" && word != "or")
            .peekable();
        return others.peek().is_some() && others.all(|word| is_choice(&word));
    }
    JOINING.iter().any(|sign| {
        let Some(behind) = rest.strip_prefix(sign) else {
            return false;
        };
        let spaced =
            !sign.starts_with(char::is_alphabetic) || !behind.starts_with(char::is_alphanumeric) || is_han_word(sign);
        let doubt = ["maybe ", "perhaps ", "possibly ", "even "];
        let behind = behind.trim_start();
        let behind = doubt
            .iter()
            .find_map(|word| behind.strip_prefix(word))
            .unwrap_or(behind);
        let next = without_name(behind).trim_start_matches(['(', '[', ' ', '$', '*']);
        let capital = is_single_capital(next);
        // `A or a tree`
        spaced && capital
    })
}
