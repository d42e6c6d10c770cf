//! `train` of an agent: batches, loss, optimizer, checkpoints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::alarms::AlarmsConfig;

/// `train`: the training of an agent. ARCHITECTURE.md, "What is trained", has the formulas.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Trains the agent. `false` makes a frozen partner without buffer or trainer.
    pub enabled: bool,
    /// Groups per batch, each group whole.
    pub batch_groups: usize,
    /// Optimizer steps per pass over a batch. Groups are split by the seed.
    pub minibatches: usize,
    /// Passes over a batch.
    pub epochs: usize,
    /// Most tokens computed at once. Changes memory, never the result.
    pub micro_batch_tokens: usize,
    /// Most trainer steps between the weights that sampled a token and those it trains. Older
    /// tokens are stale.
    pub max_staleness: u64,
    /// Treatment of stale tokens.
    pub stale: Stale,
    /// Baseline and scale of the advantages.
    pub advantage: Advantage,
    /// Treatment of groups whose rewards are all equal.
    pub zero_advantage: ZeroAdvantage,
    /// Treatment of conversations that reached their token limit: trained (`keep`), or only part of
    /// the baseline (`mask`).
    pub truncated: Truncated,
    /// Loss of a batch.
    pub loss: LossConfig,
    /// KL to a reference policy.
    pub kl: KlConfig,
    /// Average of the weights, kept with them and saved in each checkpoint; default: none.
    pub ema: Option<EmaConfig>,
    /// Keeps only the input of each layer for the backward pass and computes the layer again: less
    /// memory, more time, same result.
    pub checkpoint_activations: bool,
    /// Entropy bonus per token, 0 or more.
    pub entropy: f64,
    /// Final entropy bonus, reached linearly over `optimizer.decay_steps` (0: all steps). Exploring
    /// early avoids a language with two names for one thing.
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

/// The baseline and the scale of advantages. `r` is the reward of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Advantage {
    /// Leave-one-out: `A = r - mean of the other conversations`.
    #[default]
    Loo,
    /// `A = (r - mean) / (std + 1e-6)`, unbiased std (DeepSeekMath, arXiv:2402.03300).
    Grpo,
    /// The AstraFlow recipe: pooled over all roles of the agent, unbiased std, then a z-score over
    /// the tokens of the batch.
    Astraflow,
    /// `A = r`, then a z-score over the tokens of the batch: REINFORCE++ (arXiv:2501.03262). One
    /// conversation per task is enough.
    ReinforcePlusPlus,
    /// `A = r - mean`, then a z-score over the tokens of the batch (variant for groups in the same
    /// paper).
    ReinforcePlusPlusBaseline,
}

impl Advantage {
    /// Returns true if advantages are divided by the spread of a whole batch. Then a group of equal
    /// rewards has advantages too.
    #[must_use]
    pub fn is_of_batch(self) -> bool {
        match self {
            Self::Loo | Self::Grpo => false,
            Self::Astraflow | Self::ReinforcePlusPlus | Self::ReinforcePlusPlusBaseline => true,
        }
    }
}

/// The treatment of groups whose rewards are all equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ZeroAdvantage {
    /// Keeps them in the batch.
    #[default]
    Keep,
    /// Skips their computation; denominators still count them. The result is equal unless KL or
    /// entropy is on.
    Skip,
    /// Draws more groups in their place, up to a cap (dynamic sampling, DAPO, arXiv:2503.14476).
    Refill,
}

/// The treatment of tokens older than `max_staleness`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stale {
    /// Masks and counts them.
    #[default]
    Mask,
    /// Drops the whole sample.
    DropSample,
    /// Trains on them.
    Keep,
}

/// The treatment of conversations that reached their token limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Truncated {
    /// Trains on them.
    #[default]
    Keep,
    /// Uses them only for the baseline.
    Mask,
}

/// The sum over token losses: the weight u of a token and the denominator D. D counts what was
/// sampled, before any mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// u = 1, D = sampled tokens.
    #[default]
    Token,
    /// u = 1/|s|, D = samples.
    Sequence,
    /// u = 1 / (tokens of this agent's samples in the conversation), D = conversations.
    Conversation,
    /// u = 1/max_new_tokens, D = samples.
    Constant,
    /// u = 1 / (tokens of the token's role), D = roles. Every role counts equally, whatever its
    /// length.
    Role,
}

/// `loss`: the loss of a batch. The trainer's `Surrogate` has the formulas.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LossConfig {
    /// Kind of loss.
    pub kind: LossKind,
    /// Lower clip: the ratio is at least `1 - clip_low`; above 0 to 1. For `grpo`, `cispo`, and
    /// whole answers of `gspo`.
    pub clip_low: f64,
    /// Upper clip: the ratio is at most `1 + clip_high`; above 0. For `grpo`, `cispo` and `gspo`.
    pub clip_high: f64,
    /// For `grpo`: with a negative advantage A the loss is at most `-dual_clip A`; above 1
    /// (arXiv:1912.09729).
    pub dual_clip: Option<f64>,
    /// For `dro`: strength of the quadratic pull, 0 or more.
    pub beta: f64,
    /// For `m2po`: budget for the mean of the squared log-ratios, above 0.
    pub tau: f64,
    /// For `m2po`: method that keeps the mean within `tau`.
    pub mode: M2poMode,
    /// For `m2po`: tokens over which the mean is taken.
    pub scope: M2poScope,
    /// Sum over the token losses.
    pub agg: Aggregation,
    /// Weights that the ratio compares with.
    pub ratio: Ratio,
    /// For `ratio = "decoupled"`: most weight of a token that the batch's initial weights make
    /// likelier than its sampler did; above 0.
    pub weight_cap: f64,
}

/// The weights that the ratio of the policy gradient compares with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ratio {
    /// The weights that sampled the token: one ratio corrects staleness and bounds the step.
    #[default]
    Behaviour,
    /// The weights at the start of the batch; a separate weight corrects staleness
    /// (arXiv:2110.00641). Costs one more forward pass over the batch.
    Decoupled,
}

/// The kind of loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Clipped ratio times advantage (PPO, arXiv:1707.06347; asymmetric clip of DAPO,
    /// arXiv:2503.14476).
    #[default]
    Grpo,
    /// Ratio times advantage, unbounded.
    ImportanceSampling,
    /// The clipped ratio is only a weight: every token keeps its gradient (arXiv:2506.13585).
    Cispo,
    /// Log-prob times advantage, with a quadratic pull (arXiv:2405.19107).
    Dro,
    /// One clipped ratio per answer: the geometric mean over its tokens (arXiv:2507.18071).
    Gspo,
    /// The second moment of all log-ratios bounds each of them (arXiv:2510.01161).
    M2po,
    /// Log-likelihood of known answers, for workflows that have them.
    CrossEntropy,
}

/// The method that keeps M2PO within its budget. The trainer's `M2poMode` has the formulas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum M2poMode {
    /// AstraFlow's: clips to the largest ratio that remains when the mean is within the budget.
    #[default]
    Clip,
    /// The authors': clips where the mean of the clipped squares is within the budget.
    Cap,
    /// AReaL's: removes tokens from the loss and its denominator until the mean of the others is
    /// within the budget.
    Mask,
}

/// The tokens over which M2PO takes its mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum M2poScope {
    /// All tokens of an optimizer step. Costs one more forward pass; independent of
    /// `micro_batch_tokens`.
    #[default]
    Minibatch,
    /// The tokens computed together, like the published codes.
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

/// The exponential moving average of the trained weights: `e <- decay e + (1 - decay) w` after each
/// optimizer step, starting from version 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmaConfig {
    /// Decay per optimizer step, from 0 to below 1.
    pub decay: f64,
}

/// `kl`: the KL to a reference policy.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KlConfig {
    /// Coefficient of the KL, 0 or more; 0 turns it off.
    pub coef: f64,
    /// Estimator of the KL.
    pub kind: KlKind,
    /// Place where the KL is subtracted.
    pub place: KlPlace,
    /// Reference policy.
    #[serde(rename = "ref")]
    pub reference: KlReference,
}

/// The reference policy of the KL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlReference {
    /// The policy at the start of the run, after a warm start.
    #[default]
    Initial,
    /// The average of the weights, `train.ema`, at the time a batch is trained.
    Ema,
}

/// The place where the KL is subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlPlace {
    /// A separate term of the loss, with its gradient.
    #[default]
    Loss,
    /// The advantages: each token loses its own and later KL before the batch's z-score
    /// (REINFORCE++). Costs one more forward pass per epoch.
    Reward,
}

/// The estimator of the KL from sampled tokens (Schulman, "Approximating KL divergence", 2020),
/// with `d = ref - lp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlKind {
    /// `-d`. In the loss its expected gradient is 0.
    K1,
    /// `d^2 / 2`.
    K2,
    /// `exp(d) - d - 1`.
    #[default]
    K3,
}

/// The course of the learning rate after the warmup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Stays at `lr`.
    #[default]
    Constant,
    /// Falls to `min_lr` on a line.
    Linear,
    /// Falls to `min_lr` on half a cosine.
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
    /// Source of the answers: `generator:KIND`, or `jsonl:PATH` with lines of `{messages: [...]}`
    /// whose last message is the answer.
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
