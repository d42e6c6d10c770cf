//! What is asked of one engine process, in sessions that come and go.

use std::sync::Arc;
use std::time::Duration;

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::engine::{EngineCommand, EngineEvent, StateId};
use broker::protocol::failure::Failure;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::Instant;
use trainer::transfer::Shelf;

use super::open::Open;
use super::session::{News, Target};
use super::{away, wire};
use crate::engine::process::lost;
use crate::engine::{EngineFailure, Finished, Job, Refusal, Visit};

/// After weights were refused they are announced again, later each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What the router wants.
pub(crate) enum Input {
    Jobs {
        jobs: Vec<Job>,
        wave: bool,
        done: UnboundedSender<Vec<Finished>>,
    },
    Visit(Vec<Visit>),
    Leave(RequestId),
    Pin(bool),
}

/// What the router is told.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) version: watch::Sender<WeightVersion>,
    pub(crate) refused: watch::Sender<Option<Refusal>>,
    /// Whether it is asked: it is there, and serves the weights that it is to serve.
    pub(crate) there: watch::Sender<bool>,
}

pub(crate) struct Driver {
    target: Target,
    said: Said,
    open: Open,
    shelf: Arc<Shelf>,
    /// The newest weights that were announced.
    newest: Option<StateId>,
    /// Where commands go, while there is a session.
    outbox: Option<UnboundedSender<Vec<EngineCommand>>>,
    /// The weights from which on the engine of this session may be asked.
    waits_for: Option<WeightVersion>,
    /// What the engine of this session serves, as it said last.
    serving: Option<StateId>,
    /// Whether its engine is to begin with keys and values of its weights alone.
    pinned: bool,
    /// When to announce again what was refused, and the pause after that.
    again: Option<Instant>,
    pause: Duration,
}

impl Driver {
    pub(crate) fn new(target: Target, shelf: Arc<Shelf>, said: Said) -> Self {
        Self {
            target,
            shelf,
            said,
            open: Open::new(),
            newest: None,
            outbox: None,
            waits_for: None,
            serving: None,
            pinned: false,
            again: None,
            pause: FIRST_PAUSE,
        }
    }

    fn ready(&self) -> bool {
        *self.said.there.borrow()
    }

    /// Works until the router is gone.
    pub(crate) async fn run(
        mut self,
        mut inputs: UnboundedReceiver<Input>,
        mut announced: watch::Receiver<Option<StateId>>,
    ) {
        let (tell, mut news) = unbounded_channel();
        let session = tokio::spawn(self.target.clone().keep(tell));
        announced.mark_changed();
        loop {
            let again = self.again;
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(input) => self.take(input),
                    None => break,
                },
                Some(told) = news.recv() => self.hear(told),
                // A trainer that has ended announces nothing more, and its last weights serve on.
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

    fn take(&mut self, input: Input) {
        match input {
            Input::Jobs { jobs, wave, done } => {
                let copy = self.ready().then(|| jobs.clone());
                let batch = self.open.take(jobs, wave, done);
                if let Some(jobs) = copy {
                    let frames = wire::frames(batch, &jobs, wave);
                    self.send(frames.into_iter().map(EngineCommand::Generate).collect());
                }
            }
            Input::Visit(visits) if !self.ready() => visits.iter().for_each(|visit| visit.fail(away())),
            Input::Visit(visits) => {
                let commands = wire::visits(&visits);
                self.send(commands);
                visits.into_iter().for_each(|visit| self.open.begin(visit));
            }
            Input::Leave(request) => {
                if self.open.leave(request) {
                    self.send(vec![EngineCommand::Leave(vec![request])]);
                } else {
                    self.open.forget(request);
                }
            }
            Input::Pin(pinned) => {
                self.pinned = pinned;
                self.send(vec![EngineCommand::Pin(pinned)]);
            }
        }
    }

    fn send(&self, commands: Vec<EngineCommand>) {
        // Each on its own: together they could be more than a message may have. A session that has just ended is told as lost.
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
            // It may have said that it serves them before it was told to.
            self.look();
        }
    }

    fn hear(&mut self, news: News) {
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
            News::Said(EngineEvent::Alive) => {}
            News::Said(EngineEvent::Serving(state)) => {
                self.serving = Some(state);
                self.look();
            }
            News::Said(EngineEvent::Refused { version, reason }) => self.refuse(version, reason),
            News::Said(EngineEvent::Finished(answers)) => {
                self.open.answer(answers.into_iter().map(wire::made).collect());
            }
            News::Said(EngineEvent::Told(list)) => {
                for told in list {
                    let request = told.request;
                    if !self.open.tell(told) {
                        self.send(vec![EngineCommand::Leave(vec![request])]);
                    }
                }
            }
        }
    }

    fn lose(&mut self) {
        self.outbox = None;
        // What it said is true no more, whatever is announced before the next one is there.
        (self.waits_for, self.serving) = (None, None);
        if self.said.there.send_replace(false) {
            let last = self.open.lose().len();
            if last > 0 {
                let (agent, url) = (&self.target.agent, &self.target.url);
                lost::end(&format!("agent {agent}, engine at {url}"), last);
            }
        }
        self.open.end_visits(&away());
    }

    /// The engine will never take these: asked again they would be refused again.
    fn fail(&mut self, commands: Vec<EngineCommand>, reason: String) {
        let failure = EngineFailure {
            cause: Failure::engine(reason),
            retry: false,
        };
        for command in commands {
            match command {
                EngineCommand::Generate(frame) => self.open.fail(&frame, &failure),
                EngineCommand::Visit { frame, .. } => {
                    let requests = frame.jobs.iter().map(|job| job.request);
                    requests.for_each(|request| self.open.end_visit(request, &failure));
                }
                EngineCommand::Leave(_) | EngineCommand::Announce(_) | EngineCommand::Pin(_) => {}
            }
        }
    }

    /// Looks at what it serves. From those weights on that were the newest when the session began, it is asked. Weights that are not this
    /// agent's are as none: announced others, it fetches those.
    fn look(&mut self) {
        let Some(StateId { version, .. }) = self.serving.filter(|serving| self.shelf.knows(*serving)) else {
            return;
        };
        if self.newest.is_none_or(|newest| newest.version <= version) {
            (self.again, self.pause) = (None, FIRST_PAUSE);
        }
        self.said
            .version
            .send_if_modified(|told| std::mem::replace(told, version) != version);
        if self.ready() || self.waits_for.is_none_or(|wanted| version < wanted) {
            return;
        }
        let (agent, url, again) = (&self.target.agent, &self.target.url, self.open.len());
        tracing::info!(%agent, url, %version, again, "an engine process serves");
        let batches = self.open.again();
        let commands = batches.flat_map(|(batch, jobs, wave)| wire::frames(batch, jobs, wave));
        let commands = commands.map(EngineCommand::Generate).collect();
        self.send(commands);
        self.said.there.send_replace(true);
    }

    fn refuse(&mut self, version: WeightVersion, reason: String) {
        let (agent, url) = (&self.target.agent, &self.target.url);
        tracing::error!(%agent, url, %version, reason, "an engine process did not take new weights; they are announced again");
        self.again = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.said.refused.send_replace(Some(Refusal { version, reason }));
    }
}

#[cfg(test)]
mod tests;
