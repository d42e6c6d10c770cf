//! Engines behind an agent's router: ids in; ids, log-probs and version spans out.
//!
//! An engine takes jobs and answers each exactly once over the channel it was given. Kinds: [`embedded`] (libtorch on its
//! own thread), [`remote`] (the same in a process of its own, which is [`serve`]; [`shelf`] is where it fetches weights, [`link`] how they
//! ask each other), [`foreign`] (SGLang and vLLM) and [`scripted`] (answers made from the seed without a model, to measure everything
//! else); [`replicas`] shares work out among several; [`stuck`] ends the process when an engine's thread is stuck, [`lost`] when an
//! engine's process dies of the same work again and again.
//!
//! Beside the jobs of training an engine serves **visits** ([`Visit`], [`embedded`]): they tell their tokens as they come, may be left
//! at any time, and make way for waves and for weights.

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
use broker::protocol::turn::{Finish, LogProbs, Sampling, VersionSpan};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use trainer::engine::PromptScores;

/// One generation to make.
#[derive(Debug, Clone)]
pub struct Job {
    pub request: RequestId,
    /// The conversation it belongs to.
    pub group: GroupId,
    pub member: u16,
    /// Shared by all jobs of the same prompt.
    pub prompt_ids: Arc<[u32]>,
    pub sampling: Arc<Sampling>,
    pub seed: u64,
    /// Whether a request that begins with this one's prompt and answer is likely: the next turn of its seat.
    pub keep: bool,
}

/// What an engine made.
#[derive(Debug, Clone)]
pub struct Made {
    pub output_ids: Vec<u32>,
    pub logprobs: Vec<f32>,
    pub logprobs_of: LogProbs,
    /// Of each id, the most likely tokens in its place; of what asked for none, and so of every turn, empty.
    pub top: Vec<Vec<TopLogprob>>,
    pub spans: Vec<VersionSpan>,
    pub oldest_kv: WeightVersion,
    /// Tokens of the prompt that an earlier turn had computed already.
    pub reused: usize,
    pub finish: Finish,
}

/// The one answer to a job.
#[derive(Debug, Clone)]
pub struct Finished {
    pub job: Job,
    pub result: Result<Made, EngineFailure>,
}

/// Why a job was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the engine could not generate: {cause}")]
pub struct EngineFailure {
    pub cause: Failure,
    /// Whether the same request may succeed if it is asked again.
    pub retry: bool,
}

/// Weights that an engine could not take: it goes on with those it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub version: WeightVersion,
    pub reason: String,
}

/// One generation for somebody outside of training.
#[derive(Debug, Clone)]
pub struct Visit {
    /// Without stop texts: whoever visits looks at the tokens and leaves.
    pub job: Job,
    /// Whether its tokens are wanted as they are made, and not only at its end.
    pub watched: bool,
    /// How many of the most likely tokens are wanted in each place.
    pub top: u8,
    /// Whether the log-probs of the prompt's own tokens are wanted, and how many of the most likely ones in each of its places. To be
    /// asked of engines that [give them](EngineClient::scores_prompts); of those a visit may ask for no new token.
    pub prompt_top: Option<u8>,
    pub tell: UnboundedSender<Told>,
}

impl Visit {
    /// Tells the visitor that nothing comes any more.
    pub fn fail(&self, failure: EngineFailure) {
        // A visitor who is gone leaves in a moment.
        let _ = self.tell.send(Told::end(self.job.request, Err(failure)));
    }
}

/// Visits for an engine that gives no log-probs of prompts. Whoever asks for them all the same has a failure, not an answer without.
fn without_scores(mut visits: Vec<Visit>) -> Vec<Visit> {
    for visit in visits.extract_if(.., |visit| visit.prompt_top.is_some()) {
        visit.fail(EngineFailure {
            cause: Failure::request("this agent's engine gives no log-probs of prompts"),
            retry: false,
        });
    }
    visits
}

/// What became of a visit since it was last told.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub request: RequestId,
    pub ids: Vec<u32>,
    /// One per id.
    pub logprobs: Vec<f32>,
    /// One list per id if they were asked for, likeliest first, the lower id first among equals; else none.
    pub top: Vec<Vec<TopLogprob>>,
    /// Of these ids, counted from the first of the visit.
    pub spans: Vec<VersionSpan>,
    /// Log-probs of the prompt, told with what is told first, if they were asked for.
    pub prompt: Option<Arc<PromptScores>>,
    /// Told once, last.
    pub end: Option<Result<Finish, EngineFailure>>,
}

/// A place that generates.
pub trait EngineClient: Send + Sync {
    /// Takes jobs. With `wave`, they are computed as one closed batch in the given order, alone and with empty caches, so
    /// that their bits depend on nothing else. Answers arrive on `done` in any order.
    fn submit(&self, jobs: Vec<Job>, wave: bool, done: UnboundedSender<Vec<Finished>>);
    /// Takes visits. None of them ever delays a wave, or weights, by more than a step.
    fn visit(&self, visits: Vec<Visit>);
    /// A visitor is gone, or has its last answer: said of every visit, once. Said of a job, an engine process forgets it.
    fn leave(&self, request: RequestId);
    /// The weights it serves, now and as they change.
    fn versions(&self) -> watch::Receiver<WeightVersion>;
    /// Whether it answers now. One that does not keeps what it was asked until it is back; what it is to [leave](Self::leave) meanwhile
    /// may be asked of another. Most are always there.
    fn presence(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }
    /// Whether it gives the log-probs of prompts.
    fn scores_prompts(&self) -> bool {
        false
    }
    /// While pinned, nothing that it is asked begins with keys and values that earlier weights computed: an evaluation is to be of one
    /// version whole. Engines that keep none across versions need do nothing.
    fn pin(&self, _pinned: bool) {}
    /// The newest weights that it could not take, told each time.
    fn refusals(&self) -> watch::Receiver<Option<Refusal>>;
}
