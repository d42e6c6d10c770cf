//! From a URL to a client of Redis: parsed, checked (no plaintext across a network), with TLS if
//! the URL asks for it.

use redis::io::tcp::TcpSettings;
use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use super::error::{bad_url, no_tls, unusable_url};
use super::options::RedisOptions;
use crate::store::StoreError;
use crate::tls::{TlsFiles, Trust, refuse_plaintext};

/// Returns a client that has not connected yet.
///
/// # Errors
/// [`StoreError::Unusable`]: the URL must be changed. [`StoreError::Tls`]: a TLS file must be
/// changed.
pub(super) fn client(url: &str, shown: &str, options: &RedisOptions) -> Result<Client, StoreError> {
    // Unacknowledged data reveals a peer that vanished; a silent socket does not.
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_user_timeout(options.response_timeout * 2);
    let info = url
        .into_connection_info()
        .map_err(|_| bad_url(shown))?
        .set_tcp_settings(tcp);
    match info.addr() {
        ConnectionAddr::TcpTls { insecure: true, .. } => Err(unusable_url(
            shown,
            "#insecure would trust any server: remove it, and set DYAD_CA=FILE to the certificate (PEM) of the server's \
             authority",
        )),
        ConnectionAddr::TcpTls { .. } => secure(info, shown, &options.tls),
        ConnectionAddr::Tcp(host, _) => match refuse_plaintext(host, options.allow_plaintext, "rediss") {
            Some(reason) => Err(unusable_url(shown, &reason)),
            None => Client::open(info).map_err(|_| bad_url(shown)),
        },
        _ => Client::open(info).map_err(|_| bad_url(shown)),
    }
}

fn secure(info: ConnectionInfo, shown: &str, files: &TlsFiles) -> Result<Client, StoreError> {
    // The client uses the process's cryptography provider. One that was installed before works as
    // well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let trust = Trust::load(files).map_err(|error| no_tls(shown, &error.to_string()))?;
    let certificates = TlsCertificates {
        client_tls: trust.client_pem().map(|(client_cert, client_key)| ClientTlsConfig {
            client_cert,
            client_key,
        }),
        root_cert: Some(trust.roots_pem()),
    };
    Client::build_with_tls(info, certificates).map_err(|error| no_tls(shown, &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(url: &str, allow_plaintext: bool) -> Result<(), String> {
        let options = RedisOptions {
            allow_plaintext,
            ..RedisOptions::default()
        };
        client(url, "shown", &options)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn plaintext_stays_on_this_machine_or_in_a_container_network() {
        for inside in [
            "redis://:p@127.0.0.1:6379/0",
            "redis://u:p@[::1]:6379",
            "redis://localhost",
            "redis://:p@redis:6379/0",
            "redis+unix:///run/redis.sock",
        ] {
            assert_eq!(judged(inside, false), Ok(()), "{inside}");
        }
        for outside in [
            "redis://:p@10.0.0.4/0",
            "redis://redis.example.org",
            "redis://[2001:db8::1]:6379",
        ] {
            let error = judged(outside, false).unwrap_err();
            assert!(
                error.contains("rediss://") && error.contains("DYAD_ALLOW_PLAINTEXT"),
                "{error}"
            );
            assert_eq!(judged(outside, true), Ok(()), "{outside}");
        }
        assert_eq!(judged("rediss://:p@redis.example.org:6379/0", false), Ok(()));
    }

    #[test]
    fn nothing_turns_the_check_of_a_certificate_off() {
        let error = judged("rediss://:p@redis.example.org/0#insecure", true).unwrap_err();
        assert!(error.contains("DYAD_CA"), "{error}");
    }
}
