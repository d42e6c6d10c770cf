//! JSON over HTTP to one server.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use broker::tls::{TlsFiles, refuse_plaintext};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, Url};
use serde_json::Value;

use super::trouble::Trouble;

/// The environment variable with the key that servers are shown.
pub const VARIABLE: &str = "DYAD_ENGINE_TOKEN";
/// A server that is there takes a connection within this.
const CONNECT: Duration = Duration::from_secs(10);
/// A peer that vanished without a word is noticed by the operating system.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// An answer that is longer is none.
const LONGEST: usize = 256 << 20;

/// One server.
pub struct Http {
    client: Client,
    /// Without a slash at its end.
    base: String,
    key: Option<HeaderValue>,
}

/// Without the key.
impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Http {
    /// As the environment says: DYAD_ENGINE_TOKEN, DYAD_ALLOW_PLAINTEXT, and the files for TLS.
    ///
    /// # Errors
    /// As [`Self::new`], and files for TLS that cannot be used.
    pub fn from_environment(url: &str) -> anyhow::Result<Self> {
        let key = match std::env::var(VARIABLE) {
            Ok(key) if !key.is_empty() => Some(key),
            Err(std::env::VarError::NotUnicode(_)) => bail!("{VARIABLE} is no text"),
            _ => None,
        };
        let plaintext = std::env::var("DYAD_ALLOW_PLAINTEXT").is_ok_and(|value| value == "1");
        Self::new(url, key.as_deref(), plaintext, &TlsFiles::from_environment()?)
    }

    /// # Errors
    /// A URL that is none, or in plaintext to another machine, or a key that cannot stand in a header.
    pub fn new(url: &str, key: Option<&str>, allow_plaintext: bool, tls: &TlsFiles) -> anyhow::Result<Self> {
        let parsed = Url::parse(url).with_context(|| format!("{url:?} is no URL of an engine"))?;
        let host = parsed.host_str().unwrap_or_default();
        if parsed.scheme() != "https"
            && let Some(reason) = refuse_plaintext(host, allow_plaintext, "https")
        {
            bail!("the engine at {url}: {reason}");
        }
        let key = key.map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
                .map_err(|_| anyhow::anyhow!("{VARIABLE} has characters that cannot stand in a header"))?;
            value.set_sensitive(true);
            Ok::<_, anyhow::Error>(value)
        });
        let client = Client::builder()
            .tls_backend_preconfigured(Arc::unwrap_or_clone(tls.client()?))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .tcp_keepalive(KEEP_ALIVE)
            .build()
            .context("setting up a client of engines")?;
        Ok(Self {
            client,
            base: url.trim_end_matches('/').to_owned(),
            key: key.transpose()?,
        })
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    /// # Errors
    /// No answer, or one that is no good.
    pub async fn get(&self, path: &str) -> Result<String, Trouble> {
        self.send(self.request(Method::GET, path)).await
    }

    /// # Errors
    /// No answer, or one that is no good.
    pub async fn get_json(&self, path: &str) -> Result<Value, Trouble> {
        parse(&self.get(path).await?)
    }

    /// The text of the answer: some routes answer in words, or with nothing.
    ///
    /// # Errors
    /// No answer, or one that is no good.
    pub async fn post(&self, path: &str, body: &Value) -> Result<String, Trouble> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// # Errors
    /// No answer, or one that is no good.
    pub async fn post_json(&self, path: &str, body: &Value) -> Result<Value, Trouble> {
        parse(&self.post(path, body).await?)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        match &self.key {
            Some(key) => request.header(AUTHORIZATION, key.clone()),
            None => request,
        }
    }

    /// There is no limit of time: a long answer takes long, and whether the server lives is another's to watch.
    async fn send(&self, request: RequestBuilder) -> Result<String, Trouble> {
        let response = request.send().await.map_err(|error| Trouble::Gone(causes(error)))?;
        let status = response.status();
        let text = read(response).await?;
        if status.is_success() {
            Ok(text)
        } else {
            Err(Trouble::of_status(status.as_u16(), &text))
        }
    }
}

async fn read(mut response: Response) -> Result<String, Trouble> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| Trouble::Gone(causes(error)))? {
        if bytes.len() + piece.len() > LONGEST {
            return Err(Trouble::Malformed(format!("more than {} MiB", LONGEST >> 20)));
        }
        bytes.extend_from_slice(&piece);
    }
    String::from_utf8(bytes).map_err(|_| Trouble::Malformed("no text".into()))
}

fn parse(text: &str) -> Result<Value, Trouble> {
    serde_json::from_str(text).map_err(|error| Trouble::Malformed(format!("no JSON: {error}")))
}

/// An error with what caused it, without the URL, which stands beside it already.
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

    fn open(url: &str, key: Option<&str>, plaintext: bool) -> anyhow::Result<Http> {
        Http::new(url, key, plaintext, &TlsFiles::default())
    }

    #[test]
    fn plaintext_stays_inside_and_the_key_is_never_shown() {
        for good in [
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "http://sglang:30000",
            "https://gpu.example.org",
        ] {
            assert!(open(good, None, false).is_ok(), "{good}");
        }
        let error = open("http://10.0.0.4:1", None, false).unwrap_err().to_string();
        assert!(
            error.contains("https://") && error.contains("DYAD_ALLOW_PLAINTEXT"),
            "{error}"
        );
        assert!(open("http://10.0.0.4:1", None, true).is_ok());
        let http = open("http://localhost:1/", Some("a-secret"), false).unwrap();
        assert_eq!(http.url(), "http://localhost:1");
        assert!(!format!("{http:?} {:?}", http.key).contains("a-secret"));
        let error = open("http://localhost:1", Some("a\nsecret"), false).unwrap_err();
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}
