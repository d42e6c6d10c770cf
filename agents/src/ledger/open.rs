//! Opens the ledger: the lock, the settings, the schema, the integrity check and the owner.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use broker::AgentName;
use broker::codec;
use broker::ids::RunId;
use rusqlite::{Connection, OptionalExtension};
use tokio::time::Instant;

use super::error::Doing;
use super::{Cache, Ledger, LedgerError, schema};
use crate::base::locking::lock_soon;

/// The failures that a commit survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Power loss: every commit waits for the disk. The only value a run may use.
    #[default]
    Full,
    /// A crash of the process, not of the machine; for benchmarks.
    Off,
}

/// Options for opening a ledger.
#[derive(Debug, Clone, Copy, Default)]
pub struct LedgerOptions {
    pub durability: Durability,
}

impl Ledger {
    /// Opens the ledger of `agent` in `run`, and makes it if it is missing. Blocks for the
    /// integrity check.
    ///
    /// # Errors
    /// [`LedgerError::InUse`] while another process (or another `Ledger` of this one) has it.
    /// [`LedgerError::Damaged`], [`LedgerError::Foreign`], [`LedgerError::Schema`] and
    /// [`LedgerError::Release`] if the file is not this agent's sound ledger of this release.
    pub fn open(path: &Path, run: &RunId, agent: &AgentName) -> Result<Self, LedgerError> {
        Self::open_with(path, run, agent, LedgerOptions::default())
    }

    /// Opens like [`Ledger::open`], with options.
    pub fn open_with(path: &Path, run: &RunId, agent: &AgentName, options: LedgerOptions) -> Result<Self, LedgerError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|e| cannot_open(path, &e))?;
        }
        let lock = lock(path)?;
        let mut connection = Connection::open(path).map_err(|e| cannot_open(path, &e))?;
        settings(&connection, options).map_err(|e| refusal(path, e))?;
        check_integrity(&connection, path)?;
        let opening = prepare(&mut connection, path, run, agent)?;
        connection.set_prepared_statement_cache_capacity(64);
        let cache = Cache::load(&connection, Instant::now())?;
        Ok(Self {
            connection,
            _lock: lock,
            path: path.into(),
            opening,
            cache,
            grouped: false,
            broken: None,
        })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Takes the lock file next to the ledger; the file names its holder for rejected processes.
pub(crate) fn lock(path: &Path) -> Result<File, LedgerError> {
    let lock_path = lock_path(path);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&lock_path)
        .map_err(|e| cannot_open(&lock_path, &e))?;
    match lock_soon(&file) {
        Ok(()) => {
            let named = file
                .set_len(0)
                .and_then(|()| file.seek(SeekFrom::Start(0)))
                .and_then(|_| write!(file, "{}", std::process::id()));
            named.map_err(|e| cannot_open(&lock_path, &e))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            if file.read_to_string(&mut holder).is_err() || holder.is_empty() {
                holder = "(unknown)".into();
            }
            Err(LedgerError::InUse {
                path: path.into(),
                holder,
            })
        }
        Err(TryLockError::Error(error)) => Err(cannot_open(&lock_path, &error)),
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn settings(connection: &Connection, options: LedgerOptions) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match options.durability {
        Durability::Full => "FULL",
        Durability::Off => "OFF",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // Payloads are written once, read once and deleted: 64 MiB of pages and a larger log keep that
    // in memory.
    connection.pragma_update(None, "cache_size", -65536)?;
    connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

fn check_integrity(connection: &Connection, path: &Path) -> Result<(), LedgerError> {
    let answer: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|e| refusal(path, e))?;
    if answer == "ok" {
        return Ok(());
    }
    Err(LedgerError::Damaged {
        path: path.into(),
        detail: answer,
    })
}

/// Makes or checks the schema and the owner, and counts this opening.
fn prepare(connection: &mut Connection, path: &Path, run: &RunId, agent: &AgentName) -> Result<i64, LedgerError> {
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .doing("opened")?;
    let version: i64 = transaction
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .doing("opened")?;
    if version == 0 {
        transaction.execute_batch(schema::TABLES).doing("created")?;
        transaction
            .pragma_update(None, "user_version", schema::VERSION)
            .doing("created")?;
        transaction
            .execute(
                "INSERT INTO meta VALUES ('run', ?1), ('agent', ?2), ('opening', '0')",
                [run.as_str(), agent.as_str()],
            )
            .doing("created")?;
    } else if (1..schema::VERSION).contains(&version) {
        let missing = schema::UPGRADES.iter().filter(|(from, _)| *from >= version);
        missing
            .map(|(_, change)| *change)
            .try_for_each(|change| transaction.execute_batch(change))
            .and_then(|()| transaction.pragma_update(None, "user_version", schema::VERSION))
            .doing("brought up to date")?;
    } else if version != schema::VERSION {
        return Err(LedgerError::Schema {
            path: path.into(),
            found: version,
            known: schema::VERSION,
        });
    }
    let owner = |key: &str| -> Result<String, LedgerError> {
        transaction
            .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
            .doing("opened")
    };
    let (found_run, found_agent) = (owner("run")?, owner("agent")?);
    if found_run != run.as_str() || found_agent != agent.as_str() {
        return Err(LedgerError::Foreign {
            path: path.into(),
            found: format!("agent {found_agent} of run {found_run}"),
            wanted: format!("agent {agent} of run {run}"),
        });
    }
    check_release(&transaction, path)?;
    let opening: i64 = transaction
        .query_row(
            "UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'opening' RETURNING CAST(value AS INTEGER)",
            [],
            |row| row.get(0),
        )
        .doing("opened")?;
    transaction.commit().doing("opened")?;
    Ok(opening)
}

/// Rejects samples with a schema that this release does not read, before a task is played for
/// them. Each sample begins with the number of its schema. Releases only write newer schemas, so
/// the oldest entry of each kind stands for all.
fn check_release(connection: &Connection, path: &Path) -> Result<(), LedgerError> {
    for table in ["payloads", "stages"] {
        let first = format!("SELECT substr(bytes, 1, 2) FROM {table} ORDER BY rowid LIMIT 1");
        let head: Option<Vec<u8>> = connection
            .query_row(&first, [], |row| row.get(0))
            .optional()
            .doing("opened")?;
        let Some(found) = head.and_then(|head| head.try_into().ok()).map(u16::from_le_bytes) else {
            continue;
        };
        if !codec::is_readable(found) {
            return Err(LedgerError::Release {
                path: path.into(),
                found,
                known: codec::SCHEMA,
            });
        }
    }
    Ok(())
}

fn cannot_open(path: &Path, reason: &dyn std::fmt::Display) -> LedgerError {
    LedgerError::Open {
        path: path.into(),
        reason: reason.to_string(),
    }
}

/// Returns the error for SQLite's first failure on a file: damage has its own variant.
fn refusal(path: &Path, error: rusqlite::Error) -> LedgerError {
    use rusqlite::ErrorCode::{DatabaseCorrupt, DiskFull, NotADatabase};
    match error.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => LedgerError::Damaged {
            path: path.into(),
            detail: error.to_string(),
        },
        Some(DiskFull) => LedgerError::Storage {
            doing: "created",
            source: Arc::new(error),
        },
        _ => cannot_open(path, &error),
    }
}
