//! The interface of a server, of either kind.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use broker::protocol::turn::Sampling;

use super::trouble::Trouble;

/// One call: a prompt and the limits of its answer.
#[derive(Debug, Clone)]
pub struct ServerCall {
    /// Unique to this call.
    pub id: String,
    pub prompt: Vec<u32>,
    pub sampling: Arc<Sampling>,
    /// At least 1; less than in `sampling` if some tokens are already made.
    pub max_new_tokens: u32,
    pub seed: u64,
    pub stop_ids: Arc<[u32]>,
    pub adapter: Option<String>,
    /// Most likely tokens to report at each position, besides the chosen one.
    pub top: u32,
}

impl ServerCall {
    /// Returns the size limit of an answer in bytes: 1 KiB for each new token, the scores of the
    /// prompt, and fixed overhead.
    pub(super) fn longest_answer(&self) -> usize {
        (1 << 20) + (self.max_new_tokens as usize).saturating_mul(1 << 10) + self.prompt.len() * 16
    }
}

/// The reason why a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    Stop,
    Length,
    /// The server ended it early.
    Aborted,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub ids: Vec<u32>,
    /// One per id; finite.
    pub logprobs: Vec<f32>,
    pub end: CallEnd,
    /// The label of the weights that made it, if it was reported.
    pub label: Option<String>,
    /// Tokens of the prompt that were reused from a cache.
    pub reused: usize,
    /// The most likely tokens at each id's position, with their log-probs.
    pub top: Vec<Vec<(u32, f32)>>,
}

impl Reply {
    /// Returns a token that a model with `vocab` tokens does not have.
    pub(super) fn unknown_id(&self, vocab: usize) -> Option<u32> {
        let likely = self.top.iter().flatten().map(|(id, _)| *id);
        let mut ids = self.ids.iter().copied().chain(likely);
        ids.find(|id| *id as usize >= vocab)
    }
}

/// Returns the error text for a token that the agent's model does not have.
pub(super) fn another_model(id: u32, vocab: usize) -> String {
    format!("it reports the token {id}, but the model has {vocab} tokens: it serves another model")
}

/// A server's description of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Tokens of a prompt and its answer together.
    pub context: Option<usize>,
    /// The served model, in words for a log.
    pub model: String,
}

/// An inference server over HTTP.
#[async_trait]
pub trait Server: Send + Sync {
    /// Returns the product's name: `SGLang`, `vLLM`.
    fn name(&self) -> &'static str;
    /// Returns its URL.
    fn url(&self) -> &str;
    /// Returns the advice that makes its log-probs those of the tempered distribution.
    fn fix_for_raw(&self) -> &'static str;
    /// Returns the tokens of the context that a call cannot use.
    fn spare(&self) -> usize {
        0
    }
    async fn is_well(&self) -> Result<(), Trouble>;
    async fn about(&self) -> Result<About, Trouble>;
    async fn generate(&self, ask: &ServerCall) -> Result<Reply, Trouble>;
    /// Returns the label of the loaded weights.
    async fn label(&self) -> Result<String, Trouble>;
    /// Aborts all its calls; each returns its tokens so far.
    async fn abort_all(&self) -> Result<(), Trouble>;
    /// Loads whole weights while no call is in progress, and reports `label` from then on.
    async fn load(&self, folder: &Path, label: &str) -> Result<(), Trouble>;
    /// Loads an adapter under a name; succeeds if it is already loaded.
    async fn load_adapter(&self, name: &str, folder: &Path) -> Result<(), Trouble>;
    async fn unload_adapter(&self, name: &str) -> Result<(), Trouble>;
}
