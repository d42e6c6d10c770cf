//! JSON over HTTP to one server.

use std::error::Error;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;

use broker::codec::parse_python_json;

use super::dialect::Spoken;
use super::trouble::Trouble;
use crate::engine::process::link;
use crate::engine::process::link::Secret;

/// Size limit of an answer that is not a generation.
const SHORT: usize = 4 << 20;
/// The part of an error answer that is read.
const COMPLAINT: usize = 64 << 10;

/// One server.
#[derive(Debug)]
pub(super) struct Http {
    client: Client,
    /// Has no slash at its end.
    base: String,
    /// The base without credentials, for messages.
    shown: String,
    secret: Secret,
}

impl Http {
    /// Connects with the key of DYAD_ENGINE_TOKEN, if it is set.
    ///
    /// # Errors
    /// The same as for [`Self::new`], and a key that is weak or cannot stand in a header.
    pub(super) fn from_environment(url: &str) -> anyhow::Result<Self> {
        Self::new(url, Secret::from_environment()?)
    }

    /// Connects with the given key.
    ///
    /// # Errors
    /// A URL that is not allowed, or TLS files that cannot be used.
    pub(super) fn new(url: &str, secret: Secret) -> anyhow::Result<Self> {
        Ok(Self {
            base: link::judged(url)?,
            shown: link::shown(url),
            // No timeout: a long answer takes long, and the health check watches the server.
            client: link::client(None)?,
            secret,
        })
    }

    /// Connects to a server outside the run, through the proxies of the environment.
    ///
    /// # Errors
    /// The same as for [`Self::new`].
    pub(super) fn outside(url: &str, secret: Secret) -> anyhow::Result<Self> {
        let client = link::outside(url)?;
        Ok(Self {
            client,
            ..Self::new(url, secret)?
        })
    }

    /// Returns its URL without credentials.
    #[must_use]
    pub(super) fn url(&self) -> &str {
        &self.shown
    }

    /// Returns the failure that a status and a body mean, with the state of the key's variable if
    /// access is denied.
    fn trouble(&self, status: u16, text: &str) -> Trouble {
        match Trouble::of_status(status, &self.secret.hidden(text)) {
            Trouble::Forbidden(said) => {
                let advice = self.secret.advice(status, &said);
                Trouble::Forbidden(said + &advice)
            }
            other => other,
        }
    }

    async fn send(&self, request: RequestBuilder, most: usize) -> Result<String, Trouble> {
        match exchange(request, most).await? {
            (status, text) if is_success(status) => Ok(text),
            (status, text) => Err(self.trouble(status, &text)),
        }
    }

    /// Returns the text at a path.
    ///
    /// # Errors
    /// No answer, or an invalid one.
    pub(super) async fn get(&self, path: &str) -> Result<String, Trouble> {
        self.send(self.request(Method::GET, path), SHORT).await
    }

    /// Returns the JSON at a path.
    ///
    /// # Errors
    /// No answer, or an invalid one.
    pub(super) async fn get_json(&self, path: &str) -> Result<Value, Trouble> {
        parse(&self.get(path).await?)
    }

    /// Posts and returns the text of the answer: some routes return words, or nothing.
    ///
    /// # Errors
    /// No answer, or an invalid one.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<String, Trouble> {
        self.send(self.posted(path, body), SHORT).await
    }

    /// Posts and returns the JSON of the answer.
    ///
    /// # Errors
    /// No answer, or an invalid one.
    pub(super) async fn post_json(&self, path: &str, body: &Value) -> Result<Value, Trouble> {
        self.post_for(path, body, SHORT).await
    }

    /// Posts and returns an answer of at most `most` bytes.
    ///
    /// # Errors
    /// No answer, or one that is invalid or longer.
    pub(super) async fn post_for(&self, path: &str, body: &Value, most: usize) -> Result<Value, Trouble> {
        parse(&self.send(self.posted(path, body), most).await?)
    }

    /// Posts a call of OpenAI's interface and returns an answer of at most `most` bytes. Repeats
    /// the call if the model rejects a field that may change.
    ///
    /// # Errors
    /// No answer, or one that is invalid or longer.
    pub(super) async fn post_spoken(
        &self,
        path: &str,
        model: &str,
        body: &Value,
        most: usize,
    ) -> Result<Value, Trouble> {
        let mut spoken = Spoken::new(&self.base, model, body);
        loop {
            match exchange(self.posted(path, spoken.body()), most).await? {
                (status, text) if is_success(status) => {
                    spoken.accepted();
                    return parse(&text);
                }
                (status, text) if spoken.adapt(status, &text) => {}
                (status, text) => return Err(self.trouble(status, &text)),
            }
        }
    }

    fn posted(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path)
            .header(CONTENT_TYPE, link::JSON)
            .body(body.to_string())
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.secret
            .show(self.client.request(method, format!("{}{path}", self.base)))
    }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// Returns the status and the text of an answer; of an error only the beginning.
async fn exchange(request: RequestBuilder, most: usize) -> Result<(u16, String), Trouble> {
    let response = request.send().await.map_err(|error| Trouble::Gone(causes(error)))?;
    let status = response.status().as_u16();
    if is_success(status) {
        let bytes = read(response, most).await?;
        if bytes.len() > most {
            return Err(Trouble::Malformed(format!("it is longer than {} KiB", most >> 10)));
        }
        let text = String::from_utf8(bytes).map_err(|_| Trouble::Malformed("it is not text".into()))?;
        return Ok((status, text));
    }
    let bytes = read(response, COMPLAINT).await?;
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

/// Reads until there are more than `most` bytes.
async fn read(mut response: Response, most: usize) -> Result<Vec<u8>, Trouble> {
    let mut bytes = Vec::new();
    while bytes.len() <= most
        && let Some(piece) = response.chunk().await.map_err(|error| Trouble::Gone(causes(error)))?
    {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn parse(text: &str) -> Result<Value, Trouble> {
    parse_python_json(text).map_err(|error| Trouble::Malformed(format!("it is not JSON: {error}")))
}

/// Returns an error with its causes, without the URL, which the caller adds.
fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push_str(": ");
        words.push_str(&error.to_string());
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_stays_inside_and_the_key_is_never_printed() {
        let secret = || Secret::new("a-secret-of-a-server").unwrap();
        let http = Http::new("http://localhost:1/", secret()).unwrap();
        assert_eq!(http.url(), "http://localhost:1");
        let request = http.posted("/generate", &serde_json::json!({})).build().unwrap();
        let key = request.headers().get("authorization").unwrap();
        assert_eq!(key.as_bytes(), b"Bearer a-secret-of-a-server");
        assert!(!format!("{http:?} {request:?}").contains("a-secret"), "{request:?}");
        let error = Http::new("http://10.0.0.4:1", secret()).unwrap_err();
        assert!(
            format!("{error:?}").contains("DYAD_ALLOW_PLAINTEXT") && !format!("{error:?}").contains("a-secret"),
            "{error:?}"
        );
    }

    /// Some servers repeat the key that they reject.
    #[test]
    fn rejected_key_is_named_by_its_variable_and_never_repeated() {
        let http = Http::new(
            "http://me:pass@localhost:1",
            Secret::new("a-secret-of-a-server").unwrap(),
        )
        .unwrap();
        assert_eq!(http.url(), "http://localhost:1");
        let said = http.trouble(401, "wrong key a-secret-of-a-server").to_string();
        assert!(said.contains("DYAD_ENGINE_TOKEN is set in this process"), "{said}");
        assert!(said.contains("wrong key ***") && !said.contains("a-secret"), "{said}");
        let said = http.trouble(403, "not in your region").to_string();
        assert_eq!(
            said,
            "it denied access: HTTP 403: not in your region; if the key is the reason: DYAD_ENGINE_TOKEN is set in this process"
        );
    }
}
