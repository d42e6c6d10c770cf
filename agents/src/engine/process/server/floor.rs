//! Where an agent's session meets its engine.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use broker::AgentName;
use broker::codec::SCHEMA;
use broker::ids::{RequestId, WeightVersion};
use broker::protocol::engine::{EngineCommand, EngineEvent, Hello, JobFrame, StateId};
use broker::protocol::failure::Failure;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::model::Parts;
use super::pull::{self, Wanted};
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::process::client::wire;
use crate::engine::process::link;
use crate::engine::process::link::Secret;
use crate::engine::process::model_match;
use crate::engine::stuck;
use crate::engine::{EngineClient, EngineFailure, Finished, Job, Refusal, Told, Visit};

/// Why a request is not done: its status, and what is said.
pub(crate) type No = (u16, String);

pub(crate) struct Floor {
    pub(crate) agent: AgentName,
    pub(crate) secret: Secret,
    parts: Arc<Parts>,
    desk: Mutex<Desk>,
    /// What the puller is to fetch.
    wanted: watch::Sender<Option<Wanted>>,
    /// Where answers are passed on: a server's worker may end before this process does.
    runtime: Handle,
    told: UnboundedSender<Told>,
}

#[derive(Default)]
struct Desk {
    /// The run that it serves: of the first session.
    run: Option<String>,
    session: Option<Session>,
    sessions: u64,
    engine: Option<Arc<EmbeddedEngine>>,
    /// How many engines there were before this one.
    era: u64,
    /// Digests of the weights that the engine was given, of what it serves and later.
    digests: BTreeMap<WeightVersion, [u8; 32]>,
    /// Jobs that the engine has, waves apart, and the batch that asked last.
    open: HashMap<RequestId, u64>,
    /// Parts of a wave that is not whole yet.
    wave: (u64, Vec<Job>),
    visits: HashSet<RequestId>,
    /// What the session wants of every engine that there is: see [`EngineCommand::Pin`].
    pinned: bool,
}

struct Session {
    id: u64,
    events: UnboundedSender<EngineEvent>,
    /// Where its weights are fetched.
    weights: String,
}

impl Floor {
    /// Begins to pass on what an engine will say. Must be called in a runtime.
    pub(crate) fn start(agent: AgentName, secret: Secret, parts: Arc<Parts>) -> anyhow::Result<Arc<Self>> {
        let (told, tellings) = unbounded_channel();
        let (wanted, wants) = watch::channel(None);
        let floor = Arc::new(Self {
            agent,
            secret,
            parts: parts.clone(),
            desk: Mutex::default(),
            wanted,
            runtime: Handle::current(),
            told,
        });
        tokio::spawn(pass_on_told(floor.clone(), tellings));
        tokio::spawn(pull::run(floor.clone(), parts, wants)?);
        Ok(floor)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session, in the place of the one before.
    pub(crate) fn open(&self, hello: Hello) -> Result<(u64, UnboundedReceiver<EngineEvent>), No> {
        if hello.schema != SCHEMA {
            let (ours, theirs) = (SCHEMA, hello.schema);
            return Err((
                409,
                format!("this engine speaks schema {ours} and its agent {theirs}: run the same release"),
            ));
        }
        if hello.agent != self.agent.as_str() {
            return Err((
                409,
                format!("this is an engine of agent {}, and not of {}", self.agent, hello.agent),
            ));
        }
        if let Some(reason) = model_match::difference(&self.parts.facts, &hello.model) {
            return Err((409, reason));
        }
        let weights = link::judged(&hello.weights).map_err(|error| (409, error.message))?;
        let mut desk = self.desk();
        let run = desk.run.get_or_insert_with(|| hello.run.clone());
        if *run != hello.run {
            return Err((
                409,
                format!("this engine serves run {run}, and not {}: start it again", hello.run),
            ));
        }
        let (events, heard) = unbounded_channel();
        desk.end_visits();
        desk.wave.1.clear();
        desk.pin(false);
        desk.sessions += 1;
        let id = desk.sessions;
        desk.session = Some(Session { id, events, weights });
        // The first thing that is said: what it serves.
        desk.say_serving();
        tracing::info!(agent = %self.agent, session = id, "the agent is there");
        Ok((id, heard))
    }

    /// A session's connection is gone.
    pub(crate) fn hang_up(&self, id: u64) {
        let mut desk = self.desk();
        if desk.session.as_ref().is_some_and(|session| session.id == id) {
            desk.session = None;
            desk.end_visits();
            tracing::info!(agent = %self.agent, session = id, "the agent is gone; what it asked for is finished");
        }
    }

    /// Does what a session wants.
    pub(crate) fn command(self: &Arc<Self>, id: u64, commands: Vec<EngineCommand>) -> Result<(), No> {
        let mut desk = self.desk();
        let session = desk.session.as_ref().filter(|session| session.id == id);
        let Some(weights) = session.map(|session| session.weights.clone()) else {
            return Err((409, "this session has ended: open another".to_owned()));
        };
        for command in commands {
            match command {
                EngineCommand::Announce(state) => {
                    let url = weights.clone();
                    self.wanted.send_replace(Some(Wanted { state, url }));
                }
                EngineCommand::Leave(requests) => requests.into_iter().for_each(|request| desk.leave(request)),
                EngineCommand::Pin(pinned) => desk.pin(pinned),
                EngineCommand::Generate(frame) => self.generate(&mut desk, frame)?,
                EngineCommand::Visit { frame, watched, top } => self.visit(&mut desk, frame, &watched, &top)?,
            }
        }
        Ok(())
    }

    fn generate(self: &Arc<Self>, desk: &mut Desk, frame: JobFrame) -> Result<(), No> {
        let (batch, wave) = (frame.batch, frame.wave);
        let mut jobs = wire::jobs(frame).ok_or_else(broken)?;
        let Some(engine) = desk.engine.clone() else {
            desk.finish(jobs.into_iter().map(|job| (batch, unready(job))));
            return Ok(());
        };
        if let Some(part) = wave {
            if std::mem::replace(&mut desk.wave.0, batch) != batch {
                desk.wave.1.clear();
            }
            desk.wave.1.append(&mut jobs);
            if !part.more {
                let done = self.listen(desk.era, Some(batch));
                engine.submit(std::mem::take(&mut desk.wave.1), true, done);
            }
            return Ok(());
        }
        // What an earlier session asked for is under way: its answer goes to this one.
        jobs.retain(|job| desk.open.insert(job.request, batch).is_none());
        if !jobs.is_empty() {
            engine.submit(jobs, false, self.listen(desk.era, None));
        }
        Ok(())
    }

    /// Where an engine answers what it is asked at once: a wave, or else jobs that are in [`Desk::open`].
    fn listen(self: &Arc<Self>, era: u64, wave: Option<u64>) -> UnboundedSender<Vec<Finished>> {
        let (done, answers) = unbounded_channel();
        self.runtime.spawn(pass_on(self.clone(), era, wave, answers));
        done
    }

    fn visit(&self, desk: &mut Desk, frame: JobFrame, watched: &[bool], top: &[u8]) -> Result<(), No> {
        let jobs = wire::jobs(frame).ok_or_else(broken)?;
        if (watched.len(), top.len()) != (jobs.len(), jobs.len()) {
            return Err(broken());
        }
        let Some(engine) = desk.engine.clone() else {
            return Err((409, "the engine has no weights yet".to_owned()));
        };
        desk.visits.extend(jobs.iter().map(|job| job.request));
        let visit = |(job, (watched, top)): (Job, (&bool, &u8))| Visit {
            job,
            watched: *watched,
            top: *top,
            prompt_top: None,
            tell: self.told.clone(),
        };
        engine.visit(jobs.into_iter().zip(watched.iter().zip(top)).map(visit).collect());
        Ok(())
    }

    /// The engine is made: it serves from here on.
    pub(crate) fn serve(self: &Arc<Self>, engine: Arc<EmbeddedEngine>, first: StateId) {
        let pulse = engine.pulse();
        let stuck_after = self.parts.settings.engine.stuck_after.0;
        stuck::watch(self.agent.clone(), "engine 0".into(), pulse, stuck_after);
        let mut desk = self.desk();
        let follow = follow(self.clone(), desk.era, engine.versions(), engine.refusals());
        tokio::spawn(follow);
        desk.digests.insert(first.version, first.digest);
        engine.pin(desk.pinned);
        desk.engine = Some(engine);
        desk.say_serving();
    }

    /// The engine is about to be given these weights.
    pub(crate) fn expect(&self, state: StateId) {
        self.desk().digests.insert(state.version, state.digest);
    }

    /// Its weights are not its agent's (any more): it is asked nothing, and what it still answers is dropped. The session ends with it:
    /// what its agent may have asked for is asked again in the next.
    pub(crate) fn retire(&self) {
        let mut desk = self.desk();
        desk.end_visits();
        desk.session = None;
        desk.era += 1;
        desk.engine = None;
        desk.digests.clear();
        desk.open.clear();
        desk.wave.1.clear();
    }

    pub(crate) fn say(&self, event: EngineEvent) {
        self.desk().say(event);
    }

    /// How it stands, for people: the run, the weights, whether its agent is there, and what it works on.
    pub(crate) fn health(&self) -> serde_json::Value {
        let desk = self.desk();
        let engine = desk.engine.as_ref();
        let pulse = engine.map(|engine| engine.pulse().look());
        serde_json::json!({
            "agent": self.agent.as_str(),
            "run": desk.run,
            "weights": engine.map(|engine| engine.versions().borrow().to_string()),
            "session": desk.session.is_some(),
            "steps": pulse.map(|pulse| pulse.marks),
            "work": pulse.map(|pulse| pulse.work),
        })
    }
}

impl Desk {
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
            // A session whose connection is gone is about to hang up.
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

fn broken() -> No {
    (
        400,
        "a frame names a prompt or a sampling that it does not hold, or does not say how each visit is told".to_owned(),
    )
}

/// Asked of a process that has no engine.
fn unready(job: Job) -> Finished {
    let failure = EngineFailure {
        cause: Failure::engine("the engine has no weights yet"),
        retry: true,
    };
    Finished {
        job,
        result: Err(failure),
    }
}

async fn pass_on(floor: Arc<Floor>, era: u64, wave: Option<u64>, mut answers: UnboundedReceiver<Vec<Finished>>) {
    while let Some(list) = answers.recv().await {
        let mut desk = floor.desk();
        if desk.era != era {
            return;
        }
        let numbered = list.into_iter().filter_map(|one| {
            let batch = wave.or_else(|| desk.open.remove(&one.job.request));
            batch.map(|batch| (batch, one))
        });
        let numbered: Vec<_> = numbered.collect();
        desk.finish(numbered);
    }
}

async fn pass_on_told(floor: Arc<Floor>, mut tellings: UnboundedReceiver<Told>) {
    while let Some(told) = tellings.recv().await {
        let mut desk = floor.desk();
        if told.end.is_some() {
            desk.visits.remove(&told.request);
        }
        desk.say(EngineEvent::Told(vec![wire::told_to_wire(told)]));
    }
}

/// Says what the engine serves and refuses, as it changes.
async fn follow(
    floor: Arc<Floor>,
    era: u64,
    mut versions: watch::Receiver<WeightVersion>,
    mut refusals: watch::Receiver<Option<Refusal>>,
) {
    loop {
        tokio::select! {
            Ok(()) = versions.changed() => {
                let mut desk = floor.desk();
                if desk.era == era {
                    desk.say_serving();
                }
            }
            Ok(()) = refusals.changed() => {
                let refusal = refusals.borrow_and_update().clone();
                let desk = floor.desk();
                if let Some(Refusal { version, reason }) = refusal.filter(|_| desk.era == era) {
                    desk.say(EngineEvent::Refused { version, reason });
                }
            }
            else => return,
        }
    }
}
