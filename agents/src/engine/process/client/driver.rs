//! Drives one engine process, over sessions that come and go.

use std::sync::Arc;
use std::time::Duration;

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::engine::{EngineCommand, EngineEvent, StateId};
use broker::protocol::failure::Failure;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::Instant;
use trainer::transfer::Shelf;

use super::outstanding::Outstanding;
use super::session::{News, Target};
use super::{away, wire};
use crate::base::log_scope;
use crate::base::retry::Pauses;
use crate::engine::process::crash_loop;
use crate::engine::{EngineFailure, Finished, GenerationJob, Visit, WeightRefusal};

/// Pauses before rejected weights are announced again, longer each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A request of the router.
pub(crate) enum EngineInput {
    Jobs {
        jobs: Vec<GenerationJob>,
        wave: bool,
        done: UnboundedSender<Vec<Finished>>,
    },
    Visit(Vec<Visit>),
    Leave(RequestId),
    Pin(bool),
}

/// The state of the engine that the router reads.
#[derive(Default)]
pub(crate) struct EngineStatus {
    pub(crate) version: watch::Sender<WeightVersion>,
    pub(crate) refused: watch::Sender<Option<WeightRefusal>>,
    /// True if it is asked: it is present, and serves the required weights.
    pub(crate) there: watch::Sender<bool>,
}

pub(crate) struct EngineDriver {
    target: Target,
    status: EngineStatus,
    outstanding: Outstanding,
    shelf: Arc<Shelf>,
    /// The newest announced weights.
    newest: Option<StateId>,
    /// The channel for commands, while there is a session.
    outbox: Option<UnboundedSender<Vec<EngineCommand>>>,
    /// The first weights with which the engine of this session may be asked.
    waits_for: Option<WeightVersion>,
    /// The weights that the engine of this session reported last.
    serving: Option<StateId>,
    /// True if requests must start only from keys and values of its current weights.
    pinned: bool,
    /// The time of the next announcement of rejected weights, and the pause after that.
    again: Option<Instant>,
    pauses: Pauses,
}

impl EngineDriver {
    pub(crate) fn new(target: Target, shelf: Arc<Shelf>, status: EngineStatus) -> Self {
        Self {
            target,
            shelf,
            status,
            outstanding: Outstanding::new(),
            newest: None,
            outbox: None,
            waits_for: None,
            serving: None,
            pinned: false,
            again: None,
            pauses: Pauses::between(FIRST_PAUSE, LONGEST_PAUSE),
        }
    }

    fn ready(&self) -> bool {
        *self.status.there.borrow()
    }

    /// Works until the router is gone.
    pub(crate) async fn run(
        mut self,
        mut inputs: UnboundedReceiver<EngineInput>,
        mut announced: watch::Receiver<Option<StateId>>,
    ) {
        let (sender, mut news) = unbounded_channel();
        let session = log_scope::spawn(self.target.clone().keep(sender));
        announced.mark_changed();
        loop {
            let again = self.again;
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(input) => self.take(input),
                    None => break,
                },
                Some(event) = news.recv() => self.handle(event),
                // A trainer that has ended announces nothing more, and its last weights stay in
                // service.
                Ok(()) = announced.changed() => {
                    let newest = *announced.borrow_and_update();
                    self.announce(newest);
                }
                () = tokio::time::sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {
                    self.again = None;
                    self.announce(self.newest);
                }
            }
        }
        session.abort();
    }

    fn take(&mut self, input: EngineInput) {
        match input {
            EngineInput::Jobs { jobs, wave, done } => {
                let copy = self.ready().then(|| jobs.clone());
                let batch = self.outstanding.take(jobs, wave, done);
                if let Some(jobs) = copy {
                    let frames = wire::frames(batch, &jobs, wave);
                    self.send(frames.into_iter().map(EngineCommand::Generate).collect());
                }
            }
            EngineInput::Visit(visits) if !self.ready() => visits.iter().for_each(|visit| visit.fail(away())),
            EngineInput::Visit(visits) => {
                let commands = wire::visits(&visits);
                self.send(commands);
                visits.into_iter().for_each(|visit| self.outstanding.begin(visit));
            }
            EngineInput::Leave(request) => {
                if self.outstanding.leave(request) {
                    self.send(vec![EngineCommand::Leave(vec![request])]);
                } else {
                    self.outstanding.forget(request);
                }
            }
            EngineInput::Pin(pinned) => {
                self.pinned = pinned;
                self.send(vec![EngineCommand::Pin(pinned)]);
            }
        }
    }

    fn send(&self, commands: Vec<EngineCommand>) {
        // Each command is a separate message: together they could exceed the size limit. A session
        // that has just ended is reported as lost.
        if let Some(outbox) = &self.outbox {
            commands
                .into_iter()
                .for_each(|command| drop(outbox.send(vec![command])));
        }
    }

    fn announce(&mut self, newest: Option<StateId>) {
        let newer = |newest: &StateId| self.newest.is_none_or(|known| known.version <= newest.version);
        self.newest = newest.filter(newer).or(self.newest);
        if let Some(newest) = self.newest {
            self.send(vec![EngineCommand::Announce(newest)]);
            if self.outbox.is_some() && self.waits_for.is_none() {
                self.waits_for = Some(newest.version);
            }
            // The engine may have reported these weights before the announcement.
            self.look();
        }
    }

    fn handle(&mut self, news: News) {
        match news {
            News::Up(outbox) => {
                self.outbox = Some(outbox);
                (self.waits_for, self.serving) = (None, None);
                if self.pinned {
                    self.send(vec![EngineCommand::Pin(true)]);
                }
                self.announce(self.newest);
            }
            News::Lost => self.lose(),
            News::Failed { commands, reason } => self.fail(commands, reason),
            News::Event(EngineEvent::Alive) => {}
            News::Event(EngineEvent::Serving(state)) => {
                self.serving = Some(state);
                self.look();
            }
            News::Event(EngineEvent::Refused { version, reason }) => self.refuse(version, reason),
            News::Event(EngineEvent::Finished(answers)) => {
                self.outstanding.answer(answers.into_iter().map(wire::made).collect());
            }
            News::Event(EngineEvent::Progress(list)) => {
                for update in list {
                    let request = update.request;
                    if !self.outstanding.update(update) {
                        self.send(vec![EngineCommand::Leave(vec![request])]);
                    }
                }
            }
        }
    }

    fn lose(&mut self) {
        self.outbox = None;
        // Its report is out of date, whatever is announced before the next engine is there.
        (self.waits_for, self.serving) = (None, None);
        if self.status.there.send_replace(false) {
            let last = self.outstanding.lose().len();
            if last > 0 {
                let (agent, url) = (&self.target.agent, &self.target.url);
                crash_loop::end(&format!("agent {agent}, engine at {url}"), last);
            }
        }
        self.outstanding.end_visits(&away());
    }

    /// Fails commands that the engine will never accept: a retry would be rejected again.
    fn fail(&mut self, commands: Vec<EngineCommand>, reason: String) {
        let failure = EngineFailure {
            cause: Failure::engine(reason),
            retry: false,
        };
        for command in commands {
            match command {
                EngineCommand::Generate(frame) => self.outstanding.fail(&frame, &failure),
                EngineCommand::Visit { frame, .. } => {
                    let requests = frame.jobs.iter().map(|job| job.request);
                    requests.for_each(|request| self.outstanding.end_visit(request, &failure));
                }
                EngineCommand::Leave(_) | EngineCommand::Announce(_) | EngineCommand::Pin(_) => {}
            }
        }
    }

    /// Checks the weights that the engine serves. It is asked once they are at least those that
    /// were newest when the session began. Weights of another agent count as none: it then fetches
    /// the announced ones.
    fn look(&mut self) {
        let Some(StateId { version, .. }) = self.serving.filter(|serving| self.shelf.knows(*serving)) else {
            return;
        };
        if self.newest.is_none_or(|newest| newest.version <= version) {
            self.again = None;
            self.pauses.reset();
        }
        self.status
            .version
            .send_if_modified(|known| std::mem::replace(known, version) != version);
        if self.ready() || self.waits_for.is_none_or(|wanted| version < wanted) {
            return;
        }
        let (agent, url, again) = (&self.target.agent, &self.target.url, self.outstanding.len());
        tracing::info!(%agent, url, %version, again, "an engine process serves");
        let batches = self.outstanding.again();
        let commands = batches.flat_map(|(batch, jobs, wave)| wire::frames(batch, jobs, wave));
        let commands = commands.map(EngineCommand::Generate).collect();
        self.send(commands);
        self.status.there.send_replace(true);
    }

    fn refuse(&mut self, version: WeightVersion, reason: String) {
        let (agent, url) = (&self.target.agent, &self.target.url);
        tracing::error!(%agent, url, %version, reason, "an engine process could not load new weights; they are announced again");
        self.again = Some(Instant::now() + self.pauses.next_pause());
        self.status
            .refused
            .send_replace(Some(WeightRefusal { version, reason }));
    }
}

#[cfg(test)]
mod tests;
