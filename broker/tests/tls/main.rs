//! TLS to a real RabbitMQ and a real Redis: accepted and rejected certificates, and the error
//! texts.
#![cfg(all(feature = "amqp", feature = "redis"))]
#![allow(clippy::unwrap_used)]

mod amqp;
mod authority;
mod files;
mod recorder;
mod redis;

use std::path::PathBuf;
use std::time::Duration;

use broker::tls::{ClientFiles, TlsFiles};

use crate::authority::{Authority, Signed};
use crate::recorder::Recorder;

/// Trust in one authority of the user, in addition to the system's.
fn trust(ca: PathBuf) -> TlsFiles {
    TlsFiles {
        ca: Some(ca),
        client: None,
    }
}

/// The same, with our own certificate.
fn known(ca: PathBuf, ours: Signed) -> TlsFiles {
    let client = ClientFiles {
        certificate: ours.certificate,
        key: ours.key,
    };
    TlsFiles {
        client: Some(client),
        ..trust(ca)
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(120), future).await {
        Ok(value) => value,
        Err(_) => panic!("this never happened: {what}"),
    }
}

/// Returns the URL with another host or port.
fn with(url: &str, from: &str, to: &str) -> String {
    assert!(url.contains(from), "{url}");
    url.replacen(from, to, 1)
}

fn port(url: &str) -> u16 {
    let place = url.rsplit(':').next().unwrap();
    place.split('/').next().unwrap().parse().unwrap()
}

/// A server with a certificate of `authority` for 127.0.0.1 is rejected, before any data is sent,
/// by a client that does not trust the authority or uses another name. `refused` connects and
/// returns the error; `shown` is the server's name in it.
async fn strangers_are_refused(
    url: &str,
    authority: &Authority,
    shown: &str,
    refused: impl AsyncFn(&str, TlsFiles) -> String,
) {
    let secret = url.split([':', '@']).nth(2).unwrap();
    let recorder = Recorder::new(port(url));
    let recorded = with(url, &format!(":{}/", port(url)), &recorder.place());
    for untrusting in [TlsFiles::default(), trust(Authority::new().file())] {
        let text = refused(&recorded, untrusting).await;
        assert!(
            text.contains("certificate is signed by no authority that we trust: set DYAD_CA="),
            "{text}"
        );
        assert!(text.contains(shown) && !text.contains(secret), "{text}");
    }
    let elsewhere = with(&recorded, "127.0.0.1", "localhost");
    let text = refused(&elsewhere, trust(authority.file())).await;
    assert!(
        text.contains("127.0.0.1") && text.contains("not for localhost"),
        "{text}"
    );
    recorder.assert_only_handshakes(secret);
}
