//! `train` of an agent: batches, loss, optimizer, checkpoints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::alarms::AlarmsConfig;

/// How an agent trains. See ARCHITECTURE.md, "What is trained", for the formulas.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// `false`: a frozen partner, without buffer or trainer.
    pub enabled: bool,
    /// Whole groups per batch.
    pub batch_groups: usize,
    /// Optimizer steps a batch is split into, by group, seeded.
    pub minibatches: usize,
    /// Passes over a batch.
    pub epochs: usize,
    /// Tokens computed at once at most. Changes memory, never the result.
    pub micro_batch_tokens: usize,
    /// Trainer steps a token may be older than the weights it trains; older ones are masked and counted.
    pub max_staleness: u64,
    pub stale: Stale,
    pub advantage: Advantage,
    pub zero_advantage: ZeroAdvantage,
    /// What a conversation that reached its token limit does: trained (`keep`) or only part of the baseline (`mask`).
    pub truncated: Truncated,
    pub loss: LossConfig,
    pub kl: KlConfig,
    /// An average of the weights, kept beside them and saved with each checkpoint.
    pub ema: Option<EmaConfig>,
    /// Of each layer only its input is kept for the backward pass, which computes the layer anew: less memory, more time, the same
    /// result.
    pub checkpoint_activations: bool,
    /// Entropy bonus per token.
    pub entropy: f64,
    /// Where the entropy bonus ends: it moves there linearly over `optimizer.decay_steps`, over the steps that this agent makes in the run if
    /// that is 0. Exploring early and settling late is what gets two agents out of a language with two names for one thing.
    pub entropy_final: Option<f64>,
    pub optimizer: OptimizerConfig,
    pub warm_start: Option<WarmStartConfig>,
    /// Steps between checkpoints; 0 means only at the end.
    pub checkpoint_every: u64,
    pub keep_checkpoints: usize,
    /// Weight of a role's tokens in the loss, 1 if not listed.
    pub role_weights: std::collections::BTreeMap<crate::RoleName, f64>,
    /// When to warn of a collapse.
    pub alarms: AlarmsConfig,
}

impl TrainConfig {
    /// Whether advantages are lessened by the KL, token by token.
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

/// The baseline of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Advantage {
    /// Leave-one-out: `A = r - mean of the other conversations`.
    #[default]
    Loo,
    /// `A = (r - mean) / (std + 1e-6)`, unbiased std (DeepSeekMath, arXiv:2402.03300).
    Grpo,
    /// As the AstraFlow recipe: pooled over all roles of the agent, unbiased std, then a z-score over the batch's tokens.
    Astraflow,
    /// `A = r`, then a z-score over the batch's tokens: REINFORCE++ (arXiv:2501.03262). Needs no second conversation of a
    /// task.
    ReinforcePlusPlus,
    /// `A = r - mean`, then a z-score over the batch's tokens (the same paper's variant for groups).
    ReinforcePlusPlusBaseline,
}

impl Advantage {
    /// Whether it is divided by the spread of a whole batch, so that a group of equal rewards has an advantage too.
    #[must_use]
    pub fn is_of_batch(self) -> bool {
        match self {
            Self::Loo | Self::Grpo => false,
            Self::Astraflow | Self::ReinforcePlusPlus | Self::ReinforcePlusPlusBaseline => true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ZeroAdvantage {
    /// Groups without a difference in reward stay in the batch.
    #[default]
    Keep,
    /// They are not computed; denominators count them. The same result unless KL or entropy is on.
    Skip,
    /// More groups are drawn in their place, up to a cap (dynamic sampling, DAPO, arXiv:2503.14476).
    Refill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stale {
    #[default]
    Mask,
    DropSample,
    Keep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Truncated {
    #[default]
    Keep,
    Mask,
}

/// How token losses are added up. D counts what was sampled, before any mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// u = 1, D = sampled tokens.
    #[default]
    Token,
    /// u = 1/|s|, D = samples.
    Sequence,
    /// u = 1 / (tokens of its conversation's samples of this agent), D = conversations.
    Conversation,
    /// u = 1/max_new_tokens, D = samples.
    Constant,
    /// u = 1 / (tokens of its role), D = roles: however much a role says, it counts as one.
    Role,
}

/// The loss of a batch. The trainer's `Surrogate` has the formulas.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LossConfig {
    pub kind: LossKind,
    /// The ratio is clipped to `1 - clip_low ..= 1 + clip_high`; of `grpo`, `cispo` and, for whole answers, `gspo`.
    pub clip_low: f64,
    pub clip_high: f64,
    /// Of `grpo`: where the advantage A is negative the loss is at most `-dual_clip A`, above 1 (arXiv:1912.09729).
    pub dual_clip: Option<f64>,
    /// Of `dro`: the pull to the ratio's other side.
    pub beta: f64,
    /// Of `m2po`: what the mean of the squared log-ratios may be.
    pub tau: f64,
    /// Of `m2po`: how it is kept there.
    pub mode: M2poMode,
    /// Of `m2po`: the tokens that the mean is taken over.
    pub scope: M2poScope,
    pub agg: Aggregation,
    pub ratio: Ratio,
    /// Largest weight that a token gets for the batch's start being likelier to sample it than its sampler was; of
    /// `ratio = "decoupled"`.
    pub weight_cap: f64,
}

/// What the ratio of the policy gradient is taken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ratio {
    /// The weights that sampled the token: one ratio corrects for staleness and bounds the step.
    #[default]
    Behaviour,
    /// The weights at the start of the batch; staleness is corrected by a weight of its own (arXiv:2110.00641). One more
    /// forward pass over the batch.
    Decoupled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Clipped ratio times advantage (PPO, arXiv:1707.06347; asymmetric clip of DAPO, arXiv:2503.14476).
    #[default]
    Grpo,
    /// Ratio times advantage, unbounded.
    ImportanceSampling,
    /// The clipped ratio only weighs: no token loses its gradient (arXiv:2506.13585).
    Cispo,
    /// Log-prob times advantage, with a quadratic pull (arXiv:2405.19107).
    Dro,
    /// One clipped ratio for a whole answer: the geometric mean of its tokens' (arXiv:2507.18071).
    Gspo,
    /// The second moment of all log-ratios bounds each of them (arXiv:2510.01161).
    M2po,
    /// Log-likelihood of known answers, where the workflow tells them.
    CrossEntropy,
}

/// How M2PO keeps its budget; formulas stand with the trainer's `M2poMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum M2poMode {
    /// As AstraFlow: the ratio is clipped to the largest that is left when the mean is within the budget.
    #[default]
    Clip,
    /// As its authors: the ratio is clipped where the mean of the clipped squares is within the budget.
    Cap,
    /// As AReaL: tokens leave the loss, and its denominator, until the mean of the others is within the budget.
    Mask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum M2poScope {
    /// All tokens of an optimizer step; one more forward pass. The result does not depend on `micro_batch_tokens`.
    #[default]
    Minibatch,
    /// The tokens that are computed together, as the published codes do.
    Microbatch,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self {
            kind: LossKind::Grpo,
            clip_low: 0.2,
            clip_high: 0.2,
            dual_clip: None,
            beta: 0.05,
            tau: 0.04,
            mode: M2poMode::Clip,
            scope: M2poScope::Minibatch,
            agg: Aggregation::Token,
            ratio: Ratio::Behaviour,
            weight_cap: 5.0,
        }
    }
}

/// The exponential moving average of the trained weights: `e <- decay e + (1 - decay) w` after each optimizer step, beginning as
/// version 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmaConfig {
    /// From 0 to below 1.
    pub decay: f64,
}

/// KL to a reference policy.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KlConfig {
    pub coef: f64,
    pub kind: KlKind,
    pub place: KlPlace,
    #[serde(rename = "ref")]
    pub reference: KlReference,
}

/// What the KL is taken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlReference {
    /// The policy as it was when the run began, after a warm start.
    #[default]
    Initial,
    /// The average of the weights, `train.ema`, as it is when a batch is trained.
    Ema,
}

/// Where the KL is taken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlPlace {
    /// A term of the loss, with a gradient of its own.
    #[default]
    Loss,
    /// The advantage of a token is less by the KL of that token and those after it, before the z-score over the batch
    /// (REINFORCE++). One more forward pass over the batch in each epoch.
    Reward,
}

/// How the KL is estimated from sampled tokens (Schulman, "Approximating KL divergence", 2020), `d = ref - lp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlKind {
    /// `-d`: as a term of the loss it pulls nowhere in expectation.
    K1,
    /// `d^2 / 2`.
    K2,
    /// `exp(d) - d - 1`.
    #[default]
    K3,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    #[default]
    Constant,
    Linear,
    Cosine,
}

/// AdamW (arXiv:1711.05101).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OptimizerConfig {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
    /// Largest global gradient norm; 0 means no clipping.
    pub clip_norm: f64,
    pub warmup_steps: u64,
    pub schedule: Schedule,
    /// Steps over which `linear` and `cosine` fall to `min_lr`; those that this agent makes in the run if 0.
    pub decay_steps: u64,
    /// Where they end and stay: from 0 to `lr`.
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

/// Cross-entropy on known answers before version 0 is published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WarmStartConfig {
    /// `jsonl:PATH` (lines of `{messages: [...]}` whose last message is the answer) or `generator:KIND`.
    pub source: String,
    pub steps: u64,
    pub batch: usize,
    #[serde(default = "default_warm_lr")]
    pub lr: f64,
    #[serde(default)]
    #[schemars(with = "crate::units::AnyTable")]
    pub params: toml::Table,
}

fn default_warm_lr() -> f64 {
    1e-3
}
