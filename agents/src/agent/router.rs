//! The agent's router: takes turn requests, has each generated once, answers, and only then acks.
//!
//! A request that comes again during its generation waits for the same result. A request that comes
//! again later gets the same result from a bounded memory. A synchronous wave is held until it is
//! complete and then computed as one closed batch.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message};
use broker::AgentName;
use broker::bus::{Bus, Delivery};
use broker::ids::RequestId;
use broker::protocol::failure::Failure;
use broker::protocol::turn::{TurnFrame, TurnRequest, TurnResult, Wave};
use broker::topology::Topology;
use rollout::text::Speech;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tracing::Span;

use super::answers::{Answers, Replies, estimate, log_work, outcome};
use super::broken::{self, Broken};
use super::job_queue::JobQueue;
use crate::base::log_scope;
use crate::base::runtime_check;
use crate::engine::{EngineClient, Finished, GenerationJob};
use crate::run_folder::crash_marks::Strikes;
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
}

#[derive(Default)]
struct WaveBuffer {
    jobs: BTreeMap<u64, GenerationJob>,
    /// Requests, not deliveries: a frame may come twice.
    seen: HashSet<RequestId>,
}

/// Removes a request's job from the wave that it waits in.
fn unpark(waves: &mut HashMap<(String, Wave), WaveBuffer>, request: &RequestId) -> Option<GenerationJob> {
    waves.values_mut().find_map(|buffer| {
        let at = buffer
            .jobs
            .iter()
            .find(|(_, job)| job.request == *request)
            .map(|(at, _)| *at)?;
        buffer.jobs.remove(&at)
    })
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
    recent: Recent<RequestId, Arc<TurnResult>>,
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
            scope: Span::current(),
        }
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
        for request in frame.requests {
            let order = request.order;
            match self.take(id, request, prompts, &frame.samplings) {
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
        frame: u64,
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
                    Err(failure) => return Taken::Known(Arc::new(request.failed(failure))),
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
                    },
                );
                return Taken::Job(job);
            }
            (Some(Err(reason)), _) => failure::prompt(self.agent.as_str(), &request.role, reason),
            _ => Failure::request("the frame names a prompt or sampling that it does not hold"),
        };
        Taken::Known(Arc::new(request.failed(failure)))
    }

    /// Holds a wave's jobs until all its requests have come.
    fn gather(
        &mut self,
        reply_to: String,
        wave: Wave,
        jobs: Vec<(u64, GenerationJob)>,
        seen: &[RequestId],
    ) -> Vec<(u64, Arc<TurnResult>)> {
        self.drop_dead_waves(&reply_to, wave.id);
        let key = (reply_to, wave);
        let buffer = self.waves.entry(key.clone()).or_default();
        buffer.jobs.extend(jobs);
        buffer.seen.extend(seen);
        if buffer.seen.len() >= wave.total as usize
            && let Some(buffer) = self.waves.remove(&key)
        {
            return self.submit(buffer.jobs.into_values().collect(), true);
        }
        Vec::new()
    }

    /// Drops waves that stay incomplete. There is one coordinator at a time, with one wave at a
    /// time: waves of an earlier coordinator, or earlier waves of the present one, never complete.
    /// No coordinator needs the requests that the present wave did not repeat, so their frames need
    /// not come again.
    fn drop_dead_waves(&mut self, reply_to: &str, present: u64) {
        let others: Vec<WaveBuffer> = self
            .waves
            .extract_if(|(asker, wave), _| asker != reply_to || wave.id < present)
            .map(|(_, buffer)| buffer)
            .collect();
        for job in others.into_iter().flat_map(|buffer| buffer.jobs.into_values()) {
            let frames = self
                .asked
                .remove(&job.request)
                .map_or_else(Vec::new, |asked| asked.frames);
            frames.into_iter().for_each(|frame| self.settle(frame, 1));
        }
    }

    /// Has jobs generated in order; returns failures for groups that are put out.
    fn submit(&mut self, jobs: Vec<GenerationJob>, wave: bool) -> Vec<(u64, Arc<TurnResult>)> {
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
    fn refuse(&mut self, request: &RequestId) -> Vec<(u64, Arc<TurnResult>)> {
        let Some(asked) = self.asked.remove(request) else {
            return Vec::new();
        };
        let times = crate::run_folder::crash_marks::OUT;
        let failure = Failure::crashed(format_args!(
            "agent {} died {times} times while it worked on this group alone",
            self.agent
        ));
        let result = Arc::new(asked.request.failed(failure));
        asked.frames.into_iter().map(|frame| (frame, result.clone())).collect()
    }

    /// Hands the engine the jobs that may run now.
    fn work(&mut self) {
        let Some(done) = self.done.clone() else { return };
        while let Some((jobs, wave)) = self.queue.next() {
            self.engine.submit(jobs, wave, done.clone());
        }
    }

    fn on_finished(&mut self, finished: Vec<(Finished, String)>, ctx: &mut Context<Self>) {
        broker::fail::point("turn.generated");
        if self.gives_up(&finished) {
            return;
        }
        log_work(&finished);
        let (mut ready, mut groups) = (Vec::new(), Vec::new());
        for (one, text) in finished {
            let Some(asked) = self.asked.remove(&one.job.request) else {
                continue;
            };
            groups.push(asked.request.group);
            let remember = one.result.is_ok();
            let (request, ok) = (&asked.request, remember);
            log_scope::turn(request.group, request.member, &request.role, request.turn)
                .in_scope(|| tracing::debug!(ok, "a turn was generated"));
            let result = Arc::new(asked.request.answered(outcome(one, text, asked.kept)));
            if remember {
                let bytes = estimate(&result);
                self.recent.put(result.request, result.clone(), bytes);
            }
            ready.extend(asked.frames.into_iter().map(|frame| (frame, result.clone())));
        }
        self.queue.finished(groups);
        self.answer(ready, ctx);
        self.work();
    }

    /// Returns true if these answers make the router give up the engine's weights.
    fn gives_up(&mut self, finished: &[(Finished, String)]) -> bool {
        let answers = finished.iter().map(|(one, _)| (one.job.request, &one.result));
        let Some(version) = self.broken.record(answers) else {
            return false;
        };
        let why = broken::explain(&self.agent, version, broken::IN_SUCCESSION);
        let why = format!("{why}. Its open requests stay unanswered and come again when it is started");
        let version = version.to_string();
        tracing::error!(agent = %self.agent, version, "{why}");
        // No group is to blame.
        self.queue.clear();
        self.gave_up.send_replace(Some(why));
        true
    }

    /// Publishes results, a few frames for each coordinator and wave.
    fn answer(&mut self, ready: Vec<(u64, Arc<TurnResult>)>, ctx: &mut Context<Self>) {
        let mut places: BTreeMap<(String, Option<Wave>), Answers> = BTreeMap::new();
        for (frame, result) in ready {
            let Some(state) = self.frames.get(&frame) else { continue };
            let place = (state.reply_to.clone(), state.wave);
            let answers = places.entry(place.clone()).or_default();
            answers.put(frame, result);
            if answers.is_full()
                && let Some(answers) = places.remove(&place)
            {
                self.send(place, answers, ctx);
            }
        }
        for (place, answers) in places {
            self.send(place, answers, ctx);
        }
    }

    fn send(&self, place: (String, Option<Wave>), answers: Answers, ctx: &mut Context<Self>) {
        let Answers { results, frames, .. } = answers;
        let replies = Replies {
            bus: self.bus.clone(),
            topology: self.topology.clone(),
            agent: self.agent.clone(),
            reply_to: place.0,
            wave: place.1,
        };
        let addr = ctx.address();
        log_scope::spawn(async move {
            if let Err(error) = replies.send(results).await {
                tracing::debug!(%error, "results were not sent; their requests come again");
                return;
            }
            broker::fail::point("turn.published");
            for (frame, answers) in frames {
                let _ = addr.send(RouterMessage::Answered(frame, answers)).await;
            }
        });
    }

    /// Acks a frame when each of its requests was answered.
    fn settle(&mut self, frame: u64, answers: usize) {
        let Some(state) = self.frames.get_mut(&frame) else {
            return;
        };
        state.waiting = state.waiting.saturating_sub(answers);
        if state.waiting == 0
            && let Some(state) = self.frames.remove(&frame)
        {
            log_scope::spawn(async move { state.delivery.ack().await });
        }
    }
}

enum Taken {
    Job(GenerationJob),
    Known(Arc<TurnResult>),
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
