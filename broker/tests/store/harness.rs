//! Fixtures of the store's tests: a private Redis that ends with its test, and shorthands.

use std::sync::Arc;
use std::time::Duration;

use broker::ids::{Attempt, GroupId, RunId};
use broker::local::redis::{PrivateRedis, RedisServerOptions};
use broker::store::redis::{RedisOptions, RedisStore};
use broker::store::{Claim, Claimed, Record, Store, StoreError};
use bytes::Bytes;

pub(crate) struct RedisFixture {
    pub(crate) server: PrivateRedis,
    pub(crate) store: Arc<RedisStore>,
    _folder: tempfile::TempDir,
}

pub(crate) fn run() -> RunId {
    RunId::new("r-test").unwrap()
}

pub(crate) fn options() -> RedisOptions {
    RedisOptions {
        // Far more than a busy test machine needs; tests of timeouts choose their own.
        response_timeout: Duration::from_secs(30),
        connect_timeout: Duration::from_secs(10),
        keep_finished: Duration::from_secs(600),
        ..RedisOptions::default()
    }
}

impl RedisFixture {
    pub(crate) async fn start() -> Self {
        Self::with(options()).await
    }

    pub(crate) async fn with(options: RedisOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = PrivateRedis::start(folder.path(), RedisServerOptions::default())
            .await
            .unwrap_or_else(|e| panic!("{e}"));
        let store = RedisStore::connect(&server.url(), &run(), options).await.unwrap();
        Self {
            server,
            store,
            _folder: folder,
        }
    }

    /// A plain connection, for actions that dyad itself never takes.
    pub(crate) async fn raw(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.server.url()).unwrap();
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .unwrap()
    }

    pub(crate) async fn raw_command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.query_async(&mut self.raw().await).await.unwrap()
    }

    pub(crate) fn key(&self, group: GroupId) -> String {
        format!("dyad:{{{}}}:group:{group}", run())
    }
}

pub(crate) fn group(n: u8) -> GroupId {
    GroupId([n; 16])
}

pub(crate) fn attempt(n: u8) -> Attempt {
    Attempt([n; 16])
}

pub(crate) fn record(key: &str, payload: impl Into<Bytes>) -> Record {
    Record {
        key: key.into(),
        payload: payload.into(),
    }
}

/// Claims a group that must be free or owned by the caller.
pub(crate) async fn take(store: &dyn Store, g: u8, owner: &str, fresh: u8) -> Claimed {
    match store.claim(group(g), owner, attempt(fresh), None).await.unwrap() {
        Claim::Ours(claimed) => claimed,
        theirs => panic!("{owner} should have the group: {theirs:?}"),
    }
}

/// The beat and fence by which another owner is watched.
pub(crate) async fn watch(store: &dyn Store, g: u8, owner: &str) -> (u64, u64) {
    match store.claim(group(g), owner, attempt(99), None).await.unwrap() {
        Claim::Theirs { beat, fence, .. } => (beat, fence),
        ours => panic!("{owner} should not have the group: {ours:?}"),
    }
}

/// Takes a group over from a silent owner.
pub(crate) async fn take_over(store: &dyn Store, g: u8, owner: &str) -> Claimed {
    let silent = watch(store, g, owner).await;
    match store.claim(group(g), owner, attempt(99), Some(silent)).await.unwrap() {
        Claim::Ours(claimed) => claimed,
        theirs => panic!("{owner} should have taken the group: {theirs:?}"),
    }
}

/// Returns the text of an answer after which an operator must act.
pub(crate) fn unusable<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Unusable(text)) => text,
        other => panic!("an operator must act: {other:?}"),
    }
}
