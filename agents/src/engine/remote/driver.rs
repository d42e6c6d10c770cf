//! What is asked of one engine process, in sessions that come and go.

use std::sync::Arc;

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::engine::{EngineCommand, EngineEvent};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use trainer::transfer::Shelf;

use super::open::Open;
use super::session::{News, Target};
use super::{away, never, wire};
use crate::engine::{Finished, Job, Refusal, Visit};

/// What the router wants.
pub(super) enum Input {
    Jobs {
        jobs: Vec<Job>,
        wave: bool,
        done: UnboundedSender<Vec<Finished>>,
    },
    Visit(Vec<Visit>),
    Leave(RequestId),
}

/// What the router is told.
#[derive(Default)]
pub(super) struct Said {
    pub(super) version: watch::Sender<WeightVersion>,
    pub(super) refused: watch::Sender<Option<Refusal>>,
    /// Whether it is asked: it is there, and serves the weights that it is to serve.
    pub(super) there: watch::Sender<bool>,
}

pub(super) struct Driver {
    target: Target,
    said: Said,
    open: Open,
    shelf: Arc<Shelf>,
    /// The newest weights that were announced.
    newest: Option<WeightVersion>,
    /// Where commands go, while there is a session.
    outbox: Option<UnboundedSender<Vec<EngineCommand>>>,
    /// The weights from which on the engine of this session may be asked.
    waits_for: Option<WeightVersion>,
}

impl Driver {
    pub(super) fn new(target: Target, shelf: Arc<Shelf>, said: Said) -> Self {
        Self {
            target,
            shelf,
            said,
            open: Open::default(),
            newest: None,
            outbox: None,
            waits_for: None,
        }
    }

    fn ready(&self) -> bool {
        *self.said.there.borrow()
    }

    /// Works until the router is gone.
    pub(super) async fn run(
        mut self,
        mut inputs: UnboundedReceiver<Input>,
        mut announced: watch::Receiver<Option<WeightVersion>>,
    ) {
        let (tell, mut news) = unbounded_channel();
        let session = tokio::spawn(self.target.clone().keep(tell));
        announced.mark_changed();
        loop {
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
            }
        }
        session.abort();
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Jobs { jobs, wave, done } => {
                if self.ready() {
                    let frames = wire::frames(&jobs, wave);
                    self.send(frames.into_iter().map(EngineCommand::Generate).collect());
                }
                self.open.take(jobs, wave, done);
            }
            Input::Visit(visits) if !self.ready() => visits.iter().for_each(never),
            Input::Visit(visits) => {
                let commands = wire::visits(visits.iter().map(|visit| (&visit.job, visit.watched)));
                self.send(commands);
                visits.into_iter().for_each(|visit| self.open.begin(visit));
            }
            Input::Leave(request) => {
                if self.open.leave(request) {
                    self.send(vec![EngineCommand::Leave(vec![request])]);
                } else if !self.ready() {
                    self.open.forget(request);
                }
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

    fn announce(&mut self, newest: Option<WeightVersion>) {
        self.newest = newest.max(self.newest);
        if let Some(version) = self.newest {
            self.send(vec![EngineCommand::Announce(version)]);
            if self.outbox.is_some() && self.waits_for.is_none() {
                self.waits_for = Some(version);
            }
        }
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Up(outbox) => {
                self.outbox = Some(outbox);
                self.waits_for = None;
                self.announce(self.newest);
            }
            News::Lost => {
                self.outbox = None;
                self.said.there.send_replace(false);
                self.open.end_visits(&away());
            }
            News::Said(EngineEvent::Alive) => {}
            News::Said(EngineEvent::Serving(version)) => self.serves(version),
            News::Said(EngineEvent::Refused { version, reason }) => self.refuse(version, reason),
            News::Said(EngineEvent::Finished(answers)) => {
                self.open.answer(answers.into_iter().map(wire::made).collect());
            }
            News::Said(EngineEvent::Told(list)) => {
                for told in list {
                    self.open.tell(wire::told_from_wire(told));
                }
            }
        }
    }

    /// It serves these weights. From those on that were the newest when the session began, it is asked.
    fn serves(&mut self, version: WeightVersion) {
        let (agent, url) = (&self.target.agent, &self.target.url);
        // On the shelf, which may be ahead of what was announced.
        if let Some(newest) = self.shelf.version().filter(|newest| version > *newest) {
            let reason = format!("the engine at {url} serves weights {version}, which are later: start it again");
            return self.refuse(newest, reason);
        }
        self.said
            .version
            .send_if_modified(|told| std::mem::replace(told, version) != version);
        if self.ready() || self.waits_for.is_none_or(|wanted| version < wanted) {
            return;
        }
        let again = self.open.len();
        tracing::info!(%agent, url, %version, again, "an engine process serves");
        let commands = self.open.again().flat_map(|(jobs, wave)| wire::frames(jobs, wave));
        let commands = commands.map(EngineCommand::Generate).collect();
        self.send(commands);
        self.said.there.send_replace(true);
    }

    fn refuse(&self, version: WeightVersion, reason: String) {
        let (agent, url) = (&self.target.agent, &self.target.url);
        tracing::error!(%agent, url, %version, reason, "an engine process did not take new weights");
        self.said.refused.send_replace(Some(Refusal { version, reason }));
    }
}
