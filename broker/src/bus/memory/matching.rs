//! AMQP's direct, topic and fanout matching of routing keys.

use crate::topology::ExchangeKind;

/// Returns true if a binding accepts a routing key.
pub(super) fn matches(kind: ExchangeKind, binding: &str, key: &str) -> bool {
    match kind {
        ExchangeKind::Direct => binding == key,
        ExchangeKind::Fanout => true,
        ExchangeKind::Topic => {
            let pattern: Vec<&str> = binding.split('.').collect();
            let words: Vec<&str> = key.split('.').collect();
            topic(&pattern, &words)
        }
    }
}

/// Matches words: `*` stands for one word, `#` for zero or more words.
fn topic(pattern: &[&str], words: &[&str]) -> bool {
    match (pattern.split_first(), words.split_first()) {
        (None, None) => true,
        (Some((&"#", rest)), None) => topic(rest, words),
        (Some((&"#", rest)), Some((_, tail))) => topic(rest, words) || topic(pattern, tail),
        (Some((&"*", rest)), Some((_, tail))) => topic(rest, tail),
        (Some((part, rest)), Some((word, tail))) => part == word && topic(rest, tail),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_patterns_match_as_amqp_says() {
        let cases = [
            ("a.*.c", "a.b.c", true),
            ("a.*.c", "a.c", false),
            ("a.*.c", "a.b.b.c", false),
            ("a.#", "a", true),
            ("a.#", "a.b.c", true),
            ("#", "", true),
            ("#.c", "a.b.c", true),
            ("#.c", "a.b.d", false),
            ("a.#.d.#", "a.b.d.c.d", true),
            ("a.b", "a.b.c", false),
        ];
        for (pattern, key, expected) in cases {
            assert_eq!(
                matches(ExchangeKind::Topic, pattern, key),
                expected,
                "{pattern} against {key}"
            );
        }
        assert!(!matches(ExchangeKind::Direct, "#", "a"));
        assert!(matches(ExchangeKind::Fanout, "x", "y"));
    }
}
