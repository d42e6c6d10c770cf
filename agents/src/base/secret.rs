//! Secrets that a client presents.

use std::fmt;
use std::hint::black_box;
use std::net::SocketAddr;

use broker::ids::Digest;

use crate::base::fault::Usage;

/// Environment variable with the token.
pub const VARIABLE: &str = "DYAD_HTTP_TOKEN";
/// Minimum number of characters; a shorter token can be guessed.
const SHORTEST: usize = 16;

/// A token, kept as a digest: the token itself is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Digest);

/// Prints the type's name without the secret.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Checks and stores a token. `variable` is its source, for the error.
    ///
    /// # Errors
    /// The token can be guessed, or cannot stand in a header.
    pub fn new(variable: &str, secret: &str) -> Result<Self, Usage> {
        let length = secret.chars().count();
        if length < SHORTEST {
            let message = format!("{variable} has {length} characters, and fewer than {SHORTEST} can be guessed");
            return Err(Usage::new(message).hint("`openssl rand -hex 32` makes a good one"));
        }
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!(
                "{variable} has characters that cannot stand in a header: use letters, digits and signs of ASCII, without spaces"
            );
            return Err(Usage::new(message).hint("`openssl rand -hex 32` makes a good one"));
        }
        Ok(Self(Digest::of(secret.as_bytes())))
    }

    /// Reads the token from the environment.
    ///
    /// # Errors
    /// The same as for [`Self::new`].
    pub fn from_environment() -> Result<Option<Self>, Usage> {
        secret_in(VARIABLE)?
            .map(|secret| Self::new(VARIABLE, &secret))
            .transpose()
    }

    /// Returns true if an `Authorization` header presents this token. The time it takes does not
    /// depend on which characters are wrong.
    #[must_use]
    pub fn is_shown(&self, header: Option<&[u8]>) -> bool {
        let shown = header.and_then(bearer).unwrap_or_default();
        let shown = Digest::of(shown);
        let pairs = self.0.0.iter().zip(shown.0);
        pairs.fold(0, |differ, (a, b)| black_box(differ | (a ^ b))) == 0
    }
}

/// Returns the value of an environment variable, if it is set and not empty.
///
/// # Errors
/// The value is not text.
pub fn secret_in(variable: &str) -> Result<Option<String>, Usage> {
    match std::env::var(variable) {
        Ok(secret) if !secret.is_empty() => Ok(Some(secret)),
        Err(std::env::VarError::NotUnicode(_)) => Err(Usage::new(format!("{variable} is not valid text"))),
        _ => Ok(None),
    }
}

/// Returns the text after `Bearer `.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = header.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
}

/// Checks that an agent may listen on this address.
///
/// # Errors
/// A listener that other machines reach needs a token.
pub fn may_listen(agent: &str, address: SocketAddr, token: Option<&Token>) -> Result<(), Usage> {
    if token.is_some() || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let message =
        format!("agents.{agent}.http.listen is {address}, which other machines reach, and {VARIABLE} is not set");
    Err(Usage::new(message).hint(format!(
        "set {VARIABLE} in the agent's environment (`openssl rand -hex 32` makes a good one), or listen on 127.0.0.1"
    )))
}

/// Returns true if a request without a token may name this host: an address or localhost. Otherwise
/// a web page in a browser could point its own name at this server.
#[must_use]
pub fn is_own_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

/// The prefix of the environment variable with a tool's token; the tool's name follows in capitals.
pub(crate) const TOOL_TOKEN: &str = "DYAD_TOOL_TOKEN";

/// Returns true if the environment variable `name` may hold a secret, which no child may inherit.
pub(crate) fn is_secret(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy();
    [
        "DYAD_BROKER",
        "DYAD_STATE",
        "DYAD_PASSWORD",
        "DYAD_TASK_KEY",
        "DYAD_CLIENT",
        "DYAD_HTTP_TOKEN",
        "DYAD_DASHBOARD_TOKEN",
        "DYAD_METRICS_TOKEN",
        "DYAD_ENGINE_TOKEN",
        "DYAD_OPENAI_KEY",
        "OTEL_EXPORTER_OTLP",
        configs::JUDGE_KEY,
        TOOL_TOKEN,
    ]
    .iter()
    .any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn only_the_whole_token_is_accepted_and_it_is_never_printed() {
        let token = Token::new(VARIABLE, SECRET).unwrap();
        let shown = |header: &str| token.is_shown(Some(header.as_bytes()));
        assert!(shown("Bearer 0123456789abcdef") && shown("bearer  0123456789abcdef "));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "0123456789abcdef",
            "Basic 0123456789abcdef",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdeff",
            "Bearer \u{e9}123456789abcdef",
        ] {
            assert!(!shown(wrong), "{wrong}");
        }
        assert!(!token.is_shown(None));
        assert_eq!(format!("{token:?}"), "Token");
    }

    #[test]
    fn weak_tokens_are_rejected() {
        for weak in ["", "short", "0123456789 abcdef", "0123456789abcde\u{e9}"] {
            let error = Token::new(VARIABLE, weak).unwrap_err();
            assert!(
                error.message.contains(VARIABLE) && !error.message.contains("0123456789"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_listener_that_others_reach_needs_a_token() {
        let token = Token::new(VARIABLE, SECRET).unwrap();
        for (address, alone) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.168.0.4:1", false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(may_listen("a", address, None).is_ok(), alone, "{address}");
            assert!(may_listen("a", address, Some(&token)).is_ok());
        }
    }

    #[test]
    fn names_that_a_web_page_could_have_are_rejected() {
        for own in [
            "127.0.0.1:8001",
            "localhost",
            "LOCALHOST:1",
            "[::1]:8001",
            "[::1]",
            "10.0.0.2:80",
        ] {
            assert!(is_own_name(own), "{own}");
        }
        for other in [
            "",
            "evil.example:8001",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            ":8001",
        ] {
            assert!(!is_own_name(other), "{other}");
        }
    }
}
