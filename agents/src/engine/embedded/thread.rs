//! The thread of an embedded engine: takes commands between steps, and answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::turn::{LogProbs, Sampling};
use rollout::text::TextCodec;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use trainer::engine::{Engine, EngineError, GenRequest, GivenUp, StopRule};
use trainer::pulse::Pulse;
use trainer::sampling::SamplingParams;

use super::Command;
use super::failure::{failed, failure_of, fault_of};
use super::visits::EngineVisits;
use crate::engine::{Finished, GenerationJob, GenerationOutput, WeightRefusal};

type Done = UnboundedSender<Vec<Finished>>;

/// The thread that owns an engine.
pub(super) struct Thread {
    pub(super) engine: Engine,
    pub(super) pulse: Pulse,
    pub(super) inbox: Receiver<Command>,
    pub(super) version: watch::Sender<WeightVersion>,
    pub(super) refused: watch::Sender<Option<WeightRefusal>>,
    pub(super) text: Arc<TextCodec>,
    pub(super) stop_ids: Arc<[u32]>,
    pub(super) open: HashMap<RequestId, (GenerationJob, Done)>,
    pub(super) visits: EngineVisits,
}

impl Thread {
    pub(super) fn run(mut self) {
        loop {
            if !self.take_commands() {
                return;
            }
            if self.is_busy() {
                broker::fail::point("engine.step");
                self.step();
            }
        }
    }

    /// Returns true if a generation is in progress, or weights wait for the step that serves them.
    fn is_busy(&self) -> bool {
        !(self.open.is_empty() && self.visits.is_empty() && self.engine.is_idle())
    }

    /// Runs waiting commands; blocks only when nothing is being generated. Returns false if the
    /// thread is to end, or all senders are gone.
    fn take_commands(&mut self) -> bool {
        if !self.is_busy() {
            match self.inbox.recv_timeout(Duration::from_secs(3600)) {
                Ok(Command::End) => return false,
                Ok(command) => self.command(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        loop {
            match self.inbox.try_recv() {
                Ok(Command::End) => return false,
                Ok(command) => self.command(command),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return !self.open.is_empty(),
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            // It ends the loop that receives it.
            Command::End => {}
            Command::Swap(weights) => {
                let version = weights.version();
                if self.engine.drains() {
                    self.make_way();
                }
                if let Err(error) = self.engine.swap(weights) {
                    tracing::error!(%error, %version, "the engine could not load new weights; they are sent again");
                    // A cache that was being recomputed belongs to no weights.
                    self.return_all(&error);
                    let reason = error.to_string();
                    self.refused.send_replace(Some(WeightRefusal { version, reason }));
                }
                self.report_version();
                self.pulse.done(1);
            }
            Command::Generate { jobs, wave: true, done } => {
                self.make_way();
                self.wave(jobs, &done);
            }
            Command::Visit(visits) => {
                for visit in visits {
                    let request = GenRequest {
                        top: visit.top,
                        prompt_top: visit.prompt_top,
                        ..self.request(&visit.job)
                    };
                    self.visits.begin(&mut self.engine, visit, request);
                }
            }
            Command::Leave(request) => {
                if let Err(error) = self.visits.leave(&mut self.engine, request) {
                    self.failed(&error);
                }
            }
            Command::Pin(pinned) => self.engine.pin(pinned),
            Command::Generate {
                jobs,
                wave: false,
                done,
            } => {
                for job in jobs {
                    self.submit(job, &done);
                }
            }
        }
    }

    /// Reports the served weights if they changed.
    fn report_version(&self) {
        let version = self.engine.version();
        self.version
            .send_if_modified(|known| std::mem::replace(known, version) != version);
    }

    fn request(&self, job: &GenerationJob) -> GenRequest {
        let sampling = &job.sampling;
        let stop = (!sampling.stop.is_empty()).then(|| self.stop_rule(&job.prompt_ids, sampling.stop.clone()));
        GenRequest {
            id: job.request,
            prompt_ids: job.prompt_ids.clone(),
            max_new_tokens: sampling.max_new_tokens,
            sampling: SamplingParams {
                temperature: sampling.temperature,
                top_p: sampling.top_p,
                top_k: sampling.top_k,
                min_p: sampling.min_p,
            },
            stop_ids: self.stop_ids.clone(),
            seed: job.seed,
            keep: job.keep,
            stop,
            top: 0,
            prompt_top: None,
        }
    }

    /// Returns a rule that ends a generation when its visible text holds a stop text. Reasoning
    /// does not count, no matter if its `<think>` was sampled or in the prompt.
    fn stop_rule(&self, prompt: &[u32], stop: Vec<String>) -> StopRule {
        let (text, open) = (self.text.clone(), self.text.leaves_open(prompt));
        Arc::new(move |ids: &[u32]| {
            let said = text.visible(ids, open);
            stop.iter().any(|stop| said.contains(stop.as_str()))
        })
    }

    pub(super) fn submit(&mut self, job: GenerationJob, done: &Done) {
        let request = self.request(&job);
        let id = request.id;
        match self.engine.submit(request) {
            Ok(()) => {
                self.open.insert(id, (job, done.clone()));
            }
            Err(error) => {
                self.answer(done, vec![failed(job, &failure_of(&error))]);
            }
        }
    }

    /// Sends answers and counts them as done.
    pub(super) fn answer(&self, done: &Done, list: Vec<Finished>) {
        self.pulse.done(list.len());
        // The asker may have gone.
        let _ = done.send(list);
    }

    /// Takes visits out until the next work is done.
    fn make_way(&mut self) {
        if let Err(error) = self.visits.make_way(&mut self.engine) {
            self.failed(&error);
        }
    }

    pub(super) fn failed(&mut self, error: &EngineError) {
        tracing::error!(%error, "a decode step failed; its generations are returned for a retry");
        self.return_all(error);
    }

    fn step(&mut self) {
        if let Err(error) = self.visits.come_back(&mut self.engine) {
            return self.failed(&error);
        }
        match self.engine.step() {
            Ok(finished) => {
                let mut by_asker: Vec<(Done, Vec<Finished>)> = Vec::new();
                for one in finished {
                    let Some((job, done)) = self.open.remove(&one.id) else {
                        self.visits.ended(one);
                        continue;
                    };
                    let result = Ok(made(one, &job.sampling));
                    let finished = Finished { job, result };
                    match by_asker.iter_mut().find(|(asker, _)| asker.same_channel(&done)) {
                        Some((_, list)) => list.push(finished),
                        None => by_asker.push((done, vec![finished])),
                    }
                }
                for (done, list) in by_asker {
                    self.answer(&done, list);
                }
                self.visits.report(&self.engine);
                self.report_version();
            }
            Err(error) => match &error {
                EngineError::NotFinite { requests, .. } => self.go_on_without(requests, &error),
                _ => self.failed(&error),
            },
        }
    }

    /// Lowers the engine's need of memory after it ran out with `active` generations.
    fn make_room(&mut self, error: &EngineError, active: usize) {
        if !error.is_out_of_memory() {
            return;
        }
        match self.engine.give_up(active) {
            GivenUp::Prefixes { bytes } => tracing::warn!(
                active,
                mib = bytes >> 20,
                "memory ran out: the engine keeps no keys and values of ended turns from now on; lower engine.prefix_cache_mib"
            ),
            GivenUp::Slots { left } => tracing::warn!(
                active,
                slots = left,
                "memory ran out: fewer generations run at once from now on; set engine.slots to this number"
            ),
        }
    }

    /// Returns everything in progress with a failure: the askers may retry.
    pub(super) fn return_all(&mut self, error: &EngineError) {
        self.make_room(error, self.engine.active());
        if let Err(error) = self.engine.abort_all() {
            tracing::error!(%error, "the engine cannot be cleared");
            crate::base::fault::leave(crate::run_folder::telemetry::EXIT_PANIC);
        }
        let failure = failure_of(error);
        for (_, (job, done)) in std::mem::take(&mut self.open) {
            self.answer(&done, vec![failed(job, &failure)]);
        }
        self.visits.fail(&failure);
    }

    /// Computes a closed batch, alone. A request that can never be generated is left out of it.
    fn wave(&mut self, jobs: Vec<GenerationJob>, done: &Done) {
        let (mut requests, mut open, mut answers) = (Vec::new(), HashMap::new(), Vec::new());
        for job in jobs {
            let request = self.request(&job);
            match self.engine.check(&request) {
                Ok(()) => {
                    open.insert(request.id, job);
                    requests.push(request);
                }
                Err(fault) => answers.push(failed(job, &fault_of(&fault))),
            }
        }
        let (mut unsampled, active) = (Vec::new(), requests.len());
        let made_of = self.run_wave(requests, &mut unsampled);
        for (id, failure) in unsampled {
            answers.extend(open.remove(&id).map(|job| failed(job, &failure)));
        }
        match made_of {
            Ok(finished) => {
                for one in finished {
                    if let Some(job) = open.remove(&one.id) {
                        let result = Ok(made(one, &job.sampling));
                        answers.push(Finished { job, result });
                    }
                }
            }
            Err(error) => {
                tracing::error!(%error, "a wave failed; its generations are returned for a retry");
                self.make_room(&error, active);
                let failure = failure_of(&error);
                answers.extend(open.into_values().map(|job| failed(job, &failure)));
            }
        }
        self.answer(done, answers);
    }
}

/// Returns the result of a turn: its log-probs are of the distribution it was sampled from.
fn made(one: trainer::engine::Finished, sampling: &Sampling) -> GenerationOutput {
    let mut logprobs = one.logprobs;
    for (logprob, log_kept) in logprobs.iter_mut().zip(&one.log_kept) {
        // Above 0 only by rounding, where one token was kept.
        *logprob = (*logprob - log_kept).min(0.0);
    }
    GenerationOutput {
        output_ids: one.output_ids,
        logprobs,
        logprobs_of: LogProbs::of_own(sampling),
        top: one.top,
        spans: one.spans,
        oldest_kv: one.oldest_kv,
        reused: one.reused,
        finish: one.finish,
        times: Some(one.times.durations()),
    }
}
