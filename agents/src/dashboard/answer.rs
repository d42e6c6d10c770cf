//! Answers of the API: JSON with a limit of size, and errors as `{"error": ...}`.

use std::fmt;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, ResponseError};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::base::log_scope;
use crate::run_folder::FolderError;

/// The largest answer in bytes.
pub(super) const LARGEST: usize = 4 << 20;
/// The answers that are made at once: each takes memory while files are read.
static MAKING: Semaphore = Semaphore::const_new(4);

/// The answer of a handler.
pub(crate) type Answer = Result<HttpResponse, ApiError>;

/// The body of an error.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Failed {
    error: String,
}

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl ApiError {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self::new(404, message)
    }

    pub(crate) fn wrong(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status_code());
        if self.status == 401 {
            response.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
        }
        response.json(Failed {
            error: self.message.clone(),
        })
    }
}

impl From<anyhow::Error> for ApiError {
    fn from(error: anyhow::Error) -> Self {
        Self::new(500, format!("{error:#}"))
    }
}

impl From<FolderError> for ApiError {
    fn from(error: FolderError) -> Self {
        Self::from(anyhow::Error::from(error))
    }
}

impl From<std::io::Error> for ApiError {
    fn from(error: std::io::Error) -> Self {
        Self::new(500, format!("a file of the run cannot be read: {error}"))
    }
}

/// Answers with JSON.
///
/// # Errors
/// The answer is larger than an answer may be.
pub(crate) fn json(value: &impl Serialize) -> Answer {
    body(value).map(response)
}

/// Answers with the result of blocking work.
pub(crate) async fn blocking<T: Serialize>(work: impl FnOnce() -> Result<T, ApiError> + Send + 'static) -> Answer {
    in_turn(move || body(&work()?)).await.map(response)
}

/// Answers with the CSV that blocking work makes.
pub(crate) async fn blocking_csv(work: impl FnOnce() -> Result<String, ApiError> + Send + 'static) -> Answer {
    let body = in_turn(move || within(work()?.into_bytes())).await?;
    Ok(HttpResponse::Ok()
        .content_type("text/csv; charset=utf-8; header=present")
        .body(body))
}

/// Waits for a free slot, then does blocking work.
async fn in_turn(work: impl FnOnce() -> Result<Vec<u8>, ApiError> + Send + 'static) -> Result<Vec<u8>, ApiError> {
    let turn = MAKING.acquire().await;
    let made = log_scope::spawn_blocking(move || {
        let made = work();
        drop(turn);
        made
    });
    let made = made.await;
    made.map_err(|_| ApiError::new(500, "the answer was not finished"))?
}

/// Finishes work that a client which disconnects must not interrupt: it holds connections to a
/// broker, or takes letters off a queue for a moment.
pub(crate) async fn whole<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, ApiError> {
    let made = log_scope::spawn(work).await;
    made.map_err(|_| ApiError::new(500, "the answer was not finished"))
}

fn body(value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    within(serde_json::to_vec(value).map_err(|error| ApiError::new(500, error.to_string()))?)
}

fn within(body: Vec<u8>) -> Result<Vec<u8>, ApiError> {
    if body.len() > LARGEST {
        let message = format!(
            "the answer has {} bytes, of at most {LARGEST}: ask for less",
            body.len()
        );
        return Err(ApiError::new(413, message));
    }
    Ok(body)
}

fn response(body: Vec<u8>) -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_answers_are_refused() {
        assert!(json(&"x".repeat(LARGEST - 2)).is_ok());
        assert_eq!(json(&"x".repeat(LARGEST)).unwrap_err().status, 413);
    }
}
