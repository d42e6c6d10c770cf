//! Reads `\boxed{...}`, which mathematicians put around an answer.

/// Returns the content of the last complete `\boxed{...}` or `\fbox{...}`, with braces matched. One
/// pass, whatever the text is.
pub(crate) fn last(text: &str) -> Option<&str> {
    // Open braces: the position of each, and true if a box begins with it.
    let mut open: Vec<(usize, bool)> = Vec::new();
    let mut found: Option<(usize, usize)> = None;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => {
                let before = text[..at].trim_end();
                open.push((at, before.ends_with("\\boxed") || before.ends_with("\\fbox")));
            }
            b'}' => match open.pop() {
                // An inner box ends before the outer box, but it begins later, so it counts.
                Some((start, true)) if found.is_none_or(|(last, _)| start > last) => found = Some((start, at)),
                _ => {}
            },
            _ => {}
        }
    }
    found.map(|(start, end)| &text[start + 1..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_complete_box_counts() {
        for (text, content) in [
            ("\\boxed{1} \\boxed{2}", Some("2")),
            ("\\boxed{1} \\boxed{2", Some("1")),
            ("\\boxed {3}", Some("3")),
            ("\\fbox{4} and {5}", Some("4")),
            ("\\boxed{\\boxed{7}}", Some("7")),
            ("\\boxed{\\frac{1}{2}}}", Some("\\frac{1}{2}")),
            ("}{ \\boxed{é} {", Some("é")),
            ("\\boxed{6 {} \\fbox{8}", Some("8")),
            ("\\boxed 5", None),
            ("\\boxed x{5}", None),
            ("{5}", None),
            ("", None),
        ] {
            assert_eq!(last(text), content, "{text}");
        }
    }

    #[test]
    fn boxes_that_never_end_cost_one_pass() {
        let text = "\\boxed{".repeat(9000);
        assert_eq!(last(&text), None);
        assert_eq!(last(&format!("\\boxed{{1}}{text}")), Some("1"));
    }
}
