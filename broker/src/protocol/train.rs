//! What a trainer is asked to do: a serialisable, ordered log of commands.
//!
//! A batch is a forest of spans, so that the prompt of a group stands once and every completion hangs below it; a trainer
//! may flatten the forest. All denominators are global, so that neither micro-batches nor ranks change the result:
//! `L = sum over spans s, tokens t of weight_s * mask_t * loss_t`, where `weight_s` is already divided by D.

use bincode::{Decode, Encode};

use super::turn::Finish;
use crate::ids::WeightVersion;

/// One stretch of tokens. Its context is its parent's context, then its parent's ids.
#[derive(Debug, Clone, PartialEq, Encode, Decode, Default)]
pub struct Span {
    /// Index of an earlier span of the batch.
    pub parent: Option<u32>,
    pub ids: Vec<u32>,
    /// `true` where the token was sampled and is trained. As long as `ids`.
    pub mask: Vec<bool>,
    /// Log-probs of what the token was sampled from, as the weights of then and any truncation made it; 0 where the mask is false. As long
    /// as `ids`.
    pub behaviour_lp: Vec<f32>,
    /// Log-probs of the weights at the start of the batch, where the loss asks for them. Empty: as behaviour.
    pub old_lp: Vec<f32>,
    /// One value for every trained token of the span.
    pub advantage: f32,
    /// A value for each token, in the place of `advantage`. Empty: `advantage`; else as long as `ids`.
    pub advantages: Vec<f32>,
    /// Trained spans with the same number are one answer, in the order of the batch: what was rewarded as one. Losses of
    /// single tokens do not look at it.
    pub answer: u32,
    /// Number of the role that said it, as the maker of the batch counts roles: its tokens are measured apart too.
    pub role: u16,
    /// `w_role * u_s / D`; 0 for tokens of a context.
    pub weight: f32,
    pub temperature: f32,
    /// Whether every token and KV entry came from the very weights that are trained now, and from the whole vocabulary: only such spans
    /// are held to the ratio check.
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
    /// Makes `logprobs`, span by span as [`TrainReply::LogProbs`] gives them, those of the start of the batch. `false`, and
    /// nothing changed: they are not this batch's.
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

/// Which weights a forward pass is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Whose {
    /// Those that are trained, as they are.
    Trained,
    /// The reference policy's.
    Reference,
}

/// Which loss, with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
pub enum Loss {
    Policy(Policy),
    /// `-lp`.
    CrossEntropy,
}

/// A policy gradient: `w * surrogate + kl_coef * KL(reference) - entropy_coef * H`.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
pub struct Policy {
    pub surrogate: Surrogate,
    pub kl: Kl,
    pub kl_coef: f32,
    pub entropy_coef: f32,
    /// Decoupled: `w = min(exp(old_lp - behaviour_lp), cap)`, a constant. `None`: w = 1.
    pub behaviour_cap: Option<f32>,
}

impl Policy {
    /// The clipped policy gradient alone.
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

/// What is made of the advantage A and the ratio r to `old_lp` (or the behaviour) of one token.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
pub enum Surrogate {
    /// `-min(r A, clip(r, 1 - low, 1 + high) A)`; with `dual` > 1 at most `-dual A` where A is negative.
    Clipped { low: f32, high: f32, dual: Option<f32> },
    /// `-r A`.
    ImportanceSampling,
    /// `-sg(clip(r, 1 - low, 1 + high)) lp A`.
    Cispo { low: f32, high: f32 },
    /// `-(lp A - beta/2 (lp - old)^2)`.
    Dro { beta: f32 },
    /// `-min(s A, clip(s, 1 - low, 1 + high) A)` for every token of an answer, `s` the geometric mean of the answer's
    /// ratios (arXiv:2507.18071).
    Gspo { low: f32, high: f32 },
    /// `-min(r A, clip(r, ..) A)`: how far a ratio may be from 1 follows from the second moment of the log-ratios of all
    /// tokens of the scope (arXiv:2510.01161).
    M2po {
        mode: M2poMode,
        /// What the mean of the squared log-ratios may be.
        budget: f32,
        scope: M2poScope,
    },
}

/// How M2PO keeps its budget. Harmful are the two quadrants that a clip acts in: `A > 0` with `r > 1`, `A < 0` with `r < 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum M2poMode {
    /// AstraFlow: the harmful tokens with the largest squares are left out until the mean of the others is under the
    /// budget; the largest survivor is the bound of a clip.
    Clip,
    /// The authors' code: the largest bound `c` among the harmful for which the mean of `min(l^2, c^2)` is within the
    /// budget.
    Cap,
    /// AReaL: over all tokens, those with the largest squares leave the loss until the mean of the others is under the
    /// budget; those that stay weigh as much as all did. Where the loss is decoupled, the log-ratio is that of the start
    /// of the batch to the sampler.
    Mask,
}

/// The tokens over which M2PO takes its statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum M2poScope {
    /// All of the optimizer step.
    Minibatch,
    /// Those that are computed together, as the published codes do: the result depends on how many fit.
    Microbatch,
}

/// Which estimate of the divergence KL(policy || other) from tokens of the policy, with `d = other - lp` (Schulman,
/// "Approximating KL divergence", 2020).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Kl {
    /// `-d`: unbiased, of either sign. As a term of the loss its gradient is 0 in expectation.
    K1,
    /// `d^2 / 2`: never negative, biased, and with the right gradient in expectation.
    K2,
    /// `exp(d) - d - 1`: never negative and unbiased. As a term of the loss its gradient is in expectation that of
    /// KL(other || policy).
    K3,
}

/// Settings of one optimizer step.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
pub struct OptimStep {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    pub weight_decay: f64,
    /// 0 means no clipping.
    pub clip_norm: f64,
}

/// One command. `seq` orders them and makes a repeat harmless.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum TrainCommand {
    /// Adds the batch's gradient to what is accumulated.
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
    /// Log-probs of the trained tokens, span by span.
    Forward {
        seq: u64,
        batch: TrainBatch,
        whose: Whose,
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
    /// Generates an answer to each prompt with the trained weights as they are: for a look at them, not for rollouts.
    Sample {
        seq: u64,
        prompts: Vec<Vec<u32>>,
        params: SampleParams,
    },
}

/// How a trainer samples.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct SampleParams {
    /// 0 is greedy.
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: u32,
    pub min_p: f32,
    pub max_new_tokens: u32,
    /// Tokens that end an answer, of which they are part.
    pub stop_ids: Vec<u32>,
    /// The prompt at place i draws with `seed + i`, so that equal prompts have answers of their own.
    pub seed: u64,
}

/// An answer that a trainer sampled.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Drawn {
    pub ids: Vec<u32>,
    /// Of each id over the whole vocabulary, at the temperature (at 1 for greedy).
    pub logprobs: Vec<f32>,
    pub finish: Finish,
}

/// What a loss call measured, summed over the batch so that ranks and micro-batches add up.
#[derive(Debug, Clone, PartialEq, Encode, Decode, Default)]
pub struct LossStats {
    /// The loss, KL and entropy terms included.
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
    /// Of M2PO: tokens whose squared log-ratios the budget bounds, and the sum of those squares.
    pub bounded: f64,
    pub second_moment: f64,
    /// Those of them that keep their gradient, and the sum of their squares (of the capped squares for
    /// [`M2poMode::Cap`], which counts all).
    pub kept: f64,
    pub second_moment_kept: f64,
    /// The same by [`Span::role`], up to the last role that has a trained token.
    pub by_role: Vec<RoleLoss>,
}

/// What a loss call measured of one role's trained tokens.
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
    /// The largest of them; 0 where nothing was sampled.
    pub largest_ratio: f64,
    /// Largest |ratio - 1| to the behaviour over on-policy spans.
    pub on_policy_gap: f64,
    /// The same over the other spans.
    pub off_policy_gap: f64,
    /// Tokens that `on_policy_gap` is of: at 0 of them it says nothing.
    pub on_policy_tokens: f64,
    /// Tokens that `off_policy_gap` is of.
    pub off_policy_tokens: f64,
}

impl RoleLoss {
    /// As if the tokens of both had been measured together.
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
    /// What was measured of a role, to be added to.
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
    /// The gradient's global norm before clipping. `skipped` if it was not finite.
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
    /// Answers in the order of their prompts. No version: the weights have moved since they were published last.
    Samples {
        version: Option<WeightVersion>,
        answers: Vec<Drawn>,
    },
}
