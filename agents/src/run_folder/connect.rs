//! Connections of a run: bus and store by URL, private servers included.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use broker::bus::Bus;
use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::memory::MemoryBus;
use broker::ids::RunId;
use broker::local::LocalError;
use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};
use broker::local::redis::{PrivateRedis, RedisServerOptions};
use broker::store::memory::MemoryStore;
use broker::store::redis::{RedisOptions, RedisStore};
use broker::store::{Store, StoreError};
use broker::tls::{TlsError, TlsFiles};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::run_folder::Connection;

/// Interval at which dead servers are detected.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Servers that were started for this run and end with it.
#[derive(Default)]
pub struct Servers {
    pub rabbit: Option<PrivateRabbit>,
    pub redis: Option<PrivateRedis>,
}

impl Servers {
    /// Starts the servers that `local:` requests, with data under `folder`, and returns the URLs to
    /// use.
    pub async fn start(urls: Connection, folder: &Path) -> anyhow::Result<(Self, Connection)> {
        let mut servers = Self::default();
        let mut resolved = urls;
        if resolved.broker == "local:" {
            tracing::info!("starting a private RabbitMQ");
            let rabbit = PrivateRabbit::start(&folder.join("rabbitmq"), RabbitOptions::default()).await?;
            resolved.broker = rabbit.url();
            servers.rabbit = Some(rabbit);
        }
        if resolved.state == "local:" {
            tracing::info!("starting a private Redis");
            let redis = PrivateRedis::start(&folder.join("redis"), RedisServerOptions::default()).await?;
            resolved.state = redis.url();
            servers.redis = Some(redis);
        }
        Ok((servers, resolved))
    }

    /// Restarts the servers, on the same ports and data, whenever they die.
    #[must_use]
    pub fn keep(self) -> KeptServers {
        let (stop, mut stopping) = watch::channel(false);
        let mut servers = self;
        let task = tokio::spawn(async move {
            while !*stopping.borrow() {
                tokio::select! {
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                    _ = stopping.changed() => break,
                }
                tokio::select! {
                    revived = servers.revive() => {
                        if let Err(error) = revived {
                            tracing::error!(%error, "a private server does not restart; retrying");
                        }
                    }
                    _ = stopping.changed() => break,
                }
            }
            servers
        });
        KeptServers { stop, task }
    }

    async fn revive(&mut self) -> Result<(), LocalError> {
        if let Some(rabbit) = self.rabbit.as_mut()
            && !rabbit.is_running()
        {
            complain("RabbitMQ");
            rabbit.restart().await?;
        }
        if let Some(redis) = self.redis.as_mut()
            && !redis.is_running()
        {
            complain("Redis");
            redis.restart(true).await?;
        }
        Ok(())
    }

    pub fn stop(self) {
        if let Some(rabbit) = self.rabbit {
            rabbit.stop();
        }
        if let Some(redis) = self.redis {
            redis.stop();
        }
    }
}

/// Also printed on stderr: a supervisor has no log.
fn complain(server: &str) {
    tracing::warn!(server, "a private server died; restarting it on its data");
    eprintln!("the private {server} died; restarting it on its data");
}

/// Servers that are restarted when they die.
pub struct KeptServers {
    stop: watch::Sender<bool>,
    task: JoinHandle<Servers>,
}

impl KeptServers {
    /// Stops the servers in order.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // A task that panicked has dropped its servers, which ends them too.
        if let Ok(servers) = self.task.await {
            servers.stop();
        }
    }
}

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
