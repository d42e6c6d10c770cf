//! Reads through the typesetting around an answer.

use std::borrow::Cow;

use super::commands::{is_look, is_word};
use super::minus::in_signs;
use super::unit_names::is_denominator;
use super::wide::narrow_numbers;

/// The mark of bold type on either side.
const STARS: &str = "**";
/// Tags of bold and slanted type.
const TAGS: [(&str, &str); 4] = [
    ("<b>", "</b>"),
    ("<strong>", "</strong>"),
    ("<i>", "</i>"),
    ("<em>", "</em>"),
];

/// Removes the typesetting before an answer: white space, dollar signs, stars, braces, quotes,
/// commands.
pub(crate) fn unset(mut text: &str) -> &str {
    let mark =
        |c: char| c.is_whitespace() || ['$', '*', '{', '}', '~', '"', '“', '”', '`', '«', '„', '\''].contains(&c);
    loop {
        let rest = text.trim_start_matches(mark).trim_start_matches("__");
        let rest = TAGS
            .iter()
            .find_map(|(open, _)| rest.strip_prefix(open))
            .unwrap_or(rest);
        let rest = without_command(rest).unwrap_or(rest);
        if rest.len() == text.len() {
            return rest;
        }
        text = rest;
    }
}

/// Returns a text with plain digits and letters, without bold type, with `-12` for `minus 12`, and
/// with `24 cm²` for `24 cm^2`: the exponent of a unit is no number of the text.
pub(crate) fn plain_text(text: &str) -> Cow<'_, str> {
    match narrow_numbers(text) {
        Cow::Borrowed(text) => plain(text),
        Cow::Owned(text) => Cow::Owned(plain(&text).into_owned()),
    }
}

fn plain(text: &str) -> Cow<'_, str> {
    with_raised_units(without_sizes(in_signs(without_bold(text))))
}

/// Removes the stars around words in bold type: `**18** or **20**`. Those of a power stay: `2**10`.
fn without_bold(text: &str) -> Cow<'_, str> {
    let mut made = String::new();
    let (mut kept, mut at) = (0, 0);
    while let Some(open) = text[at..].find(STARS).map(|found| at + found) {
        at = open + STARS.len();
        let Some(close) = text[at..].find(STARS).map(|found| at + found) else {
            break;
        };
        let (before, behind) = (&text[..open], &text[close + STARS.len()..]);
        let inside = &text[at..close];
        let operand = |c: char| c.is_alphanumeric() || "*)]}".contains(c);
        let unit = unit_behind(inside, behind);
        let bold = !inside.is_empty()
            && !inside.contains('\n')
            && inside.trim() == inside
            && !before.ends_with(operand)
            && (unit > 0 || !behind.starts_with(|c: char| c.is_alphanumeric() || "*(".contains(c)));
        if bold {
            push_apart(&mut made, &text[kept..open]);
            push_apart(&mut made, inside);
            kept = close + STARS.len() + unit;
            if unit > 0 {
                made.push_str(&format!("\\text{{{}}}", &behind[..unit]));
            }
            at = kept;
        }
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    push_apart(&mut made, &text[kept..]);
    Cow::Owned(made)
}

/// Removes the sizes of things that a number counts: `50 4x6 photos`.
fn without_sizes(text: Cow<'_, str>) -> Cow<'_, str> {
    let size = |word: &str| {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        word.split_once('x')
            .is_some_and(|(one, other)| digits(one) && digits(other))
    };
    let words: Vec<&str> = text.split(' ').collect();
    let counted = |at: &usize| {
        let behind = words
            .get(at + 1)
            .is_some_and(|word| word.starts_with(char::is_alphabetic));
        *at > 0 && size(words[*at]) && behind && words[at - 1].ends_with(|c: char| c.is_ascii_digit())
    };
    if !(0..words.len()).any(|at| counted(&at)) {
        return text;
    }
    let kept = (0..words.len()).filter(|at| !counted(at)).map(|at| words[at]);
    Cow::Owned(kept.collect::<Vec<_>>().join(" "))
}

/// Raises the exponents of units behind numbers.
fn with_raised_units(text: Cow<'_, str>) -> Cow<'_, str> {
    const POWERS: [(&str, &str); 6] = [
        ("^2", "²"),
        ("^3", "³"),
        ("^{2}", "²"),
        ("^{3}", "³"),
        ("2", "²"),
        ("3", "³"),
    ];
    let (mut made, mut kept) = (String::new(), 0);
    for (at, sign) in text.match_indices(['^', '2', '3']) {
        let power = POWERS.iter().find(|(power, _)| text[at..].starts_with(power));
        let length = sign == "^" || ["m", "ft", "in", "yd"].iter().any(|unit| text[..at].ends_with(unit));
        let Some((power, raised)) = power.filter(|_| length && ends_with_measure(&text[..at])) else {
            continue;
        };
        let behind = &text[at + power.len()..];
        if !behind.starts_with(|c: char| c.is_alphanumeric() || "({}$\\^_/".contains(c)) {
            made.push_str(&text[kept..at]);
            made.push_str(raised);
            kept = at + power.len();
        }
    }
    if kept == 0 {
        return text;
    }
    made.push_str(&text[kept..]);
    Cow::Owned(made)
}

/// Returns true if a text ends with a number and a unit: `24 cm`, `$4$ m/s`.
fn ends_with_measure(text: &str) -> bool {
    let before = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '/');
    let unit = text[before.len()..].rsplit('/').next().unwrap_or_default();
    let number = before.trim_end_matches([' ', '$']);
    let known = is_denominator(unit) || ["unit", "units"].contains(&unit);
    known && number.len() < before.len() && number.ends_with(|c: char| c.is_ascii_digit())
}

/// Returns the length of the unit right behind a number in bold type: `**5**m`. The stars show that
/// the letters are no variable.
fn unit_behind(number: &str, behind: &str) -> usize {
    let letters = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
    let digits = number.ends_with(|c: char| c.is_ascii_digit()) && !number.contains(char::is_alphabetic);
    let ends = !behind[letters..].starts_with(|c: char| c.is_alphanumeric() || "*(^/".contains(c));
    if digits && ends && is_denominator(&behind[..letters]) {
        letters
    } else {
        0
    }
}

/// Adds a text. Digits in bold type and those next to them are two numbers: `**1** **234**`.
fn push_apart(made: &mut String, text: &str) {
    let digits = text.trim_start().bytes().take_while(u8::is_ascii_digit).count();
    let spaced = made.ends_with(' ') || text.starts_with(' ');
    if digits == 3 && spaced && made.trim_end().ends_with(|c: char| c.is_ascii_digit()) {
        made.truncate(made.trim_end().len());
        made.push_str(", ");
        made.push_str(text.trim_start());
    } else {
        made.push_str(text);
    }
}

/// Removes one typesetting command, formula sign or space command at the beginning of a text.
fn without_command(text: &str) -> Option<&str> {
    let command = text.strip_prefix('\\')?;
    let length = command.bytes().take_while(u8::is_ascii_alphabetic).count();
    if length == 0 {
        return command.strip_prefix(['(', '[', ',', ';', ':', '!', ' ']);
    }
    let (name, rest) = command.split_at(length);
    (is_look(name) || is_word(name)).then_some(rest)
}

/// Removes the end of a letter's typesetting. Also returns true if braces or stars closed it,
/// which shows that the letter stands alone.
pub(crate) fn without_closing(mut text: &str) -> (&str, bool) {
    let mut closed = false;
    loop {
        // A space may stand before the brace: `\textbf{B } 12`.
        let spaced = Some(text.trim_start()).filter(|text| text.starts_with('}'));
        let closing = spaced
            .unwrap_or(text)
            .strip_prefix(['}', '*'])
            .or_else(|| text.strip_prefix("__"))
            .or_else(|| TAGS.iter().find_map(|(_, close)| text.strip_prefix(close)));
        let quiet = ["\\right", "\\)", "\\]", "$", "\"", "”", "`", "»", "“", "'"]
            .iter()
            .find_map(|sign| text.strip_prefix(sign));
        match closing.or(quiet) {
            Some(rest) => text = rest,
            None => return (text, closed),
        }
        closed |= closing.is_some();
    }
}

/// Replaces the ties and the commands of white space in words with spaces.
pub(crate) fn with_spaces(words: &str) -> String {
    if !words.contains(['\\', '~', '\u{a0}']) {
        return words.to_owned();
    }
    let spaces = ["\\ ", "\\;", "\\:", "\\quad", "~", "\u{a0}"];
    spaces
        .iter()
        .fold(with_thin_spaces(words), |words, space| words.replace(space, " "))
}

/// Replaces thin spaces, except between the groups of a number: `1\,000`.
fn with_thin_spaces(words: &str) -> String {
    let mut parts = words.split("\\,");
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let in_number = made.ends_with(|c: char| c.is_ascii_digit()) && part.starts_with(|c: char| c.is_ascii_digit());
        made.push_str(if in_number { "\\," } else { " " });
        made.push_str(part);
    }
    made
}

/// Removes delimiters of a formula and marks of bold type around the whole text.
pub(crate) fn undelimited(text: &str) -> &str {
    const AROUND: [(&str, &str); 12] = [
        ("```", "```"),
        ("$$", "$$"),
        ("$", "$"),
        ("**", "**"),
        ("__", "__"),
        ("*", "*"),
        ("_", "_"),
        ("`", "`"),
        ("\"", "\""),
        ("'", "'"),
        ("\\(", "\\)"),
        ("\\[", "\\]"),
    ];
    let text = text.trim();
    for (open, close) in AROUND {
        let inner = text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
        if let Some(inner) = inner.filter(|inner| !inner.contains(open) && !inner.contains(close)) {
            return undelimited(inner);
        }
    }
    text
}

/// Removes a command, delimiters or stars that are set around the whole text.
pub(crate) fn unwrapped(text: &str) -> &str {
    let text = undelimited(text);
    let inner = text.strip_prefix('\\').and_then(|rest| {
        let length = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (name, rest) = rest.split_at(length);
        let set = (is_look(name) || is_word(name)) && !["left", "right"].contains(&name);
        let inside = rest.trim_start().strip_prefix('{')?.strip_suffix('}')?;
        (set && !inside.contains(['{', '}'])).then_some(inside)
    });
    inner.map_or(text, str::trim)
}

#[cfg(test)]
mod tests {
    use super::{plain_text, without_bold};

    #[test]
    fn stars_of_bold_type_go_and_those_of_a_power_stay() {
        for (text, plain) in [
            ("So x = **18** or x = **20**.", "So x = 18 or x = 20."),
            ("**x = 2 and x = 3**", "x = 2 and x = 3"),
            ("2**10 or 3**2", "2**10 or 3**2"),
            ("(1+2)**3 and **9**", "(1+2)**3 and 9"),
            ("**a** **b", "a **b"),
            ("a ** b ** c", "a ** b ** c"),
            ("**5**m and **6**x", "5\\text{m} and **6**x"),
            ("**1** **234**, **1** 234", "1, 234, 1, 234"),
            ("**2** **1/2**", "2 1/2"),
            ("**one\ntwo**", "**one\ntwo**"),
            ("***5***, **", "***5***, **"),
            ("****", "****"),
            ("**é**é **ü**", "**é**é ü"),
        ] {
            assert_eq!(without_bold(text), plain, "{text}");
        }
    }

    #[test]
    fn exponents_of_units_behind_numbers_are_raised() {
        for (text, plain) in [
            ("It is **24 cm^2**, $4$ m/s^{2}.", "It is 24 cm², $4$ m/s²."),
            ("24 units^3", "24 units³"),
            ("24 x^2, 24 m^25, m^2, 24 m^2n", "24 x^2, 24 m^25, m^2, 24 m^2n"),
            ("$24 m^2$, \\text{5 m^2}", "$24 m^2$, \\text{5 m^2}"),
        ] {
            assert_eq!(plain_text(text), plain, "{text}");
        }
    }
}
