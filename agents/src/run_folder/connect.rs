//! The fabric of a run: bus and store by URL, private servers included.

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

/// How soon a dead server is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Servers that were started for this run and end with it.
#[derive(Default)]
pub struct Servers {
    pub rabbit: Option<PrivateRabbit>,
    pub redis: Option<PrivateRedis>,
}

impl Servers {
    /// Starts what `local:` asks for, with data under `folder`, and answers with the URLs to use.
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

    /// Starts them again, on the same ports and data, whenever they die.
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
                            tracing::error!(%error, "a private server does not start again; trying on");
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

/// Said on stderr as well: a supervisor has no log of its own.
fn complain(server: &str) {
    tracing::warn!(server, "a private server died; starting it again on its data");
    eprintln!("the private {server} died; starting it again on its data");
}

/// Servers that are started again when they die.
pub struct KeptServers {
    stop: watch::Sender<bool>,
    task: JoinHandle<Servers>,
}

impl KeptServers {
    /// Ends them in order.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // A task that panicked has dropped its servers, which ends them too.
        if let Ok(servers) = self.task.await {
            servers.stop();
        }
    }
}

/// Whether the user has said that the network between hosts may see what is sent.
#[must_use]
pub fn allows_plaintext() -> bool {
    std::env::var("DYAD_ALLOW_PLAINTEXT").is_ok_and(|value| value == "1")
}

/// The files for TLS that the environment names. For a URL that asks for it they are read here: a wrong file is wrong usage, while
/// a server that refuses us may yet be mended.
fn tls_files(url: &str) -> Result<TlsFiles, TlsError> {
    let files = TlsFiles::from_environment()?;
    if url.starts_with("amqps:") || url.starts_with("rediss:") {
        files.check()?;
    }
    Ok(files)
}

/// How to reach RabbitMQ at a URL, as the environment says.
pub fn bus_options(url: &str) -> Result<AmqpOptions, TlsError> {
    Ok(AmqpOptions {
        allow_plaintext: allows_plaintext(),
        tls: tls_files(url)?,
        ..AmqpOptions::default()
    })
}

/// How to reach Redis at a URL, as the environment says.
pub fn store_options(url: &str) -> Result<RedisOptions, TlsError> {
    Ok(RedisOptions {
        allow_plaintext: allows_plaintext(),
        tls: tls_files(url)?,
        ..RedisOptions::default()
    })
}

/// The bus at a URL.
pub async fn bus(url: &str) -> anyhow::Result<Arc<dyn Bus>> {
    if url == "memory:" {
        return Ok(MemoryBus::new());
    }
    Ok(AmqpBus::connect(url, bus_options(url)?)
        .await
        .context("connecting to the message broker")?)
}

/// The conversation store at a URL. What endangers what it keeps is logged.
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
        // It was there just now: whoever uses it waits for it. What is wrong with it will be said then.
        Err(StoreError::Unknown(reason)) => tracing::warn!(reason, "the state store's settings could not be looked at"),
        Err(error) => return Err(error.into()),
    }
    Ok(store)
}
