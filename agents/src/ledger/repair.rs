//! Rebuilds a lost ledger from the rows of the other agents' ledgers.
//!
//! Rows that are open there are open again; rows that are closed there are closed here without
//! samples. Groups that only this agent had closed are open again, since no other ledger knows of
//! it.

use broker::ids::{Attempt, Digest, GroupId, WeightVersion};
use broker::seal::Seal;
use rusqlite::params;

use super::error::Doing;
use super::meta::BASE;
use super::rows::{Id, signed, unsigned};
use super::{Cache, Inspector, Ledger, LedgerError, RowState, schema};

/// A group's row with its custody, as another agent's ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Custody {
    pub group: GroupId,
    pub task: String,
    pub order: u64,
    /// The task as it was published; only in an open row.
    pub body: Option<Vec<u8>>,
    pub seal: Option<Seal>,
    pub state: RowState,
    pub winner: Option<(Attempt, Digest)>,
    pub reason: Option<String>,
}

impl Inspector {
    /// Returns all rows in the order of reservation, with the tasks that they keep.
    pub fn custody(&self) -> Result<Vec<Custody>, LedgerError> {
        let seal = self.column(3, "seal")?;
        let mut statement = self
            .connection
            .prepare(&format!(
                "SELECT group_id, task, ord, body, state, attempt, digest, reason, {seal} FROM groups ORDER BY seq"
            ))
            .doing("read")?;
        let rows = statement
            .query_map([], |row| {
                let attempt: Option<Id> = row.get(5)?;
                let digest: Option<Id> = row.get(6)?;
                Ok(Custody {
                    group: GroupId(row.get::<_, Id>(0)?.0),
                    task: row.get(1)?,
                    order: unsigned(row.get(2)?),
                    body: row.get(3)?,
                    seal: row.get::<_, Option<[u8; 32]>>(8)?.map(Seal),
                    state: RowState::of(row.get(4)?),
                    winner: attempt.zip(digest).map(|(a, d)| (Attempt(a.0), Digest(d.0))),
                    reason: row.get(7)?,
                })
            })
            .doing("read")?;
        rows.collect::<Result<_, _>>().doing("read")
    }
}

impl Ledger {
    /// Fills this empty ledger with the rows of other ledgers, in one transaction. `reason` is
    /// stored in the rows that are closed without their samples. `checkpoint` is the version that
    /// the agent continues from, and the digest of its consumed set. Its lineage is known from then
    /// on, and the chain of batches begins with it.
    ///
    /// # Errors
    /// [`LedgerError::Content`] if this ledger is not empty.
    pub fn take_over(
        &mut self,
        rows: &[Custody],
        reason: &str,
        checkpoint: Option<(WeightVersion, Digest)>,
    ) -> Result<(), LedgerError> {
        self.write(|ledger| {
            let counts = &ledger.cache.counts;
            if counts.reserved + counts.closed + counts.dead > 0 {
                return Err(LedgerError::Content {
                    what: "existing groups".into(),
                    reason: "only an empty ledger can take over the rows of others".into(),
                });
            }
            rows.iter().try_for_each(|row| ledger.adopt_row(row, reason))?;
            for id in 1..=checkpoint.map_or(0, |(version, _)| version.lineage) {
                ledger
                    .connection
                    .execute("INSERT INTO lineages VALUES (?1, NULL, 0)", [id])
                    .doing("written")?;
            }
            if let Some((version, consumed)) = checkpoint {
                let base = (version.lineage, version.step, consumed);
                ledger.put_meta(BASE, &serde_json::json!(base).to_string())?;
            }
            ledger.cache = Cache::load(&ledger.connection, tokio::time::Instant::now())?;
            Ok(())
        })
    }

    fn adopt_row(&self, row: &Custody, reason: &str) -> Result<(), LedgerError> {
        let (state, why) = match (row.state, &row.body) {
            (RowState::Reserved, Some(_)) => (schema::RESERVED, None),
            (RowState::Dead, _) => (schema::DEAD, row.reason.as_deref()),
            _ => (schema::CLOSED, Some(reason)),
        };
        let winner = row.winner.filter(|_| state != schema::RESERVED);
        self.connection
            .prepare_cached(
                "INSERT INTO groups (group_id, task, ord, body, state, attempt, digest, reason, seal)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )
            .and_then(|mut statement| {
                statement.execute(params![
                    Id::from(row.group),
                    row.task,
                    signed(row.order),
                    row.body,
                    state,
                    winner.map(|(attempt, _)| Id::from(attempt)),
                    winner.map(|(_, digest)| Id::from(digest)),
                    why,
                    row.seal.map(|seal| seal.0)
                ])
            })
            .doing("written")?;
        Ok(())
    }
}
