//! The store over `rediss://`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::ids::{Attempt, GroupId, RunId};
use broker::local::ServerTls;
use broker::local::redis::{PrivateRedis, RedisServerOptions};
use broker::store::redis::{RedisOptions, RedisStore};
use broker::store::{Claim, Claimed, Committed, Record, Store, StoreError};
use broker::tls::TlsFiles;

use crate::authority::Authority;
use crate::{known, strangers_are_refused, trust, with, within};

async fn start(tls: ServerTls) -> (PrivateRedis, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let options = RedisServerOptions {
        tls: Some(tls),
        ..RedisServerOptions::default()
    };
    (PrivateRedis::start(folder.path(), options).await.unwrap(), folder)
}

async fn connect(url: &str, tls: TlsFiles) -> Result<Arc<RedisStore>, StoreError> {
    let options = RedisOptions {
        tls,
        connect_timeout: Duration::from_secs(10),
        response_timeout: Duration::from_secs(30),
        ..RedisOptions::default()
    };
    RedisStore::connect(url, &RunId::new("tls").unwrap(), options).await
}

/// Returns the text of a refusal, which must come long before the connection's timeout.
async fn refused(url: &str, tls: TlsFiles) -> String {
    let begun = Instant::now();
    let refused = connect(url, tls).await;
    assert!(begun.elapsed() < Duration::from_secs(15), "{refused:?}");
    match refused {
        Err(error @ (StoreError::Unusable(_) | StoreError::Tls { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Repeats a step through a lost connection: every step may be repeated.
async fn claim(store: &RedisStore) -> Claimed {
    within("a claim", async {
        loop {
            match store.claim(GroupId([1; 16]), "x", Attempt([7; 16]), None).await {
                Ok(Claim::Ours(claimed)) => return claimed,
                Err(StoreError::Unknown(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
                other => panic!("{other:?}"),
            }
        }
    })
    .await
}

#[tokio::test]
async fn records_are_committed_over_tls_through_a_restart() {
    let authority = Authority::new();
    let (mut redis, _folder) = start(authority.server()).await;
    let store = connect(&redis.tls_url(), trust(authority.file())).await.unwrap();
    let lease = claim(&store).await.lease;
    let record = Record {
        key: "k".into(),
        // Large enough for many TLS records.
        payload: vec![b'x'; 1 << 20].into(),
    };
    let committed = store.commit(lease, std::slice::from_ref(&record)).await.unwrap();
    assert_eq!(committed, [Committed::New]);
    redis.restart(true).await.unwrap();
    let again = claim(&store).await;
    assert_eq!((again.lease, again.records), (lease, vec![record]));
}

#[tokio::test]
async fn an_untrusted_server_is_rejected_before_any_data_is_sent() {
    let authority = Authority::new();
    let (redis, _folder) = start(authority.server()).await;
    strangers_are_refused(&redis.tls_url(), &authority, "@127.0.0.1", refused).await;

    // A port without TLS never answers.
    let plain = with(&redis.url(), "redis:", "rediss:");
    let options = RedisOptions {
        tls: trust(authority.file()),
        connect_timeout: Duration::from_millis(500),
        ..RedisOptions::default()
    };
    let silent = RedisStore::connect(&plain, &RunId::new("tls").unwrap(), options).await;
    assert!(
        matches!(&silent, Err(StoreError::Unknown(text)) if text.contains("does it speak TLS at this port?")),
        "{silent:?}"
    );
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let (redis, _folder) = start(authority.sign_for("127.0.0.1", 2020, 2021).server()).await;
    let text = refused(&redis.tls_url(), trust(authority.file())).await;
    assert!(text.contains("certificate has expired"), "{text}");
}

#[tokio::test]
async fn a_server_may_ask_for_a_certificate_of_ours() {
    let authority = Authority::new();
    let asking = ServerTls {
        clients_of: Some(authority.file()),
        ..authority.server()
    };
    let (redis, _folder) = start(asking).await;
    let text = refused(&redis.tls_url(), trust(authority.file())).await;
    assert!(
        text.contains("DYAD_CLIENT_CERT") && text.contains("DYAD_CLIENT_KEY"),
        "{text}"
    );
    let ours = known(authority.file(), authority.sign("a-coordinator"));
    let store = connect(&redis.tls_url(), ours).await.unwrap();
    assert_eq!(claim(&store).await.records, []);
}
