//! The grader `choice`: the letter that an answer chooses.

mod bracketed;
mod labelled;
mod letter;
mod statement;
mod supposed;

use serde_json::Value;

use self::bracketed::{bracketed, is_bracketed};
use self::letter::{Chosen, LETTERS};
use super::answer::announcing::{places, places_of};
use super::answer::conditional::RETRACTING;
use super::answer::{Place, marks};
use super::label;
use super::normal::wide::narrow;

/// Nouns that name a choice, besides those that name an answer.
const NOUNS: [&str; 11] = [
    "choice",
    "option",
    "letter",
    "response",
    "alternative",
    "opción",
    "opcion",
    "alternativa",
    "letra",
    "auswahl",
    "选项",
];
/// Chinese verbs with which a letter is chosen.
const CHOOSING: [&str; 4] = ["选择", "选", "選擇", "選"];
/// Words of a line that does not choose its letter.
const DENYING: [&str; 12] = [
    "wrong",
    "incorrect",
    "false",
    "not",
    "no",
    "fails",
    "is",
    "eliminated",
    "out",
    "or",
    "invalid",
    "impossible",
];
/// Most words of a first line that is a choice.
const MOST_WORDS: usize = 8;
/// Most announcements that are looked at.
const MOST: usize = 256;

/// Returns true if the answer chooses the label's letter.
pub(super) fn is_right(text: &str, label: &Value) -> bool {
    answer(text).is_some_and(|(_, found)| Some(found) == read_label(label))
}

/// Returns true if both texts choose the same letter.
pub(super) fn is_same(a: &str, b: &str) -> bool {
    let letter = |text: &str| answer(text).map(|(_, letter)| letter);
    letter(a).is_some_and(|found| Some(found) == letter(b))
}

pub(super) fn is_label(label: &Value) -> bool {
    read_label(label).is_some()
}

/// Returns the letter of a label.
pub(super) fn read_label(label: &Value) -> Option<char> {
    let of = |text: &str| letter::alone(&narrowed(text)).letter();
    of(&label::find(label, |text, _| of(text).is_some())?)
}

/// Replaces wide and Chinese signs with ASCII signs, and Cyrillic letters that look like Latin
/// ones.
fn narrowed(text: &str) -> String {
    let latin = |c: char| match c {
        'А' => 'A',
        'С' => 'C',
        'Е' => 'E',
        c => narrow(c),
    };
    text.chars().map(latin).collect()
}

/// Returns the chosen letter and its place. It is searched in this order:
/// - the box and the tag,
/// - the last announcement that has a letter after it,
/// - a sentence that says which letter is right,
/// - without a box and a tag: the last line, the first line, the last letter in brackets, the text
///   itself,
/// - a sentence by which one letter remains.
pub(super) fn answer(text: &str) -> Option<(Place, char)> {
    let (place, chosen) = chosen(&narrowed(text))?;
    chosen.letter().map(|letter| (place, letter))
}

/// Returns what the first usable mark chooses.
fn chosen(text: &str) -> Option<(Place, Chosen)> {
    let marks = marks(text);
    let of_mark = marks.candidates.iter().filter_map(|candidate| {
        let text = candidate.text.as_ref();
        let found = match candidate.place {
            Place::Boxed => first([letter::alone(text), announced(text)]),
            Place::Tagged => first([letter::alone(text), announced(text), bracketed(text)]),
            _ => Chosen::Nothing,
        };
        Some((candidate.place, found)).filter(|(_, found)| found.is_something())
    });
    let open = |found: Chosen| Some((Place::Last, found)).filter(|(_, found)| found.is_something() && !marks.closed);
    let hashes = marks
        .candidates
        .iter()
        .filter(|candidate| candidate.place == Place::Hashes);
    let mut hashes = hashes.map(|candidate| (Place::Hashes, letter::alone(&candidate.text)));
    let said = Some((Place::Announced, announced(text))).filter(|(_, found)| found.is_something());
    let stated = || statement::last(text).map(|letter| (Place::Announced, Chosen::Letter(letter)));
    of_mark
        .into_iter()
        .next()
        .or(said)
        .or_else(|| hashes.find(|(_, found)| found.is_something()))
        .or_else(stated)
        .or_else(|| open(last_line(text)))
        .or_else(|| open(first_line(text)))
        .or_else(|| open(bracketed(text)))
        .or_else(|| open(whole(text)))
        .or_else(|| statement::last_remaining(text).map(|letter| (Place::Announced, Chosen::Letter(letter))))
}

fn first<const N: usize>(found: [Chosen; N]) -> Chosen {
    let something = found.into_iter().find(|found| found.is_something());
    something.unwrap_or(Chosen::Nothing)
}

/// Returns the letter of the last announcement that has one.
fn announced(text: &str) -> Chosen {
    let mut ends: Vec<usize> = places(text)
        .into_iter()
        .chain(places_of(text, &NOUNS))
        .map(|place| place.end)
        .collect();
    for verb in CHOOSING {
        let found = text.rmatch_indices(verb).take(MOST);
        let kept = found.filter(|(at, _)| !RETRACTING.iter().any(|word| text[..*at].ends_with(word)));
        ends.extend(kept.map(|(at, verb)| at + verb.len()));
    }
    ends.sort_unstable();
    let said = ends
        .into_iter()
        .rev()
        .take(MOST)
        .filter(|end| !supposed::is_supposed(&text[*end..]))
        .map(|end| letter::announced(&text[end..]));
    said.into_iter()
        .find(|found| found.is_something())
        .unwrap_or(Chosen::Nothing)
}

/// Returns the letter that is all of the last line.
fn last_line(text: &str) -> Chosen {
    let line = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    let line = line.trim_start_matches(['#', '>', ' ', '-', '*']).trim();
    // `✅ B`, `∴ B`
    let line = line
        .trim_start_matches(|c: char| !c.is_ascii() && !c.is_alphanumeric())
        .trim_start();
    let signs = |c: char| !c.is_alphanumeric();
    let bare = line.trim_matches(signs);
    let named = bare.rsplit(' ').next().unwrap_or(bare).trim_matches(signs);
    let short = line.split_whitespace().count() <= 3 && named.chars().count() == 1;
    let several = line
        .match_indices('(')
        .filter(|(at, _)| is_bracketed(line.as_bytes(), *at))
        .nth(1);
    if short || (is_last_paragraph(text) && several.is_none()) {
        letter::alone(line)
    } else {
        Chosen::Nothing
    }
}

/// Returns the letter of the first line, before its reasons: all of the line, or with its choice
/// above an empty line. Returns nothing at the beginning of a list, or if another line is another
/// letter.
fn first_line(text: &str) -> Chosen {
    let Some((line, below)) = text.trim_start().split_once('\n') else {
        return Chosen::Nothing;
    };
    let letters = line.chars().filter(|c| c.is_alphanumeric()).count();
    if letters == 1 && whole(text.trim_start()).is_something() {
        return whole(text.trim_start());
    }
    let found = letter::alone(line.trim_start_matches(['#', '>', ' ']));
    let apart = letters == 1 || below.starts_with(['\n', '\r']);
    let list = found == Chosen::Letter('A') && below.lines().any(|line| letter::alone(line) == Chosen::Letter('B'));
    let bare = below
        .lines()
        .any(|line| line.chars().filter(|c| c.is_alphanumeric()).count() == 1);
    let few = line.split_whitespace().nth(MOST_WORDS).is_none() && !line.contains(['?', '=']);
    let denied = line
        .split(|c: char| !c.is_alphabetic())
        .any(|word| DENYING.contains(&word.to_lowercase().as_str()));
    if apart && few && !list && !bare && !denied {
        found
    } else {
        Chosen::Nothing
    }
}

/// Returns true if an empty line stands before the last line, and no item of a list of choices
/// before the empty line.
fn is_last_paragraph(text: &str) -> bool {
    let mut lines = text.trim_end().lines().rev().skip(1);
    let apart = lines.next().is_some_and(|line| line.trim().is_empty());
    let before = lines.find(|line| !line.trim().is_empty()).unwrap_or_default();
    let item = before.trim_start_matches(['#', '>', ' ', '(']);
    apart && !(item.starts_with(|c| LETTERS.contains(&c)) && item[1..].starts_with([')', '.', ':']))
}

/// Returns the letter with which the text begins, unless the text is a list of choices.
fn whole(text: &str) -> Chosen {
    // `✅ **B) 12**`
    let sign = |c: char| ['#', '>', ' '].contains(&c) || !(c.is_ascii() || c.is_alphanumeric());
    let text = text.trim_start_matches(sign);
    let first = text.lines().next().unwrap_or_default();
    let single = first.chars().filter(|c| c.is_alphanumeric()).count() == 1;
    let found = letter::alone(if single { first } else { text });
    if letter::are_subject(first) {
        return Chosen::Nothing;
    }
    let other = |line: &str| match letter::alone(line) {
        Chosen::Letter(letter) => found != Chosen::Letter(letter),
        _ => false,
    };
    let list = found.is_something() && text.lines().skip(1).any(|line| !line.trim().is_empty() && other(line));
    if list { Chosen::Nothing } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_letter_is_found() {
        for (text, chosen) in [
            ("B", Some('B')),
            ("b", Some('B')),
            ("(C)", Some('C')),
            ("D.", Some('D')),
            ("D. a tree", Some('D')),
            ("\\boxed{A}", Some('A')),
            ("\\boxed{\\text{(E)}}", Some('E')),
            ("(A) is wrong, so the answer is B.", Some('B')),
            ("Answer: **C**", Some('C')),
            ("the answer is (d)", Some('D')),
            ("<answer>B</answer>", Some('B')),
            ("<answer> the answer is B </answer>", Some('B')),
            // A text that names several letters chooses none.
            ("either (A) or (B)", None),
            ("The answer is A or B.", None),
            ("Answer: (A) and (C)", None),
            ("A tree", None),
            ("Because", None),
            ("", None),
            ("\\boxed{42} (A)", None),
            ("answer: é", None),
            ("The correct option is (H).", Some('H')),
            ("My choice is option F", Some('F')),
            ("**Answer: B**", Some('B')),
            ("Answer: [C]", Some('C')),
            ("the answer is A, not B", Some('A')),
            ("the answer is A. No, the answer is B.", Some('B')),
            ("\\boxed{A} or \\boxed{C}", None),
            ("\\boxed{A}. No: \\boxed{C}", Some('C')),
            ("\\boxed{\\text{D}}", Some('D')),
            ("\\boxed{B) a tree}", Some('B')),
            ("<think>(A)</think><answer>(C)</answer>", Some('C')),
            ("<answer>none of them</answer> (B)", None),
            ("K", None),
            ("(K)", None),
            ("A's", None),
            ("AB", None),
            ("（A）", Some('A')),
            ("Ｂ", Some('B')),
            ("答案：B", Some('B')),
            ("**答案**：B。", Some('B')),
            ("正确答案是 (c)。", Some('C')),
            ("答案为【D】", Some('D')),
            ("Answer：B", Some('B')),
            ("选B", Some('B')),
            ("所以我选择B、因为它最大", Some('B')),
            ("故选B因为它最大", Some('B')),
            ("选B。不选A，也不能选择C。如果选D就错了", Some('B')),
            ("选项A是错的，所以答案是选项B。", Some('B')),
            ("\\boxed{选（B）}", Some('B')),
            ("答案是A，不要选B", Some('A')),
            ("候选A的理由不成立，答案应为B", Some('B')),
            ("选项（B）不对，答案应该是A", Some('A')),
            ("假设选A，矛盾，没有选B的理由。故选C", Some('C')),
            ("A、C", None),
            ("A, C", None),
            ("\\boxed{A,C}", None),
            ("B, I think", Some('B')),
            ("答案是苹果", None),
            ("选Bob", None),
            ("A股", None),
            ("The answer is a bit subtle, but it is (C)", Some('C')),
            ("The answer is a bit subtle.", None),
            ("The answer is a", Some('A')),
            ("The answer is a.", Some('A')),
            ("The answer is a\nbecause of the tree", Some('A')),
            ("The answer is b, because of the tree", Some('B')),
            ("The answer is e.g. five, so (B)", Some('B')),
            ("The answer is A because of the tree", Some('A')),
            ("Answer: I think it is (C)", Some('C')),
            ("Answer: I", Some('I')),
            ("Answer: **b** because", Some('B')),
            ("**Answer**: B", Some('B')),
            ("__B__", Some('B')),
            ("The answer is \"B\".", Some('B')),
            ("The answer is $B$ because", Some('B')),
            ("The answer is \\(B\\).", Some('B')),
            ("Answer: Option **B**", Some('B')),
            ("Answer: optionally B", None),
            (
                "Answer: B\nLet me double check that the answer is consistent.",
                Some('B'),
            ),
            (
                "The answer is B. I am sure that this answer is right, since the choice is clear.",
                Some('B'),
            ),
            ("Answer: B/C", None),
            ("\\boxed{\\textbf{(B)}}", Some('B')),
            ("\\boxed{\\textbf{B}}", Some('B')),
            ("\\boxed{\\mathrm{B}}", Some('B')),
            ("\\boxed{\\mathbf{(b)}}", Some('B')),
            ("\\boxed{\\textbf{(B) } 12}", Some('B')),
            ("\\boxed{\\textbf{(B)}\\ 12}", Some('B')),
            ("$\\boxed{\\textbf{(B)}~\\frac{1}{2}}$", Some('B')),
            ("\\boxed{\\mathrm{(B) \\ }12}", Some('B')),
            ("\\boxed{\\textbf{B } 12}", Some('B')),
            ("\\boxed{\\textbf{B} 12}", Some('B')),
            ("\\boxed{\\text{B: }12}", Some('B')),
            ("\\boxed{\\rm (B)}", Some('B')),
            ("\\boxed{(\\text{B})}", Some('B')),
            ("\\boxed{\\left(B\\right)}", Some('B')),
            ("\\boxed{( B )}", Some('B')),
            ("\\boxed{\\text{Answer: (B)}}", Some('B')),
            ("\\boxed{**B**}", Some('B')),
            ("\\boxed{\\text{A tree}}", None),
            ("\\boxed{(A tree)}", None),
            ("\\boxed{B_{1}}", None),
            ("\\boxed{B^2}", None),
            ("\\boxed{\\textbf{B}12}", None),
            ("\\boxed{\\mathcal{B}}", Some('B')),
        ] {
            assert_eq!(answer(text).map(|found| found.1), chosen, "{text}");
        }
    }

    #[test]
    fn long_texts_without_a_letter_cost_one_pass() {
        for piece in [
            "answer: a x ",
            "answer: ",
            "answer is \\text{",
            "(",
            "\\textbf",
            "**",
            "answer: a} ",
            "选",
            "不选A",
            "答案是",
            "（",
        ] {
            let text = piece.repeat(60_000 / piece.len());
            assert!(answer(&text).is_none() || piece.contains('}'), "{piece}");
        }
    }
}
