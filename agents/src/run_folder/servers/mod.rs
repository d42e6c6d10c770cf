//! Private servers of a run, for `local:` URLs: started, kept running, stopped.

mod broker_watch;

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use broker::local::LocalError;
use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};
use broker::local::redis::{PrivateRedis, RedisServerOptions};
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
            let mut stuck = servers.stuck();
            while !*stopping.borrow() {
                tokio::select! {
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                    () = &mut stuck => servers.kill_rabbit(),
                    _ = stopping.changed() => break,
                }
                let revived = tokio::select! {
                    revived = servers.revive() => revived,
                    _ = stopping.changed() => break,
                };
                match revived {
                    Ok(false) => continue,
                    Ok(true) => {}
                    Err(error) => tracing::error!(%error, "a private server does not restart; retrying"),
                }
                stuck = servers.stuck();
            }
            servers
        });
        KeptServers { stop, task }
    }

    /// Returns when the private RabbitMQ runs, but stores no messages any more.
    fn stuck(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match &self.rabbit {
            Some(rabbit) => Box::pin(broker_watch::until_stuck(rabbit.url())),
            None => Box::pin(std::future::pending()),
        }
    }

    fn kill_rabbit(&mut self) {
        if let Some(rabbit) = self.rabbit.as_mut() {
            eprintln!("the private RabbitMQ runs, but stores no messages");
            rabbit.kill9();
        }
    }

    /// Starts the servers that have died. Returns true if there was one.
    async fn revive(&mut self) -> Result<bool, LocalError> {
        let mut any = false;
        if let Some(rabbit) = self.rabbit.as_mut()
            && !rabbit.is_running()
        {
            complain("RabbitMQ");
            rabbit.restart().await?;
            any = true;
        }
        if let Some(redis) = self.redis.as_mut()
            && !redis.is_running()
        {
            complain("Redis");
            redis.restart(true).await?;
            any = true;
        }
        Ok(any)
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
