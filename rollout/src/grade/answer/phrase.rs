//! Cuts off phrases behind an answer: `$10 in total for the 3 books`, `366 over the three months`.

use super::text::{HEDGES, is_outside, without_marks};
use crate::grade::normal::number_words::spelled_out;
use crate::grade::normal::scale::{is_rounding, is_scale};

/// Words that begin a phrase if a determiner follows.
const PREPOSITIONS: [&str; 15] = [
    "for",
    "over",
    "during",
    "after",
    "before",
    "from",
    "by",
    "at",
    "in",
    "on",
    "with",
    "within",
    "across",
    "among",
    "throughout",
];
/// Words that say that a phrase names things, and no number of another answer.
const DETERMINERS: [&str; 19] = [
    "the", "all", "each", "every", "his", "her", "its", "their", "our", "your", "my", "these", "those", "this", "that",
    "both", "a", "an", "one",
];
/// Verbs and signs of mathematics, with which a phrase goes on to another value.
const GOING_ON: [&str; 14] = [
    "is", "are", "was", "were", "which", "gives", "makes", "equals", "leaves", "plus", "minus", "times", "per",
    "divided",
];
/// Words between a determiner and a number that leave it the number of the things named.
const ORDINALS: [&str; 7] = ["first", "last", "next", "other", "remaining", "whole", "entire"];
/// Verbs of a phrase that says what the answer is needed for: `10 days to finish 3 walls`.
const FINISHING: [&str; 3] = ["finish", "complete", "run"];
/// Names that a number follows: `day 5`.
const NUMBERED: [&str; 7] = ["day", "week", "month", "year", "hour", "grade", "chapter"];
/// Words that make the number before them an answer: `for 36 eggs in total`.
const TOTALS: [&str; 4] = ["total", "all", "altogether", "overall"];
/// Words between the numbers that say what is counted: `multiples of 3 or 5 below 100`.
const MULTIPLES: [&str; 15] = [
    "both", "either", "neither", "or", "nor", "and", "by", "below", "under", "less", "than", "from", "to", "up",
    "between",
];
/// Most words of a phrase.
const MOST: usize = 12;

/// Returns an answer without the phrase behind it. Numbers in the phrase do not count. Returns
/// `None` if there is no phrase, or if it may go on to another answer.
pub(super) fn before_phrase(line: &str) -> Option<&str> {
    // The value before the phrase has a digit. A phrase is looked for in one pass.
    let digit = |c: char| c.is_ascii_digit();
    let first = line.find(digit)?;
    let parts = |at: usize| (&line[..at], &line[at + 1..]);
    let begins = |at: &usize| {
        let (before, behind) = parts(*at);
        is_phrase(before, behind) || is_assignment(before, behind) || is_of_multiples(behind)
    };
    let mut spaces = line[first..].match_indices(' ').map(|(at, _)| first + at);
    let (before, phrase) = parts(spaces.find(begins)?);
    let harmless = || is_rounding(phrase) || is_means(phrase) || !counts(phrase);
    let alone = is_assignment(before, phrase) || is_of_multiples(phrase) || (!goes_on(phrase) && harmless());
    (is_outside(before) && alone).then(|| before.trim_end_matches(['*', ' ', ',']))
}

/// Returns true for words that only say what numbers are counted: `divisible by 3 or 5`.
pub(super) fn is_of_multiples(phrase: &str) -> bool {
    let words = ["that ", "which ", "are ", "not ", "either ", "a "];
    let phrase = words
        .iter()
        .fold(phrase, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    let numbers = ["divisible by", "multiples of", "multiple of"];
    let numbers = numbers.iter().find_map(|words| phrase.strip_prefix(words));
    let plain = |word: &str| {
        let word = word.trim_matches(['.', ',', '*', '$']);
        MULTIPLES.contains(&word) || word.bytes().all(|byte| byte.is_ascii_digit())
    };
    numbers.is_some_and(|numbers| numbers.starts_with(' ') && numbers.split_whitespace().all(plain))
}

/// Words between a result and its place: `$7$, which occurs at $x = 2$`.
const REACHED: [&str; 8] = [
    "which occurs",
    "which is attained",
    "which is achieved",
    "which is reached",
    "attained",
    "achieved",
    "reached",
    "occurring",
];

/// Returns a text without the words at its end that say where its value is reached, or what it
/// counts: `has minimum $3$ at $x = 2$`, `$10$ ways to choose 2 of 5`.
pub(super) fn before_place(text: &str) -> Option<&str> {
    let start = [". ", "\n", "! ", "? "]
        .iter()
        .filter_map(|stop| Some(text.rfind(stop)? + stop.len()));
    let start = start.max().unwrap_or(0);
    let sentence = &text[start..];
    let place = [" at ", " when "].iter().filter_map(|word| sentence.rfind(word)).max();
    let place = place.filter(|at| is_assignment("", &sentence[at + 1..]) && !solves(sentence, *at));
    let counted = sentence
        .find(" ways to ")
        .filter(|at| !goes_on(&sentence[*at..]) && !sentence[at + 1..].contains(" ways"));
    let cut = sentence[..place.or(counted)?].trim_end();
    let cut = REACHED.iter().find_map(|words| cut.strip_suffix(words)).unwrap_or(cut);
    let cut = cut.trim_end_matches([' ', ',', '*', '(']);
    let value = cut.trim_end_matches(['$', ')', '\\']);
    (value.ends_with(|c: char| c.is_ascii_digit() || c == '}')).then(|| &text[..start + cut.len()])
}

/// Returns true if the formula before a place contains the variable of the place: `$x^2 = 4$ when
/// $x = 2$` gives the value of `x`.
fn solves(sentence: &str, place: usize) -> bool {
    let (before, behind) = (sentence[..place].trim_end(), &sentence[place + 1..]);
    let letter = behind
        .split(' ')
        .nth(1)
        .and_then(|word| word.chars().find(char::is_ascii_alphabetic));
    let formula = match before.strip_suffix('$') {
        Some(inside) => inside.rsplit('$').next(),
        None => before.rsplit(' ').next(),
    };
    letter
        .zip(formula)
        .is_some_and(|(letter, formula)| formula.contains(letter))
}

/// Returns an answer without the parts that make up its total: `15 in total: 5 for each`.
pub(super) fn before_total(line: &str) -> &str {
    let number = line
        .trim_start_matches(['$', '*', '\\', '-'])
        .starts_with(|c: char| c.is_ascii_digit());
    let total = [" in total:", " in all:", " altogether:"].iter();
    let found = total
        .filter_map(|words| line.split_once(words))
        .map(|(before, _)| before)
        .next();
    found.filter(|_| number).unwrap_or(line)
}

/// Returns true if the words behind a value only say at which value of a variable: `when $x=9$`.
fn is_assignment(before: &str, behind: &str) -> bool {
    let Some((word, rest)) = behind.split_once(' ') else {
        return false;
    };
    let around = |c: char| c.is_whitespace() || "$.*\\()".contains(c);
    let Some(behind) = rest
        .trim_start_matches(around)
        .strip_prefix(|c: char| c.is_ascii_alphabetic())
    else {
        return false;
    };
    let Some(value) = behind.trim_start().strip_prefix('=') else {
        return false;
    };
    let number = value.trim_matches(around).trim_start_matches('-');
    let number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    ["when", "for", "at", "where"].contains(&word) && number && !before.contains('=')
}

/// Returns true if a phrase begins between a value and these words.
fn is_phrase(before: &str, behind: &str) -> bool {
    let mut words = behind.split([' ', '*']).filter(|word| !word.is_empty());
    let (Some(first), second) = (words.next(), words.next().unwrap_or_default()) else {
        return false;
    };
    let behind_number = before.trim_end_matches(['*', '$', ')', '.', ',']);
    let behind_number = behind_number.ends_with(|c: char| c.is_ascii_digit() || c == '}');
    match first.trim_end_matches([',', '.']) {
        // `1 over the number 4` divides.
        "over" if behind_number && behind.split(' ').next_back().is_some_and(is_number) => false,
        "altogether" => true,
        // `18 dollars by selling 9 eggs` says how.
        "by" | "after" if is_means(behind) => !behind_number && !behind.contains("total"),
        "in" if ["total", "all", "total,"].contains(&second) => true,
        "to" if is_rounding(behind) => true,
        // `10 days to finish` says for what, and `10 to 20` is a range.
        "to" => !behind_number && is_verb(second),
        // `75% of the 80 cards` is no answer.
        "of" => DETERMINERS.contains(&second) && (!behind.contains(|c: char| c.is_ascii_digit()) || is_count(before)),
        // `18 years old in 5 years` and `$15 for 3 books`; `1 in 6` is a ratio.
        _ if second.starts_with(|c: char| c.is_ascii_digit()) => {
            let amount = ["for", "over", "in", "after", "from"].contains(&first) && words.next().is_some_and(is_verb);
            amount && (!behind_number || (first == "for" && before.starts_with(['$', '\\'])))
        }
        preposition => {
            PREPOSITIONS.contains(&preposition) && (DETERMINERS.contains(&second) || NUMBERED.contains(&second))
        }
    }
}

/// Returns true if the last word of a text is a whole number.
fn is_count(text: &str) -> bool {
    let word = text.rsplit(' ').next().unwrap_or_default().trim_matches(['*', '$']);
    word.bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
}

/// Returns true if a phrase says by doing what: `by selling 9 eggs`.
fn is_means(phrase: &str) -> bool {
    let verb = ["by ", "after "]
        .iter()
        .find_map(|word| phrase.strip_prefix(word))
        .and_then(|rest| rest.split(' ').next());
    verb.is_some_and(|verb| verb.len() > 5 && verb.ends_with("ing"))
}

/// Returns true if a phrase may hold the answer: one of its numbers counts more than the things
/// that its determiner names, as in `for a total of $75` and `leaving $15`.
fn counts(phrase: &str) -> bool {
    let words: Vec<&str> = phrase.split_whitespace().collect();
    let plain = |at: usize| {
        words
            .get(at)
            .map(|word| without_marks(word).to_lowercase())
            .unwrap_or_default()
    };
    let sign = |word: &&str| !word.contains(char::is_alphanumeric) && !["*", "**"].contains(word);
    let number = (0..words.len()).find(|at| is_number(&plain(*at)));
    let total = |at: usize| TOTALS.contains(&plain(at).as_str());
    words.iter().any(sign)
        || phrase.contains(['…', '→', '|'])
        || phrase.contains("...")
        || number.is_some_and(|first| {
            (first..words.len()).any(|at| total(at) || (is_number(&plain(at)) && !names(&words, at)))
        })
}

/// Returns true if the number at this place of a phrase only says how many things are named: `the 3
/// books`, `the first 4 hours`, `a 25% discount`, `for 3 books`.
fn names(words: &[&str], at: usize) -> bool {
    let back = |by: usize| at.checked_sub(by).map_or("", |at| words[at].trim_matches('*'));
    let number = words[at].trim_matches('*');
    let determiner = |word: &str| DETERMINERS.contains(&word) && !["each", "every", "one", "a", "an"].contains(&word);
    let adjective = ["a", "an"].contains(&back(1)) && (number.contains('%') || number.contains('-'));
    let ordinal = ORDINALS.contains(&back(1)) && DETERMINERS.contains(&back(2));
    let amount = at == 1 && ["for", "over", "in", "after", "from"].contains(&words[0]) && !number.contains('$');
    let numbered = NUMBERED.contains(&back(1)) && !number.contains('$');
    let verb = at == 2 && words[0] == "to" && FINISHING.contains(&words[1]) && !number.contains('$');
    determiner(back(1)) || adjective || ordinal || amount || numbered || verb
}

/// Returns true for a number in digits or words.
pub(super) fn is_number(word: &str) -> bool {
    let changing = [
        "half", "twice", "double", "doubles", "triple", "thrice", "dozen", "dozens",
    ];
    let digit = word.contains(|c: char| c.is_ascii_digit());
    digit || changing.contains(&word) || is_scale(word) || (word != "one" && spelled_out(word).is_some())
}

/// Returns true for a word in small letters that is no number.
fn is_verb(word: &str) -> bool {
    let letters = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_lowercase());
    letters && spelled_out(word).is_none() && !DETERMINERS.contains(&word)
}

/// Returns true if a phrase may go on to another answer, or take the answer back.
fn goes_on(phrase: &str) -> bool {
    let lower = phrase.to_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| !(c.is_alphanumeric() || c == '\''))
        .filter(|word| !word.is_empty())
        .collect();
    let changes = |word: &&str| HEDGES.contains(word) || GOING_ON.contains(word);
    words.len() > MOST
        || phrase.contains([';', ':', '=', '(', '+', '?'])
        || phrase.contains(", ")
        || words.iter().any(changes)
}

#[cfg(test)]
mod tests {
    use super::{before_phrase, before_place};

    #[test]
    fn words_for_the_place_of_a_value_are_cut_off() {
        for (text, cut) in [
            ("So $f$ has minimum $3$ at $x = 2$.", Some("So $f$ has minimum $3$")),
            (
                "The maximum is $7$, which occurs at $x = 2$.",
                Some("The maximum is $7$"),
            ),
            ("It is 7 when x = 2.", Some("It is 7")),
            (
                "There are $\\binom{5}{2} = 10$ ways to choose 2 of 5.",
                Some("There are $\\binom{5}{2} = 10$"),
            ),
            ("The minimum is at $x = 2$.", None),
            ("So $x^2 = 4$ when $x = 2$.", None),
            ("So $y = 4$ when $x = 2$.", Some("So $y = 4$")),
            ("They meet at $x = 2$.", None),
            ("There are 3 ways to go up and 4 ways to go down.", None),
            ("There are 3 ways to go up, so 12 in all.", None),
            ("The number of ways to choose 2 of 5 is 10.", None),
        ] {
            assert_eq!(before_place(text), cut, "{text}");
        }
    }

    #[test]
    fn a_phrase_about_the_whole_answer_is_cut_off() {
        for (line, cut) in [
            ("$10 in total for the 3 books", Some("$10")),
            ("366 downloads** over the three months", Some("366 downloads")),
            ("72 clips altogether in April and May", Some("72 clips")),
            ("10 days to finish 3 walls", Some("10 days")),
            ("18 years old in 5 years", Some("18 years old")),
            ("$15 for 3 books", Some("$15")),
            ("0.75 of a cup", Some("0.75")),
            ("2 for 3 books", None),
            ("12 of the 20 cups", Some("12")),
            ("3.14 to 2 decimal places", Some("3.14")),
            ("$60 for all 5 shirts", Some("$60")),
            ("$18$ when $x=9$", Some("$18$")),
            ("18 for n = 3", Some("18")),
            ("$18$ when $x>9$", None),
            ("$18$ when $x=9$ and $20$ when $x=8$", None),
            ("12 out of 20", None),
            ("10 to 20", None),
            ("10 apples to twenty", None),
            ("1 in 6", None),
            ("3 over 4", None),
            ("10 for the 3 books and $5 for the 2 pens", None),
            ("10 for the 3 books, or 12", None),
            ("10 for the first, which is wrong", None),
            ("$x$ for the 3 books", None),
            ("$60 over the 4 days", Some("$60")),
            ("18 apples after the first 4 hours", Some("18 apples")),
            ("$18 with a 25% discount", Some("$18")),
            ("18 dollars from 9 eggs", Some("18 dollars")),
            ("18 dollars by selling 9 eggs for 2 dollars each", Some("18 dollars")),
            ("18 by selling 9 eggs", None),
            ("5 hours for a total of $75", None),
            ("12 each, in total 36", None),
            ("$10 on the apples leaving $15", None),
            ("3 in every 5", None),
            ("1 in a hundred", None),
            ("3 with a remainder of 2", None),
            ("1 over the number 4", None),
            ("3 over the 5", None),
            ("7 over the 3 days", Some("7")),
            ("$15 from her aunt and finally had $60", None),
            ("6 dollars on each of 3 days for 18 dollars", None),
            ("18 for the boys & 12 for the girls", None),
            ("$15 on each of the 4 days → $60", None),
            ("12 eggs for 36 eggs in total", None),
            ("12 eggs to make 36 muffins", None),
            ("5 on the first day and twice that on the second", None),
        ] {
            assert_eq!(before_phrase(line), cut, "{line}");
        }
    }
}
