//! Removes secrets from text before it is shown.

/// Returns the text without user names, passwords and queries of URLs.
#[must_use]
pub(crate) fn redacted(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = after.find(['"', '\'', '\n', ' ']).unwrap_or(after.len());
        let (url, later) = after.split_at(end);
        // A password may hold any character, so everything before the last @ is left out.
        let place = match url.rsplit_once('@') {
            Some((_, place)) => {
                shown.push_str("***@");
                place
            }
            None => url,
        };
        match place.split_once('?') {
            Some((path, _)) => {
                shown.push_str(path);
                shown.push_str("?***");
            }
            None => shown.push_str(place),
        }
        rest = later;
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_password_and_query_of_urls_are_left_out() {
        for (text, expected) in [
            (r#"broker = "amqp://u:p@h:1/%2f""#, r#"broker = "amqp://***@h:1/%2f""#),
            (r#"state = "redis://:a/b@c@h/0""#, r#"state = "redis://***@h/0""#),
            (r#"url = "https://h/v1?key=secret""#, r#"url = "https://h/v1?***""#),
            (r#"a = "memory:" # x@y"#, r#"a = "memory:" # x@y"#),
            ("a://u:p@h b://v:q@i", "a://***@h b://***@i"),
            ("https://h/path", "https://h/path"),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }
}
