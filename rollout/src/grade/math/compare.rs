//! Compares an answer with a label as texts that have several readings: a choice with its value, a
//! number with the letter of its unit, a time with and without its half of the day.

use super::answer::{Answer, Side};
use super::budget::Budget;
use super::clock::Clock;
use super::measure;
use super::same::same;
use crate::grade::normal::lexer::tokens as lexed;
use crate::grade::normal::option::option;
use crate::grade::normal::setting::undelimited;
use crate::grade::normal::token::Token;
use crate::grade::normal::unit_names::without_unit;
use crate::grade::normal::words::plain_words;

/// Returns true if an answer and a label are equal as text, or in meaning within
/// [`super::budget::MOST_STEPS`].
pub(crate) fn equal(answer: &str, label: &str) -> bool {
    equal_within(answer, label, &Budget::new())
}

pub(super) fn equal_within(answer: &str, label: &str, budget: &Budget) -> bool {
    if answer.trim() == label.trim() {
        return true;
    }
    if measure::differ(answer, label) {
        return false;
    }
    plain(answer, label, budget)
        || by_option(answer, label, budget)
        || is_same_time(answer, label)
        || by_unit(answer, label, budget)
        || measure::have_same_parts(answer, label)
}

/// Compares one reading of each text.
fn plain(answer: &str, label: &str, budget: &Budget) -> bool {
    let (a, b) = (Answer::parse(answer, Side::Answer), Answer::parse(label, Side::Label));
    let words = matches!(a, Answer::Words(_)) || matches!(b, Answer::Words(_));
    // `2 hours and 30 minutes` is `2 hours 30 minutes`.
    let in_words = |text: &str| {
        let words = Some(plain_words(text)).filter(|text| text.contains(char::is_alphabetic))?;
        let amounts = words.contains(|c: char| c.is_ascii_digit());
        Some(if amounts { words.replace(" and ", " ") } else { words })
    };
    let tokens = |text| lexed(undelimited(text)).map(unspaced);
    let signs = || words && tokens(answer).is_some_and(|answer| Some(answer) == tokens(label));
    let product = |word: &str, formula: &str, other: &Answer| {
        let product = words.then(|| as_product(word, formula)).flatten();
        product.is_some_and(|product| same(&Answer::parse(&product, Side::Answer), other, budget))
    };
    let products = || product(answer, label, &b) || product(label, answer, &a);
    same(&a, &b, budget)
        || products()
        || signs()
        || (words && in_words(answer).is_some_and(|text| Some(text) == in_words(label)))
}

/// Returns the product that a word is next to a formula: `kab` next to `abk`, `3x6` next to 18.
/// Three letters are no formula if they may be a word: `der` or `act`.
fn as_product(word: &str, formula: &str) -> Option<String> {
    const ENDINGS: [&str; 13] = [
        "ch", "ck", "ct", "dz", "ft", "lm", "lp", "lt", "mp", "nt", "pt", "rt", "st",
    ];
    let (word, formula) = (undelimited(word), undelimited(formula));
    let number = |digits: &str| (1..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((one, other)) = word.split_once('x') {
        return (number(one) && number(other) && number(formula)).then(|| format!("{one}*{other}"));
    }
    let letters = |text: &str| text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_lowercase());
    let vowel = |c: char| "aeiouy".contains(c);
    let product = letters(formula)
        && formula.starts_with(vowel)
        && !formula[1..].contains(vowel)
        && !formula.ends_with('s')
        && !ENDINGS.contains(&&formula[1..]);
    let signs = formula.contains(['\\', '*', '^', '/', '+', '(']);
    (letters(word) && (product || signs)).then(|| word.chars().map(String::from).collect::<Vec<_>>().join("*"))
}

/// Removes white space and the braces around one token, which have no meaning in a formula that is
/// not read.
fn unspaced(tokens: Vec<Token>) -> Vec<Token> {
    let mut out = Vec::with_capacity(tokens.len());
    for mut token in tokens {
        match &mut token {
            Token::Number(_, spaced) => *spaced = false,
            Token::Text(words) => *words = plain_words(words),
            _ => {}
        }
        out.push(token);
        if let [.., Token::Symbol('{'), inside, Token::Symbol('}')] = out.as_slice() {
            let inside = inside.clone();
            out.truncate(out.len() - 3);
            out.push(inside);
        }
    }
    out
}

/// Compares a choice with its value, `\textbf{(B)}\ 24`, with the value, the letter, or both.
fn by_option(answer: &str, label: &str, budget: &Budget) -> bool {
    let is_letter = |text: &str, letter: char| plain_words(text) == letter.to_lowercase().to_string();
    match (option(answer), option(label)) {
        (Some((one, answer)), Some((other, label))) => one == other && plain(answer, label, budget),
        (Some((letter, answer)), None) => plain(answer, label, budget) || is_letter(label, letter),
        (None, Some((letter, label))) => plain(answer, label, budget) || is_letter(answer, letter),
        // `\text{Choice C}` names the letter.
        (None, None) => {
            let words = [answer, label].map(plain_words);
            let letters = words.iter().map(|words| named_letter(words));
            letters
                .zip([&words[1], &words[0]])
                .any(|(letter, other)| letter == Some(other))
        }
    }
}

/// Returns the letter of `choice c`, in lower case.
fn named_letter(words: &str) -> Option<&str> {
    let letter = ["choice ", "option "]
        .iter()
        .find_map(|noun| words.strip_prefix(noun))?;
    (letter.len() == 1).then_some(letter)
}

/// Returns true if one side names the half of the day and the other does not: `3:45 PM`, `3:45`.
fn is_same_time(answer: &str, label: &str) -> bool {
    let times = [answer, label].map(|text| (Clock::read(text), Clock::bare(text)));
    match times {
        [(Some(time), None), (_, Some(bare))] | [(_, Some(bare)), (Some(time), None)] => time.is_at(bare),
        _ => false,
    }
}

/// Compares `5 m` with `5\text{ m}`. On its own `5 m` may be a product.
fn by_unit(answer: &str, label: &str, budget: &Budget) -> bool {
    let numbers = [answer, label].map(|text| without_unit(text).unwrap_or(text));
    if measure::are_same(answer, label) != Some(true) {
        return false;
    }
    let shorter = numbers[0].len() < answer.len() || numbers[1].len() < label.len();
    // The letter of `20 deg C` could be a variable.
    let degrees = || Some(plain(&measure::degrees(answer)?, &measure::degrees(label)?, budget));
    (shorter && plain(numbers[0], numbers[1], budget)) || degrees() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::equal;

    #[test]
    fn signs_of_unicode_are_their_commands() {
        for (one, other) in [
            ("≥3", "\\ge 3"),
            ("≥ 3", "x \\geq 3"),
            ("≥3", "[3,\\infty)"),
            ("x ⩽ 3", "x \\leqslant 3"),
            ("≠3", "\\ne 3"),
            (">3", "> 3"),
            ("−√2", "-\\sqrt{2}"),
            ("3×4÷2", "3\\times 4\\div 2"),
            ("(−∞,2)∪(3,∞)", "(-\\infty,2)\\cup(3,\\infty)"),
            ("[1,2]∩[2,3]", "[1,2]\\cap[2,3]"),
            ("AB ∥ CD", "AB \\parallel CD"),
            ("⟨1,2⟩", "\\langle 1,2\\rangle"),
            ("𝑥² + 𝜋", "x^2+\\pi"),
            ("³√8", "2"),
            ("1²⁄₃", "5/3"),
            ("½π", "\\frac{\\pi}{2}"),
        ] {
            assert!(equal(one, other) && equal(other, one), "{one} and {other}");
        }
        for (one, other) in [
            ("≥3", "\\le 3"),
            ("≥3", "3"),
            ("≥3", "> 3"),
            ("≥3", "y \\ge 4"),
            ("≥3", "x+y \\ge 3"),
            ("≠3", "3"),
            ("p ∧ q", "p \\lor q"),
            ("A∪B", "A\\cap B"),
        ] {
            assert!(!equal(one, other) && !equal(other, one), "{one} and {other}");
        }
    }
}
