//! `[agents.NAME]`: one trainable policy.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::HttpConfig;
use crate::past::PastConfig;
use crate::train::TrainConfig;
use crate::units::{Date, DeviceName, HumanDuration};

/// One agent: its model, how it samples, serves and trains.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    pub model: ModelConfig,
    /// Where its engine and its trainer compute: `"cpu"` or `"cuda:N"`.
    #[serde(default)]
    pub device: DeviceName,
    /// What its engine and its trainer compute in; trained weights, head and losses are f32 always.
    #[serde(default)]
    pub dtype: Dtype,
    /// An adapter that is trained in place of the whole model.
    #[serde(default)]
    pub lora: Option<LoraConfig>,
    /// Plays with weights that another agent of the run had before, in the place of its own; of an agent that does not train.
    #[serde(default)]
    pub past: Option<PastConfig>,
    #[serde(default)]
    pub history: History,
    /// Variables for its chat template beside those that every template has, such as `enable_thinking = false` for Qwen3's.
    #[serde(default)]
    #[schemars(with = "crate::units::AnyTable")]
    pub template_args: toml::Table,
    /// The day that its chat template's `strftime_now` tells, such as `"2026-11-23"`. Without it templates have no such function, so that no
    /// prompt changes from one day to the next.
    #[serde(default)]
    pub template_date: Option<Date>,
    #[serde(default)]
    pub sampling: SamplingConfig,
    #[serde(default)]
    pub engine: EngineConfig,
    /// Where it answers over HTTP, beside training; not at all if not given.
    #[serde(default)]
    pub http: Option<HttpConfig>,
    /// Settings of training; `train.enabled = false` makes a frozen partner.
    #[serde(default)]
    pub train: TrainConfig,
}

/// A type of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    #[default]
    F32,
    Bf16,
}

/// A low-rank adapter over a frozen base (LoRA, arXiv:2106.09685). Agents of one process whose model is the same (one
/// `model.path`, or an equal `model.random`) share one base. Either new, with `rank`, `alpha` and `targets`, or read from `path`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoraConfig {
    /// A folder that PEFT or a checkpoint wrote.
    pub path: Option<PathBuf>,
    pub rank: Option<usize>,
    /// What is added is scaled by `alpha / rank`.
    pub alpha: Option<f64>,
    pub targets: Option<Vec<LoraTarget>>,
}

impl LoraConfig {
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
    /// Queries, keys, values and the attention's output.
    Attn,
    /// Gate, up and down.
    Mlp,
    /// The head; of a tied model the logits only.
    Unembed,
}

/// Where the policy's weights and tokenizer come from.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ModelConfig {
    /// A Hugging Face folder, or a name of the Hub (`ORG/NAME`, `ORG/NAME@REVISION`) that this machine's cache has.
    Path(PathBuf),
    /// A Qwen3-shaped decoder of random weights, for demos and tests.
    Random(RandomModel),
    /// A model that servers of `engine.kind = "openai"` know by this name; its weights and its tokens stay theirs.
    Served(String),
}

/// The shape of a random Qwen3-shaped decoder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomModel {
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    /// Key/value heads (grouped-query attention); as many as `heads` if not given.
    #[serde(default)]
    pub kv_heads: Option<usize>,
    /// `hidden / heads` if not given.
    #[serde(default)]
    pub head_dim: Option<usize>,
    /// Width of the SwiGLU layer; 4 x hidden if not given.
    #[serde(default)]
    pub intermediate: Option<usize>,
    #[serde(default)]
    pub tied: bool,
    #[serde(default = "default_context")]
    pub max_context: usize,
    pub tokenizer: TokenizerConfig,
    /// Standard deviation of the embedding's random weights. It decides whether a tiny model learns at all: 1.0 does,
    /// 0.02 to 0.05 left a referential game at chance.
    #[serde(default = "default_embedding_std")]
    pub embedding_std: f64,
    /// Standard deviation of every matrix, the head included.
    #[serde(default = "default_matrix_std")]
    pub matrix_std: f64,
    #[serde(default)]
    pub rope_theta: Option<f64>,
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

/// A tokenizer made on the spot, saved in Hugging Face's format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum TokenizerConfig {
    /// One token per byte, and the control tokens of the chat template.
    Bytes,
    /// One token per listed word (split at white space), and the control tokens.
    Words(Vec<String>),
}

/// What an agent sees of its own earlier turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// All of it, its own reasoning too: one row per conversation.
    #[default]
    Keep,
    /// Without the reasoning of earlier turns: each turn is a new row.
    StripReasoning,
}

/// The least temperature of whatever is sampled, other than 0, which is greedy: logits are divided by it, and below they overflow.
pub const LEAST_TEMPERATURE: f32 = 0.01;

/// How its roles sample. Of an agent that trains, truncation (`top_p`, `top_k`, `min_p`) needs an engine of our own, which records the
/// log-probs of what is left, and `train.loss.ratio = "decoupled"`, which weighs each token for what was left out (cross-entropy needs none).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SamplingConfig {
    #[serde(default = "one")]
    pub temperature: f32,
    #[serde(default = "one")]
    pub top_p: f32,
    #[serde(default)]
    pub top_k: u32,
    #[serde(default)]
    pub min_p: f32,
    #[serde(default = "default_max_new_tokens")]
    pub max_new_tokens: u32,
    /// Tokens of prompt and answer together, all earlier turns of the seat included; at most, and if not given or 0, the model's
    /// own context. An answer has what the prompt leaves of it.
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

/// What happens to generations under way when new weights arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Swap {
    /// They go on with their cache; each token records the version that made it.
    #[default]
    InPlace,
    /// Their cache is computed anew with the new weights.
    Retract,
    /// They finish first.
    Drain,
}

/// Which engine generates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EngineKind {
    /// libtorch in the agent's own process.
    #[default]
    Embedded,
    /// Answers made from the request's seed without a model, to measure everything else.
    Scripted,
    /// `dyad engine`: libtorch in processes of their own.
    Dyad,
    /// SGLang servers.
    Sglang,
    /// vLLM servers.
    Vllm,
    /// Servers that take messages and answer with a text, as OpenAI's do: a partner that is never trained, and may see images.
    Openai,
}

impl EngineKind {
    /// Whether its servers are other people's programs, driven over HTTP.
    #[must_use]
    pub fn is_foreign(self) -> bool {
        matches!(self, Self::Sglang | Self::Vllm | Self::Openai)
    }

    /// As the configuration writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Scripted => "scripted",
            Self::Dyad => "dyad",
            Self::Sglang => "sglang",
            Self::Vllm => "vllm",
            Self::Openai => "openai",
        }
    }

    /// Whether messages with images may be shown to it.
    #[must_use]
    pub fn sees(self) -> bool {
        self == Self::Openai
    }
}

/// `engine`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    pub kind: EngineKind,
    /// Where engines answer that run as processes of their own: one URL each.
    pub urls: Vec<String>,
    /// Where such engines fetch this agent's weights: IP address and port; port 0 takes any that is free.
    pub weights_listen: String,
    /// How they reach it, where that is not the address itself: behind another name, or with `"0.0.0.0:PORT"`.
    pub weights_url: Option<String>,
    pub swap: Swap,
    /// Engines of this agent, each with a copy of the weights; its router shares conversations out among them.
    pub replicas: usize,
    /// Generations decoded together, in one engine.
    pub slots: usize,
    /// Prompt tokens computed in one step at most, so that long prompts do not hold up decoding.
    pub prefill_tokens: usize,
    /// MiB of keys and values, per engine, kept of turns that have ended: the next turn of the conversation computes only what is
    /// new. 0: every turn is computed from its first token. Not used in synchronous rounds, whose bits would depend on it.
    pub prefix_cache_mib: usize,
    /// A request has the same bits (tokens and log-probs) whatever is computed with it. Slower; on a CPU only.
    pub deterministic: bool,
    /// In f32 on a CPU an engine keeps its matrices a second time, in the order in which its own products want them: several times as fast
    /// (in bf16 of the output matrix alone). `false`: one copy, computed with by libtorch.
    pub prepack: bool,
    /// A thread that computes, has work and makes no step for so long is stuck: its process ends. Zero: it is never taken for stuck.
    pub stuck_after: HumanDuration,
    /// Where weights are written for SGLang and vLLM, which see the folder under the same path; `weights` in the run's folder if not
    /// given.
    pub weights_folder: Option<PathBuf>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            kind: EngineKind::Embedded,
            urls: Vec::new(),
            weights_listen: "127.0.0.1:0".into(),
            weights_url: None,
            swap: Swap::InPlace,
            replicas: 1,
            slots: 256,
            prefill_tokens: 4096,
            prefix_cache_mib: 1024,
            deterministic: false,
            prepack: true,
            stuck_after: HumanDuration::from_secs(600),
            weights_folder: None,
        }
    }
}
