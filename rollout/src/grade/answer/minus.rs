//! The minus before a number, however it is typed.

/// The hyphen and signs that stand for nothing else before a number: hyphens that break no line, the minus itself, its small and its wide form.
const HYPHENS: [char; 6] = ['-', '\u{2010}', '\u{2011}', '\u{2212}', '\u{fe63}', '\u{ff0d}'];
/// Dashes that people type for it, and for what lies between two things.
const DASHES: [char; 2] = ['\u{2012}', '\u{2013}'];

/// What ends other operands, which a dash is between as well.
const CLOSING: [char; 6] = ['%', ']', '}', '°', '²', '³'];

/// Whether a character may be a minus.
pub(crate) fn is_sign(c: char) -> bool {
    HYPHENS.contains(&c) || DASHES.contains(&c)
}

/// What stands before the minus that a text ends with. A dash is one only where no operand stands before it.
pub(crate) fn before(text: &str) -> Option<&str> {
    let sign = text.chars().next_back().filter(|c| is_sign(*c))?;
    let before = &text[..text.len() - sign.len_utf8()];
    (HYPHENS.contains(&sign) || !(ends_with_operand(before) || before.trim_end().ends_with(CLOSING))).then_some(before)
}

/// Whether a text ends with what a number may be taken from: another number or a bracket, or a letter right there.
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
    fn a_hyphen_is_a_minus_and_a_dash_where_nothing_can_be_taken_from() {
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
