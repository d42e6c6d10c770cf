//! Reads the value of a short sentence: the `4 cookies` of `Each friend will get 4 cookies`.

use super::phrase::{before_phrase, is_number};
use super::text::{HEDGES, is_word, without_marks};

/// Verbs that may stand before a value. Verbs with the ending `-s` or `-ed` need no list.
const VERBS: [&str; 55] = [
    "is", "are", "was", "were", "be", "has", "have", "had", "get", "need", "eat", "sell", "buy", "make", "earn", "pay",
    "save", "spend", "run", "walk", "take", "use", "cost", "drink", "want", "owe", "give", "receive", "sold", "bought",
    "made", "ate", "drank", "ran", "won", "lost", "paid", "spent", "gave", "took", "read", "drove", "found", "left",
    "kept", "built", "wrote", "got", "grew", "met", "rode", "swam", "saw", "equal", "caught",
];
/// Verbs of several words.
const PHRASES: [&str; 13] = [
    " increased by",
    " decreased by",
    " rose by",
    " fell by",
    " comes to",
    " come to",
    " came to",
    " amounts to",
    " adds up to",
    " add up to",
    " left with",
    " equal to",
    " at",
];
/// Verbs with an object before the value.
const GIVING: [&str; 9] = [
    " takes", " took", " take", " costs", " cost", " gives", " gave", " leaves", " left",
];
/// Words before any verb.
const MODALS: [&str; 9] = ["will", "can", "could", "should", "would", "must", "to", "did", "does"];
/// Words between a verb and its value that leave the value as it is.
const FILLERS: [&str; 18] = [
    " exactly",
    " only",
    " just",
    " about",
    " approximately",
    " around",
    " roughly",
    " nearly",
    " therefore",
    " thus",
    " now",
    " still",
    " also",
    " a total of",
    " a profit of",
    " an average of",
    " a sum of",
    " together",
];
/// Other words that make a value something else than the answer.
const CHANGING: [&str; 12] = [
    "than", "most", "least", "between", "twice", "half", "cannot", "can't", "if", "until", "never", "whether",
];
/// Words of a subject that make its verb part of a clause: `The train that left at 5 arrives after
/// 3 hours`, `After he sold 3 apples`.
const CLAUSES: [&str; 9] = [
    "that", "who", "which", "after", "once", "since", "because", "while", "before",
];
/// Beginnings of remarks behind a value, in which numbers do not count.
const REMARKS: [&str; 8] = [
    " (",
    ", not ",
    " rather than ",
    " instead of ",
    ", because ",
    ", since ",
    ", or about ",
    ", i.e.",
];
/// Smaller units of a value in two parts: `2 hours and 30 minutes`.
const SMALLER: [&str; 12] = [
    "minutes", "minute", "min", "seconds", "second", "hours", "hour", "inches", "inch", "cents", "ounces", "days",
];
/// Units before a smaller unit.
const LARGER: [&str; 14] = [
    "hours", "hour", "minutes", "minute", "feet", "foot", "dollars", "dollar", "pounds", "pound", "weeks", "week",
    "days", "day",
];
/// Words of a second clause: `5 cookies and 10 cookies remain`.
const STATES: [&str; 6] = ["remain", "remains", "left", "are", "is", "remaining"];
/// Words behind a value that begin what it depends on.
const DEPENDING: [&str; 13] = [
    " after ",
    " when ",
    " than ",
    " out of",
    ", who ",
    " mod",
    " choose",
    " times as ",
    " at a speed",
    " at an average",
    " with a discount",
    " with a quotient",
    " among ",
];
/// Longest subject with its verb, in bytes.
const SUBJECT: usize = 64;

/// Returns the value behind the verb of a short sentence, with the words behind it.
pub(super) fn value(line: &str) -> Option<&str> {
    let starts = line.match_indices(' ').map(|(at, _)| at + 1);
    let at = starts
        .take_while(|at| *at <= SUBJECT)
        .find(|at| is_value(&line[*at..]))?;
    let (subject, value) = line.split_at(at);
    if goes_on(value) {
        return None;
    }
    let value = value.strip_prefix("Rs. ").unwrap_or(value);
    let plain = !subject.contains(|c: char| c.is_ascii_digit() || "$\\,:".contains(c));
    let first = subject.split_whitespace().next().map(without_marks)?;
    let changes = |word: &str| HEDGES.contains(&word) || CHANGING.contains(&word);
    let lower = subject.to_lowercase();
    let mut words = lower.split_whitespace().map(without_marks);
    let clause = words.clone().any(|word| CLAUSES.contains(&word));
    let plain = plain && is_word(first) && ends_with_verb(lower.trim_end()) && !words.any(changes);
    // `rose by 12 to 60` names the new value last.
    let changed = lower.trim_end().ends_with(" by") && value.contains(" to ") && !value.contains(" from ");
    let read = is_single(value, clause) || (!clause && depends(value, &lower));
    (plain && !changed && read).then_some(value)
}

/// Returns true if a value is one number or a list. Numbers behind other words must belong to a
/// phrase that names things, to a remark or to a smaller unit. In `3 shirts for $45` the last
/// number is the answer.
fn is_single(value: &str, clause: bool) -> bool {
    let cut = before_phrase(value).filter(|_| !clause).unwrap_or(value);
    let end = REMARKS.iter().filter_map(|words| cut.find(words)).min();
    let cut = &cut[..end.unwrap_or(cut.len())];
    if cut.contains(['\\', '=']) || cut.contains("$ ") || cut.ends_with('$') {
        return true;
    }
    let words: Vec<&str> = cut.split_whitespace().map(without_marks).collect();
    let number = |at: usize| is_number(words[at].trim_start_matches(['$', '€', '£']));
    let smaller = |at: usize| {
        let mut before = words[..at].iter().rev().skip_while(|word| **word == "and");
        let larger = before.next().is_some_and(|unit| LARGER.contains(unit));
        larger && words.get(at + 1).is_some_and(|unit| SMALLER.contains(unit))
    };
    let join = |word: &str| ["and", "or", "to"].contains(&word);
    let Some(prose) = words
        .iter()
        .position(|word| is_word(word) && *word != "Rs" && !join(word) && !is_number(word))
    else {
        return true;
    };
    let others: Vec<usize> = (prose..words.len()).filter(|at| number(*at) && !smaller(*at)).collect();
    match others.as_slice() {
        [] => true,
        // `3 cups and 2 eggs` is two answers.
        [one] => {
            words[one - 1] == "and" && !words[*one..].iter().any(|word| STATES.contains(word)) && !cut.contains(',')
        }
        _ => false,
    }
}

/// Returns true if the last number only says what the value depends on:
/// `$40 after buying 3 shirts`, `1 in 6`. Then neither number is read.
fn depends(value: &str, subject: &str) -> bool {
    let Some(end) = value.rfind(|c: char| c.is_ascii_digit()) else {
        return false;
    };
    let before = value[..end].trim_end_matches(|c: char| c.is_ascii_digit() || "$*.,€£".contains(c));
    let before = before.trim_end_matches(' ');
    // The other number stands in words: `1 in a hundred`.
    if before.is_empty() {
        return true;
    }
    let directly = ["on", "by", "over", "in", "of"];
    let mut words = before
        .rsplit(' ')
        .skip_while(|word| ["the", "his", "her", "their"].contains(word));
    let word = words.next().unwrap_or_default();
    // `It takes him 3 hours to drive 180 miles`
    let needs = [" takes", " took", " needs", " requires"]
        .iter()
        .any(|verb| subject.contains(verb));
    let aim = needs && before.contains(" to ");
    let result = [
        " total of",
        " cost of",
        " price of",
        " profit of",
        " remainder of",
        " time of",
        " distance of",
        "resulting in",
    ];
    let result = result.iter().any(|words| before.ends_with(words)) && !before.contains(" among ");
    // `Tom has 5 apples and Ann has 7`
    let twice = [" has", " is"].iter().any(|verb| {
        let verb = subject.trim_end().ends_with(verb).then_some(*verb);
        let second = before.rsplit_once(" and ").map_or("", |(_, second)| second);
        verb.is_some_and(|verb| second.ends_with(verb) && !second.contains("total") && !second.starts_with("he "))
    });
    let depending = DEPENDING.iter().any(|words| before.contains(words));
    twice || aim || (!result && (directly.contains(&word) || depending))
}

/// Returns true if a sentence goes on to another value: `15 apples, so she ended with 20`, `8 hours
/// and earns 96 dollars`.
pub(super) fn goes_on(value: &str) -> bool {
    let last = value.rfind(|c: char| c.is_ascii_digit()).unwrap_or(0);
    let verb = |behind: usize| {
        let word = value[behind..].split(' ').next().unwrap_or_default();
        is_verb(word) && behind < last
    };
    let begins = [" so ", " then ", "; "].iter().any(|word| value.contains(word)) || is_explained(value);
    begins || value.match_indices(" and ").any(|(at, and)| verb(at + and.len()))
}

/// Returns true if a clause at the end names the last number as the value: `20% of $2,000, which is
/// $400 per month`. `12, which is 3 times 4` does not: a second number follows.
fn is_explained(value: &str) -> bool {
    let clauses = [", which is ", ", which equals ", ", which gives ", ", which makes "];
    let Some(behind) = clauses.iter().find_map(|clause| Some(value.split_once(clause)?.1)) else {
        return false;
    };
    let number = behind.trim_start_matches(['*', '$', '\\', '€', '£']);
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit() || ".,".contains(c));
    let compares = ["times", "of", "more", "less", "fewer", "than", "half", "%"];
    let plain = !rest.split([' ', '.', '*']).any(|word| compares.contains(&word));
    rest.len() < number.len() && plain && !rest.contains(|c: char| c.is_ascii_digit() || "+-*/×=".contains(c))
}

/// Returns true for a verb that may stand before a value.
pub(super) fn is_verb(word: &str) -> bool {
    let ending = word.len() > 3 && (word.ends_with('s') || word.ends_with("ed"));
    let letters = word.bytes().all(|byte| byte.is_ascii_lowercase());
    letters && (ending || VERBS.contains(&word))
}

/// Returns true if a number or a typeset number begins here.
fn is_value(behind: &str) -> bool {
    let behind = behind.strip_prefix("Rs. ").unwrap_or(behind);
    let bare = behind.trim_start_matches(['*', '_', '$', '-', '(', '[', '\\', '€', '£', '₹']);
    bare.starts_with(|c: char| c.is_ascii_digit()) || behind.starts_with("$\\") || behind.starts_with("\\(\\")
}

/// Returns true if a verb stands at the end, with a subject before it.
fn ends_with_verb(mut text: &str) -> bool {
    text = text.trim_end_matches(['*', ' ']);
    while let Some(rest) = FILLERS.iter().find_map(|words| text.strip_suffix(words)) {
        text = rest;
    }
    if PHRASES.iter().any(|words| text.ends_with(words)) {
        return true;
    }
    // `It takes Tom 18 minutes`
    let object = text.rsplit_once(' ').map(|(before, _)| before);
    text = object
        .filter(|before| GIVING.iter().any(|verb| before.ends_with(verb)))
        .unwrap_or(text);
    let Some((before, verb)) = text.rsplit_once(' ') else {
        // `It's 25 minutes`
        return text.ends_with("'s") || text.ends_with("’s");
    };
    let modal = before.rsplit(' ').next().is_some_and(|word| MODALS.contains(&word));
    is_verb(verb) || (modal && verb.bytes().all(|byte| byte.is_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn the_value_stands_behind_the_verb() {
        for (line, found) in [
            ("Tim has **10** apples", Some("**10** apples")),
            ("Each friend will get 4 cookies", Some("4 cookies")),
            ("The total comes to $42", Some("$42")),
            (
                "Kylar needs to pay $64 for the 16 glasses",
                Some("$64 for the 16 glasses"),
            ),
            ("He ate 6 slices", Some("6 slices")),
            ("Altogether they walked 14 miles", Some("14 miles")),
            ("It's 25 minutes", Some("25 minutes")),
            ("It takes Tom 18 minutes", Some("18 minutes")),
            ("Tim has exactly 10 apples", Some("10 apples")),
            ("The probability is $\\frac{1}{2}$", Some("$\\frac{1}{2}$")),
            ("The price increased by 20%", Some("20%")),
            ("Lisa had 15 apples, so she ended with 20", None),
            ("He works 8 hours and earns 96 dollars", None),
            (
                "She needs 3 cups of flour and 2 eggs",
                Some("3 cups of flour and 2 eggs"),
            ),
            (
                "John has $40 left after buying 3 shirts",
                Some("$40 left after buying 3 shirts"),
            ),
            ("The chance is 1 in 6", Some("1 in 6")),
            ("They finish at 5:30", Some("5:30")),
            ("The total is Rs. 500", Some("500")),
            ("The chance is 1 in a hundred", Some("1 in a hundred")),
            ("He needs 7 of the 12 eggs", Some("7 of the 12 eggs")),
            ("He bought 3 shirts for $45", None),
            ("Tom sold 3 apples, Ann sold 15", None),
            ("After he sold 3 apples he had 5", None),
            ("The number of ways to get 7 is 6", None),
            ("She spends $6 each day for 3 days, which is $18", None),
            ("The triangle with sides 3, 4 and 5 has area 6", None),
            ("Sales rose by 12 to 60", None),
            ("The train that left at 5 arrives after 3 hours", None),
            ("He ate 5 cookies and 10 cookies remain", None),
            ("She needs 2 hours and 30 minutes", Some("2 hours and 30 minutes")),
            ("The price is $18 for the 3 books", Some("$18 for the 3 books")),
            ("January 5", None),
            ("Chapter 5", None),
            ("The number is not 5", None),
            ("Tom never sold 12 cars", None),
            ("The cost is more than $42", None),
            ("If he sold 12 cars", None),
            ("It lies between 5 and 6", None),
            ("Of 12 apples 5 are red", None),
        ] {
            assert_eq!(value(line), found, "{line}");
        }
    }
}
