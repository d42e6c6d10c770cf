//! Reads the history: batches to replay, consumed sets, and payloads that can be removed.

use std::collections::BTreeMap;

use broker::ids::{Digest, GroupId, WeightVersion};
use rusqlite::{Connection, OptionalExtension, params};

use super::cache::set_chain;
use super::error::Doing;
use super::meta::base;
use super::rows::{Id, signed, unsigned};
use super::verdict::{Consumed, RecordedBatch, SampleVerdict, TrainingVerdict};
use super::{Ledger, LedgerError, Lineages};

impl Ledger {
    pub(super) fn last_batch_of(&self, version: WeightVersion) -> Result<Last, LedgerError> {
        last_batch_of(&self.connection, &self.cache.lineages, version)
    }

    /// Returns the batches to replay after a restore to step `after`, in order. They are replayed
    /// before any new batch is formed. For each following step it is the batch of the newest
    /// lineage that has one. (Every lineage replays its ancestors' batches first, so a newer
    /// lineage's batch at a step has the same groups or is the first.)
    pub fn recorded_batches(&self, after: u64) -> Result<Vec<RecordedBatch>, LedgerError> {
        let mut batches = Vec::new();
        for step in after + 1.. {
            let Some(lineage) = self.newest_with(step)? else { break };
            let verdicts = self.verdicts_at(lineage, step)?;
            batches.push(RecordedBatch {
                lineage,
                step,
                verdicts,
            });
        }
        Ok(batches)
    }

    /// Returns for each lineage the last batch that the newest lineage shares with it. Batches that
    /// the newest lineage trains again first ([`Ledger::recorded_batches`]) count as shared. Up to
    /// that batch both have the same weights. Digests of batches are chained, so equal digests have
    /// equal histories.
    pub fn retraced(&self) -> Result<BTreeMap<u32, u64>, LedgerError> {
        let history = self.history()?;
        let mut statement = self
            .connection
            .prepare_cached("SELECT lineage, step, digest FROM batches ORDER BY lineage, step")
            .doing("read")?;
        let mut rows = statement.query([]).doing("read")?;
        let mut retraced = BTreeMap::new();
        while let Some(row) = rows.next().doing("read")? {
            let read = || -> rusqlite::Result<(u32, i64, Id)> { Ok((row.get(0)?, row.get(1)?, row.get(2)?)) };
            let (lineage, step, digest) = read().doing("read")?;
            let step = unsigned(step);
            if history.get(&step) == Some(&Digest(digest.0)) {
                retraced.insert(lineage, step);
            }
        }
        Ok(retraced)
    }

    /// Returns the digests of the newest lineage's batches by step, then of the batches to train
    /// again. Stops at the first batch that was recorded upon another predecessor than the one
    /// here: an earlier lineage came to other verdicts when it trained the previous batch again,
    /// and ended before this one. The result of this one is therefore still unknown.
    fn history(&self) -> Result<BTreeMap<u64, Digest>, LedgerError> {
        let mut history = self.own_batches()?;
        let Some(newest) = self.cache.lineages.newest() else {
            return Ok(history);
        };
        let mut before = self.last_batch_of(WeightVersion {
            lineage: newest.id,
            step: i64::MAX as u64,
        })?;
        let begun = before.step.max(newest.parent.map_or(0, |fork| fork.step));
        for step in begun + 1.. {
            let Some(lineage) = self.newest_with(step)? else { break };
            let upon = self.last_batch_of(WeightVersion {
                lineage,
                step: step - 1,
            })?;
            if upon.digest != before.digest {
                break;
            }
            before = self.last_batch_of(WeightVersion { lineage, step })?;
            history.insert(step, before.digest);
        }
        Ok(history)
    }

    /// Returns the digests of all batches along the surviving chain, by step.
    fn own_batches(&self) -> Result<BTreeMap<u64, Digest>, LedgerError> {
        set_chain(&self.connection, &self.cache.lineages.surviving())?;
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT b.step, b.digest FROM batches b
                 JOIN temp.chain c ON b.lineage = c.lineage AND b.step <= c.step",
            )
            .doing("read")?;
        let rows = statement
            .query_map([], |row| Ok((unsigned(row.get(0)?), Digest(row.get::<_, Id>(1)?.0))))
            .doing("read")?;
        rows.collect::<Result<_, _>>().doing("read")
    }

    /// Returns the newest lineage that has a batch at this step.
    fn newest_with(&self, step: u64) -> Result<Option<u32>, LedgerError> {
        self.connection
            .prepare_cached("SELECT max(lineage) FROM batches WHERE step = ?1")
            .and_then(|mut statement| statement.query_row([signed(step)], |row| row.get(0)))
            .doing("read")
    }

    fn verdicts_at(&self, lineage: u32, step: u64) -> Result<Vec<SampleVerdict>, LedgerError> {
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT group_id, member, role, seat, reason FROM verdicts
                 WHERE lineage = ?1 AND step = ?2 ORDER BY position",
            )
            .doing("read")?;
        let rows = statement
            .query_map(params![lineage, signed(step)], |row| {
                Ok(SampleVerdict {
                    group: GroupId(row.get::<_, Id>(0)?.0),
                    member: row.get(1)?,
                    role: row.get(2)?,
                    seat: row.get(3)?,
                    verdict: row
                        .get::<_, Option<String>>(4)?
                        .map_or(TrainingVerdict::Trained, TrainingVerdict::Discarded),
                })
            })
            .doing("read")?;
        rows.collect::<Result<_, _>>().doing("read")
    }

    /// Returns the consumed set of `version`, for its checkpoint's manifest.
    pub fn consumed(&self, version: WeightVersion) -> Result<Consumed, LedgerError> {
        consumed(&self.connection, &self.cache.lineages, version)
    }

    /// Removes payloads that no checkpoint of `retained` can request again, and returns their
    /// number. These are payloads with a verdict that every retained checkpoint has consumed.
    /// Without retained checkpoints all payloads stay.
    pub fn prune(&mut self, retained: &[WeightVersion]) -> Result<u64, LedgerError> {
        if retained.is_empty() {
            return Ok(0);
        }
        self.write(|ledger| {
            let pruned = ledger.prune_consumed(retained);
            set_chain(&ledger.connection, &ledger.cache.lineages.surviving())?;
            pruned
        })
    }

    fn prune_consumed(&mut self, retained: &[WeightVersion]) -> Result<u64, LedgerError> {
        self.connection
            .execute_batch(
                "CREATE TEMP TABLE IF NOT EXISTS consumed (group_id BLOB PRIMARY KEY, times INTEGER NOT NULL);
                 DELETE FROM temp.consumed;",
            )
            .doing("pruned")?;
        for checkpoint in retained {
            set_chain(&self.connection, &self.cache.lineages.chain(*checkpoint))?;
            self.connection
                .execute(
                    "INSERT INTO temp.consumed SELECT DISTINCT p.group_id, 1 FROM payloads p
                     JOIN verdicts v USING (group_id)
                     JOIN temp.chain c ON v.lineage = c.lineage AND v.step <= c.step WHERE true
                     ON CONFLICT (group_id) DO UPDATE SET times = times + 1",
                    [],
                )
                .doing("pruned")?;
        }
        let pruned = self
            .connection
            .execute(
                "DELETE FROM payloads WHERE group_id IN (SELECT group_id FROM temp.consumed WHERE times = ?1)",
                [retained.len() as i64],
            )
            .doing("pruned")?;
        Ok(pruned as u64)
    }
}

/// The end of a chain of batches.
pub(super) struct Last {
    pub(super) sequence: u64,
    pub(super) step: u64,
    pub(super) digest: Digest,
}

/// Returns the consumed set of `version`.
pub(super) fn consumed(
    connection: &Connection,
    lineages: &Lineages,
    version: WeightVersion,
) -> Result<Consumed, LedgerError> {
    if lineages.get(version.lineage).is_none() {
        return Err(LedgerError::UnknownLineage(version.lineage));
    }
    let last = last_batch_of(connection, lineages, version)?;
    Ok(Consumed {
        digest: last.digest,
        sequence: last.sequence,
    })
}

/// Returns the last batch along the chain of `version`.
fn last_batch_of(connection: &Connection, lineages: &Lineages, version: WeightVersion) -> Result<Last, LedgerError> {
    let mut statement = connection
        .prepare_cached(
            "SELECT seq, step, digest FROM batches WHERE lineage = ?1 AND step <= ?2 ORDER BY step DESC LIMIT 1",
        )
        .doing("read")?;
    for at in lineages.chain(version) {
        let found = statement
            .query_row(params![at.lineage, signed(at.step)], |row| {
                Ok(Last {
                    sequence: unsigned(row.get(0)?),
                    step: unsigned(row.get(1)?),
                    digest: Digest(row.get::<_, Id>(2)?.0),
                })
            })
            .optional()
            .doing("read")?;
        if let Some(last) = found {
            return Ok(last);
        }
    }
    // In a rebuilt ledger the chain begins with the checkpoint it was rebuilt for.
    if let Some((base, digest)) = base(connection)?
        && lineages
            .chain(version)
            .iter()
            .any(|at| at.lineage == base.lineage && at.step >= base.step)
    {
        return Ok(Last {
            sequence: 0,
            step: base.step,
            digest,
        });
    }
    Ok(Last {
        sequence: 0,
        step: 0,
        digest: Digest([0; 16]),
    })
}
