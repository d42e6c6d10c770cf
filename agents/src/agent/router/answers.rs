//! Answers to turn requests: converts engine output into results, collects the results for one
//! coordinator, publishes them until they are confirmed, and acks their frames.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use actix::{AsyncContext, Context};
use broker::AgentName;
use broker::bus::{Bus, Outgoing, PublishError};
use broker::codec;
use broker::protocol::Kind;
use broker::protocol::failure::Failure;
use broker::protocol::turn::{Generation, ResultFrame, TimedResult, TurnOutcome, TurnRequest, TurnResult, Wave};
use broker::topology::Topology;

use super::{Router, RouterMessage, recording};
use crate::agent::broken;
use crate::base::outgoing::{self, Addressed};
use crate::base::{log_scope, retry};
use crate::engine::Finished;
use crate::observe::series::engine::GeneratedTokens;

/// A result frame is closed above this estimate, in bytes.
const FRAME_BYTES: usize = 256 << 10;

/// Results for one coordinator, with the number of answers per frame.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) results: Vec<Arc<TimedResult>>,
    pub(super) frames: BTreeMap<u64, usize>,
    bytes: usize,
}

impl Answers {
    pub(super) fn put(&mut self, frame: u64, result: Arc<TimedResult>) {
        self.bytes += estimate(&result.result);
        self.results.push(result);
        *self.frames.entry(frame).or_default() += 1;
    }

    /// Returns true if the next result must go into another message.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > FRAME_BYTES
    }
}

/// Converts an engine's output into a turn outcome. The engine's prompt began with `kept` ids that
/// its seat held.
pub(crate) fn outcome(finished: Finished, text: String, kept: usize) -> TurnOutcome {
    match finished.result {
        Err(failure) => TurnOutcome::Failed {
            failure: failure.cause,
            retry: failure.retry,
        },
        Ok(made) => TurnOutcome::Done(Generation {
            kept: kept as u32,
            prompt_ids: finished.job.prompt_ids[kept..].to_vec(),
            output_ids: made.output_ids,
            logprobs: made.logprobs,
            logprobs_of: made.logprobs_of,
            spans: made.spans,
            oldest_kv: made.oldest_kv,
            temperature: finished.job.sampling.temperature,
            finish: made.finish,
            text,
        }),
    }
}

/// Logs how many tokens were computed, and how many an earlier turn had computed already.
fn log_work(finished: &[(Finished, String)]) {
    let made = || {
        finished
            .iter()
            .filter_map(|(one, _)| Some((&one.job, one.result.as_ref().ok()?)))
    };
    let prompts: usize = made().map(|(job, _)| job.prompt_ids.len()).sum();
    let reused: usize = made().map(|(_, made)| made.reused).sum();
    let tokens: usize = made().map(|(_, made)| made.output_ids.len()).sum();
    tracing::debug!(turns = finished.len(), prompts, reused, tokens, "generated");
}

/// An estimate of a result's bytes on the wire and in memory.
pub(super) fn estimate(result: &TurnResult) -> usize {
    match &result.outcome {
        TurnOutcome::Done(made) => 160 + 4 * made.prompt_ids.len() + 8 * made.output_ids.len() + made.text.len(),
        TurnOutcome::Failed { failure, .. } => 180 + failure.reason.len(),
    }
}

impl Router {
    pub(super) fn on_finished(&mut self, finished: Vec<(Finished, String)>, ctx: &mut Context<Self>) {
        broker::fail::point("turn.generated");
        if self.gives_up(&finished) {
            return;
        }
        log_work(&finished);
        let (mut ready, mut groups) = (Vec::new(), Vec::new());
        let now = self.observed.is_some().then(Instant::now);
        for (one, text) in finished {
            let Some(asked) = self.asked.remove(&one.job.request) else {
                continue;
            };
            groups.push(asked.request.group);
            if let (Some(observed), Some(came), Some(now), Ok(made)) =
                (&mut self.observed, asked.came, now, &one.result)
            {
                let tokens = GeneratedTokens {
                    prompt: one.job.prompt_ids.len(),
                    cached: made.reused,
                    generated: made.output_ids.len(),
                };
                observed.count(&asked.request.role, tokens, now.duration_since(came), made.times);
            }
            self.record(&asked.request, &one);
            let remember = one.result.is_ok();
            let times = one.result.as_ref().ok().and_then(|made| made.times);
            let (request, ok) = (&asked.request, remember);
            log_scope::turn(request.group, request.member, &request.role, request.turn)
                .in_scope(|| tracing::debug!(ok, "a turn was generated"));
            let result = asked.request.answered(outcome(one, text, asked.kept));
            let (id, bytes) = (result.request, estimate(&result));
            let result = Arc::new(TimedResult { result, times });
            if remember {
                self.recent.put(id, result.clone(), bytes);
            }
            ready.extend(asked.frames.into_iter().map(|frame| (frame, result.clone())));
        }
        if let Some(observed) = &mut self.observed {
            observed.flush();
        }
        self.queue.finished(groups);
        self.answer(ready, ctx);
        self.work();
    }

    /// Records the turn's tokens, if its request asks for it.
    fn record(&self, request: &TurnRequest, finished: &Finished) {
        let (Some(records), Ok(made), true) = (&self.records, &finished.result, request.is_recorded) else {
            return;
        };
        if let Some(record) = recording::record(request, made, &*self.text) {
            records.write(&record);
        }
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
    pub(super) fn answer(&mut self, ready: Vec<(u64, Arc<TimedResult>)>, ctx: &mut Context<Self>) {
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
    pub(super) fn settle(&mut self, frame: u64, answers: usize) {
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

/// The destination of an agent's results.
pub(crate) struct Replies {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) topology: Topology,
    pub(crate) agent: AgentName,
    /// The coordinator's incarnation.
    pub(crate) reply_to: String,
    pub(crate) wave: Option<Wave>,
}

impl Replies {
    /// Returns once the results are in their queue, or no coordinator takes them any more. A result
    /// that is too large for a message is answered as failed: generated again from the same seed,
    /// it would be too large again, for ever.
    ///
    /// # Errors
    /// [`PublishError::Closed`]: no result was sent, and the requests come again.
    pub(crate) async fn send(&self, results: Vec<Arc<TimedResult>>) -> Result<(), PublishError> {
        match self.publish(results.clone()).await {
            Err(PublishError::TooLarge { .. }) => {}
            sent => return sent,
        }
        for timed in results {
            let result = &timed.result;
            match self.publish(vec![timed.clone()]).await {
                Err(PublishError::TooLarge { size, limit }) => {
                    log_scope::turn(result.group, result.member, &result.role, result.turn).in_scope(|| {
                        tracing::warn!(
                            size,
                            limit,
                            "a result is too large for a message; it is answered as failed"
                        );
                    });
                    self.publish(vec![Arc::new(too_large(result, size, limit).into())])
                        .await?;
                }
                sent => sent?,
            }
        }
        Ok(())
    }

    async fn publish(&self, results: Vec<Arc<TimedResult>>) -> Result<(), PublishError> {
        let correlation_id = results.first().map(|timed| timed.result.request.to_string());
        let body = codec::encode(&ResultFrame {
            agent: self.agent.to_string(),
            wave: self.wave,
            results,
        });
        let to = self.topology.to_results(&self.reply_to, self.agent.as_str());
        let message = Outgoing {
            correlation_id,
            ..outgoing::durable(to, Kind::TurnResult, body).with_headers([("agent", self.agent.to_string())])
        };
        match retry::publish(&self.bus, message).await {
            Err(PublishError::Unroutable(_)) => {
                tracing::info!(
                    reply_to = self.reply_to,
                    "the coordinator that asked is gone; a new one will ask again"
                );
                Ok(())
            }
            sent => sent,
        }
    }
}

fn too_large(result: &TurnResult, size: usize, limit: usize) -> TurnResult {
    TurnResult {
        outcome: TurnOutcome::Failed {
            failure: Failure::too_large(size, limit, "lower the agent's sampling.max_new_tokens or its context"),
            retry: false,
        },
        ..result.clone()
    }
}
