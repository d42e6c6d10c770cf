//! Groups of a ledger: their rows, and the verdicts on their samples.

use std::collections::{BTreeMap, BTreeSet};

use broker::ids::GroupId;
use rusqlite::{OptionalExtension, Statement};
use schemars::JsonSchema;
use serde::Serialize;

use super::audit::{GROUP_COLUMNS, group_row};
use super::cache::set_chain;
use super::error::Doing;
use super::rows::{Id, unsigned};
use super::{GroupRow, Inspector, LedgerError};

/// The verdict on a sample of a group, and the batch that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlacedVerdict {
    pub member: u16,
    pub role: String,
    pub seat: u16,
    pub lineage: u32,
    /// The version that the batch led to.
    pub step: u64,
    /// The reason why the sample was discarded; `None` if it was trained.
    pub reason: Option<String>,
}

/// The verdicts on a group's samples, and the reason if the group ended without samples.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupFate {
    pub reason: Option<String>,
    pub verdicts: Vec<PlacedVerdict>,
}

/// Reads the verdicts on a group's samples along `temp.chain`.
const VERDICTS: &str = "SELECT v.member, v.role, v.seat, v.lineage, v.step, v.reason FROM verdicts v
     JOIN temp.chain c ON v.lineage = c.lineage AND v.step <= c.step
     WHERE v.group_id = ?1 ORDER BY v.member, v.role, v.seat";

impl Inspector {
    /// Returns the row of a group.
    pub fn group(&self, group: GroupId) -> Result<Option<GroupRow>, LedgerError> {
        let conversations = self.column(2, "conversations")?;
        self.connection
            .query_row(
                &format!("SELECT {GROUP_COLUMNS}, {conversations} FROM groups WHERE group_id = ?1"),
                [Id::from(group)],
                group_row,
            )
            .optional()
            .doing("read")
    }

    /// Returns the verdicts on a group's samples along the surviving lineage.
    pub fn verdicts(&self, group: GroupId) -> Result<Vec<PlacedVerdict>, LedgerError> {
        set_chain(&self.connection, &self.lineages()?.surviving())?;
        let mut statement = self.connection.prepare(VERDICTS).doing("read")?;
        placed(&mut statement, group)
    }

    /// Returns the fates of many groups. Groups without a row have the default fate.
    pub fn fates(&self, groups: &BTreeSet<GroupId>) -> Result<BTreeMap<GroupId, GroupFate>, LedgerError> {
        set_chain(&self.connection, &self.lineages()?.surviving())?;
        let mut verdicts = self.connection.prepare(VERDICTS).doing("read")?;
        let mut reasons = self
            .connection
            .prepare("SELECT reason FROM groups WHERE group_id = ?1")
            .doing("read")?;
        let mut fates = BTreeMap::new();
        for group in groups {
            let reason: Option<Option<String>> = reasons
                .query_row([Id::from(*group)], |row| row.get(0))
                .optional()
                .doing("read")?;
            let fate = GroupFate {
                reason: reason.flatten(),
                verdicts: placed(&mut verdicts, *group)?,
            };
            fates.insert(*group, fate);
        }
        Ok(fates)
    }
}

/// Runs [`VERDICTS`] for one group.
fn placed(statement: &mut Statement<'_>, group: GroupId) -> Result<Vec<PlacedVerdict>, LedgerError> {
    let rows = statement
        .query_map([Id::from(group)], |row| {
            Ok(PlacedVerdict {
                member: row.get(0)?,
                role: row.get(1)?,
                seat: row.get(2)?,
                lineage: row.get(3)?,
                step: unsigned(row.get(4)?),
                reason: row.get(5)?,
            })
        })
        .doing("read")?;
    rows.collect::<Result<_, _>>().doing("read")
}
