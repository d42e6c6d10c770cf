//! Words of commands that are printed to be copied into a shell.

/// Returns a text as one word for a shell, on one line.
pub(super) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./+,@=:".contains(c);
    if text.chars().all(is_plain) && !text.is_empty() {
        return text.to_owned();
    }
    let shown: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("'{}'", shown.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_with_signs_of_the_shell_is_quoted() {
        for (text, word) in [
            ("configs/a.toml", "configs/a.toml"),
            ("--reward=<0.5", "'--reward=<0.5'"),
            ("it's", "'it'\\''s'"),
            ("a\nb", "'a?b'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }
}
