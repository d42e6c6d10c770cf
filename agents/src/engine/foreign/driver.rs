//! One server and the calls made to it.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use broker::ids::WeightVersion;
use broker::protocol::turn::{Finish, LogProbs};
use broker::protocol::validate::ROUNDING;
use tokio::sync::{Notify, RwLock, Semaphore, SemaphorePermit, watch};

use super::Pace;
use super::probe::Meaning;
use super::progress::{Next, Progress};
use super::server::{CallEnd, Reply, Server, ServerCall, another_model};
use super::trouble::{Trouble, clipped};
use crate::engine::{GenerationJob, WeightRefusal};

/// Requirements and settings for every server of an agent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The number of ids that the model knows.
    pub vocab: usize,
    /// The model's context: tokens of a prompt and its answer.
    pub max_context: usize,
    pub max_new_tokens: u32,
    /// Present for an agent that trains: its log-probs must be of this temperature.
    pub trained_temperature: Option<f32>,
    pub stop_ids: Arc<[u32]>,
    /// Ids after which a server may end an answer: the stop ids and the model's own.
    pub ends: Arc<[u32]>,
    /// Prompts for the check of log-probs.
    pub probes: Vec<Vec<u32>>,
    /// True if generations in progress finish before whole weights change.
    pub drains: bool,
    /// Concurrent calls to one server.
    pub slots: usize,
    /// Time limit for loading weights; zero means no limit.
    pub stuck_after: Duration,
    pub pace: Pace,
}

/// Weights for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub version: WeightVersion,
    /// The name under which the server knows them, unique to this run, agent, version and content
    /// ([`super::label`]).
    pub label: String,
    pub what: SourceKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceKind {
    /// The weights that the server was started with, never replaced.
    AsStarted,
    /// A folder with a model.
    Whole(PathBuf),
    /// A folder with an adapter of the model that the server was started with.
    Adapter(PathBuf),
}

/// The weights that a server serves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) version: WeightVersion,
    /// The label that the server must report for a call's weights.
    pub(super) label: Option<String>,
    pub(super) adapter: Option<String>,
    /// Tokens of a prompt and its answer.
    pub(super) context: usize,
    /// The meaning of its log-probs.
    pub(super) meaning: Meaning,
}

/// The state of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ServerState {
    /// True if it answers.
    pub(super) well: bool,
    /// The weights that calls get.
    pub(super) serving: Option<WeightVersion>,
    /// The weights that it reads now.
    pub(super) reading: Option<WeightVersion>,
    /// The number of times it stopped being well, so that a waiter cannot miss one.
    pub(super) falls: u64,
    /// True after a rejection until it serves again or was away: the operator or other weights must
    /// fix it.
    pub(super) refused: bool,
}

impl ServerState {
    /// Returns true if it is unusable until it is fixed.
    pub(super) fn is_lost(self) -> bool {
        !self.well || (self.refused && self.serving.is_none())
    }
}

/// The result of a call.
#[derive(Debug)]
pub(super) enum CallResult {
    Made(Reply, WeightVersion, LogProbs),
    /// There was no room for a call.
    Over(Finish, WeightVersion),
}

/// One server.
pub struct ServerDriver {
    pub(super) server: Arc<dyn Server>,
    pub(super) settings: Arc<Settings>,
    slots: Semaphore,
    /// Read-locked during a call with whole weights, write-locked when they change.
    pub(super) served: RwLock<Option<Arc<Served>>>,
    /// Adapters served earlier that are not unloaded yet.
    pub(super) before: Mutex<Vec<Arc<Served>>>,
    pub(super) state: watch::Sender<ServerState>,
    /// True while it loads weights, when its health is not checked.
    pub(super) loading: AtomicBool,
    /// Signals that a caller doubts its health.
    pub(super) doubt: Notify,
    /// Signals that a caller found other weights than the server was given.
    pub(super) lost: Notify,
    /// The weights it lost, and the number of losses without a good answer in between.
    pub(super) strangers: Mutex<(WeightVersion, u32)>,
    /// Counts the events of all the agent's servers.
    pub(super) news: watch::Sender<u64>,
    pub(super) refused: watch::Sender<Option<WeightRefusal>>,
}

impl ServerDriver {
    pub(super) fn new(
        server: Arc<dyn Server>,
        settings: Arc<Settings>,
        news: watch::Sender<u64>,
        refused: watch::Sender<Option<WeightRefusal>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            server,
            slots: Semaphore::new(settings.slots),
            settings,
            served: RwLock::default(),
            before: Mutex::default(),
            state: watch::Sender::default(),
            loading: AtomicBool::new(false),
            doubt: Notify::new(),
            lost: Notify::new(),
            strangers: Mutex::default(),
            news,
            refused,
        })
    }

    pub(super) fn state(&self) -> ServerState {
        *self.state.borrow()
    }

    /// Returns true if a call makes sense.
    pub(super) fn is_ready(&self) -> bool {
        let state = self.state();
        state.well && state.serving.is_some()
    }

    /// Returns the number of calls that it could take now.
    pub(super) fn free(&self) -> usize {
        self.slots.available_permits()
    }

    /// Returns its name in logs.
    pub(super) fn name(&self) -> String {
        format!("the {} server at {}", self.server.name(), self.server.url())
    }

    /// Changes the state, and returns true if it is different.
    pub(super) fn change(&self, change: impl FnOnce(&mut ServerState)) -> bool {
        let changed = self.state.send_if_modified(|state| {
            let before = *state;
            change(state);
            *state != before
        });
        if changed {
            self.news.send_modify(|count| *count += 1);
        }
        changed
    }

    /// Waits until it is well; returns the number of times it was not.
    pub(super) async fn until_well(&self) -> u64 {
        let mut state = self.state.subscribe();
        // The sender is ours.
        state.wait_for(|state| state.well).await.map_or(0, |state| state.falls)
    }

    /// Waits until it is not well, or was not in the meantime.
    pub(super) async fn until_fallen(&self, falls: u64) {
        let mut state = self.state.subscribe();
        let _ = state.wait_for(|state| !state.well || state.falls != falls).await;
    }

    /// Returns the oldest weights that it reads or that a call may still use.
    pub(super) fn oldest(&self) -> Option<WeightVersion> {
        let state = self.state();
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let before = before.iter().map(|served| served.version).min();
        [state.serving, state.reading, before].into_iter().flatten().min()
    }

    /// Acquires a place among its calls, for as long as a job is with it: an interrupted job
    /// continues before others start.
    pub(super) async fn slot(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.slots.acquire().await.ok()
    }

    /// Makes one call for a job that has a slot, from its current progress.
    pub(super) async fn piece(&self, job: &GenerationJob, progress: &Progress) -> Result<CallResult, Trouble> {
        let none = || Trouble::Gone("it has no weights yet".into());
        let held = self.served.read().await;
        let served = held.clone().ok_or_else(none)?;
        let falls = self.state().falls;
        // An adapter is addressed by its name, so others may be loaded during the call.
        let _held = served.adapter.is_none().then_some(held);
        let mut ask = match progress.next(job, served.context, &self.settings.stop_ids)? {
            Next::Call(ask) => *ask,
            Next::Over(finish) => return Ok(CallResult::Over(finish, served.version)),
        };
        ask.adapter.clone_from(&served.adapter);
        let called = tokio::select! {
            called = self.call(&ask, &served) => called,
            () = self.until_fallen(falls) => Err(Trouble::Gone("it is not well".into())),
        };
        match &called {
            Ok(_) => *self.strangers() = (served.version, 0),
            Err(Trouble::Gone(_) | Trouble::Failing(_)) => self.doubt.notify_one(),
            Err(Trouble::Stranger(said)) => self.estranged(served.version, said),
            _ => {}
        }
        called.map(|reply| CallResult::Made(reply, served.version, served.meaning.of(&job.sampling)))
    }

    pub(super) fn strangers(&self) -> MutexGuard<'_, (WeightVersion, u32)> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks its weights as lost, so that it is checked and given them again: once, however many
    /// calls find out.
    fn estranged(&self, version: WeightVersion, said: &str) {
        if !self.change(|state| state.serving = state.serving.filter(|serving| *serving != version)) {
            return;
        }
        tracing::warn!(said, "{} lost its weights; they are loaded again", self.name());
        {
            let mut strangers = self.strangers();
            let times = if strangers.0 == version { strangers.1 } else { 0 };
            *strangers = (version, times + 1);
        }
        self.lost.notify_one();
    }

    async fn call(&self, ask: &ServerCall, served: &Served) -> Result<Reply, Trouble> {
        let reply = self.server.generate(ask).await?;
        judge(&reply, ask, self.settings.vocab)?;
        let Some(label) = &served.label else {
            return Ok(reply);
        };
        // A server without a label in its reply is asked now: after a restart it would report
        // another label.
        let said = match &reply.label {
            Some(said) => said.clone(),
            None => self.server.label().await?,
        };
        if said == *label {
            Ok(reply)
        } else {
            Err(Trouble::Stranger(format!(
                "{:?}, but {label:?} was expected",
                clipped(&said)
            )))
        }
    }
}

/// Checks that a reply can be the answer to a call.
fn judge(reply: &Reply, ask: &ServerCall, vocab: usize) -> Result<(), Trouble> {
    if let Some(id) = reply.unknown_id(vocab) {
        return Err(Trouble::Malformed(another_model(id, vocab)));
    }
    if reply.ids.is_empty() && reply.end != CallEnd::Aborted {
        return Err(Trouble::Malformed("it ended an answer without a token".into()));
    }
    if reply.ids.len() > ask.max_new_tokens as usize {
        return Err(Trouble::Malformed(format!(
            "it made {} tokens, but {} were asked for",
            reply.ids.len(),
            ask.max_new_tokens
        )));
    }
    if ask.top > 0 && reply.top.len() != reply.ids.len() {
        return Err(Trouble::Malformed(format!(
            "it made {} tokens, but reported the most likely ones of {} positions",
            reply.ids.len(),
            reply.top.len()
        )));
    }
    if reply.top.iter().any(Vec::is_empty) {
        return Err(Trouble::Malformed("it reported no likely tokens for a position".into()));
    }
    let alternatives = reply.top.iter().flatten().map(|(_, logprob)| logprob);
    let mut logprobs = reply.logprobs.iter().chain(alternatives);
    if let Some(logprob) = logprobs.find(|logprob| **logprob > ROUNDING) {
        return Err(Trouble::Malformed(format!("{logprob} is not a log-prob")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::foreign::tests::ask;

    #[test]
    fn a_reply_that_cannot_be_the_answer_is_rejected() {
        let reply = |ids: &[u32], logprob: f32| Reply {
            ids: ids.to_vec(),
            logprobs: vec![logprob; ids.len()],
            end: CallEnd::Length,
            label: None,
            reused: 0,
            top: Vec::new(),
        };
        let judge = |reply| judge(&reply, &ask(), 10).map_err(|trouble| trouble.to_string());
        assert_eq!(judge(reply(&[0, 9, 1], -1.0)), Ok(()));
        assert!(judge(reply(&[], -1.0)).unwrap_err().contains("without a token"));
        assert!(judge(reply(&[10], -1.0)).unwrap_err().contains("another model"));
        assert!(judge(reply(&[1; 4], -1.0)).unwrap_err().contains("3 were asked for"));
        assert!(judge(reply(&[1], 2.0)).unwrap_err().contains("not a log-prob"));
        let asked = ServerCall { top: 1, ..ask() };
        let likely = |top: Vec<Vec<(u32, f32)>>| {
            super::judge(
                &Reply {
                    top,
                    ..reply(&[1], -1.0)
                },
                &asked,
                10,
            )
        };
        assert!(likely(vec![vec![(3, -0.5)]]).is_ok());
        assert!(likely(vec![]).is_err() && likely(vec![vec![(10, -0.5)]]).is_err());
        assert!(likely(vec![vec![]]).is_err() && likely(vec![vec![(3, -0.5), (4, 0.5)]]).is_err());
    }
}
