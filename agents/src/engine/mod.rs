//! Engines behind an agent's router: ids in; ids, log-probs and version spans out.
//!
//! An engine takes jobs and answers each exactly once over the given channel. The kinds:
//!
//! - [`embedded`]: libtorch on its own thread
//! - [`process`]: the same engine in a separate process
//! - [`foreign`]: SGLang and vLLM
//! - [`scripted`]: answers made from the seed without a model, to measure everything else
//!
//! [`replicas`] distributes work over several engines. [`stuck`] ends the process when an engine's
//! thread is stuck; [`process::crash_loop`] ends it when an engine's process dies of the same work
//! repeatedly.
//!
//! Besides training jobs an engine serves **visits** ([`Visit`], [`embedded`]). They stream their
//! tokens, may leave at any time, and yield to waves and to weights.

pub mod embedded;
pub mod foreign;
pub mod process;
pub mod replicas;
pub mod scripted;
pub mod stuck;

use std::sync::Arc;

use broker::ids::{GroupId, RequestId, WeightVersion};
use broker::protocol::engine::TopLogprob;
use broker::protocol::failure::Failure;
use broker::protocol::turn::{EngineTimes, Finish, LogProbs, Sampling, VersionSpan};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use trainer::engine::{PromptScores, StepCounts};

/// One generation to make.
#[derive(Debug, Clone)]
pub struct GenerationJob {
    pub request: RequestId,
    /// The conversation it belongs to.
    pub group: GroupId,
    pub member: u16,
    /// Shared by all jobs of the same prompt.
    pub prompt_ids: Arc<[u32]>,
    pub sampling: Arc<Sampling>,
    pub seed: u64,
    /// True if a request that begins with this prompt and answer is likely: the next turn of its
    /// seat.
    pub keep: bool,
}

/// The result of a generation.
#[derive(Debug, Clone)]
pub struct GenerationOutput {
    pub output_ids: Vec<u32>,
    pub logprobs: Vec<f32>,
    pub logprobs_of: LogProbs,
    /// The most likely tokens at each id's position; empty for a turn, which requests none.
    pub top: Vec<Vec<TopLogprob>>,
    pub spans: Vec<VersionSpan>,
    pub oldest_kv: WeightVersion,
    /// Tokens of the prompt that an earlier turn had already computed.
    pub reused: usize,
    pub finish: Finish,
    /// `None` from SGLang and vLLM, which have metrics of their own.
    pub times: Option<EngineTimes>,
}

/// The one answer to a job.
#[derive(Debug, Clone)]
pub struct Finished {
    pub job: GenerationJob,
    pub result: Result<GenerationOutput, EngineFailure>,
}

/// The failure of a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the engine could not generate: {cause}")]
pub struct EngineFailure {
    pub cause: Failure,
    /// True if the same request may succeed when it is retried.
    pub retry: bool,
}

/// Weights that an engine could not load: it continues with the previous ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightRefusal {
    pub version: WeightVersion,
    pub reason: String,
}

/// One generation outside of training.
#[derive(Debug, Clone)]
pub struct Visit {
    /// Has no stop texts: the visitor checks the tokens and leaves.
    pub job: GenerationJob,
    /// True if its tokens are wanted as they are made, and not only at its end.
    pub watched: bool,
    /// The number of most likely tokens wanted at each position.
    pub top: u8,
    /// Present if the log-probs of the prompt's own tokens are wanted, with the number of most
    /// likely tokens at each of its positions. Only for engines that [return
    /// them](EngineClient::scores_prompts); such a visit may request no new token.
    pub prompt_top: Option<u8>,
    pub updates: UnboundedSender<VisitUpdate>,
}

impl Visit {
    /// Ends the visit with a failure.
    pub fn fail(&self, failure: EngineFailure) {
        // A visitor that is gone leaves in a moment.
        let _ = self.updates.send(VisitUpdate::end(self.job.request, Err(failure)));
    }
}

/// Returns the visits without prompt scores; those with them receive a failure, not a partial
/// answer.
fn without_scores(mut visits: Vec<Visit>) -> Vec<Visit> {
    for visit in visits.extract_if(.., |visit| visit.prompt_top.is_some()) {
        visit.fail(EngineFailure {
            cause: Failure::request("this agent's engine gives no log-probs of prompts"),
            retry: false,
        });
    }
    visits
}

/// The progress of a visit since the last update.
#[derive(Debug, Clone, PartialEq)]
pub struct VisitUpdate {
    pub request: RequestId,
    pub ids: Vec<u32>,
    /// One per id.
    pub logprobs: Vec<f32>,
    /// One list per id if they were requested, likeliest first, the lower id first among equals;
    /// else empty.
    pub top: Vec<Vec<TopLogprob>>,
    /// Spans of these ids, counted from the first id of the visit.
    pub spans: Vec<VersionSpan>,
    /// Log-probs of the prompt, in the first update, if they were requested.
    pub prompt: Option<Arc<PromptScores>>,
    /// Set once, in the last update.
    pub end: Option<Result<Finish, EngineFailure>>,
}

/// The progress of an engine in this process.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EngineProgress {
    /// The number of marks that its threads have made: it grows with each step.
    pub marks: u64,
    /// The share of its cache that holds keys and values, from 0 to 1.
    pub cache_usage: f64,
    /// Its decode steps.
    pub steps: StepCounts,
}

/// The presence of one engine behind a client.
pub struct EnginePresence {
    /// Its URL without credentials, or `embedded` in the agent's own process.
    pub engine: String,
    /// Returns true while it answers.
    pub answers: Box<dyn Fn() -> bool + Send>,
}

impl EnginePresence {
    pub(crate) fn new(engine: &str, answers: impl Fn() -> bool + Send + 'static) -> Self {
        Self {
            engine: engine.to_owned(),
            answers: Box::new(answers),
        }
    }
}

/// A place that generates.
pub trait EngineClient: Send + Sync {
    /// Takes jobs. Answers arrive on `done` in any order. With `wave`, the jobs are computed as one
    /// closed batch in the given order, alone and with empty caches, so that their bits depend on
    /// nothing else.
    fn submit(&self, jobs: Vec<GenerationJob>, wave: bool, done: UnboundedSender<Vec<Finished>>);
    /// Takes visits. A visit never delays a wave, or weights, by more than a step.
    fn visit(&self, visits: Vec<Visit>);
    /// Ends a visit: its visitor is gone, or has the last answer. Called once for every visit.
    /// Called for a job, it makes an engine process forget the job.
    fn leave(&self, request: RequestId);
    /// Returns the weights it serves, now and as they change.
    fn versions(&self) -> watch::Receiver<WeightVersion>;
    /// Returns true while it answers. An absent engine keeps its requests until it is back. A
    /// request that it must [leave](Self::leave) in the meantime may go to another engine.
    /// Most engines are always present.
    fn presence(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }
    /// Returns the presence of each engine behind this client, for metrics.
    fn presences(&self) -> Vec<EnginePresence> {
        vec![EnginePresence::new("embedded", || true)]
    }
    /// Returns its progress if it runs in this process.
    fn progress(&self) -> Option<EngineProgress> {
        None
    }
    /// Returns true if it computes the log-probs of prompts.
    fn scores_prompts(&self) -> bool {
        false
    }
    /// Pins the engine: no request starts from keys and values that earlier weights computed. An
    /// evaluation must use one version throughout. An engine that keeps none across versions does
    /// nothing here.
    fn pin(&self, _pinned: bool) {}
    /// Returns the newest weights that it could not load, sent each time.
    fn refusals(&self) -> watch::Receiver<Option<WeightRefusal>>;
}
