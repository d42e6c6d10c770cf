//! Checks the settings of Redis that endanger its data.

use std::fmt;

use super::RedisStore;
use crate::store::StoreError;

/// Settings that decide which data survives. A field is empty if the server does not report it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedisSettings {
    pub version: String,
    pub appendonly: String,
    pub appendfsync: String,
    pub maxmemory_policy: String,
    pub role: String,
    /// `ok`, unless the last write of the append-only file failed.
    pub aof_write: String,
}

impl fmt::Display for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Redis {}, appendonly {}, appendfsync {}, maxmemory-policy {}",
            self.version, self.appendonly, self.appendfsync, self.maxmemory_policy
        )
    }
}

impl RedisSettings {
    /// Returns the necessary changes, in plain words.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |wrong: bool, text: String| {
            if wrong {
                warnings.push(text);
            }
        };
        warn(
            self.appendonly != "yes",
            format!(
                "appendonly is {:?}: a restart of Redis loses the progress of open groups, which are then computed again; set `appendonly yes`",
                self.appendonly
            ),
        );
        warn(
            self.maxmemory_policy != "noeviction",
            format!(
                "maxmemory-policy is {:?}: Redis may drop open groups when it is full; set `maxmemory-policy noeviction`",
                self.maxmemory_policy
            ),
        );
        warn(
            self.appendfsync == "no",
            "appendfsync is \"no\": a crash of the machine loses what the system had not written yet; set `appendfsync everysec`".into(),
        );
        warn(
            !self.role.is_empty() && self.role != "master",
            format!("this Redis is a {}: give the URL of the primary", self.role),
        );
        warn(
            !self.aof_write.is_empty() && self.aof_write != "ok",
            "the append-only file could not be written: free space on its disk".into(),
        );
        warnings
    }
}

impl RedisStore {
    /// Reads the settings. `INFO` gives most of them, because a user may lack
    /// the permission for `CONFIG`.
    ///
    /// # Errors
    /// The same as of every call of the store.
    pub async fn settings(&self) -> Result<RedisSettings, StoreError> {
        let mut connection = self.connection.clone();
        let info: String = self.within(redis::cmd("INFO").query_async(&mut connection)).await?;
        let field = |name: &str| {
            let mut lines = info.lines().filter_map(|line| line.split_once(':'));
            lines
                .find(|(key, _)| *key == name)
                .map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let aof = match field("aof_enabled").as_str() {
            "1" => "yes",
            "0" => "no",
            _ => "",
        };
        Ok(RedisSettings {
            version: field("redis_version"),
            appendonly: aof.to_owned(),
            appendfsync: self.config("appendfsync").await?,
            maxmemory_policy: field("maxmemory_policy"),
            role: field("role"),
            aof_write: field("aof_last_write_status"),
        })
    }

    /// Returns one setting; empty if this user may not call `CONFIG`.
    async fn config(&self, name: &str) -> Result<String, StoreError> {
        let mut connection = self.connection.clone();
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(name);
        let answer: Result<Vec<String>, _> = self.within(command.query_async(&mut connection)).await;
        match answer {
            Ok(pair) => Ok(pair.into_iter().nth(1).unwrap_or_default()),
            Err(StoreError::Unusable(_) | StoreError::Tls { .. } | StoreError::Login { .. }) => Ok(String::new()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dangerous_settings_are_warned_of() {
        let good = RedisSettings {
            version: "7.0.15".into(),
            appendonly: "yes".into(),
            appendfsync: "everysec".into(),
            maxmemory_policy: "noeviction".into(),
            role: "master".into(),
            aof_write: "ok".into(),
        };
        assert_eq!(good.warnings(), Vec::<String>::new());
        let bad = RedisSettings {
            appendonly: "no".into(),
            appendfsync: "no".into(),
            maxmemory_policy: "allkeys-lru".into(),
            role: "slave".into(),
            aof_write: "err".into(),
            ..good
        };
        assert_eq!(bad.warnings().len(), 5);
    }
}
