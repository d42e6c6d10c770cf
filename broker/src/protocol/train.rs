//! Commands to a trainer: a serialisable, ordered log.
//!
//! A batch is a forest of spans: the prompt of a group is stored once, with every completion below
//! it. A trainer may flatten the forest. All denominators are global, so that neither micro-batches
//! nor ranks change the result: `L = sum over spans s, tokens t of weight_s * mask_t * loss_t`,
//! where `weight_s` is already divided by D.

use bincode::{Decode, Encode};
use serde::Serialize;

use super::turn::Finish;
use crate::ids::WeightVersion;

/// One stretch of tokens. Its context is its parent's context, then its parent's ids.
#[derive(Debug, Clone, PartialEq, Encode, Decode, Default)]
pub struct Span {
    /// Index of an earlier span of the batch.
    pub parent: Option<u32>,
    pub ids: Vec<u32>,
    /// True where the token was sampled and is trained. The same length as `ids`.
    pub mask: Vec<bool>,
    /// Log-probs of the distribution that the token was sampled from, with the weights and the
    /// truncation of that time; 0 where the mask is false. The same length as `ids`.
    pub behaviour_lp: Vec<f32>,
    /// Log-probs of the weights at the start of the batch, if the loss needs them. If empty,
    /// `behaviour_lp` is used.
    pub old_lp: Vec<f32>,
    /// One value for every trained token of the span.
    pub advantage: f32,
    /// A value for each token instead of `advantage`, with the length of `ids`. If empty,
    /// `advantage` is used.
    pub advantages: Vec<f32>,
    /// The number of the answer, in the order of the batch. Trained spans with the same number are
    /// one answer, rewarded as one. Losses of single tokens ignore it.
    pub answer: u32,
    /// The number of the speaking role, by the count of the batch's maker. Its tokens are also
    /// measured separately.
    pub role: u16,
    /// `w_role * u_s / D`; 0 for tokens of a context.
    pub weight: f32,
    pub temperature: f32,
    /// True if every token and KV entry came from the very weights that are trained now, and from
    /// the whole vocabulary. The ratio check applies to such spans only.
    pub on_policy: bool,
}

/// Spans of one optimizer step.
#[derive(Debug, Clone, PartialEq, Encode, Decode, Default)]
pub struct TrainBatch {
    pub spans: Vec<Span>,
    /// Trained tokens, before any mask by staleness.
    pub tokens: u64,
}

impl TrainBatch {
    /// Stores `logprobs`, span by span as [`TrainReply::LogProbs`] gives them, as those of the
    /// start of the batch. Returns false and changes nothing if they do not fit this batch.
    #[must_use]
    pub fn begin_from(&mut self, logprobs: Vec<Vec<f32>>) -> bool {
        let fits = |(span, lps): (&Span, &Vec<f32>)| span.ids.len() == lps.len();
        if logprobs.len() != self.spans.len() || !self.spans.iter().zip(&logprobs).all(fits) {
            return false;
        }
        for (span, lps) in self.spans.iter_mut().zip(logprobs) {
            span.old_lp = lps;
        }
        true
    }
}

/// The weights of a forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardWeights {
    /// The trained weights in their present state.
    Trained,
    /// The reference policy's weights.
    Reference,
}

/// A loss with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Loss {
    Policy(Policy),
    /// `-lp`.
    CrossEntropy,
}

/// A policy gradient: `w * surrogate + kl_coef * KL(reference) - entropy_coef * H`.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode, Serialize)]
pub struct Policy {
    pub surrogate: Surrogate,
    pub kl: Kl,
    pub kl_coef: f32,
    pub entropy_coef: f32,
    /// Decoupled: `w = min(exp(old_lp - behaviour_lp), cap)`, a constant. `None`: w = 1.
    pub behaviour_cap: Option<f32>,
}

impl Policy {
    /// Returns the clipped policy gradient alone.
    #[must_use]
    pub const fn clipped(low: f32, high: f32) -> Self {
        Self {
            surrogate: Surrogate::Clipped { low, high, dual: None },
            kl: Kl::K3,
            kl_coef: 0.0,
            entropy_coef: 0.0,
            behaviour_cap: None,
        }
    }
}

/// The surrogate of the advantage A and the ratio r to `old_lp` (or the behaviour) of one token.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Surrogate {
    /// `-min(r A, clip(r, 1 - low, 1 + high) A)`; with `dual` > 1 at most `-dual A` where A is
    /// negative.
    Clipped { low: f32, high: f32, dual: Option<f32> },
    /// `-r A`.
    ImportanceSampling,
    /// `-sg(clip(r, 1 - low, 1 + high)) lp A`.
    Cispo { low: f32, high: f32 },
    /// `-(lp A - beta/2 (lp - old)^2)`.
    Dro { beta: f32 },
    /// `-min(s A, clip(s, 1 - low, 1 + high) A)` for every token of an answer, `s` the geometric
    /// mean of the answer's ratios (arXiv:2507.18071).
    Gspo { low: f32, high: f32 },
    /// `-min(r A, clip(r, ..) A)`: the clip follows from the second moment of the log-ratios of all
    /// tokens of the scope (arXiv:2510.01161).
    M2po {
        mode: M2poMode,
        /// The largest mean of the squared log-ratios.
        budget: f32,
        scope: M2poScope,
    },
}

/// The way in which M2PO keeps its budget. A token is harmful in the two quadrants in which a clip
/// acts: `A > 0` with `r > 1`, `A < 0` with `r < 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum M2poMode {
    /// AstraFlow: leaves out the harmful tokens with the largest squares until the mean of the
    /// others is under the budget. The largest remaining ratio is the bound of a clip.
    Clip,
    /// The authors' code: the largest bound `c` among the harmful for which the mean of `min(l^2,
    /// c^2)` is within the budget.
    Cap,
    /// AReaL: over all tokens, leaves out those with the largest squares until the mean of the
    /// others is under the budget. The remaining tokens weigh as much as all did. If the loss is
    /// decoupled, the log-ratio is that of the start of the batch to the sampler.
    Mask,
}

/// The tokens over which M2PO takes its statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum M2poScope {
    /// All tokens of the optimizer step.
    Minibatch,
    /// The tokens that are computed together, as in the published codes: the result depends on how
    /// many fit.
    Microbatch,
}

/// The estimate of the divergence KL(policy || other) from tokens of the policy, with `d = other -
/// lp` (Schulman, "Approximating KL divergence", 2020).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kl {
    /// `-d`: unbiased, of either sign. In the loss its gradient is 0 in expectation.
    K1,
    /// `d^2 / 2`: never negative, biased, and with the right gradient in expectation.
    K2,
    /// `exp(d) - d - 1`: never negative and unbiased. In the loss its gradient is in
    /// expectation that of KL(other || policy).
    K3,
}

/// Settings of one optimizer step.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode, Serialize)]
pub struct OptimStep {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
    /// 0 means no clipping.
    pub clip_norm: f64,
}

/// One command. `seq` orders the commands and makes a repeat harmless.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum TrainCommand {
    /// Adds the batch's gradient to the accumulated one.
    ForwardBackward {
        seq: u64,
        batch: TrainBatch,
        loss: Loss,
    },
    /// Takes a step with the accumulated gradient and clears it.
    OptimStep {
        seq: u64,
        params: OptimStep,
    },
    /// Returns the log-probs of the trained tokens, span by span.
    Forward {
        seq: u64,
        batch: TrainBatch,
        weights: ForwardWeights,
    },
    /// Writes a checkpoint folder.
    SaveState {
        seq: u64,
        path: String,
        meta: String,
    },
    LoadState {
        seq: u64,
        path: String,
    },
    /// Hands the weights to the sinks under this version.
    Publish {
        seq: u64,
        version: WeightVersion,
    },
    /// Generates an answer to each prompt with the trained weights in their present state: for
    /// inspection, not for rollouts.
    Sample {
        seq: u64,
        prompts: Vec<Vec<u32>>,
        params: SampleParams,
    },
}

/// Sampling settings of a trainer.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct SampleParams {
    /// 0 is greedy.
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: u32,
    pub min_p: f32,
    pub max_new_tokens: u32,
    /// Tokens that end an answer and belong to it.
    pub stop_ids: Vec<u32>,
    /// The prompt at place i draws with `seed + i`, so that equal prompts get different answers.
    pub seed: u64,
}

/// An answer sampled by a trainer.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Drawn {
    pub ids: Vec<u32>,
    /// The log-prob of each id over the whole vocabulary, at the temperature (at 1 for greedy).
    pub logprobs: Vec<f32>,
    pub finish: Finish,
}

/// Measurements of a loss call, summed over the batch so that ranks and micro-batches add up.
#[derive(Debug, Clone, PartialEq, Encode, Decode, Default)]
pub struct LossStats {
    /// The loss, including KL and entropy terms.
    pub loss: f64,
    pub tokens: f64,
    /// Sums over trained tokens.
    pub ratio: f64,
    pub clipped: f64,
    pub entropy: f64,
    /// k3 to the behaviour.
    pub behaviour_kl: f64,
    /// k3 to the reference policy.
    pub reference_kl: f64,
    /// Largest |ratio - 1| over on-policy spans.
    pub on_policy_gap: f64,
    /// Largest |ratio - 1| over the other spans.
    pub off_policy_gap: f64,
    /// For M2PO: the number of tokens with a bounded squared log-ratio, and the sum of those
    /// squares.
    pub bounded: f64,
    pub second_moment: f64,
    /// For M2PO: the bounded tokens that keep their gradient, and the sum of their squares (of the
    /// capped squares for [`M2poMode::Cap`], which counts all).
    pub kept: f64,
    pub second_moment_kept: f64,
    /// The same by [`Span::role`], up to the last role that has a trained token.
    pub by_role: Vec<RoleLoss>,
}

/// Measurements of a loss call over one role's trained tokens.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode, Default)]
pub struct RoleLoss {
    pub tokens: f64,
    /// Sums over them.
    pub ratio: f64,
    pub clipped: f64,
    pub entropy: f64,
    /// k3 to the behaviour.
    pub behaviour_kl: f64,
    /// The estimate of the KL to the reference policy.
    pub reference_kl: f64,
    /// The largest ratio; 0 without sampled tokens.
    pub largest_ratio: f64,
    /// Largest |ratio - 1| to the behaviour over on-policy spans.
    pub on_policy_gap: f64,
    /// The same over the other spans.
    pub off_policy_gap: f64,
    /// The number of tokens behind `on_policy_gap`: with 0 of them the gap has no meaning.
    pub on_policy_tokens: f64,
    /// The number of tokens behind `off_policy_gap`.
    pub off_policy_tokens: f64,
}

impl RoleLoss {
    /// Adds measurements, as if the tokens of both had been measured together.
    pub fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.ratio += other.ratio;
        self.clipped += other.clipped;
        self.entropy += other.entropy;
        self.behaviour_kl += other.behaviour_kl;
        self.reference_kl += other.reference_kl;
        self.largest_ratio = self.largest_ratio.max(other.largest_ratio);
        self.on_policy_gap = self.on_policy_gap.max(other.on_policy_gap);
        self.off_policy_gap = self.off_policy_gap.max(other.off_policy_gap);
        self.on_policy_tokens += other.on_policy_tokens;
        self.off_policy_tokens += other.off_policy_tokens;
    }
}

impl LossStats {
    /// Adds the measurements of another part of the batch.
    pub fn add(&mut self, other: &Self) {
        self.loss += other.loss;
        self.tokens += other.tokens;
        self.ratio += other.ratio;
        self.clipped += other.clipped;
        self.entropy += other.entropy;
        self.behaviour_kl += other.behaviour_kl;
        self.reference_kl += other.reference_kl;
        self.on_policy_gap = self.on_policy_gap.max(other.on_policy_gap);
        self.off_policy_gap = self.off_policy_gap.max(other.off_policy_gap);
        self.bounded += other.bounded;
        self.second_moment += other.second_moment;
        self.kept += other.kept;
        self.second_moment_kept += other.second_moment_kept;
        for (number, role) in (0..).zip(&other.by_role) {
            self.role(number).add(role);
        }
    }

    /// Returns the measurements of a role, to be added to.
    pub fn role(&mut self, number: u16) -> &mut RoleLoss {
        let place = usize::from(number);
        if self.by_role.len() <= place {
            self.by_role.resize(place + 1, RoleLoss::default());
        }
        &mut self.by_role[place]
    }
}

#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum TrainReply {
    Loss(LossStats),
    /// The gradient's global norm before clipping. `skipped` is true if it was not finite.
    Step {
        grad_norm: f64,
        skipped: bool,
    },
    LogProbs(Vec<Vec<f32>>),
    /// Digest of weights, optimizer and random state.
    Saved {
        digest: String,
    },
    Loaded {
        meta: String,
    },
    Published,
    /// Answers in the order of their prompts. `version` is `None`: the weights have changed since
    /// the last publish.
    Samples {
        version: Option<WeightVersion>,
        answers: Vec<Drawn>,
    },
}
