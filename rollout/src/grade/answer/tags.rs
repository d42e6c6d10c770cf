//! Reads the content of XML-like tags.

/// Returns the content of the last complete `<tag>..</tag>`.
pub(crate) fn last_block<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let end = text.rfind(&close)?;
    let start = text[..end].rfind(&open)? + open.len();
    Some(&text[start..end])
}

#[cfg(test)]
mod tests {
    use super::last_block;

    #[test]
    fn the_last_complete_block_counts() {
        assert_eq!(last_block("<answer>1</answer> <answer>2</answer>", "answer"), Some("2"));
        assert_eq!(last_block("</answer><answer>", "answer"), None);
    }
}
