//! `[agents.NAME]`: an agent, which is one policy.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::EngineConfig;
use crate::http::HttpConfig;
use crate::past::PastConfig;
use crate::train::TrainConfig;
use crate::units::{Date, DeviceName};

/// `[agents.NAME]`: the model of an agent, and how it samples, serves and trains.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// Source of the weights and the tokenizer.
    pub model: ModelConfig,
    /// Device of the engine and the trainer: `"cpu"` or `"cuda:N"`.
    #[serde(default)]
    pub device: DeviceName,
    /// Number type of the engine and the trainer. Trained weights, head and losses are always f32.
    #[serde(default)]
    pub dtype: Dtype,
    /// Adapter that is trained in place of the whole model.
    #[serde(default)]
    pub lora: Option<LoraConfig>,
    /// Plays with earlier weights of another agent of the run. Requires `train.enabled = false`.
    #[serde(default)]
    pub past: Option<PastConfig>,
    /// Part of its earlier turns that the agent sees.
    #[serde(default)]
    pub history: History,
    /// Jinja file with the chat template, for a base model without one; default: the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<PathBuf>,
    /// Extra variables for the chat template, for example `enable_thinking = false` for Qwen3.
    #[serde(default)]
    #[schemars(with = "crate::units::AnyTable")]
    pub template_args: toml::Table,
    /// Day that the chat template's `strftime_now` returns, for example `"2026-11-23"`. Without it
    /// the function is missing, so prompts stay equal from day to day.
    #[serde(default)]
    pub template_date: Option<Date>,
    /// Sampling settings for all roles of the agent.
    #[serde(default)]
    pub sampling: SamplingConfig,
    /// Settings of the engine that generates.
    #[serde(default)]
    pub engine: EngineConfig,
    /// HTTP front of the agent, open during training; default: none.
    #[serde(default)]
    pub http: Option<HttpConfig>,
    /// Training settings. `train.enabled = false` makes a frozen partner.
    #[serde(default)]
    pub train: TrainConfig,
}

/// A number type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// 32-bit floats.
    #[default]
    F32,
    /// 16-bit brain floats.
    Bf16,
}

/// A low-rank adapter over a frozen base (LoRA, arXiv:2106.09685). It is new, with `rank`, `alpha`
/// and `targets`, or read from `path`. Agents of one process with the same model (equal
/// `model.path` or equal `model.random`) share one base.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoraConfig {
    /// Folder with an adapter that PEFT or a checkpoint wrote.
    pub path: Option<PathBuf>,
    /// Rank of a new adapter, 1 or more; default: 16.
    pub rank: Option<usize>,
    /// Scale of a new adapter, above 0; default: 32. The factor is `alpha / rank`.
    pub alpha: Option<f64>,
    /// Layers that a new adapter changes; default: `["attn", "mlp"]`.
    pub targets: Option<Vec<LoraTarget>>,
}

impl LoraConfig {
    /// The largest rank: above every hidden width in use, and small enough that an adapter's size
    /// can be counted.
    pub const LARGEST_RANK: usize = 1 << 13;

    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank.unwrap_or(16)
    }

    #[must_use]
    pub fn alpha(&self) -> f64 {
        self.alpha.unwrap_or(32.0)
    }

    #[must_use]
    pub fn targets(&self) -> &[LoraTarget] {
        self.targets.as_deref().unwrap_or(&[LoraTarget::Attn, LoraTarget::Mlp])
    }
}

/// Linear layers that an adapter changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoraTarget {
    /// Queries, keys, values and the output of attention.
    Attn,
    /// Gate, up and down projections.
    Mlp,
    /// The head. In a tied model only the logits change.
    Unembed,
}

/// Source of the weights and the tokenizer of a policy.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ModelConfig {
    /// A Hugging Face folder, or a Hub name in this machine's cache: `ORG/NAME` or
    /// `ORG/NAME@REVISION`.
    Path(PathBuf),
    /// A Qwen3-shaped decoder with random weights, for demos and tests.
    Random(RandomModel),
    /// A model that servers of `engine.kind = "openai"` know by this name. Its weights and tokens
    /// stay on the server.
    Served(String),
}

/// The shape of a random Qwen3-shaped decoder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomModel {
    /// Number of layers.
    pub layers: usize,
    /// Width of the hidden state.
    pub hidden: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Number of key/value heads (grouped-query attention); default: `heads`.
    #[serde(default)]
    pub kv_heads: Option<usize>,
    /// Width of a head; default: `hidden / heads`.
    #[serde(default)]
    pub head_dim: Option<usize>,
    /// Width of the SwiGLU layer; default: 4 x `hidden`.
    #[serde(default)]
    pub intermediate: Option<usize>,
    /// Uses the embedding matrix as the head.
    #[serde(default)]
    pub tied: bool,
    /// Longest context, in tokens.
    #[serde(default = "default_context")]
    pub max_context: usize,
    /// Tokenizer of the model.
    pub tokenizer: TokenizerConfig,
    /// Standard deviation of the random embedding. A tiny model learns with 1.0; with 0.02 to 0.05
    /// a referential game stayed at chance.
    #[serde(default = "default_embedding_std")]
    pub embedding_std: f64,
    /// Standard deviation of every random matrix, including the head.
    #[serde(default = "default_matrix_std")]
    pub matrix_std: f64,
    /// Base of the rotary position embedding; default: 10,000.
    #[serde(default)]
    pub rope_theta: Option<f64>,
}

/// Limits of any model: larger than in every known one, and small enough that sizes computed from
/// these numbers do not overflow.
impl RandomModel {
    pub const MOST_LAYERS: usize = 1 << 12;
    /// The limit of every other number.
    pub const LARGEST: usize = 1 << 31;
    pub const MOST_PARAMETERS: u128 = 1 << 48;

    /// Returns the number of parameters of its layers.
    #[must_use]
    pub fn parameters_of_layers(&self) -> u128 {
        let size = |given: Option<usize>, default: usize| given.unwrap_or(default) as u128;
        let head = size(self.head_dim, self.hidden / self.heads.max(1));
        let heads = self.heads as u128 + size(self.kv_heads, self.heads);
        let wide = size(self.intermediate, self.hidden.saturating_mul(4));
        let of_hidden = (2 * head).saturating_mul(heads).saturating_add(3 * wide);
        (self.layers as u128 * self.hidden as u128).saturating_mul(of_hidden)
    }
}

fn default_context() -> usize {
    512
}
fn default_embedding_std() -> f64 {
    1.0
}
fn default_matrix_std() -> f64 {
    0.2
}

/// A generated tokenizer, saved in the format of Hugging Face.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum TokenizerConfig {
    /// One token per byte, and the control tokens of the chat template.
    Bytes,
    /// One token per listed word (split at white space), and the control tokens.
    Words(Vec<String>),
}

/// The part of its earlier turns that an agent sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// Everything, including its own reasoning: one row per conversation.
    #[default]
    Keep,
    /// Earlier turns without their reasoning: each turn is a new row.
    StripReasoning,
}

/// The lowest temperature other than 0 (greedy). Logits are divided by the temperature and overflow
/// below this value.
pub const LEAST_TEMPERATURE: f32 = 0.01;

/// Sampling settings of an agent. For an agent that trains, truncation (`top_p`, `top_k`, `min_p`)
/// needs one of our own engines, which records the log-probs after truncation. It also needs
/// `train.loss.ratio = "decoupled"`, which weighs each token for the truncation. Cross-entropy
/// works without that ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SamplingConfig {
    /// Sampling temperature: 0 (greedy), or 0.01 or more.
    #[serde(default = "one")]
    pub temperature: f32,
    /// Probability mass of the nucleus, above 0 to 1; 1 turns it off.
    #[serde(default = "one")]
    pub top_p: f32,
    /// Number of most likely tokens to sample from; 0 turns it off.
    #[serde(default)]
    pub top_k: u32,
    /// Least probability of a token relative to the likeliest one, 0 to below 1; 0 turns it off.
    #[serde(default)]
    pub min_p: f32,
    /// Most tokens that one turn may generate.
    #[serde(default = "default_max_new_tokens")]
    pub max_new_tokens: u32,
    /// Most tokens of prompt plus answer, including earlier turns of the seat; default or 0: the
    /// model's context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_context: Option<u32>,
}

fn one() -> f32 {
    1.0
}
fn default_max_new_tokens() -> u32 {
    256
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_new_tokens: default_max_new_tokens(),
            max_context: None,
        }
    }
}
