//! The audit: the content of a ledger, counted from its rows, even while its agent runs.

use std::collections::BTreeMap;
use std::path::Path;

use broker::ids::{Attempt, Digest, GroupId, WeightVersion};
use broker::protocol::control::RunState;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};
use schemars::JsonSchema;
use serde::Serialize;

use super::cache::{load_lineages, set_chain};
use super::error::Doing;
use super::history::consumed;
use super::meta::{STATE, read_state};
use super::rows::{Id, unsigned};
use super::{Cache, Consumed, Counts, Ledger, LedgerError, Lineages, schema};

/// The ledger, counted from its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Audit {
    pub run: String,
    pub agent: String,
    pub counts: Counts,
    /// Samples of all closed groups.
    pub samples: u64,
    /// Samples with a verdict in the surviving lineage.
    pub decided: u64,
    /// Samples that took effect more than once in the surviving lineage. Must be 0.
    pub twice: u64,
    /// Groups of the surviving lineage with a verdict on some of their samples and not on others.
    pub partial: u64,
    /// Closed groups with samples, but with neither verdict nor payload. Must be 0: they are lost.
    pub missing: u64,
    /// Parts of bundles with other parts still missing.
    pub staged_parts: u64,
    /// Stages of groups that are closed. Must be 0.
    pub orphan_stages: u64,
    /// Lineages begun, by id: (parent lineage, fork step).
    pub lineages: BTreeMap<u32, Option<(u32, u64)>>,
}

impl Audit {
    /// Returns broken rules, in words.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let rules = [
            (self.twice, "samples took effect more than once"),
            (self.missing, "closed groups have neither a verdict nor their samples"),
            (self.orphan_stages, "stages belong to closed groups"),
        ];
        rules
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{number} {what}"))
            .collect()
    }
}

/// The state of a group's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RowState {
    Reserved,
    Closed,
    Dead,
}

impl RowState {
    pub(super) fn of(stored: i64) -> Self {
        match stored {
            schema::RESERVED => Self::Reserved,
            schema::DEAD => Self::Dead,
            _ => Self::Closed,
        }
    }
}

/// One group, for comparing the ledgers of several agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRow {
    pub group: GroupId,
    pub task: String,
    pub state: RowState,
    /// The attempt and digest that closed it.
    pub winner: Option<(Attempt, Digest)>,
    pub samples: u64,
    /// Valid conversations of the group; unknown in rows that an earlier release has closed.
    pub conversations: Option<u64>,
    pub reason: Option<String>,
}

/// Reads a ledger without owning it.
#[derive(Debug)]
pub struct Inspector {
    pub(super) connection: Connection,
}

impl Inspector {
    /// Opens the ledger read-only; its agent may be running.
    ///
    /// SQLite creates a file beside a ledger even to read it. In a folder that cannot be written, a
    /// ledger whose changes are all in its main file is read without that.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let found = Self::connect(path, path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let cannot_open = |error: rusqlite::Error| error.sqlite_error_code() == Some(rusqlite::ErrorCode::CannotOpen);
        if !found.tables().is_err_and(cannot_open) {
            return Ok(found);
        }
        if has_changes(path) {
            let reason = "its folder cannot be written, and changes wait in its -wal file: copy the run folder to a place where \
                          you may write";
            return Err(LedgerError::Open {
                path: path.into(),
                reason: reason.into(),
            });
        }
        Self::unchanging(path)
    }

    /// Opens a ledger that nothing changes: SQLite then needs no other file.
    fn unchanging(path: &Path) -> Result<Self, LedgerError> {
        let escape = |text: String, (sign, code)| text.replace(sign, code);
        let name = [('%', "%25"), ('?', "%3f"), ('#', "%23")];
        let name = name.into_iter().fold(path.to_string_lossy().into_owned(), escape);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        Self::connect(path, Path::new(&format!("file:{name}?immutable=1")), flags)
    }

    fn connect(path: &Path, name: &Path, flags: OpenFlags) -> Result<Self, LedgerError> {
        let connection = Connection::open_with_flags(name, flags).map_err(|e| LedgerError::Open {
            path: path.into(),
            reason: e.to_string(),
        })?;
        connection
            .busy_timeout(std::time::Duration::from_secs(5))
            .doing("read")?;
        Ok(Self { connection })
    }

    /// Returns the number of its tables.
    fn tables(&self) -> rusqlite::Result<i64> {
        let count = "SELECT count(*) FROM sqlite_master";
        self.connection.query_row(count, [], |row| row.get(0))
    }

    /// Opens the ledger like [`Inspector::open`]. Returns `None` if the file is missing or has no
    /// table yet: its agent ended, or the disk was full, before they were written.
    pub fn find(path: &Path) -> Result<Option<Self>, LedgerError> {
        if !path.is_file() {
            return Ok(None);
        }
        let found = Self::open(path)?;
        Ok((found.tables().doing("read")? > 0).then_some(found))
    }

    pub fn audit(&self) -> Result<Audit, LedgerError> {
        audit(&self.connection)
    }

    pub fn lineages(&self) -> Result<Lineages, LedgerError> {
        load_lineages(&self.connection)
    }

    /// Returns a note of the owner: see [`Ledger::set_note`].
    pub fn note(&self, key: &str) -> Result<Option<String>, LedgerError> {
        self.meta(&format!("note.{key}"))
    }

    /// Returns the run's state as last stored by its agent.
    pub fn state(&self) -> Result<RunState, LedgerError> {
        Ok(read_state(self.meta(STATE)?))
    }

    fn meta(&self, key: &str) -> Result<Option<String>, LedgerError> {
        self.connection
            .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
            .optional()
            .doing("read")
    }

    /// Returns the consumed set of a version: see [`Ledger::consumed`].
    pub fn consumed(&self, version: WeightVersion) -> Result<Consumed, LedgerError> {
        consumed(&self.connection, &self.lineages()?, version)
    }

    /// Returns true if the agent has finished: the run was closed and its last checkpoint written.
    pub fn has_ended(&self) -> Result<bool, LedgerError> {
        Ok(self.note(crate::ledger::ENDED)?.is_some())
    }

    /// Returns the number of groups that are no longer open.
    pub fn closed(&self) -> Result<u64, LedgerError> {
        self.connection
            .query_row(
                "SELECT COUNT(*) FROM groups WHERE state != ?1",
                [super::schema::RESERVED],
                |row| row.get::<_, i64>(0),
            )
            .map(unsigned)
            .doing("read")
    }

    /// Returns the column `name`, or NULL for a ledger with a schema version before `since`.
    pub(super) fn column(&self, since: i64, name: &'static str) -> Result<&'static str, LedgerError> {
        let version: i64 = self
            .connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .doing("read")?;
        Ok(if version < since { "NULL" } else { name })
    }

    /// Returns all groups in the order of reservation.
    pub fn groups(&self) -> Result<Vec<GroupRow>, LedgerError> {
        let conversations = self.column(2, "conversations")?;
        let mut statement = self
            .connection
            .prepare(&format!(
                "SELECT {GROUP_COLUMNS}, {conversations} FROM groups ORDER BY seq"
            ))
            .doing("read")?;
        let rows = statement.query_map([], group_row).doing("read")?;
        rows.collect::<Result<_, _>>().doing("read")
    }
}

/// The columns of [`group_row`], before `conversations`.
pub(super) const GROUP_COLUMNS: &str = "group_id, task, state, attempt, digest, samples, reason";

/// Reads a row of [`GROUP_COLUMNS`] and `conversations`.
pub(super) fn group_row(row: &Row<'_>) -> rusqlite::Result<GroupRow> {
    let attempt: Option<Id> = row.get(3)?;
    let digest: Option<Id> = row.get(4)?;
    Ok(GroupRow {
        group: GroupId(row.get::<_, Id>(0)?.0),
        task: row.get(1)?,
        state: RowState::of(row.get(2)?),
        winner: attempt.zip(digest).map(|(a, d)| (Attempt(a.0), Digest(d.0))),
        samples: unsigned(row.get(5)?),
        reason: row.get(6)?,
        conversations: row.get::<_, Option<i64>>(7)?.map(unsigned),
    })
}

/// Returns true if changes of a ledger wait to be written into its main file.
fn has_changes(path: &Path) -> bool {
    let mut waiting = path.as_os_str().to_owned();
    waiting.push("-wal");
    std::fs::metadata(waiting).is_ok_and(|file| file.len() > 0)
}

impl Ledger {
    /// Counts everything again, from the rows.
    pub fn audit(&self) -> Result<Audit, LedgerError> {
        audit(&self.connection)
    }
}

/// Samples per group with a verdict along the chain, and the number of those verdicts.
const DECIDED: &str = "WITH decided AS (
    SELECT v.group_id, count(*) AS verdicts, count(DISTINCT v.member || '/' || v.seat || '/' || v.role) AS samples
    FROM verdicts v JOIN temp.chain c ON v.lineage = c.lineage AND v.step <= c.step GROUP BY 1)";

fn audit(connection: &Connection) -> Result<Audit, LedgerError> {
    let cache = Cache::load(connection, tokio::time::Instant::now())?;
    set_chain(connection, &cache.lineages.surviving())?;
    let text = |key: &str| -> Result<String, LedgerError> {
        connection
            .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
            .doing("read")
    };
    let number = |sql: &str| -> Result<u64, LedgerError> {
        connection
            .query_row(sql, [], |row| row.get(0))
            .map(unsigned)
            .doing("read")
    };
    Ok(Audit {
        run: text("run")?,
        agent: text("agent")?,
        samples: number("SELECT coalesce(sum(samples), 0) FROM groups")?,
        decided: number(&format!("{DECIDED} SELECT coalesce(sum(samples), 0) FROM decided"))?,
        twice: number(&format!(
            "{DECIDED} SELECT coalesce(sum(verdicts - samples), 0) FROM decided"
        ))?,
        partial: number(&format!(
            "{DECIDED} SELECT count(*) FROM decided d JOIN groups g USING (group_id) WHERE d.samples <> g.samples"
        ))?,
        missing: number(&format!(
            "{DECIDED} SELECT count(*) FROM groups g WHERE g.samples > 0
             AND NOT EXISTS (SELECT 1 FROM payloads p WHERE p.group_id = g.group_id)
             AND NOT EXISTS (SELECT 1 FROM decided d WHERE d.group_id = g.group_id)"
        ))?,
        staged_parts: number("SELECT count(*) FROM stages")?,
        orphan_stages: number(&format!(
            "SELECT count(*) FROM stages s JOIN groups g USING (group_id) WHERE g.state <> {}",
            schema::RESERVED
        ))?,
        lineages: cache
            .lineages
            .iter()
            .map(|lineage| (lineage.id, lineage.parent.map(|v| (v.lineage, v.step))))
            .collect(),
        counts: cache.counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanging_ledger_is_read_without_another_file() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("50% a?b#c.sqlite");
        let (run, agent) = (
            broker::ids::RunId::new("r").unwrap(),
            broker::AgentName::new("a").unwrap(),
        );
        let mut ledger = Ledger::open(&path, &run, &agent).unwrap();
        ledger.set_note("k", "v").unwrap();
        assert!(has_changes(&path));
        drop(ledger);
        assert!(!has_changes(&path), "its last owner writes them");
        let found = Inspector::unchanging(&path).unwrap();
        assert_eq!(found.note("k").unwrap().as_deref(), Some("v"));
        let files: Vec<_> = std::fs::read_dir(base.path()).unwrap().flatten().collect();
        assert!(
            !files.iter().any(|file| file.path().to_string_lossy().ends_with("-shm")),
            "{files:?}"
        );
        assert_eq!(found.audit().unwrap(), Inspector::open(&path).unwrap().audit().unwrap());
    }
}
