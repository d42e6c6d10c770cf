//! How Redis is reached, waited for and tidied.

use std::time::Duration;

use crate::tls::TlsFiles;

/// How a [`RedisStore`](super::RedisStore) waits and forgets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisOptions {
    /// Allow `redis://` to other machines (DYAD_ALLOW_PLAINTEXT=1).
    pub allow_plaintext: bool,
    /// For `rediss://`: files beside the system's certificates.
    pub tls: TlsFiles,
    /// Until a connection is made.
    pub connect_timeout: Duration,
    /// Until a command is answered; beyond it the answer is [`StoreError::Unknown`](crate::store::StoreError::Unknown).
    pub response_timeout: Duration,
    /// How long a finished group is kept.
    pub keep_finished: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            allow_plaintext: false,
            tls: TlsFiles::default(),
            connect_timeout: Duration::from_secs(2),
            // With appendfsync everysec, Redis itself may hold a write back for two seconds.
            response_timeout: Duration::from_secs(5),
            keep_finished: Duration::from_secs(600),
        }
    }
}
