//! Failures between an agent and a server, and their consequences.

use broker::protocol::failure::Failure;

use crate::engine::EngineFailure;

/// The failure of a request to a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The server does not answer, or the connection broke.
    #[error("no answer: {0}")]
    Gone(String),
    /// It reports a temporary failure.
    #[error("it failed: {0}")]
    Failing(String),
    /// Its answer does not match its documentation.
    #[error("its answer is not understood: {0}")]
    Malformed(String),
    /// It does not hold the weights that it was given: it was restarted, or another program
    /// replaced them.
    #[error("it holds other weights than it was given: {0}")]
    Stranger(String),
    /// Prompt and answer exceed the context.
    #[error("{0}")]
    TooLong(String),
    /// It does not know the requested route or object.
    #[error("it does not know the route or object: {0}")]
    Missing(String),
    #[error("it rejected the request: {0}")]
    Refused(String),
    /// It does not fit this agent, and the operator must change that.
    #[error("it cannot serve this agent: {0}")]
    Unfit(String),
    /// It requires another key, or denies access for another reason. The text names the variable of
    /// the key.
    #[error("it denied access: {0}")]
    Forbidden(String),
}

/// The decision about a failed generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TroubleVerdict {
    /// The request is not at fault: retry, a bounded number of times.
    Again,
    /// A retry would give the same result.
    Never(EngineFailure),
}

impl Trouble {
    /// Returns the decision for a generation.
    #[must_use]
    pub fn verdict(&self) -> TroubleVerdict {
        let cause = match self {
            Self::Gone(_) | Self::Failing(_) | Self::Malformed(_) | Self::Stranger(_) => return TroubleVerdict::Again,
            // Keys and paths are fixed by the operator: the coordinator retries, and gives up in
            // the end.
            Self::Forbidden(_) | Self::Missing(_) | Self::Unfit(_) => return TroubleVerdict::Again,
            Self::TooLong(_) => Failure::context(self),
            Self::Refused(_) => Failure::request(self),
        };
        TroubleVerdict::Never(EngineFailure { cause, retry: false })
    }

    /// Returns the decision with a cause that names the server.
    #[must_use]
    pub fn verdict_of(&self, server: &str) -> TroubleVerdict {
        match self.verdict() {
            TroubleVerdict::Never(mut failure) => {
                failure.cause.reason = format!("{server}: {}", failure.cause.reason);
                TroubleVerdict::Never(failure)
            }
            again => again,
        }
    }

    /// Returns true if the server may recover by itself.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::Failing(_))
    }

    /// Returns the failure for an HTTP status and its body.
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

/// The longest part of a server's message that is repeated.
const WORDS: usize = 300;

/// Returns the message in a server's error body, in any of the servers' formats.
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
        said.push_str("no further message");
    }
    said
}

/// Returns the beginning of a server's message, printable for a log.
pub(super) fn clipped(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(WORDS).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use broker::protocol::failure::FailureCode;

    use super::*;

    #[test]
    fn statuses_and_messages_decide_about_a_retry() {
        let long =
            r#"{"error": {"message": "This model's maximum context length is 32 tokens. However, you requested 40"}}"#;
        let sglang =
            r#"{"error": {"message": "The input (70 tokens) is longer than the model's context length (64 tokens)."}}"#;
        for body in [long, sglang] {
            let TroubleVerdict::Never(failure) = Trouble::of_status(400, body).verdict() else {
                panic!("{body}");
            };
            assert_eq!(
                (failure.cause.code, failure.retry),
                (FailureCode::Context, false),
                "{failure}"
            );
        }
        let TroubleVerdict::Never(failure) =
            Trouble::of_status(400, r#"{"detail": "top_p must be in (0, 1]"}"#).verdict()
        else {
            panic!("refused");
        };
        assert!(failure.cause.code == FailureCode::Request && failure.cause.reason.contains("top_p"));
        for status in [401, 404, 429, 500, 503] {
            assert_eq!(
                Trouble::of_status(status, "").verdict(),
                TroubleVerdict::Again,
                "{status}"
            );
        }
        assert!(Trouble::of_status(503, "").may_pass() && !Trouble::of_status(400, "").may_pass());
    }

    #[test]
    fn a_servers_messages_are_short_and_printable() {
        let said = complaint(&format!("a\n\u{1b}[31m{}", "x".repeat(9000)));
        assert!(said.len() <= WORDS && !said.contains(char::is_control), "{said}");
        assert_eq!(complaint(r#"{"message": "no"}"#), "no");
        assert_eq!(complaint(r#"{"error": "no"}"#), "no");
        assert_eq!(complaint(""), "no further message");
    }
}
