//! Broker URLs: parsed, checked (no plaintext across a network) and shown without their secrets.

use lapin::uri::{AMQPScheme, AMQPUri};

use crate::bus::BusError;
use crate::tls::refuse_plaintext;

/// Seconds between heartbeats; two missed ones end a connection.
const HEARTBEAT: u16 = 10;
/// The largest frame in bytes, which is RabbitMQ's default too. The headers of a message are one
/// frame, so with a smaller one a foreign message could break the connection.
///
/// lapin has two buffers of 32 frames for a connection. It writes zeros to all of both if it learns
/// the size from the broker. If it knows the size before, a page of a buffer costs memory only once
/// it is used.
const FRAME: u32 = 128 << 10;

/// A URL that may be connected to.
#[derive(Clone)]
pub(super) struct BrokerUrl {
    pub(super) uri: AMQPUri,
    /// The URL without user, password and query.
    pub(super) shown: String,
}

impl std::fmt::Debug for BrokerUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

impl BrokerUrl {
    pub(super) fn parse(url: &str, allow_plaintext: bool) -> Result<Self, BusError> {
        let refuse = |reason: String| BusError::Url {
            url: redact(url),
            reason,
        };
        let mut uri = read(url).ok_or_else(|| {
            refuse("expected amqp[s]://user:password@host[:port]/vhost, the vhost `/` written %2f".into())
        })?;
        if literal_ipv6(url).is_some_and(|address| !address.is_loopback()) {
            return Err(refuse(
                "the client library cannot use an IPv6 address: use the host's name".into(),
            ));
        }
        let plaintext = uri.scheme == AMQPScheme::AMQP;
        if plaintext && let Some(reason) = refuse_plaintext(&uri.authority.host, allow_plaintext, "amqps") {
            return Err(refuse(reason));
        }
        uri.query.heartbeat = Some(HEARTBEAT);
        uri.query.frame_max.get_or_insert(FRAME);
        Ok(Self {
            uri,
            shown: redact(url),
        })
    }
}

impl BrokerUrl {
    /// Returns true if the URL asks for TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.uri.scheme == AMQPScheme::AMQPS
    }

    /// Returns the user name.
    pub(super) fn user(&self) -> &str {
        &self.uri.authority.userinfo.username
    }
}

/// Parses a URL. A path of `/` is the vhost `/`, as in Python's clients and as operators of
/// RabbitMQ write it; by the letter of the specification it is a vhost without a name.
fn read(url: &str) -> Option<AMQPUri> {
    let mut uri: AMQPUri = url.parse().ok()?;
    if uri.vhost.is_empty() {
        uri.vhost.push('/');
    }
    Some(uri)
}

/// Returns the IPv6 address in the place of the host. The client library reads every such address
/// as localhost.
fn literal_ipv6(url: &str) -> Option<std::net::Ipv6Addr> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let host = authority.rsplit('@').next()?.strip_prefix('[')?;
    host.split(']').next()?.parse().ok()
}

/// Returns the URL without user, password and query. Only the scheme remains if the URL cannot be
/// parsed.
#[must_use]
pub fn redact(url: &str) -> String {
    let is_scheme = |text: &str| text.len() <= 8 && text.chars().all(|c| c.is_ascii_alphanumeric());
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
        return "amqp://...".into();
    };
    // An '@' after the authority: a password with a '/' that is not written %2F would show as the
    // vhost.
    let stray = rest
        .split_once(['/', '?', '#'])
        .is_some_and(|(_, behind)| behind.contains('@'));
    match read(url) {
        Some(uri) if !stray => format!(
            "{scheme}://{}:{}/{}",
            uri.authority.host,
            uri.authority.port,
            uri.vhost.replace('/', "%2f")
        ),
        _ => format!("{scheme}://..."),
    }
}

/// Returns the vhost that a URL names.
///
/// # Errors
/// It is no broker URL.
pub fn vhost(url: &str) -> Result<String, BusError> {
    // Connecting has its own plaintext check.
    BrokerUrl::parse(url, true).map(|url| url.uri.vhost)
}

/// Checks that this URL may be used. Looks only at its text.
pub fn check_url(url: &str, allow_plaintext: bool) -> Result<(), BusError> {
    BrokerUrl::parse(url, allow_plaintext).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_stays_on_this_machine_or_in_a_container_network() {
        for inside in [
            "amqp://u:p@127.0.0.1:5672/%2f",
            "amqp://u:p@127.8.9.1",
            "amqp://localhost",
            "amqp://u:p@[::1]:5672/%2f",
            "amqp://u:p@rabbitmq/%2f",
        ] {
            assert!(check_url(inside, false).is_ok(), "{inside}");
        }
        for outside in [
            "amqp://u:p@10.0.0.4/%2f",
            "amqp://u:p@rabbit.example.org",
            "amqp://u:p@localhost.example.org",
        ] {
            let error = check_url(outside, false).unwrap_err().to_string();
            assert!(
                error.contains("amqps://") && error.contains("DYAD_ALLOW_PLAINTEXT"),
                "{error}"
            );
            assert!(check_url(outside, true).is_ok(), "{outside}");
            let secure = outside.replacen("amqp:", "amqps:", 1);
            assert!(check_url(&secure, false).is_ok(), "{secure}");
        }
        let foreign = check_url("amqp://u:p@[2001:db8::1]/%2f", true).unwrap_err();
        assert!(foreign.to_string().contains("IPv6"), "{foreign}");
    }

    #[test]
    fn a_path_that_is_a_slash_is_the_vhost_slash() {
        for root in ["", "/", "/%2f", "/?heartbeat=3", "/%2F?heartbeat=3"] {
            let url = format!("amqp://u:p@localhost:5672{root}");
            assert_eq!(vhost(&url).unwrap(), "/", "{url}");
            assert_eq!(redact(&url), "amqp://localhost:5672/%2f", "{url}");
        }
        assert_eq!(vhost("amqp://u:p@localhost/dyad").unwrap(), "dyad");
    }

    #[test]
    fn no_form_of_a_url_shows_its_secret() {
        for url in [
            "amqp://user:hunter2@10.0.0.1/%2f",
            "amqp://user:hunter2@host:nonsense/%2f",
            "amqp://user:hun/ter2@hunter2",
            "amqp://user:5672/hunter2@h/v",
            "hunter2",
            "redis://hunter2@h",
            "amqp://user:x@h/%2f?auth_mechanism=hunter2",
            "user:hunter2://x",
        ] {
            let shown = match BrokerUrl::parse(url, false) {
                Ok(parsed) => format!("{parsed:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.replace("@hunter2", "").contains("hunter2"), "{shown}");
        }
        assert_eq!(redact("amqp://u:p@h:1/%2f?heartbeat=3"), "amqp://h:1/%2f");
    }
}
