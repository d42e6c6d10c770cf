//! What a trainer is asked to do: a serialisable, ordered log of commands.
//!
//! A batch is a forest of spans, so that the prompt of a group stands once and every completion hangs below it; a trainer
//! may flatten the forest. All denominators are global, so that neither micro-batches nor ranks change the result:
//! `L = sum over spans s, tokens t of weight_s * mask_t * loss_t`, where `weight_s` is already divided by D.

use bincode::{Decode, Encode};

use crate::ids::WeightVersion;

/// One stretch of tokens. Its context is its parent's context, then its parent's ids.
#[derive(Debug, Clone, PartialEq, Encode, Decode, Default)]
pub struct Span {
    /// Index of an earlier span of the batch.
    pub parent: Option<u32>,
    pub ids: Vec<u32>,
    /// `true` where the token was sampled and is trained. As long as `ids`.
    pub mask: Vec<bool>,
    /// Log-probs of the weights that sampled the token; 0 where the mask is false. As long as `ids`.
    pub behaviour_lp: Vec<f32>,
    /// Log-probs of the weights at the start of the batch, where they differ from the behaviour's. Empty: as behaviour.
    pub old_lp: Vec<f32>,
    /// One value for every trained token of the span.
    pub advantage: f32,
    /// `w_role * u_s / D`; 0 for tokens of a context.
    pub weight: f32,
    pub temperature: f32,
    /// Whether every token and KV entry came from the very weights that are trained now: only such spans are held to the
    /// ratio check.
    pub on_policy: bool,
}

/// Spans of one optimizer step.
#[derive(Debug, Clone, PartialEq, Encode, Decode, Default)]
pub struct TrainBatch {
    pub spans: Vec<Span>,
    /// Trained tokens, before any mask by staleness.
    pub tokens: u64,
}

/// Which loss, with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
pub enum Loss {
    /// `-min(r A, clip(r, 1 - low, 1 + high) A)`, r the ratio to `old_lp` (or the behaviour), plus
    /// `kl_coef * k3(ref) - entropy_coef * H`.
    Policy {
        clip_low: f32,
        clip_high: f32,
        kl_coef: f32,
        entropy_coef: f32,
    },
    /// `-lp`.
    CrossEntropy,
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
    /// Log-probs of the trained tokens under the weights as they are, span by span.
    Forward {
        seq: u64,
        batch: TrainBatch,
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
}

/// What a loss call measured, summed over the batch so that ranks and micro-batches add up.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode, Default)]
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
}
