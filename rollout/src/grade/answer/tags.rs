//! Reads the content of XML-like tags.

use std::ops::Range;

const TAGS: [(&str, &str); 3] = [
    ("<answer>", "</answer>"),
    ("<Answer>", "</Answer>"),
    ("<ANSWER>", "</ANSWER>"),
];
/// Longest content of a tag that never closes, in bytes.
const SHORT: usize = 64;

/// Returns the place of the content of the last `<answer>..</answer>`. A tag at the end of the text
/// may be open: servers leave out the tag at which they stop. It holds one line, and begins one.
pub(crate) fn last_answer(text: &str) -> Option<Range<usize>> {
    let closed = |(open, close): &(&str, &str)| {
        let end = text.rfind(close)?;
        let start = text[..end].rfind(open)? + open.len();
        // A tag may be closed twice.
        let length = text[start..end].find(close).unwrap_or(end - start);
        Some(start..start + length)
    };
    let last = TAGS.iter().filter_map(closed).max_by_key(|place| place.end);
    let open = TAGS.iter().filter_map(|(open, _)| {
        let at = text.rfind(open)?;
        let start = at + open.len();
        let content = text[start..].trim();
        let line = text[..at].trim_end_matches(' ');
        let alone = line.is_empty() || line.ends_with('\n');
        let short = !content.is_empty() && content.len() <= SHORT && !content.contains(['\n', '<']);
        (alone && short).then_some(start..text.len())
    });
    let open = open.max_by_key(|place| place.start);
    match (last, open) {
        (Some(last), Some(open))
            if open.start < last.start || text[last.clone()].starts_with(text[open.clone()].trim()) =>
        {
            Some(last)
        }
        (last, open) => open.or(last),
    }
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
            ("<answer>1</answer></answer>", Some("1")),
            ("So:\n<answer>1", Some("1")),
            ("So:\n<answer>B. a tree", Some("B. a tree")),
            ("<answer>18</answer>\n<answer>1", Some("18")),
            ("<answer>18</answer>\n<answer>20", Some("20")),
            ("I put it into <answer> tags.", None),
            ("<answer>16 - 7 = 9\n9 * 2", None),
        ] {
            assert_eq!(last_answer(text).map(|place| &text[place]), content, "{text}");
        }
    }
}
