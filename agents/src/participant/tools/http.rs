//! A tool behind a server: each call is a POST of JSON.

use broker::codec::parse_python_json;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response};
use rollout::workflow::tools::ToolQuestion;
use serde_json::Value;

use super::answer::{ToolFault, result_of};
use crate::base::secret::{TOOL_TOKEN, secret_in};
use crate::engine::process::link;

/// The bytes that are read of an answer.
const LONGEST: usize = 1 << 20;
/// The bytes that are read of an error answer.
const COMPLAINT: usize = 4 << 10;

pub(super) struct ToolServer {
    client: Client,
    url: String,
    /// Sent as `Authorization: Bearer`. Never logged: this type has no `Debug`.
    token: Option<String>,
    /// The environment variable of the token.
    variable: String,
}

impl ToolServer {
    /// Uses the token of `DYAD_TOOL_TOKEN_NAME`, if it is set. The error is the reason why the
    /// server cannot be asked.
    pub(super) fn new(name: &str, url: &str) -> Result<Self, String> {
        let variable = format!("{TOOL_TOKEN}_{}", name.to_uppercase().replace('-', "_"));
        let token = secret_in(&variable).map_err(|usage| usage.message)?;
        Self::with(&variable, token, url)
    }

    /// `variable` is the name of the token's environment variable.
    pub(super) fn with(variable: &str, token: Option<String>, url: &str) -> Result<Self, String> {
        if token
            .as_ref()
            .is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return Err(format!("{variable} has characters that a header cannot hold"));
        }
        // The URL is used unchanged: a slash at its end may be part of the address.
        link::judged(url).map_err(|usage| usage.message)?;
        Ok(Self {
            url: url.to_owned(),
            client: link::outside(url).map_err(|error| error.to_string())?,
            token,
            variable: variable.to_owned(),
        })
    }

    /// Returns the URL without credentials, for the log. Agents never see it.
    pub(super) fn shown(&self) -> String {
        link::shown(&self.url)
    }

    /// Tells the operator whether the server may want another key.
    fn log_advice(&self, status: u16) {
        let advice = link::key_advice(status, "", &self.variable, self.token.is_some());
        if !advice.is_empty() {
            tracing::warn!("the server {} answered {status}{advice}", self.shown());
        }
    }

    pub(super) async fn call(&self, question: &ToolQuestion) -> Result<String, ToolFault> {
        let body = serde_json::to_string(question).map_err(|error| ToolFault::Broken(error.to_string()))?;
        let request = self.client.post(&self.url).header(CONTENT_TYPE, link::JSON).body(body);
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let lost = |error: reqwest::Error| ToolFault::Failed(link::LinkError::of("the server", error).to_string());
        let response = request.send().await.map_err(lost)?;
        let status = response.status();
        if !status.is_success() {
            self.log_advice(status.as_u16());
            let said = read(response, COMPLAINT).await.unwrap_or_default();
            let reason = format!(
                "the server answered {status}: {}",
                String::from_utf8_lossy(&said).trim()
            );
            // No call can succeed, so no agent should learn from one.
            if matches!(status.as_u16(), 401 | 403) {
                return Err(ToolFault::Broken(reason));
            }
            // An error that the caller caused would repeat.
            let caused_by_caller = status.is_client_error() && !matches!(status.as_u16(), 404 | 408 | 429);
            return Err(if caused_by_caller {
                ToolFault::ForAgent(reason)
            } else {
                ToolFault::Failed(reason)
            });
        }
        let bytes = read(response, LONGEST + 1).await.map_err(lost)?;
        if bytes.len() > LONGEST {
            return Err(ToolFault::ForAgent(format!(
                "the server's answer is longer than {LONGEST} bytes"
            )));
        }
        let text = String::from_utf8(bytes).map_err(|_| ToolFault::Failed("the server's answer is not text".into()))?;
        match parse_python_json(&text) {
            Ok(Value::String(said)) => Ok(said),
            Ok(value) => result_of(value).unwrap_or(Ok(text)),
            Err(_) => Ok(text),
        }
    }
}

/// Reads the beginning of an answer, at most `most` bytes.
async fn read(mut response: Response, most: usize) -> Result<Vec<u8>, reqwest::Error> {
    let mut bytes = Vec::new();
    while bytes.len() < most
        && let Some(piece) = response.chunk().await?
    {
        let room = most - bytes.len();
        bytes.extend_from_slice(&piece[..piece.len().min(room)]);
    }
    Ok(bytes)
}
