//! The verdict in a verifier's text.

/// The tag that counts if there are several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    First,
    Last,
}

/// Returns `Some(true)` for approve, `Some(false)` for reject, `None` if the text is no verdict.
///
/// A verdict is a tag `<verify>approve</verify>` or `<verify>reject</verify>` in any case. Without
/// a tag it is the bare word, if only one of the two words occurs.
pub(crate) fn verdict(text: &str, pick: Pick) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    let mut tags = text
        .match_indices("<verify>")
        .filter_map(|(at, open)| tag(&text[at + open.len()..]));
    let found = match pick {
        Pick::First => tags.next(),
        Pick::Last => tags.last(),
    };
    found.or_else(|| bare_word(&text))
}

fn tag(text: &str) -> Option<bool> {
    let text = text.trim_start();
    let (approve, rest) = match text.strip_prefix("approve") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix("reject")?),
    };
    rest.trim_start().starts_with("</verify>").then_some(approve)
}

fn bare_word(text: &str) -> Option<bool> {
    let word = |wanted: &str| {
        text.split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| word == wanted)
    };
    match (word("approve"), word("reject")) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_before_bare_words() {
        let (yes, no) = (Some(true), Some(false));
        for (text, first, last) in [
            ("<verify>approve</verify>", yes, yes),
            ("<VERIFY> Reject\n</Verify>", no, no),
            ("<verify>reject</verify> no: <verify>approve</verify>", no, yes),
            ("I would approve, but <verify>reject</verify>", no, no),
            ("<verify>perhaps</verify> reject", no, no),
            ("<verify>approve", yes, yes),
            ("approve", yes, yes),
            ("REJECT, reject!", no, no),
            ("approve or reject", None, None),
            ("approved", None, None),
            ("disapprove", None, None),
            ("", None, None),
            ("é <verify>é</verify>", None, None),
        ] {
            assert_eq!(
                (verdict(text, Pick::First), verdict(text, Pick::Last)),
                (first, last),
                "{text}"
            );
        }
    }
}
