//! An engine without a model: its answer is a function of the request's seed. It measures the data
//! plane alone.

use std::sync::Arc;

use broker::ids::{RequestId, WeightVersion};
use broker::protocol::engine::TopLogprob;
use broker::protocol::turn::{EngineTimes, Finish, LogProbs, VersionSpan};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use trainer::engine::PromptScores;
use trainer::model::ParamSource;
use trainer::weights::{SinkError, WeightSink};

use super::{EngineClient, Finished, GenerationJob, GenerationOutput, Visit, VisitUpdate, WeightRefusal};

/// Answers at once with one id drawn from `choices` by the seed.
pub struct ScriptedEngine {
    choices: Vec<u32>,
    version: watch::Sender<WeightVersion>,
    /// Never used: it accepts any weights.
    refused: watch::Sender<Option<WeightRefusal>>,
}

impl ScriptedEngine {
    /// `choices` must not be empty; ids must be the tokenizer's.
    #[must_use]
    pub fn new(choices: Vec<u32>, version: WeightVersion) -> Arc<Self> {
        Arc::new(Self {
            choices,
            version: watch::Sender::new(version),
            refused: watch::Sender::new(None),
        })
    }

    /// Returns a sink that takes only the version of published weights.
    #[must_use]
    pub fn sink(&self) -> Box<dyn WeightSink> {
        Box::new(Versions(self.version.clone()))
    }

    /// Returns the log-prob of each choice.
    fn logprob(&self) -> f32 {
        -(self.choices.len().max(1) as f32).ln()
    }

    /// Returns the likeliest tokens at the one position of an answer: all choices are equally
    /// likely.
    fn top(&self, count: u8) -> Vec<Vec<TopLogprob>> {
        if count == 0 {
            return Vec::new();
        }
        let mut ids = self.choices.clone();
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(count.into());
        let likely = |id| TopLogprob {
            id,
            logprob: self.logprob(),
        };
        vec![ids.into_iter().map(likely).collect()]
    }

    /// Returns scores of a prompt, as if each of its tokens had been one of the choices.
    fn scores(&self, prompt: &[u32], top: u8, version: WeightVersion) -> Arc<PromptScores> {
        let places = prompt.len().saturating_sub(1);
        let span = VersionSpan {
            version,
            start: 1,
            end: prompt.len() as u32,
        };
        Arc::new(PromptScores {
            logprobs: vec![self.logprob(); places],
            top: self.top(top).into_iter().cycle().take(places).collect(),
            spans: (places > 0).then_some(span).into_iter().collect(),
        })
    }

    fn answer(&self, job: GenerationJob, version: WeightVersion) -> Finished {
        let choice = (job.seed % self.choices.len().max(1) as u64) as usize;
        let made = GenerationOutput {
            output_ids: self.choices.get(choice).copied().into_iter().collect(),
            logprobs: vec![self.logprob()],
            logprobs_of: LogProbs::of_own(&job.sampling),
            top: Vec::new(),
            spans: vec![VersionSpan {
                version,
                start: 0,
                end: 1,
            }],
            oldest_kv: version,
            reused: 0,
            finish: Finish::Length,
            times: Some(EngineTimes::default()),
        };
        Finished { job, result: Ok(made) }
    }
}

struct Versions(watch::Sender<WeightVersion>);

impl WeightSink for Versions {
    fn publish(&mut self, _: &dyn ParamSource, version: WeightVersion) -> Result<(), SinkError> {
        self.0.send_replace(version);
        Ok(())
    }
}

impl EngineClient for ScriptedEngine {
    fn submit(&self, jobs: Vec<GenerationJob>, _wave: bool, done: UnboundedSender<Vec<Finished>>) {
        let version = *self.version.borrow();
        // The receiver is gone only when the agent ends.
        let _ = done.send(jobs.into_iter().map(|job| self.answer(job, version)).collect());
    }

    fn visit(&self, visits: Vec<Visit>) {
        let version = *self.version.borrow();
        for visit in visits {
            let silent = visit.job.sampling.max_new_tokens == 0;
            let scores = |top| self.scores(&visit.job.prompt_ids, top, version);
            let prompt = visit.prompt_top.map(scores);
            if silent {
                let end = VisitUpdate::end(visit.job.request, Ok(Finish::Length));
                // The visitor may have gone.
                let _ = visit.updates.send(VisitUpdate { prompt, ..end });
                continue;
            }
            let Finished { job, result } = self.answer(visit.job, version);
            let update = result.map(|made| VisitUpdate {
                request: job.request,
                ids: made.output_ids,
                logprobs: made.logprobs,
                top: self.top(visit.top),
                spans: made.spans,
                prompt,
                end: Some(Ok(made.finish)),
            });
            if let Ok(update) = update {
                // The visitor may have gone.
                let _ = visit.updates.send(update);
            }
        }
    }

    fn leave(&self, _: RequestId) {}

    fn scores_prompts(&self) -> bool {
        true
    }

    fn versions(&self) -> watch::Receiver<WeightVersion> {
        self.version.subscribe()
    }

    fn refusals(&self) -> watch::Receiver<Option<WeightRefusal>> {
        self.refused.subscribe()
    }
}
