//! TLS to a real RabbitMQ and a real Redis: what is trusted, what is refused, and with which words.
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

use crate::authority::Signed;

/// Trust in one authority of the user's own, beside the system's.
fn trust(ca: PathBuf) -> TlsFiles {
    TlsFiles {
        ca: Some(ca),
        client: None,
    }
}

/// The same, with a certificate of our own.
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

/// The URL with another host or port.
fn with(url: &str, from: &str, to: &str) -> String {
    assert!(url.contains(from), "{url}");
    url.replacen(from, to, 1)
}

fn port(url: &str) -> u16 {
    let place = url.rsplit(':').next().unwrap();
    place.split('/').next().unwrap().parse().unwrap()
}
