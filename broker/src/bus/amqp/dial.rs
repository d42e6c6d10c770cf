//! Connects to RabbitMQ once, with TLS if the URL asks for it.

use std::sync::Arc;
use std::time::Duration;

use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{Connection, ConnectionProperties, ErrorKind};
use rustls::ClientConfig;

use super::options::AmqpOptions;
use super::secure;
use super::url::BrokerUrl;
use crate::bus::BusError;
use crate::tls::{Trust, refusal};

/// The reason why there is no connection.
pub(super) enum NoLink {
    /// No answer, a late answer or a wrong answer: retry.
    Lost(String),
    /// One side rejects the other's certificate, or the broker the login: only an operator can
    /// change that.
    Refused(BusError),
}

impl NoLink {
    fn of(error: &lapin::Error, url: &BrokerUrl) -> Self {
        let shown = || url.shown.clone();
        if let Some(reason) = refusal(error) {
            return Self::Refused(BusError::Tls { url: shown(), reason });
        }
        match login_refusal(error) {
            Some(reason) => Self::Refused(BusError::Login { url: shown(), reason }),
            None => Self::Lost(error.to_string()),
        }
    }
}

/// Returns the reason if the broker rejects the user, the password or the vhost of the URL.
fn login_refusal(error: &lapin::Error) -> Option<String> {
    let ErrorKind::ProtocolError(refused) = error.kind() else {
        return None;
    };
    let text = refused.get_message().to_string();
    match refused.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
            Some("the user or the password is wrong: correct them in run.broker, --broker or DYAD_BROKER".into())
        }
        // A limit of connections may have room again.
        AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) if !text.contains("limit") => {
            let text = text.strip_prefix("NOT_ALLOWED - ").unwrap_or(&text);
            Some(format!(
                "{text}: correct the vhost at the end of the URL (%2f is /), or give its user access"
            ))
        }
        _ => None,
    }
}

/// Reads the TLS configuration once for all connections; `None` for a URL without TLS.
///
/// # Errors
/// One of the user's files cannot be used.
pub(super) fn trust(url: &BrokerUrl, options: &AmqpOptions) -> Result<Option<Arc<ClientConfig>>, BusError> {
    if !url.is_secure() {
        return Ok(None);
    }
    let config = Trust::load(&options.tls).and_then(|trust| trust.config());
    let config = config.map_err(|error| BusError::Tls {
        url: url.shown.clone(),
        reason: error.to_string(),
    })?;
    Ok(Some(config))
}

/// Connects and logs in, within `patience`.
pub(super) async fn dial(
    url: &BrokerUrl,
    tls: Option<&Arc<ClientConfig>>,
    properties: ConnectionProperties,
    patience: Duration,
) -> Result<Connection, NoLink> {
    let connecting = async {
        match tls {
            Some(tls) => secure::connect(url.uri.clone(), tls.clone(), properties).await,
            None => Connection::connect_uri(url.uri.clone(), properties).await,
        }
    };
    match tokio::time::timeout(patience, connecting).await {
        Ok(connected) => connected.map_err(|error| NoLink::of(&error, url)),
        Err(_) => Err(NoLink::Lost(format!("no answer within {patience:?}"))),
    }
}
