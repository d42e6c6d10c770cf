//! The ledger for async code: one writer thread, and one commit for all waiting calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::AgentName;
use broker::ids::{GroupId, RunId, WeightVersion};
use broker::protocol::bundle::Bundle;
use broker::protocol::control::RunState;
use broker::protocol::reserve::{Reserve, ReserveVerdict};
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{
    Audit, Consumed, Counts, Ledger, LedgerError, LedgerOptions, Lineages, Overdue, RecordedBatch, SampleVerdict,
    Staged,
};
use crate::base::log_scope;
use crate::observe::Observer;

/// The largest number of waiting calls; further callers wait for room.
const QUEUE: usize = 4096;
/// The largest number of calls that share one commit.
const GROUP: usize = 1024;

/// Sends the answer once the fate of its transaction is known.
type Answer = Box<dyn FnOnce(Result<(), LedgerError>) + Send>;
type Call = Box<dyn FnOnce(&mut Ledger) -> Answer + Send>;

/// A ledger behind its writer thread. Clones share it; dropping the last one closes the ledger.
///
/// Every method answers after the commit that holds its effect. Calls that wait at the same time
/// share one commit, so hundreds of small calls a second cost a few waits for the disk.
#[derive(Debug, Clone)]
pub struct LedgerHandle {
    calls: mpsc::Sender<Call>,
    ended: Arc<tokio::sync::watch::Sender<()>>,
}

impl LedgerHandle {
    /// Opens the ledger (blocking for its integrity check) and starts its writer.
    pub fn open(path: &Path, run: &RunId, agent: &AgentName) -> Result<Self, LedgerError> {
        Self::open_with(path, run, agent, LedgerOptions::default())
    }

    /// Opens like [`LedgerHandle::open`], with options.
    pub fn open_with(path: &Path, run: &RunId, agent: &AgentName, options: LedgerOptions) -> Result<Self, LedgerError> {
        Self::start(Ledger::open_with(path, run, agent, options)?, agent, path, None)
    }

    /// Opens like [`LedgerHandle::open`], and shows how long commits take.
    pub fn open_observed(
        path: &Path,
        run: &RunId,
        agent: &AgentName,
        observer: &Observer,
    ) -> Result<Self, LedgerError> {
        let ledger = Ledger::open_with(path, run, agent, LedgerOptions::default())?;
        let series = observer.series();
        let commits = series.map(|series| series.standing.ledger_commits(agent.as_str()));
        Self::start(ledger, agent, path, commits)
    }

    fn start(ledger: Ledger, agent: &AgentName, path: &Path, commits: Option<Histogram>) -> Result<Self, LedgerError> {
        let (calls, waiting) = mpsc::channel(QUEUE);
        let (ended, guard) = tokio::sync::watch::channel(());
        std::thread::Builder::new()
            .name(format!("ledger-{agent}"))
            .spawn(log_scope::inherit(move || {
                write_all(ledger, waiting, commits.as_ref());
                drop(guard);
            }))
            .map_err(|e| LedgerError::Open {
                path: path.into(),
                reason: format!("cannot start its writer: {e}"),
            })?;
        Ok(Self {
            calls,
            ended: Arc::new(ended),
        })
    }

    /// Returns a ledger with a writer in a task of the current runtime instead of a thread, so that
    /// a simulation decides when it runs.
    #[cfg(test)]
    pub(crate) fn in_task(mut ledger: Ledger) -> Self {
        let (calls, mut waiting) = mpsc::channel::<Call>(QUEUE);
        let (ended, guard) = tokio::sync::watch::channel(());
        tokio::spawn(async move {
            while let Some(first) = waiting.recv().await {
                let calls = gather(first, &mut waiting);
                write_group(&mut ledger, calls, None);
            }
            drop(guard);
        });
        Self {
            calls,
            ended: Arc::new(ended),
        }
    }

    async fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Ledger) -> Result<R, LedgerError> + Send + 'static,
    ) -> Result<R, LedgerError> {
        let (sender, receiver) = oneshot::channel();
        let call: Call = Box::new(move |ledger| {
            let answer = call(ledger);
            Box::new(move |committed| {
                // The caller may have gone; the effect remains.
                let _ = sender.send(committed.and(answer));
            })
        });
        self.calls.send(call).await.map_err(|_| LedgerError::Closed)?;
        receiver.await.map_err(|_| LedgerError::Closed)?
    }

    /// [`Ledger::begin_lineage`]
    pub async fn begin_lineage(&self, parent: Option<WeightVersion>) -> Result<u32, LedgerError> {
        self.call(move |ledger| ledger.begin_lineage(parent)).await
    }

    /// [`Ledger::lineages`]
    pub async fn lineages(&self) -> Result<Lineages, LedgerError> {
        self.call(|ledger| Ok(ledger.lineages())).await
    }

    /// [`Ledger::reserve`]
    pub async fn reserve(&self, requests: Vec<Reserve>, limit: u64) -> Result<Vec<ReserveVerdict>, LedgerError> {
        self.call(move |ledger| ledger.reserve(&requests, limit)).await
    }

    /// [`Ledger::stage`]
    pub async fn stage(&self, bundles: Vec<Bundle>) -> Result<Vec<Staged>, LedgerError> {
        self.call(move |ledger| ledger.stage(&bundles)).await
    }

    /// [`Ledger::ready`]
    pub async fn ready(&self, limit: usize) -> Result<Vec<Bundle>, LedgerError> {
        self.call(move |ledger| ledger.ready(limit)).await
    }

    /// [`Ledger::ready_groups`]
    pub async fn ready_groups(&self) -> Result<Vec<(u64, GroupId)>, LedgerError> {
        self.call(|ledger| Ok(ledger.ready_groups())).await
    }

    /// [`Ledger::payloads`]
    pub async fn payloads(&self, groups: Vec<GroupId>) -> Result<Vec<Bundle>, LedgerError> {
        self.call(move |ledger| ledger.payloads(&groups)).await
    }

    /// [`Ledger::counts`]
    pub async fn counts(&self) -> Result<Counts, LedgerError> {
        self.call(|ledger| Ok(ledger.counts())).await
    }

    /// [`Ledger::counts`] and [`Ledger::next_order`] at one instant.
    pub async fn standing(&self) -> Result<(Counts, u64), LedgerError> {
        self.call(|ledger| Ok((ledger.counts(), ledger.next_order()))).await
    }

    /// [`Ledger::overdue`] at the present time.
    pub async fn overdue(&self, bound: Duration) -> Result<Vec<Overdue>, LedgerError> {
        self.call(move |ledger| ledger.overdue(Instant::now(), bound)).await
    }

    /// [`Ledger::record_batch`]
    pub async fn record_batch(&self, lineage: u32, step: u64, verdicts: Vec<SampleVerdict>) -> Result<(), LedgerError> {
        self.call(move |ledger| ledger.record_batch(lineage, step, &verdicts))
            .await
    }

    /// [`Ledger::recorded_batches`]
    pub async fn recorded_batches(&self, after: u64) -> Result<Vec<RecordedBatch>, LedgerError> {
        self.call(move |ledger| ledger.recorded_batches(after)).await
    }

    /// [`Ledger::retraced`]
    pub async fn retraced(&self) -> Result<BTreeMap<u32, u64>, LedgerError> {
        self.call(|ledger| ledger.retraced()).await
    }

    /// [`Ledger::consumed`]
    pub async fn consumed(&self, version: WeightVersion) -> Result<Consumed, LedgerError> {
        self.call(move |ledger| ledger.consumed(version)).await
    }

    /// [`Ledger::prune`]
    pub async fn prune(&self, retained: Vec<WeightVersion>) -> Result<u64, LedgerError> {
        self.call(move |ledger| ledger.prune(&retained)).await
    }

    /// [`Ledger::discard_ready`]
    pub async fn discard_ready(&self, lineage: u32, step: u64, reason: &'static str) -> Result<u64, LedgerError> {
        self.call(move |ledger| ledger.discard_ready(lineage, step, reason))
            .await
    }

    /// [`Ledger::state`]
    pub async fn state(&self) -> Result<RunState, LedgerError> {
        self.call(|ledger| ledger.state()).await
    }

    /// [`Ledger::adopt`]
    pub async fn adopt(&self, state: RunState) -> Result<RunState, LedgerError> {
        self.call(move |ledger| ledger.adopt(state)).await
    }

    /// [`Ledger::note`]
    pub async fn note(&self, key: impl Into<String>) -> Result<Option<String>, LedgerError> {
        let key = key.into();
        self.call(move |ledger| ledger.note(&key)).await
    }

    /// [`Ledger::set_note`]
    pub async fn set_note(&self, key: impl Into<String>, value: impl Into<String>) -> Result<(), LedgerError> {
        let (key, value) = (key.into(), value.into());
        self.call(move |ledger| ledger.set_note(&key, &value)).await
    }

    /// [`Ledger::audit`]
    pub async fn audit(&self) -> Result<Audit, LedgerError> {
        self.call(|ledger| ledger.audit()).await
    }

    /// Drops this handle and waits until the ledger is closed, after the last clone is dropped.
    pub async fn close(self) {
        let Self { calls, ended } = self;
        drop(calls);
        ended.closed().await;
    }
}

/// Runs waiting calls in one transaction and answers after the commit.
fn write_all(mut ledger: Ledger, mut waiting: mpsc::Receiver<Call>, commits: Option<&Histogram>) {
    while let Some(first) = waiting.blocking_recv() {
        let calls = gather(first, &mut waiting);
        write_group(&mut ledger, calls, commits);
    }
}

/// Returns the first call and those that wait behind it.
fn gather(first: Call, waiting: &mut mpsc::Receiver<Call>) -> Vec<Call> {
    let mut calls = vec![first];
    while calls.len() < GROUP
        && let Ok(call) = waiting.try_recv()
    {
        calls.push(call);
    }
    calls
}

/// Shows in `commits` how long the commit takes.
fn write_group(ledger: &mut Ledger, calls: Vec<Call>, commits: Option<&Histogram>) {
    if let Err(error) = ledger.begin_group() {
        // No call was run; each caller receives the error.
        ledger.broken = Some(error);
        ledger.grouped = true;
    }
    let answers: Vec<Answer> = calls.into_iter().map(|call| call(ledger)).collect();
    let begun = std::time::Instant::now();
    let committed = ledger.end_group();
    if let Some(commits) = commits {
        commits.observe(begun.elapsed().as_secs_f64());
    }
    if let Err(error) = &committed {
        tracing::error!(error = %error, error_label = error.label(), "ledger commit failed");
    }
    for answer in answers {
        answer(committed.clone());
    }
}
