//! Other content of a ledger: the run's state, and its owner's notes.

use broker::codec;
use broker::ids::{Digest, WeightVersion};
use broker::protocol::control::RunState;
use rusqlite::{Connection, OptionalExtension};

use super::error::Doing;
use super::{Ledger, LedgerError};

/// The note that an agent stores when it has finished.
pub(crate) const ENDED: &str = "ended";
/// The note that an agent stores at the first batch from which it could learn.
pub(crate) const LEARNED: &str = "learned";
/// The key of the base of a rebuilt ledger: (lineage, step, digest of everything consumed before).
pub(super) const BASE: &str = "base";
pub(super) const STATE: &str = "state";

/// Returns the start of the chain in a rebuilt ledger, and the digest consumed until then.
pub(super) fn base(connection: &Connection) -> Result<Option<(WeightVersion, Digest)>, LedgerError> {
    let found: Option<String> = connection
        .query_row("SELECT value FROM meta WHERE key = ?1", [BASE], |row| row.get(0))
        .optional()
        .doing("read")?;
    let read = |text: String| serde_json::from_str::<(u32, u64, Digest)>(&text).ok();
    Ok(found
        .and_then(read)
        .map(|(lineage, step, consumed)| (WeightVersion { lineage, step }, consumed)))
}

impl Ledger {
    /// Returns the run's state as last stored by this agent.
    pub fn state(&self) -> Result<RunState, LedgerError> {
        Ok(read_state(self.meta_value(STATE)?))
    }

    /// Stores the run's state if it is newer than the stored one; returns the one in effect.
    pub fn adopt(&mut self, state: RunState) -> Result<RunState, LedgerError> {
        self.write(|ledger| {
            let stands = ledger.state()?;
            if state <= stands {
                return Ok(stands);
            }
            let text = String::from_utf8_lossy(&codec::encode_json(&state)).into_owned();
            ledger.put_meta(STATE, &text)?;
            Ok(state)
        })
    }

    /// Returns a note of the owner, for example that it has finished.
    pub fn note(&self, key: &str) -> Result<Option<String>, LedgerError> {
        self.meta_value(&format!("note.{key}"))
    }

    pub fn set_note(&mut self, key: &str, value: &str) -> Result<(), LedgerError> {
        self.write(|ledger| ledger.put_meta(&format!("note.{key}"), value))
    }

    pub(super) fn clear_note(&mut self, key: &str) -> Result<(), LedgerError> {
        self.write(|ledger| {
            let connection = &ledger.connection;
            connection
                .execute("DELETE FROM meta WHERE key = ?1", [format!("note.{key}")])
                .doing("written")?;
            Ok(())
        })
    }

    fn meta_value(&self, key: &str) -> Result<Option<String>, LedgerError> {
        self.connection
            .prepare_cached("SELECT value FROM meta WHERE key = ?1")
            .and_then(|mut statement| statement.query_row([key], |row| row.get(0)).optional())
            .doing("read")
    }

    pub(super) fn put_meta(&self, key: &str, value: &str) -> Result<(), LedgerError> {
        self.connection
            .prepare_cached("INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2")
            .and_then(|mut statement| statement.execute([key, value]))
            .doing("written")?;
        Ok(())
    }
}

/// Reads a state; an unreadable one counts as none, and the next one replaces it.
pub(super) fn read_state(text: Option<String>) -> RunState {
    text.and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default()
}
