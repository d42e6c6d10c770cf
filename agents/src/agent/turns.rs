//! The agent's router: takes turn requests, has each generated once, answers, and only then acks.
//!
//! A request that comes again while it is being generated waits for the same result; one that comes again later gets the
//! same result from a bounded memory. A synchronous wave is held until it is whole and then computed as one closed batch.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message};
use broker::AgentName;
use broker::bus::{Bus, Delivery, Outgoing, PublishError};
use broker::codec;
use broker::ids::{Digest, RequestId};
use broker::protocol::Kind;
use broker::protocol::turn::{Generation, ResultFrame, TurnFrame, TurnOutcome, TurnRequest, TurnResult, Wave};
use broker::topology::Topology;
use rollout::text::TextCodec;
use tokio::sync::mpsc::UnboundedSender;

use super::recent::Recent;
use crate::coordinator::io;
use crate::engine::{EngineClient, Finished, Job};

/// Finished results remembered for requests that come again.
const REMEMBERED: usize = 16_384;
/// A result frame is closed above this estimate.
const FRAME_BYTES: usize = 256 << 10;

/// What can happen to the router.
#[derive(Message)]
#[rtype(result = "()")]
pub enum Input {
    /// A frame with its prompts rendered to ids, or why one cannot be.
    Frame {
        frame: Box<TurnFrame>,
        prompts: Vec<Result<Arc<[u32]>, String>>,
        delivery: Delivery,
    },
    Finished(Vec<Finished>),
    /// So many answers to this frame are in their queue, or nobody takes them any more.
    Answered(u64, usize),
}

struct FrameState {
    delivery: Delivery,
    reply_to: String,
    wave: Option<Wave>,
    waiting: usize,
}

struct Asked {
    request: TurnRequest,
    frames: Vec<u64>,
}

/// Results on their way to one coordinator, with how many answer which frame.
#[derive(Default)]
struct Answers {
    results: Vec<TurnResult>,
    frames: HashMap<u64, usize>,
    bytes: usize,
}

#[derive(Default)]
struct WaveBuffer {
    jobs: BTreeMap<u64, Job>,
    /// Requests, not deliveries: a frame may come twice.
    seen: HashSet<RequestId>,
}

/// Takes a request's job out of the wave that it waits in.
fn unpark(waves: &mut HashMap<(String, Wave), WaveBuffer>, request: &RequestId) -> Option<Job> {
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
    text: Arc<TextCodec>,
    frames: HashMap<u64, FrameState>,
    next_frame: u64,
    asked: HashMap<RequestId, Asked>,
    recent: Recent<RequestId, Arc<TurnResult>>,
    waves: HashMap<(String, Wave), WaveBuffer>,
    done: Option<UnboundedSender<Vec<Finished>>>,
}

impl Router {
    #[must_use]
    pub fn new(
        agent: AgentName,
        topology: Topology,
        bus: Arc<dyn Bus>,
        engine: Arc<dyn EngineClient>,
        text: Arc<TextCodec>,
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
            done: None,
        }
    }

    fn on_frame(
        &mut self,
        frame: TurnFrame,
        prompts: &[Result<Arc<[u32]>, String>],
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
            None => self.submit(jobs.into_iter().map(|(_, job)| job).collect(), false),
            Some(wave) => self.gather(frame.reply_to, wave, jobs, &requests),
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
        prompts: &[Result<Arc<[u32]>, String>],
        samplings: &[broker::protocol::turn::Sampling],
    ) -> Taken {
        if let Some(result) = self.recent.get(&request.request) {
            return Taken::Known(result.clone());
        }
        if let Some(asked) = self.asked.get_mut(&request.request) {
            asked.frames.push(frame);
            // Held for a wave that may never be whole, when its coordinator is gone: it goes with the newest that asks.
            return unpark(&mut self.waves, &request.request).map_or(Taken::UnderWay, Taken::Job);
        }
        let sampling = samplings.get(request.sampling as usize);
        let failure = match (prompts.get(request.prompt as usize), sampling) {
            (Some(Ok(ids)), Some(sampling)) => {
                let job = Job {
                    request: request.request,
                    prompt_ids: ids.clone(),
                    sampling: Arc::new(sampling.clone()),
                    seed: request.seed,
                };
                self.asked.insert(
                    request.request,
                    Asked {
                        request,
                        frames: vec![frame],
                    },
                );
                return Taken::Job(job);
            }
            (Some(Err(reason)), _) => reason.clone(),
            _ => "the frame names a prompt or sampling that it does not hold".to_owned(),
        };
        Taken::Known(Arc::new(result_of(
            &request,
            TurnOutcome::Failed {
                reason: failure,
                retry: false,
            },
        )))
    }

    /// Holds a wave's jobs until all its requests have come.
    fn gather(&mut self, reply_to: String, wave: Wave, jobs: Vec<(u64, Job)>, seen: &[RequestId]) {
        let key = (reply_to, wave);
        let buffer = self.waves.entry(key.clone()).or_default();
        buffer.jobs.extend(jobs);
        buffer.seen.extend(seen);
        if buffer.seen.len() >= wave.total as usize
            && let Some(buffer) = self.waves.remove(&key)
        {
            self.submit(buffer.jobs.into_values().collect(), true);
        }
    }

    fn submit(&self, jobs: Vec<Job>, wave: bool) {
        if let (false, Some(done)) = (jobs.is_empty(), &self.done) {
            self.engine.submit(jobs, wave, done.clone());
        }
    }

    fn on_finished(&mut self, finished: Vec<Finished>, ctx: &mut Context<Self>) {
        let mut ready = Vec::new();
        for one in finished {
            let Some(asked) = self.asked.remove(&one.job.request) else {
                continue;
            };
            let remember = one.result.is_ok();
            let result = Arc::new(result_of(&asked.request, self.outcome(one)));
            if remember {
                self.recent.put(asked.request.request, result.clone());
            }
            ready.extend(asked.frames.into_iter().map(|frame| (frame, result.clone())));
        }
        self.answer(ready, ctx);
    }

    fn outcome(&self, finished: Finished) -> TurnOutcome {
        match finished.result {
            Err(failure) => TurnOutcome::Failed {
                reason: failure.reason,
                retry: failure.retry,
            },
            Ok(made) => {
                let text = self.text.decode(&made.output_ids);
                TurnOutcome::Done(Generation {
                    prompt_ids: finished.job.prompt_ids.to_vec(),
                    output_ids: made.output_ids,
                    logprobs: made.logprobs,
                    spans: made.spans,
                    oldest_kv: made.oldest_kv,
                    temperature: finished.job.sampling.temperature,
                    finish: made.finish,
                    text,
                })
            }
        }
    }

    /// Publishes results, a few frames for each coordinator and wave.
    fn answer(&mut self, ready: Vec<(u64, Arc<TurnResult>)>, ctx: &mut Context<Self>) {
        let mut places: HashMap<(String, Option<Wave>), Answers> = HashMap::new();
        for (frame, result) in ready {
            let Some(state) = self.frames.get(&frame) else { continue };
            let place = (state.reply_to.clone(), state.wave);
            let answers = places.entry(place.clone()).or_default();
            answers.bytes += estimate(&result);
            answers.results.push(result.as_ref().clone());
            *answers.frames.entry(frame).or_default() += 1;
            if answers.bytes > FRAME_BYTES
                && let Some(answers) = places.remove(&place)
            {
                self.send(place, answers, ctx);
            }
        }
        for (place, answers) in places {
            self.send(place, answers, ctx);
        }
    }

    fn send(
        &self,
        (reply_to, wave): (String, Option<Wave>),
        Answers { results, frames, .. }: Answers,
        ctx: &mut Context<Self>,
    ) {
        let correlation_id = results.first().map(|result| result.request.to_string());
        let body = codec::encode(&ResultFrame {
            agent: self.agent.to_string(),
            wave,
            results,
        });
        let message = Outgoing {
            to: self.topology.to(&self.topology.results(&reply_to)),
            kind: Kind::TurnResult,
            message_id: Digest::of(&body).to_string(),
            correlation_id,
            headers: vec![("agent".into(), self.agent.to_string())],
            body: body.into(),
            durable: true,
        };
        let (bus, addr) = (self.bus.clone(), ctx.address());
        tokio::spawn(async move {
            match io::publish(&bus, message).await {
                Ok(()) => {}
                Err(PublishError::Unroutable(_)) => {
                    tracing::info!(reply_to, "the coordinator that asked is gone; a new one will ask again");
                }
                Err(error) => {
                    tracing::debug!(%error, "results were not sent; their requests come again");
                    return;
                }
            }
            for (frame, answers) in frames {
                let _ = addr.send(Input::Answered(frame, answers)).await;
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
            tokio::spawn(async move { state.delivery.ack().await });
        }
    }
}

enum Taken {
    Job(Job),
    Known(Arc<TurnResult>),
    UnderWay,
}

fn result_of(request: &TurnRequest, outcome: TurnOutcome) -> TurnResult {
    TurnResult {
        request: request.request,
        group: request.group,
        attempt: request.attempt,
        member: request.member,
        role: request.role.clone(),
        seat: request.seat,
        turn: request.turn,
        outcome,
    }
}

fn estimate(result: &TurnResult) -> usize {
    match &result.outcome {
        TurnOutcome::Done(made) => 160 + 4 * made.prompt_ids.len() + 8 * made.output_ids.len() + made.text.len(),
        TurnOutcome::Failed { reason, .. } => 160 + reason.len(),
    }
}

impl Actor for Router {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(256);
        let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
        self.done = Some(done);
        let addr = ctx.address();
        tokio::spawn(async move {
            while let Some(list) = finished.recv().await {
                if addr.send(Input::Finished(list)).await.is_err() {
                    return;
                }
            }
        });
    }
}

impl Handler<Input> for Router {
    type Result = ();

    fn handle(&mut self, input: Input, ctx: &mut Context<Self>) {
        match input {
            Input::Frame {
                frame,
                prompts,
                delivery,
            } => self.on_frame(*frame, &prompts, delivery, ctx),
            Input::Finished(list) => self.on_finished(list, ctx),
            Input::Answered(frame, answers) => self.settle(frame, answers),
        }
    }
}
