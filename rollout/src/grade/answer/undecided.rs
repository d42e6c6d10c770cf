//! Finds announced answers that are no number: `12x`, `18 or 20`.

use super::alternative::{differ, is_alternative, value};
use super::{Candidate, Place, aside, last};
use crate::grade::normal::minus;
use crate::grade::normal::names::PLAIN;
use crate::grade::normal::scale::changes;

/// Words that change or join the numbers after them.
const BEGINNINGS: [&str; 14] = [
    "from", "minus", "between", "either", "neither", "none", "half", "twice", "double", "triple", "thrice", "maybe",
    "perhaps", "possibly",
];
/// Words before a result. Another value follows them, which is the answer.
const RESULTS: [&str; 13] = [
    "so",
    "thus",
    "hence",
    "therefore",
    "total",
    "makes",
    "make",
    "gives",
    "give",
    "leaves",
    "is",
    "are",
    "equals",
];
/// More words after which another value is the answer.
const GOING_ON: [&str; 5] = ["which", "that", "rounded", "rounds", "about"];
/// Words of a computation, and of an answer that is none.
const OPERATIONS: [&str; 12] = [
    "root",
    "third",
    "quarter",
    "fifth",
    "from",
    "or",
    "if",
    "otherwise",
    "cannot",
    "except",
    "squared",
    "cubed",
];
/// Signs with which a value begins that is no number.
const SIGNS: &str = "±√∛<>≤≥\\";

/// Returns true if the last number of a text does not count: an announcement holds it that is
/// another value, or it is an alternative to another number. The caller could read no announcement
/// as a number.
pub(crate) fn ends_undecided(text: &str, candidates: &[Candidate<'_>]) -> bool {
    is_alternative(aside::without_reason(text)) || announces_another(text, candidates)
}

/// Returns true if a text in words says that its last number is a value: the only number, or one
/// behind a word with a result. `5 squared` and `3 or 5` do not.
pub(crate) fn is_decided(text: &str) -> bool {
    let Some(number) = last::number(text) else { return false };
    let at = number.as_ptr().addr() - text.as_ptr().addr();
    let (before, behind) = (&text[..at], &text[at + number.len()..]);
    let earlier = before.rfind(|c: char| c.is_ascii_digit()).map_or(0, |at| at + 1);
    let several = earlier > 0;
    let between = before[earlier..].to_lowercase();
    let words = |text: &str| {
        let words = text.split(|c: char| !c.is_alphabetic()).map(str::to_owned);
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>()
    };
    let result = between.contains(['=', '≈'])
        || words(&between)
            .iter()
            .any(|word| word == "result" || RESULTS.contains(&word.as_str()));
    let operand = before.trim_end_matches('$').trim_end();
    let operand = operand.strip_suffix("**").unwrap_or(operand);
    let sign = |c: char| "+*/×÷^±√{:".contains(c) || (!several && minus::is_sign(c));
    let computes = |word: &String| BEGINNINGS.contains(&word.as_str()) || OPERATIONS.contains(&word.as_str());
    let changing = |word: &String| computes(word) || (changes(word) && word != "and");
    let changed = words(&between).iter().any(computes) || words(&behind.to_lowercase()).iter().any(changing);
    let mut divisor = behind.strip_prefix('/').unwrap_or_default().chars();
    let divided = divisor.next().is_some_and(char::is_alphabetic) && !divisor.next().is_some_and(char::is_alphabetic);
    let factor = divided || behind.starts_with(|c: char| c.is_ascii_alphabetic() || "√\\^".contains(c));
    (!several || (result && !is_alternative(text))) && !operand.ends_with(sign) && !factor && !changed
}

/// Returns true if an announcement that is another value holds the last number of a text.
pub(crate) fn announces_another(text: &str, candidates: &[Candidate<'_>]) -> bool {
    let announced = candidates
        .iter()
        .filter(|candidate| [Place::Announced, Place::Hashes].contains(&candidate.place));
    let at_end = |said: &str| {
        text.rfind(said)
            .is_some_and(|at| !text[at + said.len()..].contains(|c: char| c.is_ascii_digit()))
    };
    announced
        .into_iter()
        .any(|said| (is_other(&said.text) || is_formula(&said.text)) && at_end(&said.text))
}

/// Returns true for a value that goes on to no other value: `12x`, `18 or 20`, `9 * 2 = 19`.
fn is_other(text: &str) -> bool {
    let mut lower = text.to_ascii_lowercase().replace("who is", "");
    // `12 each, in total 36` goes on to the total.
    let total = lower.rsplit_once("in total");
    if total.is_some_and(|(_, behind)| !behind.contains(|c: char| c.is_ascii_digit())) {
        lower = lower.replace("in total", "");
    }
    // `5 for a total of 15` says that both are answers.
    let behind = lower.trim_start_matches(|c: char| is_digit(c) || "$ *".contains(c));
    if ["for a total of ", "over a total of "]
        .iter()
        .any(|words| behind.starts_with(words))
    {
        lower = lower.replace("total", "");
    }
    let mut words = lower
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty());
    if text.contains('=') {
        // `2*7=14, 14/2=7` gives steps, `9*2=19` is a contradiction.
        return !text.contains([',', '≈', '\\']) && words.next().is_none();
    }
    let begun = lower.trim_start_matches([' ', '$', '*', '_', '(', '[', '{', '`', '"']);
    let goes_on = text.contains(['→', '⇒', '≈'])
        || text.contains(": ")
        || words
            .clone()
            .any(|word| RESULTS.contains(&word) || GOING_ON.contains(&word));
    let first = words.clone().next().filter(|word| begun.starts_with(word));
    let named = first.is_some_and(|word| BEGINNINGS.contains(&word) || PLAIN.contains(&word));
    let another = named || begun.starts_with(|c| SIGNS.contains(c));
    let number = begun.starts_with(|c: char| c.is_ascii_digit() || minus::is_sign(c));
    let values: Vec<f64> = text.split(|c| !is_digit(c)).filter_map(value).collect();
    let changed = match values.as_slice() {
        // `12 times` answers how often, and `12 less` by how much.
        [_] => {
            let changing = |word: &str| (changes(word) && !["times", "less"].contains(&word)) || PLAIN.contains(&word);
            is_factor(begun) || words.clone().any(changing)
        }
        several => differ(several),
    };
    let wrong = words.any(|word| ["wrong", "incorrect"].contains(&word));
    (!goes_on || wrong) && (another || (number && changed))
}

/// Returns true for words with one number that compute another: `x + 5`, `a third of 18`.
fn is_formula(text: &str) -> bool {
    let digits = text
        .split(|c| !is_digit(c))
        .filter(|digits| digits.contains(|c: char| c.is_ascii_digit()));
    digits.count() == 1 && !is_decided(text)
}

/// Returns true if a number at the beginning of a text is a fraction or multiplies a name: `1/12`,
/// `12x`, `12√2`.
fn is_factor(text: &str) -> bool {
    let behind = text.trim_start_matches(|c: char| is_digit(c) || minus::is_sign(c));
    let number = &text[..text.len() - behind.len()];
    let fraction = number.trim_end_matches('/').contains('/');
    let named = !number.ends_with('/') && behind.starts_with(|c: char| c.is_alphabetic() || "√\\^".contains(c));
    fraction || named
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || ".,/".contains(c)
}

#[cfg(test)]
mod tests {
    use super::{is_decided, is_other};

    #[test]
    fn words_may_decide_for_their_last_number() {
        for text in [
            "She makes 18 dollars",
            "She has 3 boxes of stock, so 12 pens",
            "3 * 4 = 12 pens",
            "It is -5",
            "18 each day",
        ] {
            assert!(is_decided(text), "{text}");
        }
        for text in [
            "3 or 5",
            "from 3 to 5",
            "the square root of 5",
            "5 squared",
            "x + 5",
            "5x",
            "5/x",
            "5, 3",
            "5 weeks and 3 days",
            "5 is wrong",
            "±5",
            "1 in 6",
            "half of 16",
            "none",
        ] {
            assert!(!is_decided(text), "{text}");
        }
    }

    #[test]
    fn another_value_than_a_number_is_the_answer() {
        for text in [
            "18 or 20",
            "between 18 and 20",
            "18, 20",
            "18 (or 20)",
            "$18 to $20",
            "9 * 2 = 19",
            "18–20",
            "3 hours 20 minutes",
            "12x",
            "12 pi",
            "1/12",
            "√12",
            "log 12",
            "half of 12",
            "12 out of 20",
            "12 oder 13",
            "12 and a half",
            "12 squared",
            "12 to 20 in total",
            "2:3",
            "5 years older than Ann, who is 12",
            "12 for the 3 books, which is wrong",
        ] {
            assert!(is_other(text), "{text}");
        }
        for text in [
            "the number 18",
            "2*7=14, 14/2=7",
            "12 boxes of 3, so 36",
            "3 times 4 is 12",
            "20/3 ≈ 7",
            "2.5, rounded to 3",
            "$18.00/day",
            "No. 12",
            "12 each, in total 36",
            "18?",
            "3/4 or 0.75",
            "",
        ] {
            assert!(!is_other(text), "{text}");
        }
    }
}
