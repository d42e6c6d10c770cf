//! Where an answer stands in a text.

use super::lexer::PLAIN;
use crate::grade::{boxed, format};

/// Words that change the number before them: they are no prose.
const SCALES: [&str; 14] = [
    "hundred", "thousand", "million", "billion", "trillion", "dozen", "half", "halves", "third", "thirds", "quarter",
    "quarters", "tenth", "tenths",
];

/// The last boxed answer; else what stands between `<answer>` and `</answer>`; else what follows the last "answer is" or
/// "answer:" on its line, up to the words behind it; else the last number.
pub(super) fn found(text: &str) -> Option<&str> {
    boxed::last(text)
        .or_else(|| format::last_block(text, "answer"))
        .or_else(|| announced(text))
        .or_else(|| last_number(text))
}

fn announced(text: &str) -> Option<&str> {
    let lower = text.to_ascii_lowercase();
    let end = ["answer is", "answer:"]
        .iter()
        .filter_map(|w| lower.rfind(w).map(|at| at + w.len()))
        .max()?;
    let line = text[end..].trim_start_matches([':', ' ', '*']).lines().next()?;
    let line = without_prose(line.split(". ").next()?).trim_end_matches(['.', ' ', '*']);
    (!line.is_empty()).then_some(line)
}

/// The last number or fraction of a text, with its sign.
pub(super) fn last_number(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let end = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
    let within = |b: &u8| b.is_ascii_digit() || matches!(b, b'.' | b',' | b'/');
    let start = bytes[..end].iter().rposition(|b| !within(b)).map_or(0, |at| at + 1);
    let digit = start + bytes[start..end].iter().position(u8::is_ascii_digit)?;
    // `.5`, but neither the dots of `...5` nor the stop of `end.5`.
    let point = digit == start + 1 && bytes[start] == b'.' && (start == 0 || !bytes[start - 1].is_ascii_alphanumeric());
    let start = if point { start } else { digit };
    let negative = start > 0 && bytes[start - 1] == b'-';
    let operand = negative && start > 1 && (bytes[start - 2].is_ascii_alphanumeric() || bytes[start - 2] == b')');
    Some(&text[start - usize::from(negative && !operand)..end])
}

/// A formula up to the words behind it: the `7` of `7 apples`, and of `7, because 3+4=7`. What begins with words, before any
/// number, stays as it is.
fn without_prose(line: &str) -> &str {
    let bytes = line.as_bytes();
    let (mut at, mut depth, mut number) = (0, 0usize, false);
    while let Some(byte) = bytes.get(at) {
        let letters = bytes[at..].iter().take_while(|b| b.is_ascii_alphabetic()).count();
        if letters > 0 {
            let begins = at == 0 || [b' ', b'('].contains(&bytes[at - 1]);
            if depth == 0 && begins && is_prose(&line[at..at + letters]) {
                return if number { without_last_words(&line[..at]) } else { line };
            }
            at += letters;
            continue;
        }
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b'0'..=b'9' => number = true,
            _ => {}
        }
        at += 1;
    }
    line
}

/// A word, and neither a product of variables, nor `sqrt` or `sinx`, nor `million`.
fn is_prose(word: &str) -> bool {
    let function = PLAIN
        .iter()
        .any(|name| word.starts_with(name) && word.len() <= name.len() + 1);
    word.len() >= 4 && !function && !SCALES.contains(&word.to_ascii_lowercase().as_str())
}

/// Without short words at the end: `7` of `7 of the`.
fn without_last_words(mut line: &str) -> &str {
    loop {
        line = line.trim_end_matches([' ', ',', ';', ':', '(']);
        let start = line.rfind(' ').map_or(0, |at| at + 1);
        let word = line[start..].trim_start_matches('(');
        let is_word = word.len() >= 2 && word.bytes().all(|b| b.is_ascii_alphabetic());
        if start == 0 || !is_word || PLAIN.contains(&word) {
            return line;
        }
        line = &line[..start];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_answer_ends_where_words_begin() {
        for (text, answer) in [
            ("The answer is 7 apples.", "7"),
            ("The answer is 7, because 3+4=7.", "7"),
            ("Answer: 7 of the apples", "7"),
            ("Answer: 7 (the smallest one)", "7"),
            ("Answer: $\\frac{1}{2}$ of them", "$\\frac{1}{2}$"),
            ("Answer: 3 and 4 respectively", "3 and 4"),
            ("Answer: x+1 where x is odd", "x+1"),
            ("Answer: 2 pi metres", "2 pi"),
            ("Answer: 2 sqrt(3)", "2 sqrt(3)"),
            ("Answer: 2 million", "2 million"),
            ("Answer: 2 and a half", "2 and a half"),
            ("Answer: 5 cm", "5 cm"),
            ("Answer: \\text{7 apples}", "\\text{7 apples}"),
            ("Answer: 5\\text{ apples}", "5\\text{ apples}"),
            ("Answer: Monday the 7th", "Monday the 7th"),
            ("The answer is B because of 4 reasons", "B because of 4 reasons"),
            ("Answer: 2 \\alpha", "2 \\alpha"),
        ] {
            assert_eq!(found(text), Some(answer), "{text}");
        }
    }

    #[test]
    fn the_last_number_has_its_sign_and_its_point() {
        for (text, number) in [
            ("it is .5", Some(".5")),
            ("it is -.5", Some("-.5")),
            ("at the end.5", Some("5")),
            ("well...5", Some("5")),
            ("10-7", Some("7")),
            ("there are -7.", Some("-7")),
            ("$1,234.50", Some("1,234.50")),
            ("3/4 of it", Some("3/4")),
            ("none", None),
        ] {
            assert_eq!(last_number(text), number, "{text}");
        }
    }
}
