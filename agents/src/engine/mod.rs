//! Engines behind an agent's router: ids in; ids, log-probs and version spans out.
//!
//! An engine takes jobs and answers each exactly once over the channel it was given. Kinds: [`embedded`] (libtorch on its
//! own thread) and [`scripted`] (answers made from the seed without a model, to measure everything else); [`replicas`] shares work
//! out among several; [`stuck`] ends the process when an engine's thread is stuck.

pub mod embedded;
pub mod replicas;
pub mod scripted;
pub mod stuck;

use std::sync::Arc;

use broker::ids::{GroupId, RequestId, WeightVersion};
use broker::protocol::turn::{Finish, Sampling, VersionSpan};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

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
#[error("the engine could not generate: {reason}")]
pub struct EngineFailure {
    /// In words, led by a code by which failures are counted: see [`super::failure`].
    pub reason: String,
    /// Whether the same request may succeed if it is asked again.
    pub retry: bool,
}

/// Weights that an engine could not take: it goes on with those it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub version: WeightVersion,
    pub reason: String,
}

/// A place that generates.
pub trait EngineClient: Send + Sync {
    /// Takes jobs. With `wave`, they are computed as one closed batch in the given order, alone and with empty caches, so
    /// that their bits depend on nothing else. Answers arrive on `done` in any order.
    fn submit(&self, jobs: Vec<Job>, wave: bool, done: UnboundedSender<Vec<Finished>>);
    /// The weights it serves, now and as they change.
    fn versions(&self) -> watch::Receiver<WeightVersion>;
    /// The newest weights that it could not take, told each time.
    fn refusals(&self) -> watch::Receiver<Option<Refusal>>;
}
