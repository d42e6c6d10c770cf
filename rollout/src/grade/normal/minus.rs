//! Reads the minus before a number, in every way that people type it.

/// Signs that can only be a minus before a number: the hyphen, hyphens that do not break a line,
/// the minus itself, its small and its wide form.
const HYPHENS: [char; 6] = ['-', '\u{2010}', '\u{2011}', '\u{2212}', '\u{fe63}', '\u{ff0d}'];
/// Dashes that people type for a minus, and also between two things.
const DASHES: [char; 2] = ['\u{2012}', '\u{2013}'];

/// Other ends of operands, after which a dash is not a minus.
const CLOSING: [char; 6] = ['%', ']', '}', '°', '²', '³'];

/// Returns true if a character may be a minus.
pub(crate) fn is_sign(c: char) -> bool {
    HYPHENS.contains(&c) || DASHES.contains(&c)
}

/// Returns the text before the minus at the end of a text. A dash is a minus only if no operand
/// stands before it.
pub(crate) fn before(text: &str) -> Option<&str> {
    let sign = text.chars().next_back().filter(|c| is_sign(*c))?;
    let before = &text[..text.len() - sign.len_utf8()];
    (HYPHENS.contains(&sign) || !(ends_with_operand(before) || before.trim_end().ends_with(CLOSING))).then_some(before)
}

/// Returns true if a text ends with an operand of a subtraction: a number, a closing bracket, or a
/// letter without white space after it.
pub(crate) fn ends_with_operand(text: &str) -> bool {
    let operand = text.trim_end();
    match operand.as_bytes().last() {
        Some(b')' | b'0'..=b'9') => true,
        Some(last) => last.is_ascii_alphabetic() && operand.len() == text.len(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::before;

    #[test]
    fn a_dash_after_an_operand_is_not_a_minus() {
        for sign in ['-', '\u{2010}', '\u{2011}', '−', '\u{fe63}', '－'] {
            for text in ["", "it is ", "10 ", "x", "é"] {
                assert_eq!(before(&format!("{text}{sign}")), Some(text), "{text}{sign}");
            }
        }
        for sign in ['\u{2012}', '–'] {
            for (text, minus) in [("", true), ("it is ", true), ("(", true), ("是", true)] {
                assert_eq!(before(&format!("{text}{sign}")), minus.then_some(text), "{text}{sign}");
            }
            for text in [
                "10",
                "10 ",
                "10\u{a0}",
                "(x)",
                "x",
                "3%",
                "[1] ",
                "\\frac{1}{2}",
                "10°",
                "5²",
            ] {
                assert_eq!(before(&format!("{text}{sign}")), None, "{text}{sign}");
            }
        }
        for text in ["", "5", "so —", "- "] {
            assert_eq!(before(text), None, "{text}");
        }
    }
}
