//! A tool that is a server: a POST of JSON for each call.

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response};
use rollout::workflow::tools::ToolQuestion;
use serde_json::Value;

use super::answer::{Fault, result_of};
use crate::base::secret::{TOOL_TOKEN, secret_in};
use crate::engine::process::link;

/// What is read of an answer.
const LONGEST: usize = 1 << 20;
/// What is read of an answer that is an error.
const COMPLAINT: usize = 4 << 10;

pub(super) struct Server {
    client: Client,
    url: String,
    /// Shown as `Authorization: Bearer`. Never logged: this type has no `Debug`.
    token: Option<String>,
}

impl Server {
    /// With the token of `DYAD_TOOL_TOKEN_NAME`, if there is one. An error says why it cannot be asked.
    pub(super) fn new(name: &str, url: &str) -> Result<Self, String> {
        let variable = format!("{TOOL_TOKEN}_{}", name.to_uppercase().replace('-', "_"));
        let token = secret_in(&variable).map_err(|usage| usage.message)?;
        Self::with(&variable, token, url)
    }

    /// `variable` is where the token stood.
    pub(super) fn with(variable: &str, token: Option<String>, url: &str) -> Result<Self, String> {
        if token
            .as_ref()
            .is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return Err(format!("{variable} has characters that cannot stand in a header"));
        }
        // As it is written: a slash at its end may be part of the address.
        link::judged(url).map_err(|usage| usage.message)?;
        Ok(Self {
            url: url.to_owned(),
            client: link::client(None).map_err(|error| error.to_string())?,
            token,
        })
    }

    pub(super) async fn call(&self, question: &ToolQuestion) -> Result<String, Fault> {
        let body = serde_json::to_string(question).map_err(|error| Fault::Broken(error.to_string()))?;
        let request = self.client.post(&self.url).header(CONTENT_TYPE, link::JSON).body(body);
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let lost = |error: reqwest::Error| Fault::Failed(link::LinkError::of("the server", error).to_string());
        let response = request.send().await.map_err(lost)?;
        let status = response.status();
        if !status.is_success() {
            let said = read(response, COMPLAINT).await.unwrap_or_default();
            let reason = format!(
                "the server answered {status}: {}",
                String::from_utf8_lossy(&said).trim()
            );
            // What it takes for the caller's fault would be so again.
            let told = status.is_client_error() && !matches!(status.as_u16(), 401 | 403 | 404 | 408 | 429);
            return Err(if told {
                Fault::Told(reason)
            } else {
                Fault::Failed(reason)
            });
        }
        let bytes = read(response, LONGEST + 1).await.map_err(lost)?;
        if bytes.len() > LONGEST {
            return Err(Fault::Told(format!(
                "the server's answer is longer than {LONGEST} bytes"
            )));
        }
        let text = String::from_utf8(bytes).map_err(|_| Fault::Failed("the server's answer is no text".into()))?;
        match serde_json::from_str::<Value>(&text) {
            Ok(Value::String(said)) => Ok(said),
            Ok(value) => result_of(value).unwrap_or(Ok(text)),
            Err(_) => Ok(text),
        }
    }
}

/// The beginning of an answer, up to so many bytes.
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
