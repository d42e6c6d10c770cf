//! Forms the next batch: first the batches that a restart cut off, in their order, then from the
//! ledger's ready groups.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use anyhow::{bail, ensure};
use broker::AgentName;
use broker::ids::{Digest, GroupId, WeightVersion};
use broker::protocol::bundle::Bundle;
use configs::{LossKind, RunConfig, TokenRecordPolicy, TrainConfig, ZeroAdvantage};
use rollout::batch::{Batch, BatchContext, BatchVerdict, Formed, REFILL_CAP, form, imitate};
use rollout::text::TextCodec;

use crate::ledger::{LedgerHandle, Lineages, RecordedBatch, SampleVerdict, TrainingVerdict};
use crate::policy::Prepared;

/// Forms one agent's batches.
pub(super) struct BatchFormer {
    config: TrainConfig,
    max_new_tokens: u32,
    run_seed: u64,
    agent: AgentName,
    /// Set where the loss imitates known answers.
    imitates: Option<Imitates>,
    /// The samples whose tokens are recorded. Known answers were never sampled.
    records: TokenRecordPolicy,
    lineages: Lineages,
    /// Batches recorded by a branch that a restart cut off.
    replay: VecDeque<RecordedBatch>,
    /// True if one of those was formed since `retraced` was read: its verdicts may differ from the
    /// recorded ones.
    replayed: bool,
    /// For each lineage, the last of its steps with weights that equal this lineage's own, now or
    /// soon.
    retraced: BTreeMap<u32, u64>,
    /// Groups that refilling has discarded for the batch being formed, and the verdicts on their
    /// samples.
    discarded: HashSet<GroupId>,
    zero: Vec<BatchVerdict>,
}

/// Converts known answers into ids, and knows the model's limits.
struct Imitates {
    text: Arc<TextCodec>,
    vocab: usize,
    max_context: usize,
}

impl Imitates {
    fn ids(&self, asked: &[u32], answer: &str) -> anyhow::Result<Vec<u32>> {
        let ids = self.text.completion(asked, answer)?;
        let known = ids.iter().all(|id| (*id as usize) < self.vocab);
        ensure!(known, "{answer:?} has tokens outside the model's vocabulary");
        Ok(ids)
    }
}

impl BatchFormer {
    pub(super) fn new(run: &RunConfig, agent: &AgentName, prepared: &Prepared) -> Self {
        let settings = &prepared.settings;
        let imitates = || Imitates {
            text: prepared.text.clone(),
            vocab: prepared.shape.vocab,
            max_context: prepared.shape.max_context,
        };
        let imitates = (settings.train.loss.kind == LossKind::CrossEntropy).then(imitates);
        Self {
            config: settings.train.clone(),
            max_new_tokens: settings.sampling.max_new_tokens,
            run_seed: run.run.seed,
            agent: agent.clone(),
            records: match imitates {
                Some(_) => TokenRecordPolicy::None,
                None => run.run.token_records,
            },
            imitates,
            lineages: Lineages::default(),
            replay: VecDeque::new(),
            replayed: false,
            retraced: BTreeMap::new(),
            discarded: HashSet::new(),
            zero: Vec::new(),
        }
    }

    /// Continues from `version`, at which the newest lineage began.
    pub(super) async fn resume(&mut self, ledger: &LedgerHandle, version: WeightVersion) -> anyhow::Result<()> {
        self.lineages = ledger.lineages().await?;
        self.replay = ledger.recorded_batches(version.step).await?.into();
        self.retraced = ledger.retraced().await?;
        if !self.replay.is_empty() {
            tracing::info!(batches = self.replay.len(), "training the recorded batches again first");
        }
        Ok(())
    }

    /// Returns true if the next batch was recorded before.
    pub(super) fn replays(&self) -> bool {
        !self.replay.is_empty()
    }

    /// Returns the next batch and its bundles; `None` while too few groups are ready. `version` is
    /// about to be trained.
    pub(super) async fn next(
        &mut self,
        ledger: &LedgerHandle,
        version: WeightVersion,
    ) -> anyhow::Result<Option<(Vec<Bundle>, Batch)>> {
        if std::mem::take(&mut self.replayed) {
            self.retraced = ledger.retraced().await?;
        }
        if let Some(recorded) = self.replay.front() {
            let bundles = ledger.payloads(recorded.groups()).await?;
            self.replay.pop_front();
            self.replayed = true;
            return match self.form(&bundles, version, false) {
                Formed::Batch(batch) => Ok(Some((bundles, *batch))),
                Formed::More { .. } => bail!("a recorded batch cannot be formed again: its payloads are missing"),
            };
        }
        // Missing groups may be ready already: a full buffer changes no more, so no event would
        // wake the trainer.
        loop {
            let counts = ledger.counts().await?;
            if (counts.ready as usize) < self.wanted() {
                return Ok(None);
            }
            let bundles = self.ready(ledger).await?;
            match self.form(&bundles, version, true) {
                Formed::Batch(batch) => return Ok(Some((bundles, *batch))),
                Formed::More {
                    discarded, verdicts, ..
                } => {
                    self.discarded.extend(discarded);
                    self.zero.extend(verdicts);
                }
            }
        }
    }

    /// Forms a batch, perhaps a short one, from all ready groups; `None` if there are none.
    pub(super) async fn rest(
        &self,
        ledger: &LedgerHandle,
        version: WeightVersion,
    ) -> anyhow::Result<Option<(Vec<Bundle>, Batch)>> {
        let bundles = self.ready(ledger).await?;
        match self.form(&bundles, version, false) {
            Formed::Batch(batch) if !batch.groups.is_empty() => Ok(Some((bundles, *batch))),
            _ => Ok(None),
        }
    }

    /// The number of groups to read: a batch's worth plus those discarded already. It never exceeds
    /// the number that may be drawn for one batch, because the buffer has no room for more.
    fn wanted(&self) -> usize {
        let cap = match self.config.zero_advantage {
            ZeroAdvantage::Refill => REFILL_CAP * self.config.batch_groups,
            _ => usize::MAX,
        };
        (self.config.batch_groups + self.discarded.len()).min(cap)
    }

    /// The oldest ready groups that are not yet discarded, up to the wanted number.
    async fn ready(&self, ledger: &LedgerHandle) -> anyhow::Result<Vec<Bundle>> {
        let wanted = self.wanted();
        let mut bundles = ledger.ready(wanted).await?;
        // Groups close in any order: the oldest may hold more new groups than the batch may still
        // draw.
        bundles.retain(|bundle| !self.discarded.contains(&bundle.group));
        bundles.truncate(wanted.saturating_sub(self.discarded.len()));
        Ok(bundles)
    }

    /// The verdicts to record with this batch: its own, and those on the groups that refilling
    /// discarded for it.
    pub(super) fn verdicts(&mut self, batch: &Batch) -> Vec<SampleVerdict> {
        self.discarded.clear();
        let zero = self.zero.drain(..);
        zero.chain(batch.verdicts.iter().cloned()).map(sample_verdict).collect()
    }

    fn form(&self, bundles: &[Bundle], current: WeightVersion, more: bool) -> Formed {
        let staleness = |version| self.staleness(current.step, version);
        form(
            &self.examples(bundles),
            &BatchContext {
                config: &self.config,
                max_new_tokens: self.max_new_tokens,
                current,
                staleness: &staleness,
                seed: batch_seed(self.run_seed, self.agent.as_str(), current.step),
                drawn: self.discarded.len(),
                more,
                records: self.records,
            },
        )
    }

    /// The training examples: the samples, or under cross-entropy the known answers in their place.
    /// Known answers that the model cannot take are logged and left out here, because after the
    /// batch is recorded it is too late.
    fn examples<'a>(&self, bundles: &'a [Bundle]) -> Cow<'a, [Bundle]> {
        let Some(imitates) = &self.imitates else {
            return Cow::Borrowed(bundles);
        };
        let imitated = imitate(bundles, imitates.max_context, |asked, answer| {
            imitates.ids(asked, answer)
        });
        if imitated.too_long > 0 {
            tracing::warn!(
                agent = %self.agent,
                samples = imitated.too_long,
                max_context = imitates.max_context,
                "known answers exceed the context and are not trained: shorten labels or prompts, or use a model with a longer context"
            );
        }
        if let Some(first) = imitated.unreadable.first() {
            tracing::warn!(
                agent = %self.agent,
                samples = imitated.unreadable.len(),
                error = format!("{first:#}"),
                "known answers cannot be turned into tokens and are not trained: change their labels"
            );
        }
        Cow::Owned(imitated.bundles)
    }

    /// The age of a version in steps. Trained again in the same order, the batches of a dead branch
    /// lead to the same weights. Its steps up to the last such batch count as this lineage's own,
    /// whichever earlier lineage trained them again.
    fn staleness(&self, step: u64, version: WeightVersion) -> u64 {
        let chain = self.lineages.chain(version).into_iter();
        let retraced = chain.filter_map(|at| Some(at.step.min(*self.retraced.get(&at.lineage)?)));
        let position = self.lineages.position(version).max(retraced.max());
        position.map_or(u64::MAX, |position| step.saturating_sub(position))
    }
}

fn sample_verdict(verdict: BatchVerdict) -> SampleVerdict {
    SampleVerdict {
        group: verdict.group,
        member: verdict.member,
        role: verdict.role,
        seat: verdict.seat,
        verdict: match verdict.outcome {
            Ok(()) => TrainingVerdict::Trained,
            Err(discard) => TrainingVerdict::Discarded(discard.as_str().to_owned()),
        },
    }
}

fn batch_seed(run_seed: u64, agent: &str, step: u64) -> u64 {
    Digest::of(format!("batch/{run_seed}/{agent}/{step}").as_bytes()).number()
}

#[cfg(test)]
mod tests;
