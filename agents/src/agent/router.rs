//! The agent's router: takes turn requests, has each generated once, answers, and only then acks.
//!
//! A request that comes again during its generation waits for the same result. A request that comes
//! again later gets the same result from a bounded memory. A synchronous wave is held until it is
//! complete and then computed as one closed batch.

pub(crate) mod answers;
mod recording;
mod waves;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use actix::{Actor, AsyncContext, Context, Handler, Message};
use broker::AgentName;
use broker::bus::{Bus, Delivery};
use broker::ids::RequestId;
use broker::protocol::failure::Failure;
use broker::protocol::turn::{TimedResult, TurnFrame, TurnRequest, Wave};
use broker::topology::Topology;
use rollout::text::Speech;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tracing::Span;

use self::waves::{WaveBuffer, unpark};
use super::broken::Broken;
use super::job_queue::JobQueue;
use crate::base::log_scope;
use crate::base::runtime_check;
use crate::engine::{EngineClient, Finished, GenerationJob};
use crate::observe::series::engine::AgentEngine;
use crate::run_folder::crash_marks::Strikes;
use crate::run_folder::logs::TokenRecords;
use crate::turn::failure;
use crate::turn::recent::{Bounds, Recent};
use crate::turn::render::Rendered;
use crate::turn::room;

/// Finished results remembered for requests that come again; a forgotten one is generated once
/// more.
const REMEMBERED: Bounds = Bounds {
    entries: 16_384,
    bytes: 64 << 20,
};

/// The messages of the router.
#[derive(Message)]
#[rtype(result = "()")]
pub enum RouterMessage {
    /// A frame without its prompts, and for each prompt its ids or the reason why it cannot be
    /// rendered.
    Frame {
        frame: Box<TurnFrame>,
        prompts: Vec<Result<Rendered, String>>,
        delivery: Delivery,
    },
    /// The engine's results, each with the text of its output.
    Finished(Vec<(Finished, String)>),
    /// The number of answers to this frame that are in their queue, or that no coordinator takes
    /// any more.
    Answered(u64, usize),
    /// Begin no more jobs, and blame no group for running ones.
    Stop,
}

struct FrameState {
    delivery: Delivery,
    reply_to: String,
    wave: Option<Wave>,
    waiting: usize,
}

struct Asked {
    request: TurnRequest,
    /// The number of held ids that its prompt begins with.
    kept: usize,
    frames: Vec<u64>,
    /// The time at which it came, if that is shown.
    came: Option<Instant>,
}

pub struct Router {
    agent: AgentName,
    topology: Topology,
    bus: Arc<dyn Bus>,
    engine: Arc<dyn EngineClient>,
    text: Arc<dyn Speech>,
    frames: HashMap<u64, FrameState>,
    next_frame: u64,
    asked: HashMap<RequestId, Asked>,
    recent: Recent<RequestId, Arc<TimedResult>>,
    waves: HashMap<(String, Wave), WaveBuffer>,
    /// Roles with later turns that begin with ids they hold: the engine keeps the state of their
    /// turns.
    going_on: HashSet<String>,
    queue: JobQueue,
    broken: Broken,
    /// The reason why no request is answered any more: requests come again after a restart.
    gave_up: watch::Sender<Option<String>>,
    /// True once no job may begin: requests come again after a restart.
    stopped: bool,
    done: Option<UnboundedSender<Vec<Finished>>>,
    /// The series of its engine, if they are shown.
    observed: Option<AgentEngine>,
    /// The file of recorded tokens, if any may be recorded.
    records: Option<TokenRecords>,
    /// The scope of its log lines: an actor's context has none of its own.
    scope: Span,
}

impl Router {
    #[must_use]
    pub fn new(
        agent: AgentName,
        topology: Topology,
        bus: Arc<dyn Bus>,
        engine: Arc<dyn EngineClient>,
        text: Arc<dyn Speech>,
        gave_up: watch::Sender<Option<String>>,
        strikes: Strikes,
    ) -> Self {
        Self {
            agent,
            topology,
            bus,
            engine,
            text,
            frames: HashMap::new(),
            next_frame: 0,
            asked: HashMap::new(),
            recent: Recent::new(REMEMBERED),
            waves: HashMap::new(),
            going_on: HashSet::new(),
            queue: JobQueue::new(strikes),
            broken: Broken::default(),
            gave_up,
            stopped: false,
            done: None,
            observed: None,
            records: None,
            scope: Span::current(),
        }
    }

    /// The same router, which counts its work in these series.
    #[must_use]
    pub(crate) fn observed_by(self, observed: Option<AgentEngine>) -> Self {
        Self { observed, ..self }
    }

    /// Sets the file in which the router records tokens.
    #[must_use]
    pub(crate) fn recording(self, records: Option<TokenRecords>) -> Self {
        Self { records, ..self }
    }

    fn on_frame(
        &mut self,
        frame: TurnFrame,
        prompts: &[Result<Rendered, String>],
        delivery: Delivery,
        ctx: &mut Context<Self>,
    ) {
        let id = self.next_frame;
        self.next_frame += 1;
        let waiting = frame.requests.len();
        let requests: Vec<RequestId> = frame.requests.iter().map(|request| request.request).collect();
        let state = FrameState {
            delivery,
            reply_to: frame.reply_to.clone(),
            wave: frame.wave,
            waiting,
        };
        self.frames.insert(id, state);
        let mut jobs = Vec::new();
        let mut ready = Vec::new();
        let came = self.observed.is_some().then(Instant::now);
        for request in frame.requests {
            let order = request.order;
            match self.take((id, came), request, prompts, &frame.samplings) {
                Taken::Job(job) => jobs.push((order, job)),
                Taken::Known(result) => ready.push((id, result)),
                Taken::UnderWay => {}
            }
        }
        match frame.wave {
            None => ready.extend(self.submit(jobs.into_iter().map(|(_, job)| job).collect(), false)),
            Some(wave) => ready.extend(self.gather(frame.reply_to, wave, jobs, &requests)),
        }
        self.answer(ready, ctx);
        if waiting == 0 {
            self.settle(id, 0);
        }
    }

    fn take(
        &mut self,
        (frame, came): (u64, Option<Instant>),
        request: TurnRequest,
        prompts: &[Result<Rendered, String>],
        samplings: &[broker::protocol::turn::Sampling],
    ) -> Taken {
        if let Some(result) = self.recent.get(&request.request) {
            return Taken::Known(result.clone());
        }
        if let Some(asked) = self.asked.get_mut(&request.request) {
            asked.frames.push(frame);
            // The job is held for a wave that stays incomplete if its coordinator is gone: it moves
            // to the newest wave that asks for it.
            return unpark(&mut self.waves, &request.request).map_or(Taken::UnderWay, Taken::Job);
        }
        let sampling = samplings.get(request.sampling as usize);
        let failure = match (prompts.get(request.prompt as usize), sampling) {
            (Some(Ok(prompt)), Some(sampling)) => {
                let sampling = match room::within(prompt.ids.len(), sampling) {
                    Ok(sampling) => sampling,
                    Err(failure) => return Taken::Known(Arc::new(request.failed(failure).into())),
                };
                if prompt.kept > 0 && !self.going_on.contains(&request.role) {
                    self.going_on.insert(request.role.clone());
                }
                let job = GenerationJob {
                    request: request.request,
                    group: request.group,
                    member: request.member,
                    prompt_ids: prompt.ids.clone(),
                    sampling,
                    seed: request.seed,
                    keep: self.going_on.contains(&request.role),
                };
                self.asked.insert(
                    request.request,
                    Asked {
                        request,
                        kept: prompt.kept,
                        frames: vec![frame],
                        came,
                    },
                );
                return Taken::Job(job);
            }
            (Some(Err(reason)), _) => failure::prompt(self.agent.as_str(), &request.role, reason),
            _ => Failure::request("the frame names a prompt or sampling that it does not hold"),
        };
        Taken::Known(Arc::new(request.failed(failure).into()))
    }

    /// Has jobs generated in order; returns failures for groups that are put out.
    fn submit(&mut self, jobs: Vec<GenerationJob>, wave: bool) -> Vec<(u64, Arc<TimedResult>)> {
        let mut grouped = Vec::with_capacity(jobs.len());
        let mut refused = Vec::new();
        for job in jobs {
            let Some(asked) = self.asked.get(&job.request) else {
                continue;
            };
            let group = asked.request.group;
            if self.queue.is_out(&group) {
                refused.extend(self.refuse(&job.request));
            } else {
                grouped.push((group, job));
            }
        }
        self.queue.take(grouped, wave);
        self.work();
        refused
    }

    /// The group ran alone each time this process died.
    fn refuse(&mut self, request: &RequestId) -> Vec<(u64, Arc<TimedResult>)> {
        let Some(asked) = self.asked.remove(request) else {
            return Vec::new();
        };
        let times = crate::run_folder::crash_marks::OUT;
        let failure = Failure::crashed(format_args!(
            "agent {} died {times} times while it worked on this group alone",
            self.agent
        ));
        let result: Arc<TimedResult> = Arc::new(asked.request.failed(failure).into());
        asked.frames.into_iter().map(|frame| (frame, result.clone())).collect()
    }

    /// Hands the engine the jobs that may run now.
    fn work(&mut self) {
        let Some(done) = self.done.clone() else { return };
        while let Some((jobs, wave)) = self.queue.next() {
            self.engine.submit(jobs, wave, done.clone());
        }
        if let Some(observed) = &self.observed {
            let (running, waiting) = self.queue.load();
            observed.set_load(running, waiting);
        }
    }
}

enum Taken {
    Job(GenerationJob),
    Known(Arc<TimedResult>),
    UnderWay,
}

impl Actor for Router {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let _scope = self.scope.clone().entered();
        ctx.set_mailbox_capacity(256);
        if runtime_check::is_over() {
            return;
        }
        let (done, mut finished) = tokio::sync::mpsc::unbounded_channel::<Vec<Finished>>();
        self.done = Some(done);
        let (addr, text) = (ctx.address(), self.text.clone());
        log_scope::spawn(async move {
            while let Some(list) = finished.recv().await {
                let spoken = |one: Finished| {
                    let text = one.result.as_ref().map_or_else(
                        |_| String::new(),
                        |made| text.decode(&one.job.prompt_ids, &made.output_ids),
                    );
                    (one, text)
                };
                let list = list.into_iter().map(spoken).collect();
                if addr.send(RouterMessage::Finished(list)).await.is_err() {
                    return;
                }
            }
        });
    }
}

impl Handler<RouterMessage> for Router {
    type Result = ();

    fn handle(&mut self, input: RouterMessage, ctx: &mut Context<Self>) {
        let _scope = self.scope.clone().entered();
        // Deliveries that are dropped here come again.
        let is_dropped = match input {
            RouterMessage::Frame { .. } => self.stopped || self.gave_up.borrow().is_some(),
            RouterMessage::Finished(_) => self.gave_up.borrow().is_some(),
            RouterMessage::Answered(..) | RouterMessage::Stop => false,
        };
        if is_dropped {
            return;
        }
        match input {
            RouterMessage::Frame {
                frame,
                prompts,
                delivery,
            } => self.on_frame(*frame, &prompts, delivery, ctx),
            RouterMessage::Finished(list) => self.on_finished(list, ctx),
            RouterMessage::Answered(frame, answers) => self.settle(frame, answers),
            RouterMessage::Stop => {
                self.stopped = true;
                self.queue.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests;
