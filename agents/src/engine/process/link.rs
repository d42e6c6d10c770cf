//! HTTP between an agent and its engine processes: in plaintext only inside, and with a token
//! ([`Secret`]).

mod secret;

use std::time::Duration;

use broker::tls::{self, TlsFiles};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, StatusCode, Url};

use crate::base::fault::Usage;
use crate::run_folder::connect;

pub(crate) use secret::key_advice;
pub use secret::{Secret, VARIABLE};

/// The header with the session that commands belong to.
pub(crate) const SESSION: &str = "x-dyad-session";
pub(crate) const BINARY: &str = "application/octet-stream";
pub(crate) const JSON: &str = "application/json";
/// Idle time after which connections close: longer at the server than at the client, so that no
/// connection closes during a request.
pub(crate) const KEEP: Duration = Duration::from_secs(75);
const IDLE: Duration = Duration::from_secs(20);
/// The longest part of an error answer that is read.
const REASON: usize = 2000;

/// The failure of a request to another process.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {reason}")]
pub struct LinkError {
    url: String,
    reason: String,
    /// True if the same request would fail in the same way.
    is_final: bool,
}

impl LinkError {
    pub(crate) fn answer(url: &str, reason: impl Into<String>) -> Self {
        Self {
            url: shown(url),
            reason: reason.into(),
            is_final: false,
        }
    }

    /// Returns the error for a message that is too large to send.
    pub(crate) fn too_large(url: &str, bytes: usize, most: usize) -> Self {
        Self {
            is_final: true,
            ..Self::answer(
                url,
                format!("a message of {bytes} bytes is too large: the limit is {most}"),
            )
        }
    }

    pub(crate) fn is_final(&self) -> bool {
        self.is_final
    }

    /// Returns the error with its innermost cause, which is more specific than a failed request.
    pub(crate) fn of(url: &str, error: reqwest::Error) -> Self {
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Self::answer(url, cause.to_string())
    }
}

/// Returns a client that waits at most `silence` for the next byte, if it is given.
///
/// # Errors
/// The TLS files that the environment names cannot be used.
pub(crate) fn client(silence: Option<Duration>) -> anyhow::Result<Client> {
    let client = builder()?.no_proxy();
    let client = match silence {
        Some(silence) => client.read_timeout(silence),
        None => client,
    };
    Ok(client.build()?)
}

/// Returns a client for a server outside the run: a judge, a tool or a frozen partner. It uses the
/// proxies of `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, except for this machine, which a proxy
/// does not reach.
///
/// # Errors
/// The TLS files that the environment names cannot be used.
pub(crate) fn outside(url: &str) -> anyhow::Result<Client> {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let client = builder()?;
    let client = if host.is_some_and(|host| is_this_machine(&host)) {
        client.no_proxy()
    } else {
        client
    };
    Ok(client.build()?)
}

fn builder() -> anyhow::Result<ClientBuilder> {
    let tls = tls::client(&TlsFiles::from_environment()?)?;
    Ok(Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(Duration::from_secs(5))
        .pool_idle_timeout(IDLE)
        // A token must reach only its intended server.
        .redirect(Policy::none()))
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns an allowed URL, without a slash at its end.
///
/// # Errors
/// It is not a URL, or plaintext to it could be read by others.
pub(crate) fn judged(url: &str) -> Result<String, Usage> {
    let wrong = |reason: &str| Usage::new(format!("the URL {:?} cannot be used: {reason}", shown(url)));
    let parsed = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
    let host = parsed.host_str().ok_or_else(|| wrong("it has no host"))?;
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

/// Returns a URL without its credentials and its query, which may hold a key, for messages.
pub(crate) fn shown(url: &str) -> String {
    let Some(mut parsed) = Url::parse(url).ok().filter(Url::has_host) else {
        let behind = url.rsplit('@').next().unwrap_or_default();
        return behind.split(['?', '#']).next().unwrap_or_default().to_owned();
    };
    // They fail for URLs that cannot have credentials.
    let _ = parsed.set_username("");
    let _ = parsed.set_password(None);
    parsed.set_query(None);
    parsed.set_fragment(None);
    parsed.as_str().trim_end_matches('/').to_owned()
}

/// Sends a request with the token and accepts only success.
pub(crate) async fn ask(secret: &Secret, request: RequestBuilder, url: &str) -> Result<Response, LinkError> {
    let sent = secret.show(request).send().await;
    let response = sent.map_err(|error| LinkError::of(url, error))?;
    let status = response.status();
    if status.is_success() || status == StatusCode::NOT_MODIFIED {
        return Ok(response);
    }
    let mut error = refusal_without(secret, response, url).await;
    let advice = secret.advice(status.as_u16(), &error.reason);
    error.reason.push_str(&advice);
    Err(error)
}

/// Returns the error that an answer without success means, with the beginning of its text.
pub(crate) async fn refusal(response: Response, url: &str) -> LinkError {
    refusal_without(&Secret::default(), response, url).await
}

/// Returns the error of [`refusal`] without the token, which some servers repeat.
async fn refusal_without(secret: &Secret, mut response: Response, url: &str) -> LinkError {
    let status = response.status();
    let mut reason = Vec::new();
    while reason.len() < REASON + secret.length()
        && let Ok(Some(part)) = response.chunk().await
    {
        reason.extend_from_slice(&part);
    }
    let reason = secret.hidden_beginning(&String::from_utf8_lossy(&reason), REASON);
    LinkError {
        is_final: matches!(status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE),
        ..LinkError::answer(url, format!("answered {status}: {reason}"))
    }
}

/// Returns the pause that a Retry-After header asks for; only seconds are read.
pub(crate) fn wanted_pause(headers: &reqwest::header::HeaderMap) -> Option<Duration> {
    let seconds = headers.get(reqwest::header::RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(seconds.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
    fn shown_url_has_no_credentials_and_no_query() {
        for (url, said) in [
            (
                "https://me:s3cret@h.example:1/v1/?key=s3cret#s3cret",
                "https://h.example:1/v1",
            ),
            ("http://127.0.0.1:8101/", "http://127.0.0.1:8101"),
            ("me:s3cret@h:1?s3cret", "h:1"),
            ("the collector", "the collector"),
        ] {
            assert_eq!(shown(url), said);
        }
        let error = judged("ftp://me:s3cret@h/?s3cret").unwrap_err().message;
        assert!(error.contains("\"ftp://h\"") && !error.contains("s3cret"), "{error}");
    }

    #[test]
    fn only_this_machine_is_reached_without_a_proxy() {
        for near in ["127.0.0.1", "localhost", "[::1]", "127.9.9.9"] {
            assert!(is_this_machine(near), "{near}");
        }
        for far in ["judge", "10.0.0.4", "api.example.com"] {
            assert!(!is_this_machine(far), "{far}");
        }
    }

    #[tokio::test]
    async fn rejected_token_at_the_cut_of_an_answer_is_never_repeated() {
        let key = "0123456789abcdef";
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let body = format!("{key}{}{key} is wrong", "x".repeat(REASON - 20));
        let size = body.len();
        let answer = format!("HTTP/1.1 401 X\r\nconnection: close\r\ncontent-length: {size}\r\n\r\n{body}");
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        let (secret, client) = (Secret::new(key).unwrap(), client(None).unwrap());
        let error = ask(&secret, client.get(&url), &url).await.unwrap_err().to_string();
        served.await.unwrap();
        assert!(
            error.contains(": ***xxx") && error.contains("xxx***; DYAD_ENGINE_TOKEN is set"),
            "{error}"
        );
        assert!(!error.contains("0123"), "{error}");
    }
}
