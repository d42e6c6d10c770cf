//! How an agent and its engine processes ask each other over HTTP: with a token, and in plaintext only where it stays inside.

use std::net::SocketAddr;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header;
use broker::tls::{self, TlsFiles};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};

use crate::base::fault::Usage;
use crate::base::secret::{Token, is_own_name, secret_in};
use crate::run_folder::connect;

/// Environment variable with the token that agents and their engine processes share.
pub const VARIABLE: &str = "DYAD_ENGINE_TOKEN";
/// The header that says to which session commands belong.
pub(crate) const SESSION: &str = "x-dyad-session";
pub(crate) const BINARY: &str = "application/octet-stream";
pub(crate) const JSON: &str = "application/json";
/// A connection that is not used stays open for so long at who was asked, and shorter at who asks, so that none is closed under a request.
pub(crate) const KEEP: Duration = Duration::from_secs(75);
const IDLE: Duration = Duration::from_secs(20);
/// The longest that is read of an answer that is an error.
const REASON: usize = 2000;

/// The token, if there is one: shown by who asks, looked at by who is asked.
#[derive(Clone, Default)]
pub struct Secret(Option<(String, Token)>);

/// Without the secret.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// # Errors
    /// One that can be guessed, or cannot stand in a header.
    pub fn from_environment() -> Result<Self, Usage> {
        secret_in(VARIABLE)?.map_or(Ok(Self::default()), |secret| Self::new(&secret))
    }

    /// The key in another variable, of servers that are not ours to give one.
    ///
    /// # Errors
    /// As [`Self::from_environment`].
    pub fn of_variable(variable: &'static str) -> Result<Self, Usage> {
        let Some(secret) = secret_in(variable)? else {
            return Ok(Self::default());
        };
        let token = Token::new(variable, &secret)?;
        Ok(Self(Some((secret, token))))
    }

    /// # Errors
    /// As [`Self::from_environment`].
    pub fn new(secret: &str) -> Result<Self, Usage> {
        let token = Token::new(VARIABLE, secret)?;
        Ok(Self(Some((secret.to_owned(), token))))
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn show(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.0 {
            Some((secret, _)) => request.bearer_auth(secret),
            None => request,
        }
    }

    /// Why a request is not let in; `None` if it is. Without a token only those who name this host by its address are, so that no web
    /// page that a browser shows gets in under a name of its own.
    pub(crate) fn refuses(&self, request: &HttpRequest) -> Option<(u16, &'static str)> {
        let head = |name| request.headers().get(name).map(header::HeaderValue::as_bytes);
        match &self.0 {
            Some((_, token)) => (!token.is_shown(head(header::AUTHORIZATION))).then_some((
                401,
                "the token is missing or wrong: give both processes the same DYAD_ENGINE_TOKEN",
            )),
            _ => {
                let host = String::from_utf8_lossy(head(header::HOST).unwrap_or_default());
                (!is_own_name(&host)).then_some((
                    403,
                    "without DYAD_ENGINE_TOKEN this is asked by address, such as 127.0.0.1",
                ))
            }
        }
    }

    /// Whether one may listen there; `what` names it.
    ///
    /// # Errors
    /// A listener that other machines reach needs a token.
    pub fn may_listen(&self, what: &str, address: SocketAddr) -> Result<(), Usage> {
        if self.is_set() || address.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        let message = format!("{what} is {address}, which other machines reach, and {VARIABLE} is not set");
        Err(Usage::new(message).hint(format!(
            "set {VARIABLE} to the same in agent and engine (`openssl rand -hex 32` makes a good one), or listen on 127.0.0.1"
        )))
    }
}

/// Why another process did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {reason}")]
pub struct LinkError {
    url: String,
    reason: String,
    /// The same request would fail in the same way.
    is_final: bool,
}

impl LinkError {
    pub(crate) fn answer(url: &str, reason: impl Into<String>) -> Self {
        Self {
            url: url.to_owned(),
            reason: reason.into(),
            is_final: false,
        }
    }

    /// Of a message that is not sent at all.
    pub(crate) fn too_large(url: &str, bytes: usize, most: usize) -> Self {
        Self {
            is_final: true,
            ..Self::answer(
                url,
                format!("a message of {bytes} bytes is too large: {most} are the most"),
            )
        }
    }

    pub(crate) fn is_final(&self) -> bool {
        self.is_final
    }

    /// With the innermost cause, which says more than that a request failed.
    pub(crate) fn of(url: &str, error: reqwest::Error) -> Self {
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Self::answer(url, cause.to_string())
    }
}

/// A client that waits so long for a sign of life at most, if that is bounded at all.
///
/// # Errors
/// The files for TLS that the environment names cannot be used.
pub(crate) fn client(silence: Option<Duration>) -> anyhow::Result<Client> {
    let tls = tls::client(&TlsFiles::from_environment()?)?;
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(Duration::from_secs(5))
        .pool_idle_timeout(IDLE)
        // A token goes where it was meant to go.
        .redirect(Policy::none())
        .no_proxy();
    let client = match silence {
        Some(silence) => client.read_timeout(silence),
        None => client,
    };
    Ok(client.build()?)
}

/// A URL that may be asked, without a slash at its end.
///
/// # Errors
/// It is none, or plaintext to it could be heard by others.
pub(crate) fn judged(url: &str) -> Result<String, Usage> {
    let wrong = |reason: &str| Usage::new(format!("the URL {url:?} cannot be asked: {reason}"));
    let parsed = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
    let host = parsed.host_str().ok_or_else(|| wrong("it names no host"))?;
    match parsed.scheme() {
        "https" => {}
        "http" => {
            if let Some(reason) = tls::refuse_plaintext(host, connect::allows_plaintext(), "https") {
                return Err(wrong(&reason));
            }
        }
        _ => return Err(wrong("it begins neither with http:// nor with https://")),
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// Asks, and takes nothing but success for an answer.
pub(crate) async fn ask(request: RequestBuilder, url: &str) -> Result<Response, LinkError> {
    let mut response = request.send().await.map_err(|error| LinkError::of(url, error))?;
    let status = response.status();
    if status.is_success() || status == StatusCode::NOT_MODIFIED {
        return Ok(response);
    }
    let mut reason = Vec::new();
    while reason.len() < REASON
        && let Ok(Some(part)) = response.chunk().await
    {
        reason.extend_from_slice(&part);
    }
    reason.truncate(REASON);
    let reason = String::from_utf8_lossy(&reason).into_owned();
    Err(LinkError {
        is_final: matches!(status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE),
        ..LinkError::answer(url, format!("answered {status}: {reason}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_goes_to_this_machine_and_containers_only() {
        for good in [
            "http://127.0.0.1:8101",
            "http://engine-a:8101/",
            "http://[::1]:1",
            "https://gpu.example.org",
        ] {
            assert!(!judged(good).unwrap().ends_with('/'), "{good}");
        }
        for bad in ["http://10.0.0.4:8101", "http://gpu.example.org", "ftp://h", "h:1", ""] {
            assert!(judged(bad).is_err(), "{bad}");
        }
        assert!(
            judged("http://10.0.0.4:1")
                .unwrap_err()
                .message
                .contains("DYAD_ALLOW_PLAINTEXT")
        );
    }

    #[test]
    fn who_listens_to_others_needs_a_token_and_it_is_never_shown() {
        let secret = Secret::new("0123456789abcdef").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        let (near, far) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        assert!(Secret::default().may_listen("x", near).is_ok() && secret.may_listen("x", far).is_ok());
        let error = Secret::default().may_listen("x", far).unwrap_err();
        assert!(error.message.contains(VARIABLE));
        assert!(Secret::new("short").unwrap_err().message.contains(VARIABLE));
    }
}
