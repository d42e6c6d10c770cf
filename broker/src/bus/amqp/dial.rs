//! Connects to RabbitMQ once, with TLS if the URL asks for it.

use std::sync::Arc;
use std::time::Duration;

use lapin::{Connection, ConnectionProperties};
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
    /// One side rejects the other's certificate: only an operator can change that.
    Refused(String),
}

impl NoLink {
    fn of(error: &lapin::Error) -> Self {
        refusal(error).map_or_else(|| Self::Lost(error.to_string()), Self::Refused)
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
        Ok(connected) => connected.map_err(|error| NoLink::of(&error)),
        Err(_) => Err(NoLink::Lost(format!("no answer within {patience:?}"))),
    }
}
