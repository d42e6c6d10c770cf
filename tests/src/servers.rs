//! A RabbitMQ and a private Redis for a whole test, and the faults that a test can give them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use broker::local::rabbitmq::{PrivateRabbit, RabbitOptions};
use broker::local::redis::{PrivateRedis, RedisServerOptions};
use broker::local::shared;
use tokio::runtime::Runtime;

/// The RabbitMQ of a test.
pub enum Rabbit {
    /// A server of its own, on a free port, ended with the test.
    Own(Box<PrivateRabbit>),
    /// The URL of a virtual host of its own, on the server that tests share.
    Shared(String),
}

impl Rabbit {
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Self::Own(rabbit) => rabbit.url(),
            Self::Shared(url) => url.clone(),
        }
    }

    /// Returns the server for a fault, an option or a command. It must be the test's own.
    #[must_use]
    pub fn own(&self) -> &PrivateRabbit {
        match self {
            Self::Own(rabbit) => rabbit,
            Self::Shared(_) => panic!("{NOT_OWN}"),
        }
    }

    fn own_mut(&mut self) -> &mut PrivateRabbit {
        match self {
            Self::Own(rabbit) => rabbit,
            Self::Shared(_) => panic!("{NOT_OWN}"),
        }
    }
}

const NOT_OWN: &str = "other tests use this RabbitMQ: start one with `Servers::with`";

/// Both servers.
pub struct Servers {
    // Declared before the folder, so that they end before it is removed.
    pub rabbit: Rabbit,
    pub redis: PrivateRedis,
    runtime: Runtime,
    folder: tempfile::TempDir,
}

impl Servers {
    /// Starts a Redis, and a RabbitMQ unless tests share one.
    #[must_use]
    pub fn start() -> Self {
        Self::begin(None, RedisServerOptions::default())
    }

    /// Starts both, for a test that does more with its RabbitMQ than send and receive.
    #[must_use]
    pub fn with(rabbit: RabbitOptions) -> Self {
        Self::with_both(rabbit, RedisServerOptions::default())
    }

    #[must_use]
    pub fn with_both(rabbit: RabbitOptions, redis: RedisServerOptions) -> Self {
        Self::begin(Some(rabbit), redis)
    }

    fn begin(rabbit: Option<RabbitOptions>, redis: RedisServerOptions) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (rabbit, redis) = runtime.block_on(async {
            let (broker, state) = (folder.path().join("rabbitmq"), folder.path().join("redis"));
            let rabbit = async {
                let shared = if rabbit.is_none() { shared::take() } else { None };
                Ok(match shared {
                    Some(url) => Rabbit::Shared(url),
                    None => Rabbit::Own(PrivateRabbit::start(&broker, rabbit.unwrap_or_default()).await?.into()),
                })
            };
            tokio::try_join!(rabbit, PrivateRedis::start(&state, redis)).unwrap()
        });
        Self {
            rabbit,
            redis,
            runtime,
            folder,
        }
    }

    /// Runs a test's IO on the servers' runtime.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Sends SIGKILL, then starts it on the same port and data.
    pub fn crash_rabbit(&mut self) {
        self.runtime.block_on(self.rabbit.own_mut().restart()).unwrap();
    }

    /// Kills both and starts them again with their data after `time`.
    pub fn both_gone_for(&mut self, time: Duration) {
        self.rabbit.own_mut().kill9();
        self.redis.kill9();
        std::thread::sleep(time);
        self.crash_rabbit();
        self.crash_redis(true);
    }

    /// Sends SIGKILL, then starts it with the data or without.
    pub fn crash_redis(&mut self, keep_data: bool) {
        self.runtime.block_on(self.redis.restart(keep_data)).unwrap();
    }

    fn redis_data(&self) -> PathBuf {
        self.folder.path().join("redis/appendonlydir")
    }

    /// Copies the data that Redis has on disk now.
    pub fn copy_redis(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(&self.redis_data(), copy.path());
        copy
    }

    /// Sends SIGKILL, then starts it on an older copy: the data goes back in time.
    pub fn restore_redis(&mut self, copy: &Path) {
        self.redis.kill9();
        let data = self.redis_data();
        std::fs::remove_dir_all(&data).unwrap();
        copy_folder(copy, &data);
        self.crash_redis(true);
    }

    /// Sends one command to Redis, which must answer OK.
    pub fn redis_cli(&self, args: &[&str]) {
        assert_eq!(self.redis_ask(args), "OK", "{args:?}");
    }

    /// Returns the answer of Redis to one command.
    #[must_use]
    pub fn redis_ask(&self, args: &[&str]) -> String {
        let url = self.redis.url();
        let (password, place) = url.trim_start_matches("redis://:").split_once('@').unwrap();
        let port = place.rsplit(':').next().unwrap().split('/').next().unwrap();
        let output = Command::new("redis-cli")
            .env("REDISCLI_AUTH", password)
            .args(["-h", "127.0.0.1", "-p", port])
            .args(args)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

/// Copies a folder of plain files. A file may grow during the copy; the copy holds at least the
/// bytes that were there at the start.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
