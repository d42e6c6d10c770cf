//! Wrong usage, and how errors are printed.

use std::fmt::Write;

/// The command was used wrongly, or its input is wrong. Exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Usage {
    pub message: String,
    pub hint: Option<String>,
}

impl Usage {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// `error: ...`, indented causes, `hint: ...`.
#[must_use]
pub fn render(error: &anyhow::Error, hint: Option<&str>) -> String {
    let mut text = format!("error: {error}\n");
    let mut said = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some errors repeat their source in their own words.
        if !said.contains(&cause) {
            let _ = writeln!(text, "  because: {}", cause.replace('\n', "\n  "));
        }
        said = cause;
    }
    if let Some(hint) = hint {
        let _ = writeln!(text, "hint: {hint}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_in_the_message_is_not_repeated() {
        let error = anyhow::anyhow!("disk full").context("cannot write: disk full");
        assert_eq!(render(&error, None), "error: cannot write: disk full\n");
    }

    #[test]
    fn cause_and_hint_have_lines_of_their_own() {
        let error = anyhow::anyhow!("disk full").context("cannot write");
        let text = "error: cannot write\n  because: disk full\nhint: delete runs\n";
        assert_eq!(render(&error, Some("delete runs")), text);
    }
}
