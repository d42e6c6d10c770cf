//! What a server is asked for, whichever it is.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use broker::protocol::turn::Sampling;

use super::trouble::Trouble;

/// One call: a prompt and what may follow it.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Of this call alone.
    pub id: String,
    pub prompt: Vec<u32>,
    pub sampling: Arc<Sampling>,
    /// At least 1; not what `sampling` says, of which some may be made already.
    pub max_new_tokens: u32,
    pub seed: u64,
    pub stop_ids: Arc<[u32]>,
    pub adapter: Option<String>,
    /// Most likely tokens to tell of each place, beside the chosen one.
    pub top: u32,
}

impl Ask {
    /// No answer has more bytes: 1 KiB for each token that may be made, what is said of the prompt, and what else belongs to it.
    pub(super) fn longest_answer(&self) -> usize {
        (1 << 20) + (self.max_new_tokens as usize).saturating_mul(1 << 10) + self.prompt.len() * 16
    }
}

/// Why a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Stop,
    Length,
    /// The server ended it before its time.
    Aborted,
}

/// What a call made.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub ids: Vec<u32>,
    /// One per id; finite.
    pub logprobs: Vec<f32>,
    pub end: End,
    /// The label of the weights that made it, if it was said.
    pub label: Option<String>,
    /// Tokens of the prompt that were not computed anew.
    pub reused: usize,
    /// Of each id, the most likely tokens in its place with their log-probs.
    pub top: Vec<Vec<(u32, f32)>>,
}

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Tokens of a prompt and its answer together.
    pub context: Option<usize>,
    /// What it serves, in words for a log.
    pub model: String,
}

/// An inference server over HTTP.
#[async_trait]
pub trait Server: Send + Sync {
    /// `SGLang`, `vLLM`.
    fn name(&self) -> &'static str;
    /// Where it answers.
    fn url(&self) -> &str;
    /// What to start it with, so that its log-probs are those of the tempered distribution.
    fn fix_for_raw(&self) -> &'static str;
    /// Tokens of the context that it does not let a call use.
    fn spare(&self) -> usize {
        0
    }
    async fn is_well(&self) -> Result<(), Trouble>;
    async fn about(&self) -> Result<About, Trouble>;
    async fn generate(&self, ask: &Ask) -> Result<Reply, Trouble>;
    /// The label of the weights that it holds.
    async fn label(&self) -> Result<String, Trouble>;
    /// Ends every call that it has; each answers with what it made.
    async fn abort_all(&self) -> Result<(), Trouble>;
    /// Takes whole weights, when no call is under way, and says `label` of them from then on.
    async fn load(&self, folder: &Path, label: &str) -> Result<(), Trouble>;
    /// Takes an adapter under a name; good as well if it has that already.
    async fn load_adapter(&self, name: &str, folder: &Path) -> Result<(), Trouble>;
    async fn unload_adapter(&self, name: &str) -> Result<(), Trouble>;
}
