//! `train` of an agent: batches, advantages, optimizer, warm start, checkpoints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AlarmsConfig, DeviceName, KlConfig, KlPlace, LossConfig};

/// `train`: the training of an agent. ARCHITECTURE.md, "What is trained", has the formulas.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Trains the agent. `false` makes a frozen partner without buffer or trainer.
    pub enabled: bool,
    /// Groups per batch. All samples of a group are in the same batch.
    pub batch_groups: usize,
    /// Optimizer steps per pass over a batch. The seed decides which groups each step trains on.
    pub minibatches: usize,
    /// Passes over a batch.
    pub epochs: usize,
    /// Most tokens computed at once. Fewer need less memory; the result is the same.
    pub micro_batch_tokens: usize,
    /// Devices of the trainer's ranks, one process each, for example `["cuda:0", "cuda:1"]`; the
    /// first is the agent's `device`. Default: one rank there.
    pub devices: Vec<DeviceName>,
    /// State that the ranks split among them instead of each holding all of it.
    pub shard: Shard,
    /// State kept in host memory instead of on the device.
    pub offload: Offload,
    /// Command of an external trainer, for example `["torchrun", "--nproc-per-node=8",
    /// "trainer/external/fsdp2.py"]`; default: the built-in trainer.
    pub command: Vec<String>,
    /// Most trainer steps between sampling a token and training on it. Older tokens are stale.
    pub max_staleness: u64,
    /// Treatment of stale tokens.
    pub stale: Stale,
    /// Baseline and scale of the advantages.
    pub advantage: Advantage,
    /// Treatment of groups with equal rewards.
    pub zero_advantage: ZeroAdvantage,
    /// Treatment of conversations that a token limit cut off: `keep` trains on them, `mask` uses
    /// only their rewards, in the baseline.
    pub truncated: Truncated,
    /// Loss of a batch.
    pub loss: LossConfig,
    /// KL penalty towards a reference policy.
    pub kl: KlConfig,
    /// Moving average of the weights, saved in each checkpoint; default: none.
    pub ema: Option<EmaConfig>,
    /// Stores only each layer's input; the backward pass computes the layer again. Less memory,
    /// more time, the same result.
    pub checkpoint_activations: bool,
    /// Entropy bonus per token, 0 or more.
    pub entropy: f64,
    /// Final entropy bonus, reached linearly over `optimizer.decay_steps` (0: all steps). A higher
    /// bonus early on avoids a language with two names for one thing.
    pub entropy_final: Option<f64>,
    /// AdamW and its learning rate.
    pub optimizer: OptimizerConfig,
    /// Supervised training before version 0 is published; default: none.
    pub warm_start: Option<WarmStartConfig>,
    /// Steps between checkpoints; 0 writes one only at the end.
    pub checkpoint_every: u64,
    /// Number of newest checkpoints to keep.
    pub keep_checkpoints: usize,
    /// Weight of a role's tokens in the loss, by role; 1 for roles not listed.
    pub role_weights: std::collections::BTreeMap<crate::RoleName, f64>,
    /// Bounds beyond which a warning reports a collapsing policy.
    pub alarms: AlarmsConfig,
}

impl TrainConfig {
    /// Returns true if another program trains.
    #[must_use]
    pub fn is_external(&self) -> bool {
        !self.command.is_empty()
    }

    /// Returns true if the KL is subtracted from the advantages, token by token.
    #[must_use]
    pub fn kl_in_reward(&self) -> bool {
        self.kl.place == KlPlace::Reward && self.kl.coef != 0.0
    }
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            batch_groups: 16,
            minibatches: 1,
            epochs: 1,
            micro_batch_tokens: 16384,
            devices: Vec::new(),
            shard: Shard::None,
            offload: Offload::None,
            command: Vec::new(),
            max_staleness: 1,
            stale: Stale::Mask,
            advantage: Advantage::Loo,
            zero_advantage: ZeroAdvantage::Keep,
            truncated: Truncated::Keep,
            loss: LossConfig::default(),
            kl: KlConfig::default(),
            ema: None,
            checkpoint_activations: false,
            entropy: 0.0,
            entropy_final: None,
            optimizer: OptimizerConfig::default(),
            warm_start: None,
            checkpoint_every: 0,
            keep_checkpoints: 2,
            role_weights: std::collections::BTreeMap::new(),
            alarms: AlarmsConfig::default(),
        }
    }
}

/// The state that ranks of a trainer split. The result is the same, up to rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shard {
    /// None: every rank holds everything.
    #[default]
    None,
    /// The f32 weights and AdamW's moments (ZeRO-1, arXiv:1910.02054).
    Optimizer,
    /// Also the gradient (ZeRO-2). Needs `checkpoint_activations`.
    Gradient,
    /// Also the weights that compute (ZeRO-3). Needs `checkpoint_activations`; not for adapters.
    Full,
}

/// The state that a trainer keeps in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Offload {
    /// None.
    #[default]
    None,
    /// The f32 weights and AdamW's moments.
    Optimizer,
}

/// The baseline and the scale of advantages. `r` is the reward of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Advantage {
    /// Leave-one-out: `A = r - mean of the other conversations`.
    #[default]
    Loo,
    /// `A = (r - mean) / (std + 1e-6)`, unbiased std (DeepSeekMath, arXiv:2402.03300).
    Grpo,
    /// The AstraFlow recipe: like `grpo`, but over all roles of the agent together, then a z-score
    /// over the tokens of the batch.
    Astraflow,
    /// `A = r`, then a z-score over the tokens of the batch: REINFORCE++ (arXiv:2501.03262). One
    /// conversation per task is enough.
    ReinforcePlusPlus,
    /// `A = r - mean`, then a z-score over the tokens of the batch: the variant for groups in the
    /// REINFORCE++ paper.
    ReinforcePlusPlusBaseline,
}

impl Advantage {
    /// Returns true if a z-score over the whole batch follows. It can give even a group with equal
    /// rewards advantages other than 0.
    #[must_use]
    pub fn is_of_batch(self) -> bool {
        match self {
            Self::Loo | Self::Grpo => false,
            Self::Astraflow | Self::ReinforcePlusPlus | Self::ReinforcePlusPlusBaseline => true,
        }
    }
}

/// The treatment of groups with equal rewards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ZeroAdvantage {
    /// Keeps them in the batch.
    #[default]
    Keep,
    /// Leaves them out of the computation; the loss's denominators still count them. Same result as
    /// `keep`; rejected with KL or entropy.
    Skip,
    /// Replaces them with other groups, up to 4 x `batch_groups` groups in all (dynamic sampling,
    /// DAPO, arXiv:2503.14476).
    Refill,
}

/// The treatment of tokens older than `max_staleness`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stale {
    /// Leaves them out of the loss and counts them.
    #[default]
    Mask,
    /// Drops the whole sample that has a stale token.
    DropSample,
    /// Trains on them.
    Keep,
}

/// The treatment of conversations that a token limit cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Truncated {
    /// Trains on them.
    #[default]
    Keep,
    /// Uses them only for the baseline.
    Mask,
}

/// The exponential moving average of the trained weights: `e <- decay e + (1 - decay) w` after each
/// optimizer step, starting from version 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmaConfig {
    /// Decay per optimizer step, from 0 to below 1.
    pub decay: f64,
}

/// The course of the learning rate after the warmup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Stays at `lr`.
    #[default]
    Constant,
    /// Falls linearly to `min_lr`.
    Linear,
    /// Falls to `min_lr` along half a period of a cosine.
    Cosine,
}

/// `optimizer`: AdamW (arXiv:1711.05101).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerConfig {
    /// Learning rate, above 0.
    pub lr: f64,
    /// Decay of the first moment, from 0 to below 1.
    pub beta1: f64,
    /// Decay of the second moment, from 0 to below 1.
    pub beta2: f64,
    /// Term added to the denominator, above 0.
    pub eps: f64,
    /// Decoupled weight decay, 0 or more.
    pub weight_decay: f64,
    /// Largest global gradient norm; 0 turns clipping off.
    pub clip_norm: f64,
    /// Steps over which the learning rate rises linearly to `lr`.
    pub warmup_steps: u64,
    /// Course of the learning rate after the warmup.
    pub schedule: Schedule,
    /// Steps over which `linear` and `cosine` fall to `min_lr`; 0: all steps that this agent makes.
    pub decay_steps: u64,
    /// Final learning rate of `linear` and `cosine`, from 0 to `lr`.
    pub min_lr: f64,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self {
            lr: 3e-4,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            clip_norm: 1.0,
            warmup_steps: 0,
            schedule: Schedule::Constant,
            decay_steps: 0,
            min_lr: 0.0,
        }
    }
}

/// `warm_start`: cross-entropy on known answers before version 0 is published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WarmStartConfig {
    /// Source of the answers: `generator:KIND`, or `jsonl:PATH` with lines of `{messages: [...]}`,
    /// where the last message is the answer.
    pub source: String,
    /// Optimizer steps, 1 or more.
    pub steps: u64,
    /// Answers per step, 1 or more.
    pub batch: usize,
    /// Learning rate, above 0.
    #[serde(default = "default_warm_lr")]
    pub lr: f64,
    /// Settings of the generator.
    #[serde(default)]
    #[schemars(with = "crate::units::AnyTable")]
    pub params: toml::Table,
}

fn default_warm_lr() -> f64 {
    1e-3
}
