//! The store in Redis: one hash per group, one Lua script per transition.
//!
//! The key is `dyad:{RUN}:group:HEX`. The fields are `attempt`, `fence`, `owner` (absent if
//! released), `beat`, `n` (number of records), `decided`, and `r:KEY` = `ORDER:PAYLOAD` for each
//! record. Finished groups have a TTL, open ones have none.
//!
//! Every script first reads and validates, then writes, so that an error leaves nothing half done.
//! Every script may be repeated, because a call that timed out may have taken effect.

mod client;
mod error;
mod health;
mod options;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{FromRedisValue, Script, ScriptInvocation, Value};

pub use self::options::RedisOptions;
use super::{Claim, Claimed, Committed, Lease, Record, Store, StoreError};
use crate::ids::{Attempt, GroupId, RunId};

/// Leases per script call: such a call blocks the server's other clients for a fraction of a
/// millisecond.
const BEATS_PER_CALL: usize = 1024;

/// The store in Redis. It reconnects by itself; meanwhile its calls return [`StoreError::Unknown`].
pub struct RedisStore {
    connection: ConnectionManager,
    scripts: Scripts,
    /// `dyad:{RUN}:group:`
    prefix: String,
    /// The URL without its password.
    url: String,
    /// Bounds every call, whatever the connection does.
    deadline: Duration,
    keep_finished_ms: u64,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({}, {}*)", self.url, self.prefix)
    }
}

struct Scripts {
    claim: Script,
    beat: Script,
    commit: Script,
    decide: Script,
    finish: Script,
    release: Script,
    void: Script,
}

impl Scripts {
    fn new() -> Self {
        let lease = include_str!("redis/held.lua");
        let held = |body: &str| Script::new(&format!("{lease}{body}"));
        Self {
            claim: Script::new(include_str!("redis/claim.lua")),
            beat: held(include_str!("redis/beat.lua")),
            commit: held(include_str!("redis/commit.lua")),
            decide: held(include_str!("redis/decide.lua")),
            finish: Script::new(include_str!("redis/finish.lua")),
            release: Script::new(include_str!("redis/release.lua")),
            void: held(include_str!("redis/void.lua")),
        }
    }
}

impl RedisStore {
    /// Connects to `redis://[user:password@]host:port/db`, or with TLS to `rediss://...`.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] if no server answers there: try again. [`StoreError::Tls`] if a
    /// certificate or one of our files must be changed. [`StoreError::Login`] if the user or
    /// the password must be changed. [`StoreError::Unusable`] if the URL or the server itself must
    /// be changed. No error shows the password.
    pub async fn connect(url: &str, run: &RunId, options: RedisOptions) -> Result<Arc<Self>, StoreError> {
        let shown = error::redact(url);
        let client = client::client(url, &shown, &options)?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.response_timeout))
            .set_pipeline_buffer_size(1024)
            .set_number_of_retries(2)
            .set_min_delay(Duration::from_millis(50))
            .set_max_delay(Duration::from_millis(500));
        let deadline = options.response_timeout + options.connect_timeout;
        let connecting = ConnectionManager::new_with_config(client, config);
        let connection = tokio::time::timeout(deadline * 2, connecting)
            .await
            .map_err(|_| error::silent(&shown, deadline * 2))?
            .map_err(|e| error::of(&shown, &e))?;
        Ok(Arc::new(Self {
            connection,
            scripts: Scripts::new(),
            prefix: format!("{}group:", super::keys_of(run)),
            url: shown,
            deadline,
            keep_finished_ms: u64::try_from(options.keep_finished.as_millis())
                .unwrap_or(u64::MAX)
                .max(1),
        }))
    }

    fn key(&self, group: GroupId) -> String {
        format!("{}{group}", self.prefix)
    }

    /// Returns a script call on the key of one lease, with the lease's attempt and fence as its
    /// first arguments.
    fn on<'a>(&self, script: &'a Script, lease: Lease) -> ScriptInvocation<'a> {
        let mut call = script.key(self.key(lease.group));
        call.arg(lease.attempt.to_string()).arg(lease.fence);
        call
    }

    async fn run<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, StoreError> {
        let mut connection = self.connection.clone();
        self.within(call.invoke_async(&mut connection)).await
    }

    async fn within<T>(&self, call: impl Future<Output = redis::RedisResult<T>>) -> Result<T, StoreError> {
        tokio::time::timeout(self.deadline, call)
            .await
            .map_err(|_| error::silent(&self.url, self.deadline))?
            .map_err(|e| error::of(&self.url, &e))
    }

    /// Runs a script that returns nil if the lease does not hold.
    async fn held<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, StoreError> {
        self.run::<Option<T>>(call).await?.ok_or(StoreError::Stale)
    }

    fn strange(&self, answer: &str) -> StoreError {
        StoreError::Unusable(format!(
            "{}: {answer}; another program writes to dyad's keys {}*: stop it, or give dyad its own database",
            self.url, self.prefix
        ))
    }

    fn claimed(&self, group: GroupId, fields: Vec<(Bytes, Bytes)>) -> Result<Claimed, StoreError> {
        let (mut attempt, mut fence, mut decided) = (None, None, None);
        let mut records = Vec::with_capacity(fields.len().saturating_sub(5));
        for (name, value) in fields {
            match &name[..] {
                b"attempt" => attempt = text(&value).and_then(Attempt::from_hex),
                b"fence" => fence = number(&value),
                b"decided" => decided = Some(value),
                field => {
                    if let Some(key) = field.strip_prefix(b"r:") {
                        let record = ordered(key, &value);
                        records.push(record.ok_or_else(|| self.strange("a record is not readable"))?);
                    }
                }
            }
        }
        records.sort_unstable_by_key(|(order, _)| *order);
        let (Some(attempt), Some(fence)) = (attempt, fence) else {
            return Err(self.strange("a group has no readable attempt and fence"));
        };
        let lease = Lease { group, attempt, fence };
        let records = records.into_iter().map(|(_, record)| record).collect();
        Ok(Claimed {
            lease,
            records,
            decided,
        })
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn number(bytes: &[u8]) -> Option<u64> {
    text(bytes)?.parse().ok()
}

/// Returns a record and its place, from the field `r:KEY` = `ORDER:PAYLOAD`.
fn ordered(key: &[u8], value: &Bytes) -> Option<(u64, Record)> {
    let colon = value.iter().position(|&b| b == b':')?;
    let record = Record {
        key: text(key)?.to_owned(),
        payload: value.slice(colon + 1..),
    };
    Some((number(&value[..colon])?, record))
}

fn committed(code: u8) -> Committed {
    match code {
        0 => Committed::New,
        1 => Committed::Duplicate,
        _ => Committed::Conflict,
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(
        &self,
        group: GroupId,
        owner: &str,
        fresh: Attempt,
        silent: Option<(u64, u64)>,
    ) -> Result<Claim, StoreError> {
        let (beat, fence) = silent.map_or((String::new(), String::new()), |(b, f)| (b.to_string(), f.to_string()));
        let mut call = self.scripts.claim.key(self.key(group));
        call.arg(owner).arg(fresh.to_string()).arg(beat).arg(fence);
        let answer: Vec<Value> = self.run(&call).await?;
        let unreadable = |_| self.strange("a claim's answer is not readable");
        let mut parts = answer.into_iter();
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Value::Int(1)), Some(fields), None, None) => {
                let fields: Vec<(Bytes, Bytes)> = redis::from_redis_value(fields).map_err(unreadable)?;
                Ok(Claim::Ours(self.claimed(group, fields)?))
            }
            (Some(Value::Int(0)), Some(owner), Some(beat), Some(fence)) => Ok(Claim::Theirs {
                owner: redis::from_redis_value(owner).map_err(unreadable)?,
                beat: redis::from_redis_value(beat).map_err(unreadable)?,
                fence: redis::from_redis_value(fence).map_err(unreadable)?,
            }),
            _ => Err(self.strange("a claim's answer is not readable")),
        }
    }

    async fn beat(&self, leases: &[Lease]) -> Result<Vec<bool>, StoreError> {
        let mut stand = Vec::with_capacity(leases.len());
        for some in leases.chunks(BEATS_PER_CALL) {
            let mut call = self.scripts.beat.prepare_invoke();
            for lease in some {
                call.key(self.key(lease.group))
                    .arg(lease.attempt.to_string())
                    .arg(lease.fence);
            }
            stand.extend(self.run::<Vec<bool>>(&call).await?);
        }
        Ok(stand)
    }

    async fn commit(&self, lease: Lease, records: &[Record]) -> Result<Vec<Committed>, StoreError> {
        let mut call = self.on(&self.scripts.commit, lease);
        for record in records {
            call.arg(&record.key).arg(&record.payload[..]);
        }
        let codes: Vec<i64> = self.held(&call).await?;
        Ok(codes.into_iter().map(|code| committed(code as u8)).collect())
    }

    async fn decide(&self, lease: Lease, outcome: Bytes) -> Result<Bytes, StoreError> {
        let mut call = self.on(&self.scripts.decide, lease);
        call.arg(&outcome[..]);
        let stood: Vec<Bytes> = self.held(&call).await?;
        Ok(stood.into_iter().next().unwrap_or(outcome))
    }

    async fn finish(&self, lease: Lease) -> Result<(), StoreError> {
        let mut call = self.on(&self.scripts.finish, lease);
        call.arg(self.keep_finished_ms);
        self.held::<i64>(&call).await.map(drop)
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.held::<i64>(&self.on(&self.scripts.release, lease)).await.map(drop)
    }

    async fn void(&self, lease: Lease) -> Result<(), StoreError> {
        self.held::<i64>(&self.on(&self.scripts.void, lease)).await.map(drop)
    }

    async fn check(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.settings().await?.warnings())
    }
}
