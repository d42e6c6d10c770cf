//! Reads the content of XML-like tags.

use std::ops::Range;

/// Returns the place of the content of the last complete `<answer>..</answer>`.
pub(crate) fn last_answer(text: &str) -> Option<Range<usize>> {
    const TAGS: [(&str, &str); 3] = [
        ("<answer>", "</answer>"),
        ("<Answer>", "</Answer>"),
        ("<ANSWER>", "</ANSWER>"),
    ];
    let place = |(open, close): &(&str, &str)| {
        let end = text.rfind(close)?;
        let start = text[..end].rfind(open)? + open.len();
        Some(start..end)
    };
    TAGS.iter().filter_map(place).max_by_key(|place| place.end)
}

#[cfg(test)]
mod tests {
    use super::last_answer;

    #[test]
    fn the_last_complete_block_counts() {
        for (text, content) in [
            ("<answer>1</answer> <answer>2</answer>", Some("2")),
            ("<Answer>1</Answer>", Some("1")),
            ("</answer><answer>", None),
        ] {
            assert_eq!(last_answer(text).map(|place| &text[place]), content, "{text}");
        }
    }
}
