//! Reads letters that stand on a line of their own.

use super::bracketed::is_bracketed;
use super::letter::{self, Chosen, LETTERS};

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
/// Returns the letter that is all of the last line.
pub(super) fn last_line(text: &str) -> Chosen {
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
    if short || ((is_last_paragraph(text) || is_repeated(text, line)) && several.is_none()) {
        letter::alone(line)
    } else {
        Chosen::Nothing
    }
}

/// Returns true if a line names a choice again, which a list above it has: `B) a tree`.
fn is_repeated(text: &str, line: &str) -> bool {
    let item = |line: &str| line.trim_start_matches(['#', '>', ' ', '-', '*', '(']).to_owned();
    let (line, mut letters) = (item(line), LETTERS);
    let lines: Vec<String> = text.trim_end().lines().map(item).collect();
    let above = &lines[..lines.len().saturating_sub(1)];
    let begins = |one: &String, letter: char| one.starts_with(letter) && one[1..].starts_with([')', '.', ':']);
    let listed = |letter: char| above.iter().filter(|one| begins(one, letter)).count() == 1;
    letters.any(|letter| begins(&line, letter) && listed(letter)) && listed('A') && listed('B')
}

/// Returns the letter of the only line that is a letter.
pub(super) fn only_line(text: &str) -> Chosen {
    let single = |line: &&str| line.chars().filter(|c| c.is_alphanumeric()).count() == 1;
    let mut found = text
        .lines()
        .filter(single)
        .map(letter::alone)
        .filter(|found| found.is_something());
    match (found.next(), found.next()) {
        (Some(one), None) => one,
        _ => Chosen::Nothing,
    }
}

/// Returns the letter of the first line, before its reasons: all of the line, or with its choice
/// above an empty line. Returns nothing at the beginning of a list, or if another line is another
/// letter.
pub(super) fn first_line(text: &str) -> Chosen {
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
pub(super) fn whole(text: &str) -> Chosen {
    // `✅ **B) 12**`
    let sign = |c: char| ['#', '>', ' '].contains(&c) || !(c.is_ascii() || c.is_alphanumeric());
    let text = text.trim_start_matches(sign);
    let first = text.lines().next().unwrap_or_default();
    let single = first.chars().filter(|c| c.is_alphanumeric()).count() == 1;
    let found = letter::alone(if single { first } else { text });
    let other = |line: &str| match letter::alone(line) {
        Chosen::Letter(letter) => found != Chosen::Letter(letter),
        _ => false,
    };
    let list = found.is_something() && text.lines().skip(1).any(|line| !line.trim().is_empty() && other(line));
    if list { Chosen::Nothing } else { found }
}
