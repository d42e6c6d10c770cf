//! Reads the value of a short sentence: the `4 cookies` of `Each friend will get 4 cookies`.

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
    let plain = !subject.contains(|c: char| c.is_ascii_digit() || "$\\,:".contains(c));
    let first = subject.split_whitespace().next().map(without_marks)?;
    let changes = |word: &str| HEDGES.contains(&word) || CHANGING.contains(&word);
    let lower = subject.to_lowercase();
    let mut words = lower.split_whitespace().map(without_marks);
    (plain && is_word(first) && ends_with_verb(lower.trim_end()) && !words.any(changes)).then_some(value)
}

/// Returns true if a sentence goes on to another value: `15 apples, so she ended with 20`, `8 hours
/// and earns 96 dollars`.
fn goes_on(value: &str) -> bool {
    let verb = |rest: &str| {
        let word = rest.split(' ').next().unwrap_or_default();
        is_verb(word) && rest.contains(|c: char| c.is_ascii_digit())
    };
    let begins = [" so ", " then ", "; "].iter().any(|word| value.contains(word));
    begins
        || value
            .match_indices(" and ")
            .any(|(at, and)| verb(&value[at + and.len()..]))
}

/// Returns true for a verb that may stand before a value.
fn is_verb(word: &str) -> bool {
    let ending = word.len() > 3 && (word.ends_with('s') || word.ends_with("ed"));
    let letters = word.bytes().all(|byte| byte.is_ascii_lowercase());
    letters && (ending || VERBS.contains(&word))
}

/// Returns true if a number or a typeset number begins here.
fn is_value(behind: &str) -> bool {
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
            ("They finish at 5:30", Some("5:30")),
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
