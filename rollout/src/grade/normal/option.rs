//! Reads the letter of a choice before its value: `\textbf{(B)}\ 24`.

use super::commands::{is_look, is_word};
use super::setting::undelimited;

/// Most commands that are set around the letter.
const MOST: usize = 3;

/// Returns the letter and the value behind it. Text that may be a product, `(B)24`, has none.
pub(crate) fn option(text: &str) -> Option<(char, &str)> {
    let mut rest = undelimited(text).trim_start_matches(['$', ' ']);
    let (mut open, mut bracket) = (0usize, false);
    for _ in 0..MOST {
        if let Some(inside) = rest.strip_prefix('(').filter(|_| !bracket) {
            bracket = true;
            rest = inside.trim_start();
        }
        let Some(inside) = opened(rest) else { break };
        open += usize::from(inside.starts_with('{'));
        rest = inside.trim_start_matches(['{', ' ']);
    }
    let set = open > 0;
    let letter = rest.chars().next().filter(|c| ('A'..='J').contains(c))?;
    let (rest, inner) = closed(&rest[1..], open);
    open -= inner;
    let stop = rest.chars().next()?;
    if stop != ')' && (bracket || !['.', ':'].contains(&stop)) {
        return None;
    }
    let behind = rest[1..].strip_prefix('.').unwrap_or(&rest[1..]);
    let (behind, outer) = closed(behind, open);
    open -= outer;
    let value = without_space(behind);
    let apart = value.len() < behind.len() || outer > 0;
    let mut value = value;
    for _ in 0..open {
        value = value.trim_end().strip_suffix('}')?;
    }
    let begins = value.starts_with(|c: char| c.is_alphanumeric() || ['$', '-', '−', '(', '['].contains(&c));
    let formula = [
        "\\frac", "\\dfrac", "\\tfrac", "\\sqrt", "\\text", "\\pi", "\\$", "\\{", "\\left",
    ];
    let value_follows = begins || formula.iter().any(|command| value.starts_with(command));
    let joined = ["and ", "or ", "and~", "or~"]
        .iter()
        .any(|word| value.starts_with(word));
    (apart && value_follows && !joined && (set || !value.starts_with(['(', '[']))).then_some((letter, value))
}

/// Returns what follows a command that sets words, with its brace.
fn opened(text: &str) -> Option<&str> {
    let command = text.strip_prefix('\\')?;
    let length = command.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (name, rest) = command.split_at(length);
    let set = (is_look(name) || is_word(name)) && name != "left";
    (set && rest.starts_with(['{', ' '])).then_some(rest)
}

/// Skips closing braces, at most `most`. Returns the rest and their number.
fn closed(text: &str, most: usize) -> (&str, usize) {
    let (mut rest, mut count) = (text, 0);
    while count < most
        && let Some(behind) = rest.trim_start().strip_prefix('}')
    {
        rest = behind;
        count += 1;
    }
    (rest, count)
}

/// Removes white space and the commands for it.
fn without_space(mut text: &str) -> &str {
    loop {
        let rest = text.trim_start_matches([' ', '~', '\t', '\n']);
        let space = ["\\quad", "\\qquad", "\\ ", "\\,", "\\;", "\\:", "{}"];
        match space.iter().find_map(|space| rest.strip_prefix(space)) {
            Some(behind) => text = behind,
            None => return rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::option;

    #[test]
    fn a_letter_before_a_value_is_separated_from_it() {
        for (text, found) in [
            ("\\textbf{(B)}\\ 24", Some(('B', "24"))),
            ("\\textbf{(B) } 24", Some(('B', "24"))),
            ("\\textbf{(B) 24}", Some(('B', "24"))),
            ("\\text{(B) }\\frac{1}{2}", Some(('B', "\\frac{1}{2}"))),
            ("\\mathrm{(B)}~-3", Some(('B', "-3"))),
            ("(\\text{B})\\quad 24", Some(('B', "24"))),
            ("(B) 24", Some(('B', "24"))),
            ("B) 24", Some(('B', "24"))),
            ("B. 24", Some(('B', "24"))),
            ("B: 24", Some(('B', "24"))),
            ("\\textbf{(B)}", None),
            ("(B)24", None),
            ("(B) + 24", None),
            ("\\text{(B) and (C)}", None),
            ("(B) \\cup C", None),
            ("(x) 24", None),
            ("B 24", None),
            ("B.24", None),
            ("(B, 24)", None),
            ("", None),
        ] {
            assert_eq!(option(text), found, "{text}");
        }
    }
}
