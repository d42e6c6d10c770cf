//! Connects an agent's session with its engine.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use broker::AgentName;
use broker::codec::SCHEMA;
use broker::ids::{RequestId, RunId, WeightVersion};
use broker::protocol::engine::{EngineCommand, EngineEvent, Hello, JobFrame, StateId};
use broker::protocol::failure::Failure;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::model::Parts;
use super::pull::{self, AnnouncedWeights};
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::process::client::wire;
use crate::engine::process::link;
use crate::engine::process::link::Secret;
use crate::engine::process::model_match;
use crate::engine::stuck;
use crate::engine::{
    EngineClient, EngineFailure, EngineProgress, Finished, GenerationJob, Visit, VisitUpdate, WeightRefusal,
};

/// The status and the reason of a rejected request.
pub(crate) type Rejection = (u16, String);

pub(crate) struct SessionHost {
    pub(crate) agent: AgentName,
    pub(crate) secret: Secret,
    parts: Arc<Parts>,
    inner: Mutex<Inner>,
    /// The weights that the puller must fetch.
    wanted: watch::Sender<Option<AnnouncedWeights>>,
    /// Runs the tasks that pass answers on: a server's worker may end before this process does.
    runtime: Handle,
    updates: UnboundedSender<VisitUpdate>,
}

#[derive(Default)]
struct Inner {
    /// The run that it serves: the run of the first session.
    run: Option<String>,
    session: Option<Session>,
    sessions: u64,
    engine: Option<Arc<EmbeddedEngine>>,
    /// The number of engines before this one.
    era: u64,
    /// Digests of the weights given to the engine, from the served version on.
    digests: BTreeMap<WeightVersion, [u8; 32]>,
    /// Jobs at the engine, except waves, with the batch that asked last.
    open: HashMap<RequestId, u64>,
    /// Parts of a wave that is still incomplete.
    wave: (u64, Vec<GenerationJob>),
    visits: HashSet<RequestId>,
    /// The session's wish for every engine: see [`EngineCommand::Pin`].
    pinned: bool,
}

struct Session {
    id: u64,
    events: UnboundedSender<EngineEvent>,
    /// The URL from which its weights are fetched.
    weights: String,
}

impl SessionHost {
    /// Starts to pass on the engine's updates. Must be called in a runtime.
    pub(crate) fn start(agent: AgentName, secret: Secret, parts: Arc<Parts>) -> anyhow::Result<Arc<Self>> {
        let (updates, updated) = unbounded_channel();
        let (wanted, wants) = watch::channel(None);
        let host = Arc::new(Self {
            agent,
            secret,
            parts: parts.clone(),
            inner: Mutex::default(),
            wanted,
            runtime: Handle::current(),
            updates,
        });
        tokio::spawn(pass_on_updates(host.clone(), updated));
        tokio::spawn(pull::run(host.clone(), parts, wants)?);
        Ok(host)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session, which replaces the one before.
    pub(crate) fn open(&self, hello: Hello) -> Result<(u64, UnboundedReceiver<EngineEvent>), Rejection> {
        if hello.schema != SCHEMA {
            let (ours, theirs) = (SCHEMA, hello.schema);
            return Err((
                409,
                format!("this engine uses schema {ours} and its agent {theirs}: run the same release"),
            ));
        }
        if hello.agent != self.agent.as_str() {
            return Err((
                409,
                format!("this is an engine of agent {}, not of {}", self.agent, hello.agent),
            ));
        }
        if let Some(reason) = model_match::difference(&self.parts.facts, &hello.model) {
            return Err((409, reason));
        }
        let weights = link::judged(&hello.weights).map_err(|error| (409, error.message))?;
        let mut inner = self.inner();
        let run = inner.run.get_or_insert_with(|| hello.run.clone());
        if *run != hello.run {
            return Err((
                409,
                format!("this engine serves run {run}, not {}: restart it", hello.run),
            ));
        }
        let (events, received) = unbounded_channel();
        inner.end_visits();
        inner.wave.1.clear();
        inner.pin(false);
        inner.sessions += 1;
        let id = inner.sessions;
        inner.session = Some(Session { id, events, weights });
        // The first event: the weights it serves.
        inner.say_serving();
        tracing::info!(agent = %self.agent, session = id, "the agent has connected");
        Ok((id, received))
    }

    /// Ends a session after its connection is gone.
    pub(crate) fn hang_up(&self, id: u64) {
        let mut inner = self.inner();
        if inner.session.as_ref().is_some_and(|session| session.id == id) {
            inner.session = None;
            inner.end_visits();
            tracing::info!(agent = %self.agent, session = id, "the agent has disconnected; its open requests are finished");
        }
    }

    /// Runs a session's commands.
    pub(crate) fn command(self: &Arc<Self>, id: u64, commands: Vec<EngineCommand>) -> Result<(), Rejection> {
        let mut inner = self.inner();
        let session = inner.session.as_ref().filter(|session| session.id == id);
        let Some(weights) = session.map(|session| session.weights.clone()) else {
            return Err((409, "this session has ended: open a new one".to_owned()));
        };
        for command in commands {
            match command {
                EngineCommand::Announce(state) => {
                    let url = weights.clone();
                    self.wanted.send_replace(Some(AnnouncedWeights { state, url }));
                }
                EngineCommand::Leave(requests) => requests.into_iter().for_each(|request| inner.leave(request)),
                EngineCommand::Pin(pinned) => inner.pin(pinned),
                EngineCommand::Generate(frame) => self.generate(&mut inner, frame)?,
                EngineCommand::Visit { frame, watched, top } => self.visit(&mut inner, frame, &watched, &top)?,
            }
        }
        Ok(())
    }

    fn generate(self: &Arc<Self>, inner: &mut Inner, frame: JobFrame) -> Result<(), Rejection> {
        let (batch, wave) = (frame.batch, frame.wave);
        let mut jobs = wire::jobs(frame).ok_or_else(broken)?;
        let Some(engine) = inner.engine.clone() else {
            inner.finish(jobs.into_iter().map(|job| (batch, unready(job))));
            return Ok(());
        };
        if let Some(part) = wave {
            if std::mem::replace(&mut inner.wave.0, batch) != batch {
                inner.wave.1.clear();
            }
            inner.wave.1.append(&mut jobs);
            if !part.more {
                let done = self.listen(inner.era, Some(batch));
                engine.submit(std::mem::take(&mut inner.wave.1), true, done);
            }
            return Ok(());
        }
        // The request of an earlier session is in progress: its answer goes to this one.
        jobs.retain(|job| inner.open.insert(job.request, batch).is_none());
        if !jobs.is_empty() {
            engine.submit(jobs, false, self.listen(inner.era, None));
        }
        Ok(())
    }

    /// Returns the channel on which the engine answers one request: a wave, or jobs in `open`.
    fn listen(self: &Arc<Self>, era: u64, wave: Option<u64>) -> UnboundedSender<Vec<Finished>> {
        let (done, answers) = unbounded_channel();
        self.runtime.spawn(pass_on(self.clone(), era, wave, answers));
        done
    }

    fn visit(&self, inner: &mut Inner, frame: JobFrame, watched: &[bool], top: &[u8]) -> Result<(), Rejection> {
        let jobs = wire::jobs(frame).ok_or_else(broken)?;
        if (watched.len(), top.len()) != (jobs.len(), jobs.len()) {
            return Err(broken());
        }
        let Some(engine) = inner.engine.clone() else {
            return Err((409, "the engine has no weights yet".to_owned()));
        };
        inner.visits.extend(jobs.iter().map(|job| job.request));
        let visit = |(job, (watched, top)): (GenerationJob, (&bool, &u8))| Visit {
            job,
            watched: *watched,
            top: *top,
            prompt_top: None,
            updates: self.updates.clone(),
        };
        engine.visit(jobs.into_iter().zip(watched.iter().zip(top)).map(visit).collect());
        Ok(())
    }

    /// Installs the engine: it serves from now on.
    pub(crate) fn serve(self: &Arc<Self>, engine: Arc<EmbeddedEngine>, first: StateId) {
        let pulse = engine.pulse();
        let stuck_after = self.parts.settings.engine.stuck_after.0;
        stuck::watch(self.agent.clone(), "engine 0".into(), pulse, stuck_after);
        let mut inner = self.inner();
        let follow = follow(self.clone(), inner.era, engine.versions(), engine.refusals());
        tokio::spawn(follow);
        inner.digests.insert(first.version, first.digest);
        engine.pin(inner.pinned);
        inner.engine = Some(engine);
        inner.say_serving();
    }

    /// Records weights before the engine receives them.
    pub(crate) fn expect(&self, state: StateId) {
        self.inner().digests.insert(state.version, state.digest);
    }

    /// Ends the engine because its weights are not its agent's (any more). It receives no further
    /// request, and its late answers are dropped. The session ends with it: the agent repeats its
    /// requests in the next one.
    pub(crate) fn retire(&self) {
        let mut inner = self.inner();
        inner.end_visits();
        inner.session = None;
        inner.era += 1;
        if let Some(engine) = inner.engine.take() {
            engine.end();
        }
        inner.digests.clear();
        inner.open.clear();
        inner.wave.1.clear();
    }

    pub(crate) fn say(&self, event: EngineEvent) {
        self.inner().say(event);
    }

    pub(crate) fn run(&self) -> Option<RunId> {
        RunId::new(self.inner().run.as_deref()?)
    }

    pub(crate) fn progress(&self) -> Option<EngineProgress> {
        self.inner().engine.as_ref()?.progress()
    }

    /// Returns its state for people: the run, the weights, the agent's presence, and the work.
    pub(crate) fn health(&self) -> serde_json::Value {
        let inner = self.inner();
        let engine = inner.engine.as_ref();
        let pulse = engine.map(|engine| engine.pulse().look());
        serde_json::json!({
            "agent": self.agent.as_str(),
            "run": inner.run,
            "weights": engine.map(|engine| engine.versions().borrow().to_string()),
            "session": inner.session.is_some(),
            "steps": pulse.map(|pulse| pulse.marks),
            "work": pulse.map(|pulse| pulse.work),
        })
    }
}

impl Inner {
    fn say_serving(&mut self) {
        let Some(version) = self.engine.as_ref().map(|engine| *engine.versions().borrow()) else {
            return;
        };
        self.digests = self.digests.split_off(&version);
        if let Some(digest) = self.digests.get(&version).copied() {
            self.say(EngineEvent::Serving(StateId { version, digest }));
        }
    }

    fn finish(&self, finished: impl IntoIterator<Item = (u64, Finished)>) {
        for answers in wire::answers(finished) {
            self.say(EngineEvent::Finished(answers));
        }
    }

    fn say(&self, event: EngineEvent) {
        if let Some(session) = &self.session {
            // A session without a connection is about to hang up.
            let _ = session.events.send(event);
        }
    }

    fn pin(&mut self, pinned: bool) {
        self.pinned = pinned;
        if let Some(engine) = &self.engine {
            engine.pin(pinned);
        }
    }

    fn leave(&mut self, request: RequestId) {
        if self.visits.remove(&request)
            && let Some(engine) = &self.engine
        {
            engine.leave(request);
        }
    }

    fn end_visits(&mut self) {
        for request in std::mem::take(&mut self.visits) {
            if let Some(engine) = &self.engine {
                engine.leave(request);
            }
        }
    }
}

fn broken() -> Rejection {
    (
        400,
        "a frame refers to a missing prompt or sampling, or does not say how to report each visit".to_owned(),
    )
}

/// Answers a job sent to a process that has no engine.
fn unready(job: GenerationJob) -> Finished {
    let failure = EngineFailure {
        cause: Failure::engine("the engine has no weights yet"),
        retry: true,
    };
    Finished {
        job,
        result: Err(failure),
    }
}

async fn pass_on(host: Arc<SessionHost>, era: u64, wave: Option<u64>, mut answers: UnboundedReceiver<Vec<Finished>>) {
    while let Some(list) = answers.recv().await {
        let mut inner = host.inner();
        if inner.era != era {
            return;
        }
        let numbered = list.into_iter().filter_map(|one| {
            let batch = wave.or_else(|| inner.open.remove(&one.job.request));
            batch.map(|batch| (batch, one))
        });
        let numbered: Vec<_> = numbered.collect();
        inner.finish(numbered);
    }
}

async fn pass_on_updates(host: Arc<SessionHost>, mut updates: UnboundedReceiver<VisitUpdate>) {
    while let Some(update) = updates.recv().await {
        let mut inner = host.inner();
        if update.end.is_some() {
            inner.visits.remove(&update.request);
        }
        inner.say(EngineEvent::Progress(vec![wire::update_to_wire(update)]));
    }
}

/// Reports the weights that the engine serves and rejects, as they change.
async fn follow(
    host: Arc<SessionHost>,
    era: u64,
    mut versions: watch::Receiver<WeightVersion>,
    mut refusals: watch::Receiver<Option<WeightRefusal>>,
) {
    loop {
        tokio::select! {
            Ok(()) = versions.changed() => {
                let mut inner = host.inner();
                if inner.era == era {
                    inner.say_serving();
                }
            }
            Ok(()) = refusals.changed() => {
                let refusal = refusals.borrow_and_update().clone();
                let inner = host.inner();
                if let Some(WeightRefusal { version, reason }) = refusal.filter(|_| inner.era == era) {
                    inner.say(EngineEvent::Refused { version, reason });
                }
            }
            else => return,
        }
    }
}
