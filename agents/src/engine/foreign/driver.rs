//! One server and the calls that are made to it.

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
use super::server::{Ask, End, Reply, Server};
use super::trouble::{Trouble, clipped};
use crate::engine::{Job, Refusal};

/// What every server of an agent must be and do.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Ids that the model knows.
    pub vocab: usize,
    /// What the model was made for: tokens of a prompt and its answer.
    pub max_context: usize,
    pub max_new_tokens: u32,
    /// Of an agent that trains, whose log-probs must be of this temperature.
    pub trained_temperature: Option<f32>,
    pub stop_ids: Arc<[u32]>,
    /// Ids after which a server may end an answer: those, and the model's own.
    pub ends: Arc<[u32]>,
    /// Prompts by which log-probs are looked at.
    pub probes: Vec<Vec<u32>>,
    /// Generations under way finish before whole weights change.
    pub drains: bool,
    /// Calls at once, to one server.
    pub slots: usize,
    /// A server that takes weights for longer than this does not take them; zero: it may take any time.
    pub stuck_after: Duration,
    pub pace: Pace,
}

/// Weights for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub version: WeightVersion,
    /// By which the server names them: of no other run, agent or version, and of no other weights ([`super::label`]).
    pub label: String,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Those that it was started with, and never others.
    AsStarted,
    /// A folder with a model.
    Whole(PathBuf),
    /// A folder with an adapter of the model that it was started with.
    Adapter(PathBuf),
}

/// What a server serves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) version: WeightVersion,
    /// What the server must say of a call's weights.
    pub(super) label: Option<String>,
    pub(super) adapter: Option<String>,
    /// Tokens of a prompt and its answer.
    pub(super) context: usize,
    /// What its log-probs are of.
    pub(super) meaning: Meaning,
}

/// How a server stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct State {
    /// It answers.
    pub(super) well: bool,
    /// The weights that calls get.
    pub(super) serving: Option<WeightVersion>,
    /// Those that it reads now.
    pub(super) reading: Option<WeightVersion>,
    /// Times that it was well and then was not, so that nobody who waits for that misses it.
    pub(super) falls: u64,
    /// It was refused, or refused weights, and has neither served nor been away since: a person or other weights must mend that.
    pub(super) refused: bool,
}

impl State {
    /// Whether nothing is to be had from it before it is mended.
    pub(super) fn is_lost(self) -> bool {
        !self.well || (self.refused && self.serving.is_none())
    }
}

/// What a call came to.
#[derive(Debug)]
pub(super) enum Piece {
    Made(Reply, WeightVersion, LogProbs),
    /// There was no room for a call.
    Over(Finish, WeightVersion),
}

/// One server.
pub struct Driver {
    pub(super) server: Arc<dyn Server>,
    pub(super) settings: Arc<Settings>,
    slots: Semaphore,
    /// Read during a call of whole weights, written when they change.
    pub(super) served: RwLock<Option<Arc<Served>>>,
    /// Adapters that were served before and are not unloaded.
    pub(super) before: Mutex<Vec<Arc<Served>>>,
    pub(super) state: watch::Sender<State>,
    /// Its health is not looked at while it takes weights.
    pub(super) loading: AtomicBool,
    /// Somebody doubts its health.
    pub(super) doubt: Notify,
    /// Somebody found other weights than it was given.
    pub(super) lost: Notify,
    /// How often that was so, of which weights, without a good answer in between.
    pub(super) strangers: Mutex<(WeightVersion, u32)>,
    /// Counts what happened to any of the agent's servers.
    pub(super) news: watch::Sender<u64>,
    pub(super) refused: watch::Sender<Option<Refusal>>,
}

impl Driver {
    pub(super) fn new(
        server: Arc<dyn Server>,
        settings: Arc<Settings>,
        news: watch::Sender<u64>,
        refused: watch::Sender<Option<Refusal>>,
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

    pub(super) fn state(&self) -> State {
        *self.state.borrow()
    }

    /// Whether a call is worth making.
    pub(super) fn is_ready(&self) -> bool {
        let state = self.state();
        state.well && state.serving.is_some()
    }

    /// Calls that it could take now.
    pub(super) fn free(&self) -> usize {
        self.slots.available_permits()
    }

    /// How it is called in a log.
    pub(super) fn name(&self) -> String {
        format!("the {} server at {}", self.server.name(), self.server.url())
    }

    /// Whether that changed it.
    pub(super) fn change(&self, change: impl FnOnce(&mut State)) -> bool {
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

    /// Waits until it is well; answers with how often it was not before.
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

    /// The oldest weights that it reads or that a call may still use.
    pub(super) fn oldest(&self) -> Option<WeightVersion> {
        let state = self.state();
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let before = before.iter().map(|served| served.version).min();
        [state.serving, state.reading, before].into_iter().flatten().min()
    }

    /// A place among its calls, for as long as a job is with it: one that was ended goes on before others begin.
    pub(super) async fn slot(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.slots.acquire().await.ok()
    }

    /// Makes one call for a job that has a slot, from where it stands.
    pub(super) async fn piece(&self, job: &Job, progress: &Progress) -> Result<Piece, Trouble> {
        let none = || Trouble::Gone("it has no weights yet".into());
        let held = self.served.read().await;
        let served = held.clone().ok_or_else(none)?;
        let falls = self.state().falls;
        // An adapter goes by its name, so that others may come while the call is under way.
        let _held = served.adapter.is_none().then_some(held);
        let mut ask = match progress.next(job, served.context, &self.settings.stop_ids)? {
            Next::Ask(ask) => *ask,
            Next::Over(finish) => return Ok(Piece::Over(finish, served.version)),
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
        called.map(|reply| Piece::Made(reply, served.version, served.meaning.of(&job.sampling)))
    }

    pub(super) fn strangers(&self) -> MutexGuard<'_, (WeightVersion, u32)> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it looked at anew and given its weights again: once, however many calls find out.
    fn estranged(&self, version: WeightVersion, said: &str) {
        if !self.change(|state| state.serving = state.serving.filter(|serving| *serving != version)) {
            return;
        }
        tracing::warn!(said, "{} lost its weights; it gets them again", self.name());
        {
            let mut strangers = self.strangers();
            let times = if strangers.0 == version { strangers.1 } else { 0 };
            *strangers = (version, times + 1);
        }
        self.lost.notify_one();
    }

    async fn call(&self, ask: &Ask, served: &Served) -> Result<Reply, Trouble> {
        let reply = self.server.generate(ask).await?;
        judge(&reply, ask, self.settings.vocab)?;
        let Some(label) = &served.label else {
            return Ok(reply);
        };
        // A server that does not say it with the reply says it now: had it been started anew in between, it would say another.
        let said = match &reply.label {
            Some(said) => said.clone(),
            None => self.server.label().await?,
        };
        if said == *label {
            Ok(reply)
        } else {
            Err(Trouble::Stranger(format!(
                "{:?}, and {label:?} is expected",
                clipped(&said)
            )))
        }
    }
}

/// Whether a reply may be the answer to what was asked.
fn judge(reply: &Reply, ask: &Ask, vocab: usize) -> Result<(), Trouble> {
    if let Some(id) = reply.ids.iter().find(|id| **id as usize >= vocab) {
        return Err(Trouble::Malformed(format!(
            "it made the token {id}, and the model has {vocab}: it serves another model"
        )));
    }
    if reply.ids.is_empty() && reply.end != End::Aborted {
        return Err(Trouble::Malformed("it ended an answer without a token".into()));
    }
    if reply.ids.len() > ask.max_new_tokens as usize {
        return Err(Trouble::Malformed(format!(
            "it made {} tokens where {} were asked for",
            reply.ids.len(),
            ask.max_new_tokens
        )));
    }
    if ask.top > 0 && reply.top.len() != reply.ids.len() {
        return Err(Trouble::Malformed(format!(
            "it made {} tokens, and told the most likely ones of {} places",
            reply.ids.len(),
            reply.top.len()
        )));
    }
    if reply.top.iter().any(Vec::is_empty) {
        return Err(Trouble::Malformed(
            "it told none of the most likely tokens of a place".into(),
        ));
    }
    if let Some(id) = reply
        .top
        .iter()
        .flatten()
        .map(|(id, _)| id)
        .find(|id| **id as usize >= vocab)
    {
        return Err(Trouble::Malformed(format!(
            "it tells of the token {id}, and the model has {vocab}: it serves another model"
        )));
    }
    let alternatives = reply.top.iter().flatten().map(|(_, logprob)| logprob);
    let mut logprobs = reply.logprobs.iter().chain(alternatives);
    if let Some(logprob) = logprobs.find(|logprob| **logprob > ROUNDING) {
        return Err(Trouble::Malformed(format!("{logprob} is no log-prob")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::foreign::tests::ask;

    #[test]
    fn a_reply_that_cannot_be_the_answer_is_refused() {
        let reply = |ids: &[u32], logprob: f32| Reply {
            ids: ids.to_vec(),
            logprobs: vec![logprob; ids.len()],
            end: End::Length,
            label: None,
            reused: 0,
            top: Vec::new(),
        };
        let judge = |reply| judge(&reply, &ask(), 10).map_err(|trouble| trouble.to_string());
        assert_eq!(judge(reply(&[0, 9, 1], -1.0)), Ok(()));
        assert!(judge(reply(&[], -1.0)).unwrap_err().contains("without a token"));
        assert!(judge(reply(&[10], -1.0)).unwrap_err().contains("another model"));
        assert!(judge(reply(&[1; 4], -1.0)).unwrap_err().contains("3 were asked for"));
        assert!(judge(reply(&[1], 2.0)).unwrap_err().contains("no log-prob"));
        let asked = Ask { top: 1, ..ask() };
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
