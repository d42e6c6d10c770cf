//! Formulas between delimiters: `$..$`, `$$..$$`, `\(..\)` and `\[..\]`.

use std::ops::Range;

use super::text::is_prose;

/// Short words that stand between two prices, but never in a formula.
const BETWEEN: [&str; 4] = ["for", "per", "but", "the"];
/// Environments with rows of which the last one is the result.
const ROWS: [&str; 5] = ["align", "split", "gather", "eqnarray", "multline"];
/// Environments with rows that belong together.
const TABLES: [&str; 3] = ["matrix", "array", "cases"];

/// The start of each kind of formula that has not ended.
#[derive(Default)]
struct Open {
    single: Option<usize>,
    double: Option<usize>,
    round: Option<usize>,
    square: Option<usize>,
}

/// Signs that mark the end of a proof.
const ENDS: [&str; 5] = ["\\square", "\\blacksquare", "\\Box", "\\qed", "\\checkmark"];

/// Returns the range of the last formula, without its delimiters.
pub(super) fn last(text: &str) -> Option<Range<usize>> {
    all(text).pop()
}

/// Returns the range of every formula, without its delimiters. One pass, whatever the text is.
pub(super) fn all(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let (mut open, mut found, mut at) = (Open::default(), Vec::new(), 0);
    let mut ends = |start: Option<usize>, end: usize| {
        let is_formula = |start: &usize| {
            let inside = text[*start..end].trim();
            !inside.is_empty() && !ENDS.contains(&inside)
        };
        if let Some(start) = start.filter(is_formula) {
            found.push(start..end);
        }
    };
    while at < bytes.len() {
        let next = bytes.get(at + 1).copied();
        let mut length = 1;
        match (bytes[at], next) {
            (b'\\', next) => {
                length = 2;
                match next {
                    Some(b'(') => open.round = Some(at + 2),
                    Some(b'[') => open.square = Some(at + 2),
                    Some(b')') => ends(open.round.take(), at),
                    Some(b']') => ends(open.square.take(), at),
                    // `\$` and `\\` are skipped.
                    _ => {}
                }
            }
            (b'$', Some(b'$')) if open.single.is_none() => {
                length = 2;
                match open.double.take() {
                    Some(start) => ends(Some(start), at),
                    None => open.double = Some(at + 2),
                }
            }
            (b'$', next) if open.double.is_none() => match open.single.take() {
                Some(start) if is_formula(&text[start..at], next) => ends(Some(start), at),
                // A price ends no formula, but a formula may begin here.
                _ => open.single = Some(at + 1),
            },
            // A formula never continues after an empty line.
            (b'\n', Some(b'\n')) => open = Open::default(),
            _ => {}
        }
        at += length;
    }
    found
}

/// Returns true if the text between two dollar signs is a formula, and false between two prices.
fn is_formula(inside: &str, next: Option<u8>) -> bool {
    let spaced = (
        inside.starts_with(char::is_whitespace),
        inside.ends_with(char::is_whitespace),
    );
    let digit = next.is_some_and(|next| next.is_ascii_digit());
    let price = inside.starts_with(|c: char| c.is_ascii_digit()) || spaced.0;
    if digit || inside.trim().is_empty() {
        return false;
    }
    spaced.0 == spaced.1 && !(price && is_text(inside))
}

/// Returns true for text with words and without signs of a formula: `5 and then`.
fn is_text(inside: &str) -> bool {
    let letters = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphabetic());
    let words = inside
        .split_whitespace()
        .map(|word| word.trim_matches([',', '.', ';', ':', '(', ')']));
    let formula = inside.contains(['\\', '^', '_', '{', '}', '=']);
    !formula
        && words
            .filter(|word| letters(word))
            .any(|word| is_prose(word) || BETWEEN.contains(&word))
}

/// Returns the displayed formula at the beginning of a text, over several lines too. Nothing may
/// follow it on its line.
pub(super) fn set_off(text: &str) -> Option<&str> {
    let (open, close) = [("$$", "$$"), ("\\[", "\\]"), ("$\\begin", "$"), ("\\(\\begin", "\\)")]
        .into_iter()
        .find(|(open, _)| text.starts_with(open))?;
    let begin = open.trim_end_matches("\\begin").len();
    let (inside, behind) = text[begin..].split_once(close)?;
    let alone = behind
        .lines()
        .next()
        .is_none_or(|rest| rest.trim_matches(['.', ',', '*', ' ']).is_empty());
    Some(last_row(inside.trim())).filter(|formula| alone && !formula.is_empty())
}

/// Returns the right side of the last row, if the formula has rows.
pub(crate) fn last_row(formula: &str) -> &str {
    let has = |names: &[&str]| names.iter().any(|name| formula.contains(name));
    if !formula.starts_with("\\begin{") || !has(&ROWS) || has(&TABLES) {
        return formula;
    }
    let rows = formula.split_once('}').map_or(formula, |(_, rows)| rows);
    let rows = rows.rsplit_once("\\end{").map_or(rows, |(rows, _)| rows);
    let row = rows
        .trim_end()
        .trim_end_matches("\\\\")
        .rsplit("\\\\")
        .next()
        .unwrap_or(rows);
    row.rsplit('&').next().unwrap_or(row).trim_matches(['=', ' ', '\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_formula_is_found_whole() {
        for (text, formula) in [
            ("Thus $x=\\sqrt{2}$.", Some("x=\\sqrt{2}")),
            ("$1$ and $$2$$", Some("2")),
            ("$$1$$ and $2$", Some("2")),
            ("$x$$y$", Some("y")),
            ("\\(1\\) and \\[ 2 \\]", Some(" 2 ")),
            ("\\[ \\text{where } $x$ is } 5 \\]", Some(" \\text{where } $x$ is } 5 ")),
            ("$ x = 5 $", Some(" x = 5 ")),
            ("it costs $5 and then $7", None),
            ("it costs $5, and she pays with 20$ in notes", None),
            ("from $5-$10", None),
            ("it costs $5. So $x=5$.", Some("x=5")),
            ("it costs $5. $$x=5$$", Some("x=5")),
            ("5$ each, so $x=5$", Some("x=5")),
            ("\\$5 and $x$ and \\$6", Some("x")),
            ("$3 \\text{ and } 4$", Some("3 \\text{ and } 4")),
            ("$3x$", Some("3x")),
            ("$2a+b$", Some("2a+b")),
            ("$5 or 6$", Some("5 or 6")),
            ("$ 5, 6 and 7 $", Some(" 5, 6 and 7 ")),
            ("a \\\\[2pt] b \\]", None),
            ("$x\n\ny$", None),
            ("$$ $$ \\(\\) $ $", None),
            ("é$é$é\\é", Some("é")),
            ("none", None),
        ] {
            assert_eq!(last(text).map(|range| &text[range]), formula, "{text}");
        }
    }

    #[test]
    fn the_last_side_of_the_last_row_counts() {
        for (formula, side) in [
            ("\\begin{aligned} x &= 3+4 \\\\ &= 7 \\end{aligned}", "7"),
            ("\\begin{align*} x &= 3+4 \\\\ &= 7 \\\\ \\end{align*}", "7"),
            ("\\begin{gather} x = 1 \\end{gather}", "x = 1"),
            (
                "\\begin{pmatrix} 1 & 2 \\end{pmatrix}",
                "\\begin{pmatrix} 1 & 2 \\end{pmatrix}",
            ),
            ("x = 5", "x = 5"),
        ] {
            assert_eq!(last_row(formula), side, "{formula}");
        }
    }
}
