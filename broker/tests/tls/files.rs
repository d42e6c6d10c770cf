//! Unusable files: both clients report the file, the reason and the remedy, without a server.

use std::path::{Path, PathBuf};

use broker::bus::BusError;
use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::ids::RunId;
use broker::store::StoreError;
use broker::store::redis::{RedisOptions, RedisStore};
use broker::tls::TlsFiles;

use crate::authority::{Authority, Signed};
use crate::{known, trust};

/// Returns the error of both clients, which is the same.
async fn said(tls: TlsFiles) -> String {
    let options = AmqpOptions {
        tls: tls.clone(),
        ..AmqpOptions::default()
    };
    let bus = AmqpBus::connect("amqps://127.0.0.1:1", options).await.unwrap_err();
    let BusError::Tls { reason, .. } = bus else {
        panic!("{bus:?}")
    };
    let options = RedisOptions {
        tls,
        ..RedisOptions::default()
    };
    let run = RunId::new("tls").unwrap();
    match RedisStore::connect("rediss://127.0.0.1:1/0", &run, options).await {
        Err(StoreError::Tls { reason: found, .. }) => assert_eq!(found, reason),
        other => panic!("{other:?}"),
    }
    reason
}

#[tokio::test]
async fn a_bad_file_names_its_variable_and_itself() {
    let authority = Authority::new();
    let file = |name: &str, text: &str| -> PathBuf {
        let path = authority.file().with_file_name(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let block = |name: &str, inside: &str| {
        let text = format!("-----BEGIN CERTIFICATE-----\n{inside}\n-----END CERTIFICATE-----\n");
        file(name, &text)
    };
    let nowhere = Path::new("/nowhere/ca.pem").to_owned();
    for (ca, expected) in [
        (nowhere, "No such file"),
        (authority.file().with_file_name(""), "directory"),
        (file("other", "secret"), "no certificate is in it"),
        (block("garbled", "????"), "no PEM"),
        (block("foreign", "QUJD"), "certificate 1 in it is damaged"),
        (authority.sign("a").key, "no certificate is in it"),
    ] {
        let shown = ca.display().to_string();
        let text = said(trust(ca)).await;
        assert!(text.contains(expected) && text.contains(&shown), "{text}");
        assert!(text.contains("set DYAD_CA to a file (PEM) with"), "{text}");
    }
}

#[tokio::test]
async fn a_certificate_needs_its_own_key() {
    let authority = Authority::new();
    let (a, b) = (authority.sign("a"), authority.sign("b"));
    let pair = |certificate: &PathBuf, key: &PathBuf| Signed {
        certificate: certificate.clone(),
        key: key.clone(),
    };
    for (ours, variables) in [
        (pair(&a.certificate, &b.key), "set DYAD_CLIENT_CERT and DYAD_CLIENT_KEY"),
        (pair(&a.certificate, &a.certificate), "set DYAD_CLIENT_KEY"),
        (pair(&a.key, &a.key), "set DYAD_CLIENT_CERT"),
    ] {
        let text = said(known(authority.file(), ours)).await;
        assert!(text.contains(variables) && text.contains("/a-4000."), "{text}");
        assert!(!text.contains("PRIVATE"), "{text}");
    }
}
