//! Connections of a run: bus and store by URL.

use std::sync::Arc;

use anyhow::Context;
use broker::bus::Bus;
use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::memory::MemoryBus;
use broker::ids::RunId;
use broker::store::memory::MemoryStore;
use broker::store::redis::{RedisOptions, RedisStore};
use broker::store::{Store, StoreError};
use broker::tls::{TlsError, TlsFiles};

/// Returns true if the user allows unencrypted traffic between hosts.
#[must_use]
pub fn allows_plaintext() -> bool {
    std::env::var("DYAD_ALLOW_PLAINTEXT").is_ok_and(|value| value == "1")
}

/// Returns the TLS files that the environment names. For a TLS URL they are read here: a wrong file
/// is wrong usage, while a server that rejects us may recover.
fn tls_files(url: &str) -> Result<TlsFiles, TlsError> {
    let files = TlsFiles::from_environment()?;
    if url.starts_with("amqps:") || url.starts_with("rediss:") {
        files.check()?;
    }
    Ok(files)
}

/// Returns the RabbitMQ options for a URL, from the environment.
pub fn bus_options(url: &str) -> Result<AmqpOptions, TlsError> {
    Ok(AmqpOptions {
        allow_plaintext: allows_plaintext(),
        tls: tls_files(url)?,
        ..AmqpOptions::default()
    })
}

/// Returns the Redis options for a URL, from the environment.
pub fn store_options(url: &str) -> Result<RedisOptions, TlsError> {
    Ok(RedisOptions {
        allow_plaintext: allows_plaintext(),
        tls: tls_files(url)?,
        ..RedisOptions::default()
    })
}

/// Connects to the bus at a URL.
pub async fn bus(url: &str) -> anyhow::Result<Arc<dyn Bus>> {
    if url == "memory:" {
        return Ok(MemoryBus::new());
    }
    Ok(AmqpBus::connect(url, bus_options(url)?)
        .await
        .context("connecting to the message broker")?)
}

/// Checks that servers of a new run answer and accept its login. Private servers and services in
/// memory are left out.
///
/// # Errors
/// The first server that does not.
pub async fn probe(broker: &str, state: &str) -> anyhow::Result<()> {
    let is_private = |url: &str| matches!(url, "memory:" | "local:");
    if !is_private(broker) {
        bus(broker).await?.close().await;
    }
    if !is_private(state) {
        store(state, &RunId::new("probe").context("the run of a probe")?).await?;
    }
    Ok(())
}

/// Connects to the conversation store at a URL. Settings that endanger its data are logged.
pub async fn store(url: &str, run: &RunId) -> anyhow::Result<Arc<dyn Store>> {
    if url == "memory:" {
        return Ok(MemoryStore::new());
    }
    let store = RedisStore::connect(url, run, store_options(url)?)
        .await
        .context("connecting to the state store")?;
    match store.check().await {
        Ok(warnings) => {
            for warning in warnings {
                tracing::warn!(warning, "the state store's settings");
            }
        }
        // The store answered a moment ago, so callers retry and report its problem then.
        Err(StoreError::Unknown(reason)) => tracing::warn!(reason, "the state store's settings could not be read"),
        Err(error) => return Err(error.into()),
    }
    Ok(store)
}
