//! `train.loss` and `train.kl` of an agent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
