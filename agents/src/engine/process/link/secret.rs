//! The token that an agent and its engine processes share, or the key of a server: sent, checked,
//! and never shown.

use std::net::SocketAddr;

use actix_web::HttpRequest;
use actix_web::http::header;
use reqwest::RequestBuilder;

use crate::base::fault::Usage;
use crate::base::secret::{Token, is_own_name, secret_in};

/// Environment variable with the token that agents and their engine processes share.
pub const VARIABLE: &str = "DYAD_ENGINE_TOKEN";

/// The token, if there is one: sent by the client, checked by the server.
#[derive(Clone)]
pub struct Secret {
    /// The environment variable that holds it.
    variable: &'static str,
    token: Option<(String, Token)>,
}

/// No token.
impl Default for Secret {
    fn default() -> Self {
        Self {
            variable: VARIABLE,
            token: None,
        }
    }
}

/// Prints the type's name without the secret.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads the token from the environment.
    ///
    /// # Errors
    /// The token can be guessed, or cannot stand in a header.
    pub fn from_environment() -> Result<Self, Usage> {
        Self::of_variable(VARIABLE)
    }

    /// Reads the key from another variable, for servers with a key of their operator.
    ///
    /// # Errors
    /// The same as for [`Self::from_environment`].
    pub fn of_variable(variable: &'static str) -> Result<Self, Usage> {
        match secret_in(variable)? {
            Some(secret) => Self::with(variable, &secret),
            None => Ok(Self { variable, token: None }),
        }
    }

    /// Checks and stores a token.
    ///
    /// # Errors
    /// The same as for [`Self::from_environment`].
    pub fn new(secret: &str) -> Result<Self, Usage> {
        Self::with(VARIABLE, secret)
    }

    fn with(variable: &'static str, secret: &str) -> Result<Self, Usage> {
        let token = Some((secret.to_owned(), Token::new(variable, secret)?));
        Ok(Self { variable, token })
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.token.is_some()
    }

    /// Returns what to add to a server's error text about the token; see [`key_advice`].
    pub(crate) fn advice(&self, status: u16, text: &str) -> String {
        key_advice(status, text, self.variable, self.is_set())
    }

    /// Returns a server's text without the token: some servers repeat it.
    pub(crate) fn hidden(&self, text: &str) -> String {
        match &self.token {
            Some((secret, _)) => text.replace(secret.as_str(), "***"),
            None => text.to_owned(),
        }
    }

    /// Returns about `most` bytes of the beginning of a server's text without the token. A token
    /// across the cut is hidden whole.
    pub(super) fn hidden_beginning(&self, text: &str, most: usize) -> String {
        let secret = self.token.as_ref().map(|(secret, _)| secret.as_str());
        let mut places = secret.into_iter().flat_map(|secret| text.match_indices(secret));
        let across = places.find_map(|(at, secret)| {
            let end = at + secret.len();
            (at < most && most < end).then_some(end)
        });
        let cut = across.unwrap_or(most);
        let end = (cut..text.len()).find(|at| text.is_char_boundary(*at));
        self.hidden(&text[..end.unwrap_or(text.len())])
    }

    /// Returns the number of bytes of the token; 0 without one.
    pub(super) fn length(&self) -> usize {
        self.token.as_ref().map_or(0, |(secret, _)| secret.len())
    }

    pub(crate) fn show(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some((secret, _)) => request.bearer_auth(secret),
            None => request,
        }
    }

    /// Returns the status and reason of a rejected request; `None` if it is accepted. Without a
    /// token only requests that name this host by its address are accepted, so that no web page in
    /// a browser gets in under its own name.
    pub(crate) fn refuses(&self, request: &HttpRequest) -> Option<(u16, &'static str)> {
        let head = |name| request.headers().get(name).map(header::HeaderValue::as_bytes);
        match &self.token {
            Some((_, token)) => (!token.is_shown(head(header::AUTHORIZATION))).then_some((
                401,
                "the token is missing or wrong: give both processes the same DYAD_ENGINE_TOKEN",
            )),
            _ => {
                let host = String::from_utf8_lossy(head(header::HOST).unwrap_or_default());
                (!is_own_name(&host)).then_some((
                    403,
                    "without DYAD_ENGINE_TOKEN use the address of this host, for example 127.0.0.1",
                ))
            }
        }
    }

    /// Checks that a listener may use this address; `what` names it in the error.
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

/// Returns what to add to a server's error text about the key in an environment variable, with a
/// separator before it; empty if there is nothing to add.
///
/// 401 rejects the key, or a request without one. 403 often has other reasons: a host name, a
/// region, or access to a model. A text that names the variable has its own advice.
pub(crate) fn key_advice(status: u16, text: &str, variable: &str, is_set: bool) -> String {
    let state = if is_set { "is set" } else { "is not set" };
    let state = format!("{variable} {state} in this process");
    match (status, text.contains(variable)) {
        (401, true) => format!("; {state}"),
        (401, false) if is_set => {
            format!("; {state}, and the server does not accept its key: correct it, and start again")
        }
        (401, false) => format!("; {state}: set it to the server's key, and start again"),
        (403, false) => format!("; if the key is the reason: {state}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_listener_needs_a_token_that_is_never_printed() {
        let secret = Secret::new("0123456789abcdef").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        let (near, far) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        assert!(Secret::default().may_listen("x", near).is_ok() && secret.may_listen("x", far).is_ok());
        let error = Secret::default().may_listen("x", far).unwrap_err();
        assert!(error.message.contains(VARIABLE));
        assert!(Secret::new("short").unwrap_err().message.contains(VARIABLE));
    }

    #[test]
    fn key_is_to_be_corrected_only_if_the_server_rejects_it() {
        for (status, text, is_set, said) in [
            (
                401,
                "no",
                false,
                "; KEY is not set in this process: set it to the server's key, and start again",
            ),
            (
                401,
                "no",
                true,
                "; KEY is set in this process, and the server does not accept its key: correct it, and start again",
            ),
            (401, "give both the same KEY", true, "; KEY is set in this process"),
            (
                403,
                "not in your region",
                true,
                "; if the key is the reason: KEY is set in this process",
            ),
            (
                403,
                "no",
                false,
                "; if the key is the reason: KEY is not set in this process",
            ),
            (403, "without KEY use the address", false, ""),
            (400, "no", true, ""),
        ] {
            assert_eq!(key_advice(status, text, "KEY", is_set), said, "{status} {text}");
        }
    }

    #[test]
    fn token_across_the_cut_of_a_text_is_hidden_whole() {
        let (key, secret) = ("0123456789abcdef", Secret::new("0123456789abcdef").unwrap());
        let text = format!("{key} é {key} and more");
        for most in 0..=text.len() {
            let said = secret.hidden_beginning(&text, most);
            assert!("*** é *** and more".starts_with(&said), "{most}: {said}");
        }
        assert_eq!(secret.hidden_beginning(&text, 25), "*** é ***");
        assert_eq!(secret.hidden_beginning(&text, 1000), "*** é *** and more");
        assert_eq!(Secret::default().hidden_beginning("abc", 2), "ab");
    }
}
