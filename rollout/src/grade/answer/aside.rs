//! Cuts off asides behind an answer: `84 (half of 168)`, `12, which is 3 times 4`.

use super::last;
use super::phrase::{before_place, is_of_multiples};
use super::text::{HEDGES, is_outside};
use crate::grade::math::Quantity;
use crate::grade::normal::number_words::spelled_out;
use crate::grade::normal::scale::{is_factor, is_rounding};

/// Beginnings of clauses that say the same in other words.
const CLAUSES: [&str; 33] = [
    ", assuming ",
    ", which is ",
    ", which equals ",
    ", which are ",
    ", that is ",
    ", that is, ",
    ", i.e. ",
    ", i.e., ",
    ", or about ",
    ", or approximately ",
    ", or roughly ",
    "; ",
    " - that is, ",
    ", since ",
    ", because ",
    ", as ",
    ", namely ",
    " as ",
    ", not ",
    " — not ",
    " and not ",
    " rather than ",
    " instead of ",
    ", half of ",
    ", twice as ",
    ", half as ",
    ", а не ",
    ", nicht ",
    " und nicht ",
    " et non ",
    "，而不是",
    "，不是",
    "（不是",
];
/// Words with which an aside changes the answer before it.
const JOINING: [&str; 8] = ["and", "plus", "minus", "times", "over", "to", "in", "per"];
/// Beginnings of reasons and approximations behind the last value of a text.
const REASONS: [&str; 16] = [
    "he ",
    "she ",
    "they ",
    "we ",
    "or about",
    "or approximately",
    "or roughly",
    "approximately",
    "approx",
    "about",
    "≈",
    "since ",
    "because ",
    "half of ",
    "twice as ",
    "half as ",
];
/// Words that reject another value, or the last one.
const REJECTING: [&str; 5] = ["extraneous", "reject", "discard", "invalid", "ignor"];
/// Beginnings of asides that reject the last value of a list.
const REJECTED: [&str; 10] = [
    "extraneous",
    "rejected",
    "discarded",
    "invalid",
    "impossible",
    "not valid",
    "not possible",
    "not allowed",
    "reject",
    "discard",
];
/// Words of an aside that only says how much is in one of a kind, or compares: `3 (52 weeks in a
/// year)`.
const RATES: [&str; 9] = [
    " in a ",
    " in an ",
    " in one ",
    " in each ",
    " per ",
    " each",
    " more than",
    " less than",
    " fewer than",
];
/// Words before a reason.
const BECAUSE: [&str; 8] = [
    "because ",
    "since ",
    " as ",
    ", as ",
    "given that ",
    "due to ",
    "因为",
    "由于",
];
/// Beginnings of a sentence with its reason first.
const BECAUSE_OF: [&str; 4] = ["because ", "since ", "as ", "given "];
/// Words and signs with which a reason goes on to a result.
const CONCLUDING: [&str; 11] = [
    " so ",
    " and ",
    " to ",
    "therefore",
    "hence",
    "thus",
    " total",
    "answer",
    "boxed",
    "所以",
    "因此",
];
/// Signs that an aside goes on to something else.
const GOING_ON: [&str; 5] = [", ", ". ", " and ", " so ", ": "];
/// Signs of a computation.
const SIGNS: &str = "+-*/×÷=≈−·^";

/// Returns an answer without the aside behind it. Returns `None` if there is none, or if it may
/// change the answer.
pub(crate) fn without_aside(line: &str) -> Option<&str> {
    let (before, aside) = parts(line)?;
    Some(before_rejected(before, aside).unwrap_or(before))
}

/// Returns an answer without the aside behind it, and the aside.
fn parts(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_end_matches(['.', ' ', '*']);
    let before = in_brackets(line).or_else(|| clause(line))?;
    let before = before.trim_end_matches([' ', ',', ';', '*']);
    let aside = line[before.len()..].trim_start_matches([' ', ',', '(']);
    let valued = before.contains(|c: char| c.is_ascii_digit() || c == '\\');
    valued.then_some((before, aside))
}

/// Returns a text without the reason, the approximation or the computation at its end:
/// `There are 12 (8 + 4).`
pub(crate) fn without_reason(text: &str) -> &str {
    let text = text.trim_end_matches(['.', ' ', '*', '\n']);
    let text = before_place(text).unwrap_or(text);
    if let Some(before) = before_because(text) {
        return before;
    }
    let start = text.rfind('\n').map_or(0, |at| at + 1);
    let line = &text[start..];
    if let Some(counted) = before_multiples(line) {
        return &text[..start + counted.len()];
    }
    let Some((before, aside)) = parts(line) else {
        return text;
    };
    if let Some(others) = before_rejected(before, aside) {
        return &text[..start + others.len()];
    }
    if GOING_ON.iter().any(|sign| aside.contains(sign)) {
        return text;
    }
    // Behind a comma only: `60 meters as a warm-up` gives no reason.
    let because = line[before.len()..].starts_with(", as ");
    let reason = because || REASONS.iter().any(|word| aside.starts_with(word));
    let rejected = REJECTING.iter().any(|word| aside.contains(word));
    // `20% of $2,000, which is $400 per month` ends with its result.
    let number = last::number(before).and_then(|number| before.rsplit_once(number));
    let computed = number.is_some_and(|(words, _)| words.trim_end_matches([' ', '$', '*']).ends_with(" of"));
    let rate = RATES.iter().any(|words| aside.contains(words)) && !computed;
    let aside = ["that is ", "i.e. "]
        .iter()
        .find_map(|words| aside.strip_prefix(words))
        .unwrap_or(aside);
    let computation = !aside.contains(|c: char| c.is_alphabetic() && c != 'x');
    if reason || rejected || rate || computation {
        &text[..start + before.len()]
    } else {
        text
    }
}

/// Returns a text without the reason in its last sentence: `He has 18 left because he ate 3`. In
/// `Because he ate 3, he has 18` no value stands before the reason, and a reason that goes on may
/// give the value itself.
fn before_because(text: &str) -> Option<&str> {
    let text = text.trim_end_matches('。');
    let start = [". ", "\n", "! ", "? ", "。"]
        .iter()
        .filter_map(|sign| Some(text.rfind(sign)? + sign.len()));
    let start = start.max().unwrap_or(0);
    let lower = text[start..].to_ascii_lowercase();
    // `x = 5 as 2x = 10`, but `12 meters as a start`.
    let gives_reason = |at: &usize, word: &str| word != " as " || lower[*at..].contains('=');
    let places = BECAUSE.iter().filter_map(|word| Some((lower.find(word)?, *word)));
    let (at, word) = places.filter(|(at, word)| gives_reason(at, word)).min()?;
    let (before, behind) = (&lower[..at], &lower[at + word.len()..]);
    let valued =
        before.contains(|c: char| c.is_ascii_digit()) && !BECAUSE_OF.iter().any(|word| before.starts_with(word));
    // A further clause may hold the result: `80 because of a sale, and with tax 84`.
    let goes_on =
        CONCLUDING.iter().any(|word| behind.contains(word)) || behind.contains([',', '，', ';', '；', ':', '：']);
    (valued && !goes_on && is_outside(before)).then(|| text[..start + at].trim_end_matches([' ', ',', '(', '，']))
}

/// Returns a list without its last value if the aside behind it rejects that value:
/// `x = 3 or x = -2 (rejected)`.
fn before_rejected<'a>(before: &'a str, aside: &str) -> Option<&'a str> {
    let behind = REJECTED.iter().find_map(|words| aside.strip_prefix(words))?;
    // `3 or 5 (impossible to say which)` names no answer.
    if behind.starts_with(" to ") || behind.contains("otherwise") {
        return None;
    }
    // `(rejected x = -1)` rejects another value, `(rejected, x > 0)` the last one.
    let reason = behind.starts_with([',', ';']) || aside.contains("since") || aside.contains("because");
    let other = aside.contains(|c: char| c.is_ascii_digit()) || aside.contains("values");
    let others = [" or ", " and "].iter().find_map(|word| before.rsplit_once(word));
    let others = others.or_else(|| before.rsplit_once(", ").filter(|(others, _)| others.contains('=')));
    let others = others.map(|(others, _)| in_brackets(others).unwrap_or(others));
    others.filter(|_| reason || !other)
}

/// Returns what stands before words that say which numbers are counted: the `47 are` of
/// `47 are divisible by 3 or 5`.
fn before_multiples(line: &str) -> Option<&str> {
    let at = line.rfind("divisible by ").or_else(|| line.rfind("multiples of "))?;
    let several = [" or ", " and ", " nor "].iter().any(|word| line[at..].contains(word));
    let sentence = line[..at].rsplit(". ").next().unwrap_or_default();
    let numbers = sentence
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty());
    let before = sentence.trim_end().strip_suffix(" are").unwrap_or_default();
    let number = before.trim_end_matches(|c: char| c.is_ascii_digit());
    let counted = number.len() < before.len() && !number.ends_with(" to ");
    let part = sentence.contains(" of the ") && !sentence.contains(" to ");
    let counted = counted || part || numbers.count() == 1;
    (several && counted && is_of_multiples(&line[at..])).then(|| line[..at].trim_end())
}

/// Returns what stands before brackets at the end of a line.
fn in_brackets(line: &str) -> Option<&str> {
    let inside = line.strip_suffix(')')?;
    let mut depth = 1usize;
    let (at, _) = inside.char_indices().rev().find(|(_, c)| {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    let before = &line[..at];
    let apart = before.ends_with([' ', '*', '~']) && is_outside(before);
    let content = &inside[at + 1..];
    let rejects = content
        .strip_prefix("not ")
        .is_some_and(|other| Quantity::read(other).is_some());
    let rejects = rejects || before_rejected(before, content).is_some();
    let harmless = rejects || is_of_multiples(content) || is_harmless(content);
    (apart && harmless).then_some(before)
}

/// Returns what stands before a clause that says the same in other words.
fn clause(line: &str) -> Option<&str> {
    let begins = |clause: &&str| line.find(*clause).map(|at| (at, clause.len()));
    let (at, length) = CLAUSES.iter().filter_map(begins).min()?;
    let (before, aside) = (&line[..at], line[at + length..].trim_start());
    let words = aside.starts_with(|c: char| c.is_alphanumeric() || ['$', '\\'].contains(&c));
    // `3x = 54; x = 18` goes on to its result.
    let letter = aside.split_once('=').map(|(letter, _)| letter.trim_end());
    let solved = letter.is_some_and(|letter| letter.chars().count() == 1 && before.contains(letter));
    let list = line[at..].starts_with(';') && (solved || !aside.starts_with(|c: char| c.is_alphabetic()));
    (words && !list && is_outside(before) && is_harmless_text(aside)).then_some(before)
}

/// Returns true if brackets hold a computation or words that leave the answer as it is.
fn is_harmless(content: &str) -> bool {
    if content
        .split(|c: char| !c.is_alphabetic())
        .any(|word| word.chars().count() > 1)
    {
        return is_harmless_text(content);
    }
    let content = content.replace(" x ", "*");
    // `$15 on each of the 4 days (= $60)` goes on to its result.
    let result = content.trim_start().strip_prefix('=');
    if result.is_some_and(|result| !result.contains(|c| SIGNS.contains(c))) {
        return false;
    }
    let plain = |c: char| c.is_ascii_digit() || " .,$%{}".contains(c) || SIGNS.contains(c);
    content.chars().all(plain) && content.contains(|c| SIGNS.contains(c)) && !content.contains(", ")
}

fn is_harmless_text(text: &str) -> bool {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !(c.is_alphanumeric() || c == '\''));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let Some(first) = words.first() else { return false };
    let numeric =
        |word: &str| word.contains(|c: char| c.is_ascii_digit()) || word == "a" || spelled_out(word).is_some();
    // `(in thousands)` changes the number, `(8 dozen and 8)` and `(one dozen)` are numbers.
    let bare = |at: usize| is_factor(words[at]) && !(at > 0 && numeric(words[at - 1]));
    let joins = JOINING.contains(first) && !is_rounding(&lower);
    let hedges =
        |word: &&str| HEDGES.contains(word) && !(*word == "more" && words.contains(&"than") && !text.contains(", "));
    !joins && !words.iter().any(hedges) && !(0..words.len()).any(bare)
}

#[cfg(test)]
mod tests {
    use super::without_aside;

    #[test]
    fn an_aside_is_cut_off_if_it_leaves_the_answer_as_it_is() {
        for (line, cut) in [
            ("84 (half of 168)", Some("84")),
            ("84 (not 168)", Some("84")),
            ("84 (not in tens)", None),
            ("12 (3 times 4)", Some("12")),
            ("12 (3 + 9)", Some("12")),
            ("12 (3 x 4 = 12)", Some("12")),
            ("12 (2^2 * 3)", Some("12")),
            ("$1024$ ($2^{10}$)", Some("$1024$")),
            ("25 (rounded from 24.9)", Some("25")),
            ("$\\frac{5}{9}$ (approximately $0.556$)", Some("$\\frac{5}{9}$")),
            ("104 (that is 8 dozen and 8)", Some("104")),
            ("12 dollars (before tax: 10)", Some("12 dollars")),
            ("12 eggs (one dozen)", Some("12 eggs")),
            ("0.4 or 50%", None),
            ("3.14 (to 2 decimal places)", Some("3.14")),
            ("0.5 (or 60%)", None),
            ("18 ($20)", None),
            ("3 (to 5)", None),
            ("84, which is half of 168", Some("84")),
            ("84 cans, half of the 168 of last week", Some("84 cans")),
            ("15, а не 20", Some("15")),
            ("15个（不是20个）", Some("15个")),
            ("15 元，而不是 20 元", Some("15 元")),
            ("84; the other candidate 42 is extraneous", Some("84")),
            ("12 - that is, 3 boxes of 4", Some("12")),
            ("$\\frac{5}{9}$, or about 55.6%", Some("$\\frac{5}{9}$")),
            ("12 (or 13)", None),
            ("12 (if it rains)", None),
            ("12 (in thousands)", None),
            ("12 (dozen)", None),
            ("12 (and 3 more)", None),
            ("12 (wrong)", None),
            ("7 (mod 10)", None),
            ("1011 (base 2)", None),
            ("3 (x+1)", None),
            ("(1,2) (3,4)", None),
            ("f(2)", None),
            ("$3 (x + 1)$", None),
            ("12; 13", None),
            ("12; if x = 1, it is 13", None),
            ("x (half of 2)", None),
            ("12", None),
            ("", None),
        ] {
            assert_eq!(without_aside(line), cut, "{line}");
        }
    }
}
