//! The fabric of a run: bus and store by URL, private servers included.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use broker::bus::Bus;
use broker::bus::amqp::{AmqpBus, AmqpOptions};
use broker::bus::memory::MemoryBus;
use broker::ids::RunId;
use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};
use broker::local::redis::{PrivateRedis, RedisServerOptions};
use broker::store::Store;
use broker::store::memory::MemoryStore;
use broker::store::redis::{RedisOptions, RedisStore};

use crate::folder::Connection;

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

    pub fn stop(self) {
        if let Some(rabbit) = self.rabbit {
            rabbit.stop();
        }
        if let Some(redis) = self.redis {
            redis.stop();
        }
    }
}

/// Whether the user has said that the network between hosts may see what is sent.
#[must_use]
pub fn allows_plaintext() -> bool {
    std::env::var("DYAD_ALLOW_PLAINTEXT").is_ok_and(|value| value == "1")
}

/// The bus at a URL.
pub async fn bus(url: &str) -> anyhow::Result<Arc<dyn Bus>> {
    if url == "memory:" {
        return Ok(MemoryBus::new());
    }
    let options = AmqpOptions {
        allow_plaintext: allows_plaintext(),
        ..AmqpOptions::default()
    };
    Ok(AmqpBus::connect(url, options)
        .await
        .context("connecting to the message broker")?)
}

/// The conversation store at a URL. What endangers what it keeps is logged.
pub async fn store(url: &str, run: &RunId) -> anyhow::Result<Arc<dyn Store>> {
    if url == "memory:" {
        return Ok(MemoryStore::new());
    }
    let store = RedisStore::connect(url, run, RedisOptions::default())
        .await
        .context("connecting to the state store")?;
    for warning in store.check().await? {
        tracing::warn!(warning, "the state store's settings");
    }
    Ok(store)
}
