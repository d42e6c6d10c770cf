//! Where a process shows its metrics, and to whom.

use std::net::SocketAddr;

use configs::RunConfig;

use crate::base::fault::Usage;
use crate::base::secret::{Token, secret_in};

/// Environment variable with the address, instead of the configuration's.
const LISTEN: &str = "DYAD_METRICS_LISTEN";
/// Environment variable with the token.
const TOKEN: &str = "DYAD_METRICS_TOKEN";

/// The settings of a process's metrics, checked before anything is started.
#[derive(Debug)]
pub struct MetricsPlan {
    pub(super) address: SocketAddr,
    pub(super) token: Option<Token>,
}

impl MetricsPlan {
    /// Returns the plan of a process of this run, or `None` if it shows no metrics.
    ///
    /// # Errors
    /// The address is invalid, or the token is weak, or missing where other machines reach it.
    pub fn of(config: &RunConfig) -> Result<Option<Self>, Usage> {
        let Some(address) = address(config)? else {
            return Ok(None);
        };
        Self::new(address, token()?).map(Some)
    }

    /// Returns the same plan for a later rank, or `None` if the port is fixed: it is the agent's.
    ///
    /// # Errors
    /// The same as those of [`Self::of`].
    pub(crate) fn on_a_free_port(config: &RunConfig) -> Result<Option<Self>, Usage> {
        match address(config)? {
            Some(address) if address.port() == 0 => Self::new(address, token()?).map(Some),
            _ => Ok(None),
        }
    }

    pub(super) fn new(address: SocketAddr, token: Option<Token>) -> Result<Self, Usage> {
        if token.is_none() && !address.ip().to_canonical().is_loopback() {
            let message = format!("{address} is reached by other machines, so the metrics need the token of {TOKEN}");
            return Err(Usage::new(message).hint(format!(
                "set {TOKEN} (`openssl rand -hex 32` makes a good one), or listen on 127.0.0.1"
            )));
        }
        Ok(Self { address, token })
    }
}

/// Returns the token that opens metrics, if the environment has one.
///
/// # Errors
/// The token is weak, or its file cannot be read.
pub(crate) fn token() -> Result<Option<Token>, Usage> {
    secret_in(TOKEN)?.map(|secret| Token::new(TOKEN, &secret)).transpose()
}

/// Returns the address that the environment names, or else the configuration.
fn address(config: &RunConfig) -> Result<Option<SocketAddr>, Usage> {
    let given = match std::env::var(LISTEN) {
        Ok(text) if !text.is_empty() => Some((LISTEN, text)),
        _ => {
            let metrics = config.run.metrics.as_ref();
            metrics.map(|metrics| ("run.metrics.listen", metrics.listen.clone()))
        }
    };
    let Some((name, text)) = given else { return Ok(None) };
    parse(name, &text).map(Some)
}

fn parse(name: &str, text: &str) -> Result<SocketAddr, Usage> {
    text.parse().map_err(|_| {
        Usage::new(format!("{name} is {text:?}, which is not an address"))
            .hint("write an IP address and a port, for example \"127.0.0.1:0\"")
    })
}

/// Checks that several processes of this machine may listen.
///
/// # Errors
/// They would need the same port.
pub fn one_port_for_many(config: &RunConfig) -> Result<(), Usage> {
    match address(config)? {
        Some(address) if address.port() != 0 => Err(Usage::new(format!(
            "every process of the run would show its metrics at {address}"
        ))
        .hint("use port 0: each process then takes a free port, and prometheus.json names it")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_that_others_reach_needs_a_token() {
        let token = || Token::new(TOKEN, "0123456789abcdef").unwrap();
        for (address, is_private) in [("127.0.0.1:0", true), ("[::1]:9464", true), ("0.0.0.0:9464", false)] {
            let address: SocketAddr = address.parse().unwrap();
            assert!(MetricsPlan::new(address, Some(token())).is_ok());
            let open = MetricsPlan::new(address, None);
            assert_eq!(open.is_ok(), is_private, "{address}");
            assert!(open.err().is_none_or(|error| error.message.contains(TOKEN)));
        }
    }

    #[test]
    fn text_that_is_no_address_is_rejected_with_its_source() {
        let error = parse(LISTEN, "localhost").unwrap_err();
        assert!(error.message.contains(LISTEN) && error.message.contains("localhost"));
        assert_eq!(parse(LISTEN, "127.0.0.1:0").unwrap().port(), 0);
    }
}
