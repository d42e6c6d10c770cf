//! The error answer to a request, in OpenAI's shape.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use broker::protocol::failure::FailureCode;
use serde_json::{Value, json};

use crate::engine::EngineFailure;

/// Seconds until a client may try again, unless a better value is known.
const AGAIN: u64 = 1;

/// The reason why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError {
    pub status: u16,
    pub message: String,
    /// OpenAI's `type`.
    pub kind: &'static str,
    /// The field that is wrong.
    pub param: Option<String>,
    pub code: Option<&'static str>,
    /// Seconds until the same request may be sent again, if it may.
    pub after: u64,
}

const INVALID: &str = "invalid_request_error";

impl RequestError {
    fn new(status: u16, kind: &'static str, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            kind,
            param: None,
            code,
            after: AGAIN,
        }
    }

    /// A field with a wrong value.
    pub fn wrong(param: impl Into<String>, message: impl Into<String>) -> Self {
        let param = param.into();
        let message = format!("{param} {}", message.into());
        Self {
            param: Some(param),
            ..Self::new(400, INVALID, None, message)
        }
    }

    /// A field that is understood and not supported here.
    pub fn unsupported(param: impl Into<String>, advice: &str) -> Self {
        Self {
            code: Some("unsupported_parameter"),
            ..Self::wrong(param, format!("is not supported: {advice}"))
        }
    }

    /// A body that is not a request.
    pub fn body(message: impl Into<String>) -> Self {
        Self::new(400, INVALID, None, message)
    }

    pub fn media_type() -> Self {
        Self::new(
            415,
            INVALID,
            None,
            "the body's content-type is not application/json: send the request as JSON and say so",
        )
    }

    pub fn no_token() -> Self {
        Self::new(
            401,
            INVALID,
            Some("invalid_api_key"),
            "the token is missing or wrong: send the header `Authorization: Bearer TOKEN` with the DYAD_HTTP_TOKEN of this agent (as api_key in OpenAI's clients)",
        )
    }

    pub fn host(host: &str) -> Self {
        let host: String = host.chars().take(100).collect();
        Self::new(
            403,
            INVALID,
            Some("invalid_host"),
            format!(
                "without a token this agent is asked by address or as localhost, and not as {host:?}: use 127.0.0.1, or set DYAD_HTTP_TOKEN"
            ),
        )
    }

    pub fn model(asked: &str, agent: &str) -> Self {
        let asked: String = asked.chars().take(100).collect();
        Self {
            param: Some("model".into()),
            ..Self::new(
                404,
                INVALID,
                Some("model_not_found"),
                format!("the model {asked:?} does not exist: this is agent {agent:?}, write model = {agent:?}"),
            )
        }
    }

    pub fn path(method: &str, path: &str) -> Self {
        let path: String = path.chars().take(100).collect();
        Self::new(
            404,
            INVALID,
            Some("unknown_url"),
            format!(
                "unknown request {method} {path:?}: there are GET /v1/models, POST /v1/completions and POST /v1/chat/completions"
            ),
        )
    }

    pub fn method(method: &str, allowed: &str) -> Self {
        Self::new(405, INVALID, None, format!("{method} is not supported: use {allowed}"))
    }

    pub fn slow() -> Self {
        Self::new(408, INVALID, None, "the body did not arrive in time: send it again")
    }

    pub fn too_large(limit: u64) -> Self {
        Self::new(
            413,
            INVALID,
            Some("request_too_large"),
            format!("the body is larger than {limit} bytes: shorten the prompt, or raise agents.NAME.http.body"),
        )
    }

    pub fn too_many(what: &str, limit: usize) -> Self {
        Self::new(
            429,
            "rate_limit_error",
            Some("rate_limit_exceeded"),
            format!(
                "{limit} {what} are under way, as many as this agent does at once: try again in a moment, or raise agents.NAME.http.{what}"
            ),
        )
    }

    pub fn too_fast(what: &str, limit: f64, wait: Duration) -> Self {
        let after = (wait.as_secs_f64().ceil() as u64).max(AGAIN);
        let message = format!(
            "this agent answers {limit} {what} per minute: try again in {after} s, or raise agents.NAME.http.{what}_per_minute"
        );
        Self {
            after,
            ..Self::new(429, "rate_limit_error", Some("rate_limit_exceeded"), message)
        }
    }

    pub fn more_than_a_minute(wanted: u64, limit: f64) -> Self {
        let message = format!(
            "prompts and answers may come to {wanted} tokens, and this agent answers {limit} per minute: ask for fewer with max_tokens and n, \
             or raise agents.NAME.http.tokens_per_minute"
        );
        Self::new(400, INVALID, None, message)
    }

    pub fn context(length: usize, most: usize) -> Self {
        Self::new(
            400,
            INVALID,
            Some("context_length_exceeded"),
            format!(
                "the prompt has {length} tokens, and prompt and answer may have {most} together: shorten it, or raise agents.NAME.http.context"
            ),
        )
    }

    pub fn closing() -> Self {
        Self::new(
            503,
            "service_unavailable_error",
            Some("run_ended"),
            "the run is ending, and this agent with it: nothing more is answered",
        )
    }

    /// The engine's report of a generation that failed.
    pub fn failure(failure: &EngineFailure) -> Self {
        if failure.retry {
            return Self::new(
                503,
                "service_unavailable_error",
                Some("engine_failed"),
                format!("the engine could not generate, try again: {}", failure.cause),
            );
        }
        let context = failure.cause.code == FailureCode::Context;
        Self::new(
            400,
            INVALID,
            context.then_some("context_length_exceeded"),
            format!("this prompt cannot be generated from: {}", failure.cause),
        )
    }

    /// The engine's thread is gone.
    pub fn lost() -> Self {
        Self::new(
            503,
            "service_unavailable_error",
            Some("engine_failed"),
            "the engine has ended: try again when its agent is back",
        )
    }

    /// `{"error": ...}`
    #[must_use]
    pub fn json(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }

    #[must_use]
    pub fn response(&self) -> HttpResponse {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = HttpResponse::build(status);
        match self.status {
            401 => drop(response.insert_header((header::WWW_AUTHENTICATE, "Bearer"))),
            429 | 503 => drop(response.insert_header((header::RETRY_AFTER, self.after.to_string()))),
            _ => {}
        }
        response.content_type("application/json").body(self.json().to_string())
    }
}
