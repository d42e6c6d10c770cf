//! Settings of the store in Redis: access, timeouts and retention.

use std::time::Duration;

use crate::tls::TlsFiles;

/// Settings of a [`RedisStore`](super::RedisStore).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisOptions {
    /// Allow `redis://` to other machines (DYAD_ALLOW_PLAINTEXT=1).
    pub allow_plaintext: bool,
    /// Files for `rediss://`, in addition to the system's certificates.
    pub tls: TlsFiles,
    /// The longest time for connecting.
    pub connect_timeout: Duration,
    /// The longest time for one command; after it the call returns
    /// [`StoreError::Unknown`](crate::store::StoreError::Unknown).
    pub response_timeout: Duration,
    /// The time for which a finished group is kept.
    pub keep_finished: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            allow_plaintext: false,
            tls: TlsFiles::default(),
            connect_timeout: Duration::from_secs(2),
            // With appendfsync everysec, Redis itself may delay a write by two seconds.
            response_timeout: Duration::from_secs(5),
            keep_finished: Duration::from_secs(600),
        }
    }
}
