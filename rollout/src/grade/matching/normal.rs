//! The normal form in which texts are matched. It is SQuAD's (lower case, no punctuation, no
//! articles, single spaces), with two exceptions: numbers keep their signs, points and strokes, and
//! names keep their plus and sharp signs.

/// Dashes that may be a minus, or stand between two numbers.
const DASHES: [char; 9] = [
    '-', '\u{2010}', '\u{2011}', '\u{2012}', '\u{2013}', '\u{2014}', '\u{2212}', '\u{fe63}', '\u{ff0d}',
];
/// Strokes of fractions.
const STROKES: [char; 3] = ['/', '\u{2044}', '\u{2215}'];
const CURRENCIES: [char; 4] = ['$', '€', '£', '¥'];
/// Signs that are part of a name after letters: C++, C#, B+.
const OF_NAMES: [char; 2] = ['+', '#'];

/// Returns the normal form of a text. Where SQuAD's form is empty, as for `A` and `!!!`, it returns
/// the words with their articles, or else the whole text in lower case. Only a blank text gives an
/// empty form.
pub(crate) fn form(text: &str) -> String {
    let text = text.to_lowercase();
    let spaced = without_punctuation(&text);
    let words = |keep: &dyn Fn(&&str) -> bool| spaced.split_whitespace().filter(keep).collect::<Vec<_>>().join(" ");
    let is_word = |word: &&str| !["a", "an", "the"].contains(word);
    let forms = [words(&is_word), words(&|_| true)];
    let form = forms.into_iter().find(|form| !form.is_empty());
    form.unwrap_or_else(|| text.trim().to_owned())
}

fn without_punctuation(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut kept = String::with_capacity(text.len());
    for (at, c) in chars.iter().enumerate() {
        if c.is_alphanumeric() || c.is_whitespace() {
            kept.push(*c);
        } else if let Some(sign) = sign(&chars, at) {
            kept.push(sign);
        }
    }
    kept
}

/// Returns what remains of a character that is not a letter, digit or space.
fn sign(chars: &[char], at: usize) -> Option<char> {
    let c = chars[at];
    let before = at.checked_sub(1).and_then(|at| chars.get(at)).copied();
    let digit = |c: Option<&char>| c.is_some_and(|c| c.is_numeric());
    let (behind_digit, before_digit) = (digit(before.as_ref()), digit(chars.get(at + 1)));
    let begins = !before.is_some_and(char::is_alphanumeric);
    let kept = match c {
        '.' => before_digit && (behind_digit || (begins && before != Some('.'))),
        ',' => before_digit && behind_digit && !groups(chars, at),
        c if STROKES.contains(&c) => return (before_digit && behind_digit).then_some('/'),
        c if DASHES.contains(&c) => {
            let minus = begins && begins_number(&chars[at + 1..]);
            let exponent = before == Some('e') && before_digit && digit(at.checked_sub(2).and_then(|at| chars.get(at)));
            return (minus || exponent || (before_digit && behind_digit)).then_some('-');
        }
        c if OF_NAMES.contains(&c) => of_name(chars, at),
        _ => false,
    };
    kept.then_some(c)
}

/// Returns true if a number begins here, with its currency or its point: `5`, `.5`, `$5`.
fn begins_number(chars: &[char]) -> bool {
    let skipped = chars
        .iter()
        .take(2)
        .take_while(|c| CURRENCIES.contains(c) || **c == '.')
        .count();
    chars.get(skipped).is_some_and(|c| c.is_numeric())
}

/// Returns true if a comma stands between groups of a number: one to three digits before the first
/// comma, and three after each.
fn groups(chars: &[char], at: usize) -> bool {
    let before = digits(chars[..at].iter().rev());
    let first = at.checked_sub(before + 1).is_none_or(|at| chars[at] != ',');
    let whole = if first { (1..=3).contains(&before) } else { before == 3 };
    whole && digits(chars[at + 1..].iter()) == 3
}

/// Counts the digits at the beginning, up to four.
fn digits<'a>(chars: impl Iterator<Item = &'a char>) -> usize {
    chars.take(4).take_while(|c| c.is_numeric()).count()
}

/// Returns true if only such signs stand between a sign and the letter before it.
fn of_name(chars: &[char], at: usize) -> bool {
    let signs = chars[..at]
        .iter()
        .rev()
        .take(3)
        .take_while(|c| OF_NAMES.contains(c))
        .count();
    at.checked_sub(signs + 1).is_some_and(|at| chars[at].is_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::form;

    #[test]
    fn punctuation_case_and_articles_go() {
        for (text, normal) in [
            ("The Blue-Whale!", "bluewhale"),
            ("  An  apple,\na day. ", "apple day"),
            ("U.S.A.", "usa"),
            ("don't", "dont"),
            ("No.5, covid-19 and item 7.", "no5 covid19 and item 7"),
            ("(see: \"it\")", "see it"),
            ("50% of $20", "50 of 20"),
            ("A", "a"),
            ("The A", "the a"),
            ("the!", "the"),
            (" !!! ", "!!!"),
            ("", ""),
            ("  ", ""),
        ] {
            assert_eq!(form(text), normal, "{text}");
        }
    }

    #[test]
    fn numbers_stay_themselves() {
        for (text, normal) in [
            ("-5", "-5"),
            ("\u{2212}5", "-5"),
            ("(-5)", "-5"),
            ("-.5", "-.5"),
            ("-$5", "-5"),
            ("$-5", "-5"),
            ("x - 5", "x 5"),
            ("- 5", "5"),
            ("1.5", "1.5"),
            (".5", ".5"),
            ("well...5.", "well5"),
            ("3/4", "3/4"),
            ("3\u{2044}4", "3/4"),
            ("and/or", "andor"),
            ("1E-7", "1e-7"),
            ("type-7", "type7"),
            ("1,000", "1000"),
            ("1,234,567.8", "1234567.8"),
            ("1,5", "1,5"),
            ("1,2,3", "1,2,3"),
            ("12,3456", "12,3456"),
            ("1234,567", "1234,567"),
            ("1990-1995", "1990-1995"),
            ("1990\u{2013}1995", "1990-1995"),
            ("2020-01-05", "2020-01-05"),
            ("in 1990, 1995", "in 1990 1995"),
            ("v1.2.", "v1.2"),
        ] {
            assert_eq!(form(text), normal, "{text}");
        }
        for (one, other) in [
            ("-5", "5"),
            ("3/4", "34"),
            ("1.5", "15"),
            ("1,5", "15"),
            ("1,2", "12"),
            ("10-5", "105"),
        ] {
            assert_ne!(form(one), form(other), "{one} and {other}");
        }
    }

    #[test]
    fn names_keep_the_signs_behind_their_letters() {
        for (text, normal) in [
            ("C++", "c++"),
            ("C#.", "c#"),
            ("**C++**", "c++"),
            ("A+", "a+"),
            ("C++11", "c++11"),
            ("# C", "c"),
            ("50+", "50"),
            ("+5", "5"),
            ("a + b", "b"),
        ] {
            assert_eq!(form(text), normal, "{text}");
        }
        for (one, other) in [("C++", "C#"), ("C++", "C"), ("F#", "F"), ("A+", "A")] {
            assert_ne!(form(one), form(other), "{one} and {other}");
        }
    }

    #[test]
    fn long_texts_cost_one_pass() {
        for piece in ["+", "c+", "-", "1,", "1,000", ".", "-$.", "the "] {
            let text = piece.repeat(60_000 / piece.len());
            assert_eq!(form(&text), form(&format!(" {text}\n")), "{piece}");
        }
    }
}
