//! Where an agent's session meets its engine.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use broker::AgentName;
use broker::codec::SCHEMA;
use broker::ids::{RequestId, WeightVersion};
use broker::protocol::engine::{EngineCommand, EngineEvent, Hello, JobFrame};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::Parts;
use super::pull::{self, Wanted};
use crate::engine::embedded::EmbeddedEngine;
use crate::engine::link::{self, Secret};
use crate::engine::remote::wire;
use crate::engine::stuck;
use crate::engine::{EngineClient, EngineFailure, Finished, Job, Refusal, Told, Visit};
use crate::failure;

/// Why a request is not done: its status, and what is said.
pub(super) type No = (u16, String);

pub(super) struct Floor {
    pub(super) agent: AgentName,
    pub(super) secret: Secret,
    parts: Parts,
    desk: Mutex<Desk>,
    /// What the puller is to fetch.
    wanted: watch::Sender<Option<Wanted>>,
    /// Where the engine answers.
    finished: UnboundedSender<Vec<Finished>>,
    told: UnboundedSender<Told>,
}

#[derive(Default)]
struct Desk {
    /// The run that it serves: of the first session.
    run: Option<String>,
    session: Option<Session>,
    sessions: u64,
    engine: Option<Arc<EmbeddedEngine>>,
    /// Jobs that the engine has, waves apart.
    open: HashSet<RequestId>,
    /// Parts of a wave that is not whole yet.
    wave: Vec<Job>,
    visits: HashSet<RequestId>,
}

struct Session {
    id: u64,
    events: UnboundedSender<EngineEvent>,
    /// Where its weights are fetched.
    weights: String,
}

impl Floor {
    /// Begins to pass on what an engine will say. Must be called in a runtime.
    pub(super) fn start(agent: AgentName, secret: Secret, parts: Parts) -> anyhow::Result<Arc<Self>> {
        let ((finished, answers), (told, tellings)) = (unbounded_channel(), unbounded_channel());
        let (wanted, wants) = watch::channel(None);
        let floor = Arc::new(Self {
            agent,
            secret,
            parts: parts.clone(),
            desk: Mutex::default(),
            wanted,
            finished,
            told,
        });
        tokio::spawn(pass_on(floor.clone(), answers));
        tokio::spawn(pass_on_told(floor.clone(), tellings));
        tokio::spawn(pull::run(floor.clone(), parts, wants)?);
        Ok(floor)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session, in the place of the one before.
    pub(super) fn open(&self, hello: Hello) -> Result<(u64, UnboundedReceiver<EngineEvent>), No> {
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
        if let Some(engine) = &desk.engine {
            // The first thing that is said: what it serves.
            let _ = events.send(EngineEvent::Serving(*engine.versions().borrow()));
        }
        desk.end_visits();
        desk.wave.clear();
        desk.sessions += 1;
        let id = desk.sessions;
        desk.session = Some(Session { id, events, weights });
        tracing::info!(agent = %self.agent, session = id, "the agent is there");
        Ok((id, heard))
    }

    /// A session's connection is gone.
    pub(super) fn hang_up(&self, id: u64) {
        let mut desk = self.desk();
        if desk.session.as_ref().is_some_and(|session| session.id == id) {
            desk.session = None;
            desk.end_visits();
            tracing::info!(agent = %self.agent, session = id, "the agent is gone; what it asked for is finished");
        }
    }

    /// Does what a session wants.
    pub(super) fn command(&self, id: u64, commands: Vec<EngineCommand>) -> Result<(), No> {
        let mut desk = self.desk();
        let session = desk.session.as_ref().filter(|session| session.id == id);
        let Some(weights) = session.map(|session| session.weights.clone()) else {
            return Err((409, "this session has ended: open another".to_owned()));
        };
        for command in commands {
            match command {
                EngineCommand::Announce(version) => {
                    let url = weights.clone();
                    self.wanted.send_replace(Some(Wanted { version, url }));
                }
                EngineCommand::Leave(requests) => requests.into_iter().for_each(|request| desk.leave(request)),
                EngineCommand::Generate(frame) => self.generate(&mut desk, frame)?,
                EngineCommand::Visit { frame, watched } => self.visit(&mut desk, frame, watched)?,
            }
        }
        Ok(())
    }

    fn generate(&self, desk: &mut Desk, frame: JobFrame) -> Result<(), No> {
        let wave = frame.wave;
        let mut jobs = wire::jobs(frame).ok_or_else(broken)?;
        let Some(engine) = desk.engine.clone() else {
            let failure = EngineFailure {
                reason: failure::engine("the engine has no weights yet"),
                retry: true,
            };
            let failed = jobs.into_iter().map(|job| Finished {
                job,
                result: Err(failure.clone()),
            });
            // Its receiver lives as long as this process.
            let _ = self.finished.send(failed.collect());
            return Ok(());
        };
        if let Some(part) = wave {
            desk.wave.append(&mut jobs);
            if !part.more {
                engine.submit(std::mem::take(&mut desk.wave), true, self.finished.clone());
            }
            return Ok(());
        }
        // What an earlier session asked for is under way: its answer goes to this one.
        jobs.retain(|job| desk.open.insert(job.request));
        engine.submit(jobs, false, self.finished.clone());
        Ok(())
    }

    fn visit(&self, desk: &mut Desk, frame: JobFrame, watched: Vec<bool>) -> Result<(), No> {
        let jobs = wire::jobs(frame).ok_or_else(broken)?;
        let Some(engine) = desk.engine.clone() else {
            return Err((409, "the engine has no weights yet".to_owned()));
        };
        desk.visits.extend(jobs.iter().map(|job| job.request));
        let visit = |(job, watched)| Visit {
            job,
            watched,
            tell: self.told.clone(),
        };
        engine.visit(jobs.into_iter().zip(watched).map(visit).collect());
        Ok(())
    }

    /// The engine is made: it serves from here on.
    pub(super) fn serve(self: &Arc<Self>, engine: Arc<EmbeddedEngine>) {
        let pulse = engine.pulse();
        let stuck_after = self.parts.settings.engine.stuck_after.0;
        stuck::watch(self.agent.clone(), "engine 0".into(), pulse, stuck_after);
        tokio::spawn(follow(self.clone(), engine.versions(), engine.refusals()));
        let mut desk = self.desk();
        desk.say(EngineEvent::Serving(*engine.versions().borrow()));
        desk.engine = Some(engine);
    }

    pub(super) fn say(&self, event: EngineEvent) {
        self.desk().say(event);
    }

    /// How it stands, for people: the run, the weights, whether its agent is there, and what it works on.
    pub(super) fn health(&self) -> serde_json::Value {
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
    fn say(&self, event: EngineEvent) {
        if let Some(session) = &self.session {
            // A session whose connection is gone is about to hang up.
            let _ = session.events.send(event);
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
        "a frame names a prompt or a sampling that it does not hold".to_owned(),
    )
}

async fn pass_on(floor: Arc<Floor>, mut answers: UnboundedReceiver<Vec<Finished>>) {
    while let Some(list) = answers.recv().await {
        let mut desk = floor.desk();
        for one in &list {
            desk.open.remove(&one.job.request);
        }
        for answers in wire::answers(list) {
            desk.say(EngineEvent::Finished(answers));
        }
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
    mut versions: watch::Receiver<WeightVersion>,
    mut refusals: watch::Receiver<Option<Refusal>>,
) {
    loop {
        tokio::select! {
            Ok(()) = versions.changed() => {
                let version = *versions.borrow_and_update();
                floor.say(EngineEvent::Serving(version));
            }
            Ok(()) = refusals.changed() => {
                let refusal = refusals.borrow_and_update().clone();
                if let Some(Refusal { version, reason }) = refusal {
                    floor.say(EngineEvent::Refused { version, reason });
                }
            }
            else => return,
        }
    }
}
