//! Private servers: RabbitMQ and Redis from the installed binaries, for `local:` URLs and for
//! tests.
//!
//! Each server has its own data folder, free loopback ports and its own credentials, and ends with
//! its owner: see [`process`].

pub mod process;
pub mod rabbitmq;
pub mod redis;
#[cfg(feature = "contract")]
pub mod shared;

use std::path::PathBuf;
use std::time::Duration;

/// The reason why a private server did not start.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    #[error("cannot start {server}: {binary} is not installed; try `sudo apt-get install {package}`")]
    Missing {
        server: &'static str,
        binary: &'static str,
        package: &'static str,
    },
    #[error("cannot {doing} {path}: {source}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("another process uses the data folder {0}: stop it, or choose another folder")]
    InUse(PathBuf),
    #[error("{server} ended while starting ({status}); the end of {log}:\n{tail}")]
    Exited {
        server: &'static str,
        status: String,
        log: PathBuf,
        tail: String,
    },
    #[error("{server} was not ready after {waited:?}; see {log}")]
    Slow {
        server: &'static str,
        waited: Duration,
        log: PathBuf,
    },
}

/// Files (PEM) with which a private server speaks TLS on a second port, next to its plain one.
#[derive(Debug, Clone)]
pub struct ServerTls {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The authority that must have signed the clients' certificates; `None` if clients need none.
    pub clients_of: Option<PathBuf>,
}

impl LocalError {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}
