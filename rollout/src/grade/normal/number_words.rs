//! Reads whole numbers in English words.

const SMALL: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 8] = [
    "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
];
const LARGE: [(&str, u64); 4] = [
    ("thousand", 1_000),
    ("million", 1_000_000),
    ("billion", 1_000_000_000),
    ("trillion", 1_000_000_000_000),
];
/// Names of parts, in the singular, with the number of them in a whole.
const PARTS: [(&str, u64); 14] = [
    ("half", 2),
    ("halve", 2),
    ("third", 3),
    ("quarter", 4),
    ("fourth", 4),
    ("fifth", 5),
    ("sixth", 6),
    ("seventh", 7),
    ("eighth", 8),
    ("ninth", 9),
    ("tenth", 10),
    ("twelfth", 12),
    ("twentieth", 20),
    ("hundredth", 100),
];
/// The most bytes of such a number.
const LONGEST: usize = 120;

/// Returns the number that words spell: `seventy-two`, `Two hundred and five`.
pub(crate) fn spelled_out(text: &str) -> Option<u64> {
    // `sixty-eight (68)`
    if let Some((words, digits)) = text.trim().strip_suffix(')').and_then(|text| text.split_once('(')) {
        // `68 (sixty-eight)`
        let (words, digits) = if words.contains(|c: char| c.is_ascii_digit()) {
            (digits, words)
        } else {
            (words, digits)
        };
        let digits: u64 = digits.trim().parse().ok()?;
        return spelled_out(words).filter(|number| *number == digits);
    }
    if text.len() > LONGEST || text.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let plain = super::words::plain_words(text);
    let (mut total, mut group, mut any) = (0u64, 0u64, false);
    for word in plain.split([' ', '-']).filter(|word| !word.is_empty()) {
        if word == "and" && any {
            continue;
        }
        let small = SMALL.iter().position(|known| *known == word);
        let tens = TENS.iter().position(|known| *known == word);
        if let Some(value) = small.or(tens.map(|at| 20 + 10 * at)) {
            // `one two` is no number.
            let room = if small.is_some_and(|value| value < 10) { 10 } else { 100 };
            if (group % room != 0) || (any && group % 100 != 0 && group % 100 < 20) {
                return None;
            }
            group += value as u64;
        } else if word == "hundred" && (1..100).contains(&group) {
            group *= 100;
        } else {
            let (_, factor) = LARGE.iter().find(|(known, _)| *known == word)?;
            if group == 0 {
                return None;
            }
            total = total.checked_add(group.checked_mul(*factor)?)?;
            group = 0;
        }
        any = true;
    }
    any.then_some(total + group)
}

/// Returns the number of parts in a whole: 3 for `thirds`.
pub(crate) fn parts(word: &str) -> Option<u64> {
    let find = |word: &str| PARTS.iter().find(|(known, _)| *known == word).map(|(_, parts)| *parts);
    find(word).or_else(|| find(word.strip_suffix('s')?))
}

/// Most words behind a number in words that only name what is counted.
const MOST_NAMES: usize = 3;
/// Words behind a number in words with which a text says something else.
const GOING_ON: [&str; 18] = [
    "of", "that", "which", "who", "whose", "is", "are", "was", "were", "than", "more", "so", "because", "since", "but",
    "out", "half", "answer",
];

/// Units that words count, in the singular.
const MEASURES: [&str; 34] = [
    "dollar",
    "cent",
    "euro",
    "pound",
    "hour",
    "minute",
    "second",
    "day",
    "week",
    "month",
    "year",
    "mile",
    "meter",
    "metre",
    "kilometer",
    "kilometre",
    "centimeter",
    "centimetre",
    "foot",
    "feet",
    "inch",
    "inche",
    "yard",
    "degree",
    "unit",
    "square",
    "cubic",
    "per",
    "ounce",
    "gram",
    "kilogram",
    "liter",
    "litre",
    "gallon",
];

/// Plurals that change the number before them.
const PLACES: [&str; 24] = [
    "zeros",
    "zeroes",
    "tens",
    "dozens",
    "scores",
    "hundreds",
    "thousands",
    "millions",
    "billions",
    "trillions",
    "halves",
    "thirds",
    "fourths",
    "quarters",
    "fifths",
    "sixths",
    "sevenths",
    "eighths",
    "ninths",
    "tenths",
    "hundredths",
    "roots",
    "times",
    "squares",
];

/// Returns the number of things that words count: `twenty-five dollars`, `a dozen eggs`, `十八元`.
/// Only units and plurals are things: `six pi` and `six grand` are other numbers.
pub(crate) fn counted(text: &str) -> Option<u64> {
    counted_by(text, |word| {
        let known = |word: &str| MEASURES.contains(&word);
        let plural = word.len() > 3 && word.ends_with('s') && !PLACES.contains(&word);
        // `two nines`
        let plural = plural && word.strip_suffix('s').and_then(spelled_out).is_none();
        known(word) || word.strip_suffix('s').is_some_and(known) || plural
    })
}

/// Returns the number that words without a unit spell: `twenty-five`, `a dozen`, `十八`.
pub(crate) fn bare(text: &str) -> Option<u64> {
    counted_by(text, |_| false)
}

fn counted_by(text: &str, is_name: impl Fn(&str) -> bool) -> Option<u64> {
    if text.len() > LONGEST || text.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    // A word before the text keeps its article.
    let plain = super::words::plain_words(&format!("is {text}"));
    let plain = plain.strip_prefix("is ")?;
    if let Some(number) = super::chinese_numbers::in_chinese(plain) {
        return Some(number);
    }
    let mut words: Vec<&str> = plain.split(' ').collect();
    let unit = |word: &&str| ["hundred", "dozen"].contains(word) || LARGE.iter().any(|(known, _)| known == word);
    if ["a", "an"].contains(&words[0]) && words.get(1).is_some_and(unit) {
        words[0] = "one";
    }
    let spelled = |count: usize| Some((count, spelled_out(&words[..count].join(" "))?));
    let (used, number) = (1..=words.len()).rev().find_map(spelled)?;
    let (number, names) = match &words[used..] {
        ["dozen", names @ ..] => (number.checked_mul(12)?, names),
        names => (number, names),
    };
    let name = |word: &&str| {
        let letters = word.chars().all(|c| c.is_alphabetic() || c == '\'' || c == '-');
        let changes = super::scale::changes(word) || super::scale::is_scale(word) || GOING_ON.contains(word);
        letters && !changes && spelled_out(word).is_none()
    };
    (names.len() <= MOST_NAMES && names.iter().all(|word| name(word) && is_name(word))).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::{counted, spelled_out};

    #[test]
    fn things_may_be_counted_in_words() {
        for (text, number) in [
            ("twenty-five dollars", Some(25)),
            ("\\text{Five apples}", Some(5)),
            ("one hundred and five", Some(105)),
            ("ninety miles per hour", Some(90)),
            ("a hundred", Some(100)),
            ("a dozen eggs", Some(12)),
            ("two dozen", Some(24)),
            ("十八", Some(18)),
            ("二十五个苹果", Some(25)),
            ("一百零五元", Some(105)),
            ("一个圆", None),
            ("三分之一", None),
            ("eighteen or nineteen", None),
            ("eighteen and a half", None),
            ("two thirds", None),
            ("five times six", None),
            ("ten less than twenty", None),
            ("one of them", None),
            ("half a dozen", None),
            ("a tree", None),
            ("no one", None),
            ("three million", Some(3_000_000)),
        ] {
            assert_eq!(counted(text), number, "{text}");
        }
    }

    #[test]
    fn numbers_in_words_have_their_values() {
        for (text, number) in [
            ("six", Some(6)),
            ("Seventy-two", Some(72)),
            ("\\text{two hundred and five}", Some(205)),
            ("three thousand four hundred", Some(3400)),
            ("zero", Some(0)),
            ("sixty-eight (68)", Some(68)),
            ("68 (sixty-eight)", Some(68)),
            ("68 (sixty-nine)", None),
            ("68 (68)", None),
            ("one two", None),
            ("twenty eleven", None),
            ("million", None),
            ("no", None),
            ("and", None),
            ("", None),
        ] {
            assert_eq!(spelled_out(text), number, "{text}");
        }
    }
}
