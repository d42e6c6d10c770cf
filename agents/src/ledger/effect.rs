//! The training effect: lineages, verdicts, batches of a dead branch, consumed sets, and pruning.

use broker::ids::{Digest, GroupId, WeightVersion};
use broker::protocol::bundle::{Bundle, BundleContent};
use rusqlite::{OptionalExtension, params};

use super::error::Doing;
use super::history::Last;
use super::rows::{Id, signed};
use super::verdict::{SampleVerdict, TrainingVerdict, batch_digest};
use super::{Cache, Ledger, LedgerError, Lineage, Lineages};

impl Ledger {
    /// Begins a lineage at a checkpoint, or at the run's initial weights. From now on earlier
    /// lineages are fenced, and samples that only they consumed are ready again.
    pub fn begin_lineage(&mut self, parent: Option<WeightVersion>) -> Result<u32, LedgerError> {
        self.write(|ledger| {
            if let Some(parent) = parent
                && ledger.cache.lineages.get(parent.lineage).is_none()
            {
                return Err(LedgerError::UnknownLineage(parent.lineage));
            }
            let id = ledger.cache.lineages.newest().map_or(1, |newest| newest.id + 1);
            ledger
                .connection
                .execute(
                    "INSERT INTO lineages VALUES (?1, ?2, ?3)",
                    params![id, parent.map(|v| v.lineage), signed(parent.map_or(0, |v| v.step))],
                )
                .doing("written")?;
            let mut cache = Cache::load(&ledger.connection, tokio::time::Instant::now())?;
            cache.take_over(&ledger.cache);
            ledger.cache = cache;
            Ok(id)
        })
    }

    /// Returns all lineages, for the staleness walk.
    #[must_use]
    pub fn lineages(&self) -> Lineages {
        self.cache.lineages.clone()
    }

    /// Records the verdicts of a batch on its samples. A batch is recorded once per step of the
    /// newest lineage, with steps rising from the fork. The step is the version that the batch
    /// leads to. Discards that belong to no batch are recorded with the next one. Repeating the
    /// same call changes nothing.
    ///
    /// # Errors
    /// [`LedgerError::Fenced`] if `lineage` is not the newest. [`LedgerError::Decided`] if a sample
    /// has a verdict in this lineage or an ancestor. [`LedgerError::Step`] if the step was recorded
    /// with other content or is behind the lineage.
    pub fn record_batch(&mut self, lineage: u32, step: u64, verdicts: &[SampleVerdict]) -> Result<(), LedgerError> {
        self.write(|ledger| {
            let newest = ledger.fence(lineage)?;
            let before = ledger.last_batch(newest)?;
            let tasks = ledger.tasks_of(verdicts)?;
            if before.step >= step {
                return ledger.check_repeat(lineage, step, &tasks, verdicts, before.step);
            }
            ledger.check_undecided(verdicts)?;
            let digest = batch_digest(before.digest, step, &tasks, verdicts);
            ledger.insert_batch(lineage, step, digest, verdicts)?;
            ledger.count_verdicts(verdicts);
            ledger.cache.counts.batches += 1;
            Ok(())
        })
    }

    fn fence(&self, lineage: u32) -> Result<Lineage, LedgerError> {
        match self.cache.lineages.newest() {
            Some(newest) if newest.id == lineage => Ok(newest),
            newest => Err(LedgerError::Fenced {
                ours: lineage.into(),
                newest: newest.map_or(0, |newest| newest.id.into()),
            }),
        }
    }

    /// Returns the head of the newest lineage: its last batch, or its fork.
    fn last_batch(&self, newest: Lineage) -> Result<Last, LedgerError> {
        let head = WeightVersion {
            lineage: newest.id,
            step: i64::MAX as u64,
        };
        let mut last = self.last_batch_of(head)?;
        last.step = last.step.max(newest.parent.map_or(0, |fork| fork.step));
        Ok(last)
    }

    fn tasks_of(&self, verdicts: &[SampleVerdict]) -> Result<Vec<String>, LedgerError> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT task FROM groups WHERE group_id = ?1")
            .doing("read")?;
        let mut last: Option<(GroupId, String)> = None;
        let mut tasks = Vec::with_capacity(verdicts.len());
        for verdict in verdicts {
            let task = match &last {
                Some((group, task)) if *group == verdict.group => task.clone(),
                _ => statement
                    .query_row([Id::from(verdict.group)], |row| row.get::<_, String>(0))
                    .optional()
                    .doing("read")?
                    .ok_or(LedgerError::UnknownGroup(verdict.group))?,
            };
            last = Some((verdict.group, task.clone()));
            tasks.push(task);
        }
        Ok(tasks)
    }

    /// Accepts a recorded step if its content is the same.
    fn check_repeat(
        &self,
        lineage: u32,
        step: u64,
        tasks: &[String],
        verdicts: &[SampleVerdict],
        at: u64,
    ) -> Result<(), LedgerError> {
        let refused = LedgerError::Step { lineage, step, at };
        let recorded = self.last_batch_of(WeightVersion { lineage, step })?;
        let before = self.last_batch_of(WeightVersion {
            lineage,
            step: step.checked_sub(1).ok_or(refused.clone())?,
        })?;
        let same = recorded.step == step
            && self.batch_is_of(lineage, step)?
            && recorded.digest == batch_digest(before.digest, step, tasks, verdicts);
        if same { Ok(()) } else { Err(refused) }
    }

    fn batch_is_of(&self, lineage: u32, step: u64) -> Result<bool, LedgerError> {
        self.connection
            .prepare_cached("SELECT 1 FROM batches WHERE lineage = ?1 AND step = ?2")
            .and_then(|mut statement| statement.exists(params![lineage, signed(step)]))
            .doing("read")
    }

    fn check_undecided(&self, verdicts: &[SampleVerdict]) -> Result<(), LedgerError> {
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT 1 FROM verdicts v JOIN temp.chain c ON v.lineage = c.lineage AND v.step <= c.step
                 WHERE v.group_id = ?1 AND v.member = ?2 AND v.role = ?3 AND v.seat = ?4",
            )
            .doing("read")?;
        let mut seen = std::collections::HashSet::new();
        for verdict in verdicts {
            let SampleVerdict {
                group,
                member,
                role,
                seat,
                ..
            } = verdict;
            let repeated = !seen.insert((*group, *member, role.as_str(), *seat));
            let key = params![Id::from(*group), member, role, seat];
            if repeated || statement.exists(key).doing("read")? {
                return Err(LedgerError::Decided {
                    group: *group,
                    member: *member,
                    role: role.clone(),
                    seat: *seat,
                });
            }
        }
        Ok(())
    }

    fn insert_batch(
        &mut self,
        lineage: u32,
        step: u64,
        digest: Digest,
        verdicts: &[SampleVerdict],
    ) -> Result<(), LedgerError> {
        let trained = verdicts
            .iter()
            .filter(|v| v.verdict == TrainingVerdict::Trained)
            .count();
        self.connection
            .prepare_cached(
                "INSERT INTO batches (lineage, step, digest, trained, discarded) VALUES (?1, ?2, ?3, ?4, ?5)",
            )
            .and_then(|mut statement| {
                let discarded = verdicts.len() - trained;
                statement.execute(params![
                    lineage,
                    signed(step),
                    Id::from(digest),
                    trained as i64,
                    discarded as i64
                ])
            })
            .doing("written")?;
        self.insert_verdicts(lineage, step, verdicts)
    }

    fn insert_verdicts(&self, lineage: u32, step: u64, verdicts: &[SampleVerdict]) -> Result<(), LedgerError> {
        let mut insert = self
            .connection
            .prepare_cached("INSERT INTO verdicts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")
            .doing("written")?;
        for (position, verdict) in verdicts.iter().enumerate() {
            insert
                .execute(params![
                    lineage,
                    signed(step),
                    position as i64,
                    Id::from(verdict.group),
                    verdict.member,
                    verdict.role,
                    verdict.seat,
                    verdict.verdict.reason()
                ])
                .doing("written")?;
        }
        Ok(())
    }

    fn count_verdicts(&mut self, verdicts: &[SampleVerdict]) {
        let decided: std::collections::HashSet<GroupId> = verdicts.iter().map(|v| v.group).collect();
        self.cache.ready.retain(|(_, group)| !decided.contains(group));
        let counts = &mut self.cache.counts;
        counts.ready = self.cache.ready.len() as u64;
        for verdict in verdicts {
            match &verdict.verdict {
                TrainingVerdict::Trained => counts.trained += 1,
                TrainingVerdict::Discarded(reason) => *counts.discarded.entry(reason.clone()).or_default() += 1,
            }
        }
    }

    /// Discards the ready samples for `reason` at the end of the run, and returns their number.
    /// They are recorded at the next step but belong to no batch: a restore forgets the discard.
    ///
    /// # Errors
    /// [`LedgerError::Fenced`] if `lineage` is not the newest.
    pub fn discard_ready(&mut self, lineage: u32, step: u64, reason: &str) -> Result<u64, LedgerError> {
        self.write(|ledger| {
            ledger.fence(lineage)?;
            let groups: Vec<GroupId> = ledger.cache.ready.iter().map(|(_, group)| *group).collect();
            let mut verdicts = Vec::new();
            for bundle in ledger.payloads(&groups)? {
                verdicts.extend(discarded(&bundle, reason));
            }
            ledger.insert_verdicts(lineage, step, &verdicts)?;
            ledger.count_verdicts(&verdicts);
            Ok(verdicts.len() as u64)
        })
    }
}

/// Returns a discard verdict for each sample of a bundle.
fn discarded<'a>(bundle: &'a Bundle, reason: &'a str) -> impl Iterator<Item = SampleVerdict> + 'a {
    let samples = match &bundle.content {
        BundleContent::Samples(samples) => samples.as_slice(),
        BundleContent::Empty { .. } | BundleContent::Dead { .. } => &[],
    };
    samples.iter().map(|sample| SampleVerdict {
        group: bundle.group,
        member: sample.member,
        role: sample.role.clone(),
        seat: sample.seat,
        verdict: TrainingVerdict::Discarded(reason.to_owned()),
    })
}
