//! Reads the last value of a text without an announcement.

use super::signs::{is_formula, is_grouped, is_product, scaled_money};
use super::spaced;
use super::text::LONGEST_ANSWER;
use super::{delimited, steps};
use crate::grade::normal::setting::undelimited;
use crate::grade::normal::{minus, vulgar};

/// Signs of formulas outside ASCII, in addition to the signs for a minus.
const SIGNS: &str = "√∛πθ∞×·⋅÷±°≤≥⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻₀₁₂₃₄₅₆₇₈₉€£₹";

/// Most lines that begin steps without ending them.
const MOST_STEPS: usize = 8;

/// Returns the last delimited formula, or the last number behind all of them.
pub(crate) fn value(text: &str) -> Option<&str> {
    let digit = text.rfind(|c: char| c.is_ascii_digit() || vulgar::is_fraction(c));
    match delimited::last(text) {
        Some(formula) if digit.is_none_or(|at| at < formula.end) => Some(delimited::last_row(text[formula].trim())),
        _ => unmarked(text, digit?),
    }
}

/// Returns the last line without marks of bold type, unless it is a difference without spaces: of
/// `10-7` the last number counts.
pub(crate) fn line(text: &str) -> Option<&str> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let line = undelimited(line.trim().trim_start_matches(['#', '>', ' '])).trim_end_matches(['.', ' ']);
    let within = |c: char| c.is_ascii_digit() || " .,+*$".contains(c) || minus::is_sign(c);
    let spaced = |at: usize, sign: &str| line[..at].ends_with(' ') && line[at + sign.len()..].starts_with(' ');
    let mut signs = line.match_indices(minus::is_sign).skip_while(|(at, _)| *at == 0);
    let sum = line.chars().all(within) && signs.any(|(at, sign)| !spaced(at, sign));
    (!line.is_empty() && line.len() <= LONGEST_ANSWER && !sum).then_some(line)
}

/// Returns the last line if it may be a computation: `2 + 3 = 5`, `\sqrt 16`, `|-5|`.
pub(crate) fn computation(text: &str) -> Option<&str> {
    line(text).filter(|line| line.contains('=') || line.starts_with(['\\', '|']))
}

/// Words behind a factorial.
const COUNTED: [&str; 8] = [
    "ways",
    "possible",
    "different",
    "permutations",
    "arrangements",
    "orders",
    "orderings",
    "distinct",
];
/// Words that multiply the number before them.
const SCALES: [&str; 6] = ["hundred", "thousand", "million", "billion", "trillion", "dozen"];
/// Beginnings of lines behind a solution that are no answer.
const CLOSINGS: [&str; 12] = [
    "hope ",
    "thank",
    "good luck",
    "happy ",
    "any ",
    "does ",
    "qed",
    "q.e.d",
    "the end",
    "end of",
    "solution complete",
    "references",
];

/// Returns a text without a last line that only takes leave: `Hope this helps!`
pub(crate) fn before_closing(text: &str) -> &str {
    let kept = text.trim_end();
    let Some((before, line)) = kept.rsplit_once('\n') else {
        return text;
    };
    let plain = line.trim_matches(['*', '#', ' ', '_']).to_lowercase();
    let shouted = plain.ends_with('!') && plain.contains(' ') && !plain.starts_with("no");
    let closing = shouted || CLOSINGS.iter().any(|words| plain.starts_with(words));
    let digit = |text: &str| text.contains(|c: char| c.is_ascii_digit());
    let solved = before.trim_end().rsplit("\n\n").next().is_some_and(digit);
    if closing && solved && !digit(line) && !line.contains(['\\', '$']) {
        before
    } else {
        text
    }
}

/// Returns a text without the lines at its end that only begin another step: `Step 3:`, `3.`.
pub(crate) fn before_step(text: &str) -> &str {
    let (mut text, mut next) = (text, None);
    for _ in 0..MOST_STEPS {
        let kept = text.trim_end();
        let start = kept.rfind('\n').map_or(0, |at| at + 1);
        let Some((name, number)) = steps::begun(&kept[start..]) else {
            return text;
        };
        let follows = || next == Some(number + 1) || steps::stands(&kept[..start], name, number.wrapping_sub(1));
        if (start == 0 && next.is_none()) || !(steps::is_section(name) || follows()) {
            return text;
        }
        (text, next) = (&kept[..start], Some(number));
    }
    text
}

/// Returns the last number or fraction of a text, with its sign.
pub(crate) fn number(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let end = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
    let within = |b: &u8| b.is_ascii_digit() || matches!(b, b'.' | b',' | b'/');
    let start = bytes[..end].iter().rposition(|b| !within(b)).map_or(0, |at| at + 1);
    let digit = start + bytes[start..end].iter().position(u8::is_ascii_digit)?;
    // Accepts `.5`, but not the dots of `...5` or the full stop of `end.5`.
    let point = digit == start + 1 && bytes[start] == b'.' && (start == 0 || !bytes[start - 1].is_ascii_alphanumeric());
    let start = if point { start } else { digit };
    let negative = minus::before(&text[..start]).filter(|before| !minus::ends_with_operand(before));
    Some(&text[negative.map_or(start, str::len)..end])
}

/// Returns true if words behind a number make it the size of a piece, whose count stands before it:
/// `3 100-dollar bills`, `2 500 ml bottles`.
fn is_of_pieces(behind: &str) -> bool {
    let mut words = behind.strip_prefix(' ').unwrap_or_default().split(' ');
    let (size, piece) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let piece = piece.trim_end_matches(|c: char| !c.is_alphabetic());
    let unit = !size.is_empty() && !size.ends_with('s') && size.chars().all(char::is_alphabetic);
    behind.starts_with('-') || (unit && piece.len() > 3 && piece.ends_with('s') && !piece.ends_with("ss"))
}

/// Returns a number with the word that multiplies it, or with the whole number before its fraction:
/// the `5 million` and the `2 1/2` of a sentence.
pub(crate) fn whole_number<'a>(text: &'a str, number: &'a str) -> &'a str {
    if let Some(amount) = scaled_money(text, number) {
        return amount;
    }
    let start = number.as_ptr().addr() - text.as_ptr().addr();
    let (before, behind) = (&text[..start], &text[start + number.len()..]);
    let word = behind.strip_prefix(' ').unwrap_or_default();
    let word = word.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    if SCALES.contains(&word) {
        return &text[start..start + number.len() + 1 + word.len()];
    }
    let whole = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ');
    let mixed = before[whole.len()..].trim_start();
    let unsigned = minus::before(whole).unwrap_or(whole);
    if !is_of_pieces(behind) && is_grouped(unsigned, mixed, number) {
        let signed = unsigned.len() < whole.len();
        let begin = if signed { unsigned.len() } else { start - mixed.len() };
        return &text[begin..start + number.len()];
    }
    let digits = mixed.trim_end();
    let free = whole.is_empty() || whole.ends_with(char::is_whitespace) || before[whole.len()..].starts_with(' ');
    let fraction = number
        .split_once('/')
        .is_some_and(|(above, below)| above.len() <= 2 && below.len() <= 2);
    let single = digits.len() < mixed.len() && digits.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let joined = free && fraction && single && !digits.is_empty();
    if joined {
        &text[start - mixed.len()..start + number.len()]
    } else {
        number
    }
}

/// Returns the last value if the last number is only a part of it: the exponent of `2^{10}`, or an
/// operand of `5 - 3`. Returns `None` if the number stands outside every formula: then it counts
/// itself.
pub(crate) fn around<'a>(text: &'a str, number: &str, is_formula: impl Fn(&str) -> bool) -> Option<&'a str> {
    let digit = text.rfind(|c: char| c.is_ascii_digit())?;
    let part = unmarked(text, digit).filter(|part| *part != number)?;
    value(text).filter(|formula| {
        // The set `\{18\}` holds the number alone, and `18_{dollars}` names its unit.
        let alone = formula.trim_matches(['\\', '{', '}']) == number;
        let unit = formula.strip_prefix(number).is_some_and(|unit| unit.starts_with('_'));
        let read = is_formula(formula) || formula.ends_with(['^', ')', '!']) || is_product(formula);
        *formula != part || (read && !alone && !unit)
    })
}

/// Returns the formula without delimiters that contains the last digit (`2^{10}`, `x=\sqrt{2}`,
/// `sqrt(2)`). It extends to white space or to another script. Else it returns the number.
fn unmarked(text: &str, digit: usize) -> Option<&str> {
    let apart = |c: char| {
        c.is_whitespace()
            || c == '"'
            || !(c.is_ascii() || SIGNS.contains(c) || minus::is_sign(c) || vulgar::is_fraction(c))
    };
    let start = text[..digit]
        .rfind(apart)
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    let end = text[digit..].find(apart).map_or(text.len(), |length| digit + length);
    // `5! ways` is a factorial. Other words, and a sentence's end, stand behind shouted numbers.
    let word = text[end..]
        .trim_start_matches(' ')
        .split(|c: char| !c.is_alphabetic())
        .next();
    let shouted = !word.is_some_and(|word| COUNTED.contains(&word));
    if let Some(formula) = spaced::formula(text, start..end) {
        return Some(bare(formula, shouted));
    }
    if let Some(function) = applied(text, digit) {
        return Some(function);
    }
    let formula = bare(&text[start..end], shouted);
    if is_formula(formula) {
        Some(formula)
    } else {
        number(text)
    }
}

/// Returns a function with its numbers if the last digit stands in its brackets: `C(6, 2)`, `f(2)`.
fn applied(text: &str, digit: usize) -> Option<&str> {
    let close = digit + text[digit..].find(')')?;
    let open = text[..digit].rfind('(')?;
    let name = text[..open].bytes().rev().take_while(u8::is_ascii_alphabetic).count();
    let inside = &text[open + 1..close];
    let numbers = inside
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b" ,;.-".contains(&byte));
    let picks = ["max", "min"].contains(&&text[open - name..open]);
    let named = name == 1 || (name > 1 && inside.contains([',', ';']) && !picks);
    (named && numbers && close - open <= LONGEST_ANSWER).then(|| &text[open - name..=close])
}

/// Removes what belongs to the sentence: full stops, marks of bold type, unmatched brackets.
fn bare(mut text: &str, shouted: bool) -> &str {
    // Longer texts are never compared.
    while text.len() <= LONGEST_ANSWER {
        let inner = text.trim_start_matches(['*', '_', '`', '\'', '$', ':', ',', ';']);
        let inner = inner.trim_end_matches(['*', '_', '`', '\'', '$', ':', ',', ';', '.', '?']);
        // `3! + 2!` is a sum, and `5!` is shouted.
        let calm = inner.trim_end_matches('!');
        let inner = if calm.contains('!') || !shouted { inner } else { calm };
        let inner = matched(matched(without_open_command(inner), "([", ")]"), "{", "}");
        if inner.len() == text.len() {
            break;
        }
        text = inner;
    }
    text
}

/// Removes a command at the end whose group goes on behind white space: `18\text{`.
fn without_open_command(text: &str) -> &str {
    let named = text
        .strip_suffix('{')
        .map(|name| name.trim_end_matches(|c: char| c.is_ascii_alphabetic()));
    named.and_then(|before| before.strip_suffix('\\')).unwrap_or(text)
}

/// Removes the first bracket if one too many is open, or the last if one too many is closed.
fn matched<'a>(text: &'a str, opening: &str, closing: &str) -> &'a str {
    let count = |brackets: &str| text.chars().filter(|c| brackets.contains(*c)).count();
    let (opened, closed) = (count(opening), count(closing));
    if opened > closed && text.starts_with(|c: char| opening.contains(c)) {
        &text[1..]
    } else if closed > opened && text.ends_with(|c: char| closing.contains(c)) {
        &text[..text.len() - 1]
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_formula_or_a_number_behind_it_counts() {
        for (text, last) in [
            ("Thus $x=\\sqrt{2}$.", Some("x=\\sqrt{2}")),
            ("$2^{10}$", Some("2^{10}")),
            ("The point is $(1,2)$.", Some("(1,2)")),
            ("It is $\\pi$ in both cases", Some("\\pi")),
            ("We know $x=3$ and so 5 in total.", Some("5")),
            ("There are 5 of them; hence $n$.", Some("n")),
            ("\\[ \\begin{aligned} x &= 3+4 \\\\ &= 7 \\end{aligned} \\]", Some("7")),
            ("Costs $5 and $7, so the difference is 2.", Some("2")),
            ("It costs $1,234.", Some("1,234")),
            ("none", None),
        ] {
            assert_eq!(value(text), last, "{text}");
        }
    }

    #[test]
    fn a_formula_without_signs_is_taken_whole() {
        for (text, last) in [
            ("So it is \\frac{3}{4}.", "\\frac{3}{4}"),
            ("so it is **2^{10}**!", "2^{10}"),
            ("The area is 4π square units.", "4π"),
            ("so the angle is **π/3** radians", "π/3"),
            ("so x=\\sqrt{2}, as (we saw)", "x=\\sqrt{2}"),
            ("(which is \\sqrt{2})", "\\sqrt{2}"),
            ("so it is [0,\\sqrt{2})", "[0,\\sqrt{2})"),
            ("so x = sqrt(2)", "sqrt(2)"),
            ("the area is 2pi", "2pi"),
            ("So, f(x) = x^2 + 1.", "f(x) = x^2 + 1"),
            ("the area is √2.", "√2"),
            ("The derivative is 2x.", "2x"),
            ("it is 2**10", "2**10"),
            ("answer = **5**", "5"),
            ("it is _5_", "5"),
            ("{\"answer\": 5}", "5"),
            ("{\"a\":1,\"answer\":5}", "5"),
            ("1{,}000", "1{,}000"),
            ("5\\%", "5\\%"),
            ("答案是\\frac{3}{4}。", "\\frac{3}{4}"),
            ("答案是5。", "5"),
            ("x=5", "5"),
            ("10-7", "7"),
            ("it takes 5h", "5"),
            ("so it is −√2", "−√2"),
            ("so it is ½.", "½"),
            ("There are 4! ways.", "4!"),
            ("There are 4! Good.", "4"),
            ("There are C(6, 2) ways.", "C(6, 2)"),
            ("There are 3x6 seats.", "3x6"),
            ("so it is −2½", "−2½"),
            ("一共是½。", "½"),
            ("so it is －\\sqrt{2}", "－\\sqrt{2}"),
            ("so it is –\\frac{3}{4}", "–\\frac{3}{4}"),
        ] {
            assert_eq!(value(text), Some(last), "{text}");
        }
    }

    #[test]
    fn a_number_has_its_scale_and_its_fraction() {
        for (text, whole) in [
            ("There are 5 million people.", "5 million"),
            ("It takes 2 1/2 hours.", "2 1/2"),
            ("There are 5 millions.", "5"),
            ("The total is 1 800 dollars.", "1 800"),
            ("It is −1 234 567.8", "−1 234 567.8"),
            ("rows 3 400", "400"),
            ("In 1999 250 came", "250"),
            ("It is 1/2.", "1/2"),
            ("on 3/4 and 1/2", "1/2"),
            ("It costs $5.", "5"),
            ("It costs $5M.", "$5M"),
        ] {
            assert_eq!(whole_number(text, number(text).unwrap()), whole, "{text}");
        }
    }

    #[test]
    fn a_last_line_may_take_leave_or_begin_a_step() {
        for (text, kept) in [
            ("It is 18.\n\nHope this helps!", "It is 18.\n"),
            ("It is 18.\n\nQ.E.D.", "It is 18.\n"),
            ("It is 18.\n\nYes!", "It is 18.\n\nYes!"),
            ("It is so.\n\nHappy number", "It is so.\n\nHappy number"),
        ] {
            assert_eq!(before_closing(text), kept, "{text}");
        }
        for (text, kept) in [
            ("1. Eggs\n2. It is 18.\n3. So", "1. Eggs\n2. It is 18."),
            ("2. Eggs\n4. Money", "2. Eggs\n4. Money"),
            ("1. Eggs\n2. Money\n3.", ""),
        ] {
            assert_eq!(before_step(text).trim(), kept, "{text}");
        }
    }

    #[test]
    fn long_tokens_cost_one_pass() {
        let brackets = format!("{}5{}", "(".repeat(30_000), "}".repeat(30_000));
        assert_eq!(value(&brackets), Some(brackets.as_str()));
        let stops = format!("5{}", "!".repeat(60_000));
        assert_eq!(value(&stops), Some("5"));
        let signs = "$5 ".repeat(20_000);
        assert_eq!(value(&signs), Some("5"));
    }

    #[test]
    fn the_last_number_has_its_sign_and_its_point() {
        for (text, last) in [
            ("it is .5", Some(".5")),
            ("it is -.5", Some("-.5")),
            ("at the end.5", Some("5")),
            ("well...5", Some("5")),
            ("10-7", Some("7")),
            ("there are -7.", Some("-7")),
            ("there are −7.", Some("−7")),
            ("there are –7.", Some("–7")),
            ("there are －.5", Some("－.5")),
            ("10−7", Some("7")),
            ("(x)–7", Some("7")),
            ("pages 3 –7", Some("7")),
            ("$1,234.50", Some("1,234.50")),
            ("3/4 of it", Some("3/4")),
            ("none", None),
        ] {
            assert_eq!(number(text), last, "{text}");
        }
    }
}
