//! Formulas between their signs: `$..$`, `$$..$$`, `\(..\)` and `\[..\]`.

use std::ops::Range;

use super::prose::is_prose;

/// Short words that stand between two prices, and in no formula.
const BETWEEN: [&str; 4] = ["for", "per", "but", "the"];
/// Environments of rows under each other, each with what it comes to.
const ROWS: [&str; 5] = ["align", "split", "gather", "eqnarray", "multline"];
/// Environments whose rows are one thing together.
const TABLES: [&str; 3] = ["matrix", "array", "cases"];

/// Where formulas begin that have not ended.
#[derive(Default)]
struct Open {
    single: Option<usize>,
    double: Option<usize>,
    round: Option<usize>,
    square: Option<usize>,
}

/// Where the last formula of a text stands, without its signs. One pass over the text, whatever it is.
pub(super) fn last(text: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let (mut open, mut found, mut at) = (Open::default(), None, 0);
    let mut ends = |start: Option<usize>, end: usize| {
        if let Some(start) = start.filter(|start| !text[*start..end].trim().is_empty()) {
            found = Some(start..end);
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
                    // `\$`, `\\`
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
                // A price ends no formula, but one may begin here.
                _ => open.single = Some(at + 1),
            },
            // No formula goes on behind an empty line.
            (b'\n', Some(b'\n')) => open = Open::default(),
            _ => {}
        }
        at += length;
    }
    found
}

/// Whether what stands between two dollar signs is a formula, and not what is between two prices.
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

/// `5 and then`: there are words, and nothing that only formulas have.
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

/// The formula that a text begins with, where it is set off, over several lines too, and nothing stands behind it on its line.
pub(super) fn set_off(text: &str) -> Option<&str> {
    let (open, close) = [("$$", "$$"), ("\\[", "\\]")]
        .into_iter()
        .find(|(open, _)| text.starts_with(open))?;
    let (inside, behind) = text[open.len()..].split_once(close)?;
    let alone = behind
        .lines()
        .next()
        .is_none_or(|rest| rest.trim_matches(['.', ',', '*', ' ']).is_empty());
    Some(last_row(inside.trim())).filter(|formula| alone && !formula.is_empty())
}

/// Of rows under each other the last side of the last one.
pub(super) fn last_row(formula: &str) -> &str {
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
    fn of_rows_the_last_side_counts() {
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
