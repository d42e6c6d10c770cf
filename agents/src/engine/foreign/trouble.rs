//! What may go wrong between an agent and a server, and what follows from it.

use broker::protocol::failure::Failure;

use crate::engine::EngineFailure;

/// Why a server did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Nobody answers, or the connection broke.
    #[error("no answer: {0}")]
    Gone(String),
    /// It answers that it cannot now.
    #[error("it failed: {0}")]
    Failing(String),
    /// Its answer is not what its documentation says.
    #[error("its answer is not understood: {0}")]
    Malformed(String),
    /// It does not hold the weights that it was given: it was started anew, or somebody else gave it others.
    #[error("it holds other weights than it was given: {0}")]
    Stranger(String),
    /// Prompt and answer do not fit.
    #[error("{0}")]
    TooLong(String),
    /// It does not know what it was asked for.
    #[error("it knows no such thing: {0}")]
    Missing(String),
    #[error("it refuses: {0}")]
    Refused(String),
    /// It is not what this agent needs, and a person must change that.
    #[error("it cannot serve this agent: {0}")]
    Unfit(String),
    /// It wants another key.
    #[error("it refuses our key: {0}; set DYAD_ENGINE_TOKEN (of kind \"openai\": DYAD_OPENAI_KEY) to the server's")]
    Forbidden(String),
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is not the request's fault: again, a bounded number of times.
    Again,
    /// It will not be otherwise.
    Never(EngineFailure),
}

impl Trouble {
    /// What becomes of a generation.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let cause = match self {
            Self::Gone(_) | Self::Failing(_) | Self::Malformed(_) | Self::Stranger(_) => return Verdict::Again,
            // Keys and paths are mended by people: the coordinator asks again, and gives up in the end.
            Self::Forbidden(_) | Self::Missing(_) | Self::Unfit(_) => return Verdict::Again,
            Self::TooLong(_) => Failure::context(self),
            Self::Refused(_) => Failure::request(self),
        };
        Verdict::Never(EngineFailure { cause, retry: false })
    }

    /// Whether a server that is left alone may mend itself.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::Failing(_))
    }

    /// What an HTTP status and the words with it mean.
    #[must_use]
    pub fn of_status(status: u16, body: &str) -> Self {
        let said = complaint(body);
        let lower = said.to_lowercase();
        let long =
            lower.contains("context length") || lower.contains("maximum allowed length") || lower.contains("too long");
        let said = format!("HTTP {status}: {said}");
        match status {
            401 | 403 => Self::Forbidden(said),
            404 => Self::Missing(said),
            408 | 425 | 429 | 500..=599 => Self::Failing(said),
            400 | 413 | 422 if long => Self::TooLong(said),
            _ => Self::Refused(said),
        }
    }
}

/// Longest words of a server that are repeated.
const WORDS: usize = 300;

/// What a server's error says in words, from the shapes that the servers use.
fn complaint(body: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let text = value.as_ref().and_then(|value| {
        let places = ["/error/message", "/message", "/detail", "/error"];
        places
            .iter()
            .find_map(|place| value.pointer(place).and_then(|said| said.as_str()))
    });
    let mut said = clipped(text.unwrap_or(body).trim());
    if said.is_empty() {
        said.push_str("it says nothing more");
    }
    said
}

/// The beginning of what a server says, fit for a log.
pub(super) fn clipped(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(WORDS).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use broker::protocol::failure::FailureCode;

    use super::*;

    #[test]
    fn statuses_and_words_tell_what_may_be_tried_again() {
        let long =
            r#"{"error": {"message": "This model's maximum context length is 32 tokens. However, you requested 40"}}"#;
        let sglang =
            r#"{"error": {"message": "The input (70 tokens) is longer than the model's context length (64 tokens)."}}"#;
        for body in [long, sglang] {
            let Verdict::Never(failure) = Trouble::of_status(400, body).verdict() else {
                panic!("{body}");
            };
            assert_eq!(
                (failure.cause.code, failure.retry),
                (FailureCode::Context, false),
                "{failure}"
            );
        }
        let Verdict::Never(failure) = Trouble::of_status(400, r#"{"detail": "top_p must be in (0, 1]"}"#).verdict()
        else {
            panic!("refused");
        };
        assert!(failure.cause.code == FailureCode::Request && failure.cause.reason.contains("top_p"));
        for status in [401, 404, 429, 500, 503] {
            assert_eq!(Trouble::of_status(status, "").verdict(), Verdict::Again, "{status}");
        }
        assert!(Trouble::of_status(503, "").may_pass() && !Trouble::of_status(400, "").may_pass());
    }

    #[test]
    fn words_of_a_server_are_short_and_printable() {
        let said = complaint(&format!("a\n\u{1b}[31m{}", "x".repeat(9000)));
        assert!(said.len() <= WORDS && !said.contains(char::is_control), "{said}");
        assert_eq!(complaint(r#"{"message": "no"}"#), "no");
        assert_eq!(complaint(r#"{"error": "no"}"#), "no");
        assert_eq!(complaint(""), "it says nothing more");
    }
}
