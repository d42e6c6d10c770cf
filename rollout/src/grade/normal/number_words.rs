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

#[cfg(test)]
mod tests {
    use super::spelled_out;

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
