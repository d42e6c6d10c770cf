//! Recomputes the chain of batches.
//!
//! Each batch's digest hashes the one before and its own verdicts, so a verdict that was changed,
//! lost or added is detected.

use broker::ids::{Digest, GroupId, WeightVersion};
use rusqlite::params;

use super::cache::set_chain;
use super::error::Doing;
use super::meta::base;
use super::rows::{Id, signed, unsigned};
use super::verdict::{SampleVerdict, TrainingVerdict, batch_digest};
use super::{Inspector, LedgerError};

impl Inspector {
    /// Returns batches of the surviving lineage with a recorded digest that differs from their
    /// verdicts. Must be empty.
    pub fn damaged_batches(&self) -> Result<Vec<WeightVersion>, LedgerError> {
        set_chain(&self.connection, &self.lineages()?.surviving())?;
        let mut statement = self
            .connection
            .prepare(
                "SELECT b.lineage, b.step, b.digest FROM batches b
                 JOIN temp.chain c ON b.lineage = c.lineage AND b.step <= c.step ORDER BY b.step",
            )
            .doing("read")?;
        let rows = statement
            .query_map([], |row| {
                let version = WeightVersion {
                    lineage: row.get(0)?,
                    step: unsigned(row.get(1)?),
                };
                Ok((version, Digest(row.get::<_, Id>(2)?.0)))
            })
            .doing("read")?;
        let mut before = base(&self.connection)?.map_or(Digest([0; 16]), |(_, consumed)| consumed);
        let mut damaged = Vec::new();
        for row in rows {
            let (version, stored) = row.doing("read")?;
            let (tasks, verdicts) = self.batch(version)?;
            if batch_digest(before, version.step, &tasks, &verdicts) != stored {
                damaged.push(version);
            }
            before = stored;
        }
        Ok(damaged)
    }

    fn batch(&self, version: WeightVersion) -> Result<(Vec<String>, Vec<SampleVerdict>), LedgerError> {
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT g.task, v.group_id, v.member, v.role, v.seat, v.reason FROM verdicts v
                 LEFT JOIN groups g USING (group_id) WHERE v.lineage = ?1 AND v.step = ?2 ORDER BY v.position",
            )
            .doing("read")?;
        let rows = statement
            .query_map(params![version.lineage, signed(version.step)], |row| {
                let task = row.get::<_, Option<String>>(0)?.unwrap_or_default();
                let verdict = row.get::<_, Option<String>>(5)?;
                let sample = SampleVerdict {
                    group: GroupId(row.get::<_, Id>(1)?.0),
                    member: row.get(2)?,
                    role: row.get(3)?,
                    seat: row.get(4)?,
                    verdict: verdict.map_or(TrainingVerdict::Trained, TrainingVerdict::Discarded),
                };
                Ok((task, sample))
            })
            .doing("read")?;
        let rows: Result<Vec<_>, _> = rows.collect();
        Ok(rows.doing("read")?.into_iter().unzip())
    }
}
