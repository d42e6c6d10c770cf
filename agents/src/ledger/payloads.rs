//! Samples of closed groups, for batches and for replays.

use broker::codec;
use broker::ids::GroupId;
use broker::protocol::bundle::Bundle;
use rusqlite::OptionalExtension;

use super::error::Doing;
use super::rows::Id;
use super::{Ledger, LedgerError};

impl Ledger {
    /// Returns the first `limit` groups that are closed with samples and have no verdict along the
    /// surviving lineage, oldest admitted first (ties by group id).
    pub fn ready(&self, limit: usize) -> Result<Vec<Bundle>, LedgerError> {
        let groups: Vec<GroupId> = self.cache.ready.iter().take(limit).map(|(_, group)| *group).collect();
        self.payloads(&groups)
    }

    /// Returns the groups of [`Ledger::ready`] with their orders, without their samples.
    #[must_use]
    pub fn ready_groups(&self) -> Vec<(u64, GroupId)> {
        self.cache.ready.iter().copied().collect()
    }

    /// Returns the samples of closed groups, for a replay.
    ///
    /// # Errors
    /// [`LedgerError::NoPayload`] for a group without samples, or after they were pruned.
    pub fn payloads(&self, groups: &[GroupId]) -> Result<Vec<Bundle>, LedgerError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT bytes FROM payloads WHERE group_id = ?1")
            .doing("read")?;
        groups
            .iter()
            .map(|group| {
                let bytes: Option<Vec<u8>> = statement
                    .query_row([Id::from(*group)], |row| row.get(0))
                    .optional()
                    .doing("read")?;
                decode(&bytes.ok_or(LedgerError::NoPayload(*group))?)
            })
            .collect()
    }
}

pub(super) fn decode(bytes: &[u8]) -> Result<Bundle, LedgerError> {
    codec::decode_stored(bytes).map_err(|e| LedgerError::Content {
        what: "a bundle".into(),
        reason: e.to_string(),
    })
}
