//! The messages of the protocol: each is one JSON object on a line. `trainer/README.md` describes
//! them for authors of trainers. `external/messages.jsonl` has an example of each command.

use std::path::Path;

use broker::protocol::train::{ForwardWeights, Loss, OptimStep};
use serde::{Deserialize, Deserializer, Serialize};

use super::Fault;
use crate::checkpoint::state::dtype_name;
use crate::model::{Layout, ModelError, ModelShape, ParamKind};
use crate::train::options::TrainerOptions;

/// The version of the protocol.
pub(super) const PROTOCOL: u32 = 1;

/// A command to the program.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(super) enum Message<'a> {
    Open(Open<'a>),
    ForwardBackward {
        seq: u64,
        rows: &'a [WireRow],
        loss: &'a Loss,
    },
    OptimStep {
        seq: u64,
        params: &'a OptimStep,
    },
    Forward {
        seq: u64,
        rows: &'a [WireRow],
        weights: ForwardWeights,
    },
    Publish {
        seq: u64,
        folder: &'a Path,
        /// True if these weights become the reference policy.
        reference: bool,
    },
    Save {
        seq: u64,
        folder: &'a Path,
    },
    Load {
        seq: u64,
        folder: &'a Path,
        /// Optimizer steps taken.
        steps: u64,
        /// True if `folder/reference` has a reference policy.
        reference: bool,
    },
    End,
}

impl Message<'_> {
    /// Returns the command's number; `None` for `open` and `end`, which have none.
    pub(super) fn seq(&self) -> Option<u64> {
        match self {
            Self::ForwardBackward { seq, .. }
            | Self::OptimStep { seq, .. }
            | Self::Forward { seq, .. }
            | Self::Publish { seq, .. }
            | Self::Save { seq, .. }
            | Self::Load { seq, .. } => Some(*seq),
            Self::Open(_) | Self::End => None,
        }
    }
}

/// The model and the settings of its training.
#[derive(Debug, Serialize)]
pub(super) struct Open<'a> {
    model: &'a Path,
    dtype: &'static str,
    micro_batch_tokens: usize,
    checkpoint_activations: bool,
    shape: WireShape,
    rope: WireRope,
    /// Parameters that weight decay acts on.
    decays: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct WireShape {
    layers: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    intermediate: usize,
    vocab: usize,
    rms_eps: f64,
    tied: bool,
    head_norms: bool,
    biases: WireBiases,
}

#[derive(Debug, Serialize)]
struct WireBiases {
    qkv: bool,
    output: bool,
    mlp: bool,
}

#[derive(Debug, Serialize)]
struct WireRope {
    frequencies: Vec<f32>,
    amplitude: f64,
}

impl<'a> Open<'a> {
    pub(super) fn of(
        shape: &ModelShape,
        layout: &'a Layout,
        model: &'a Path,
        options: &TrainerOptions,
    ) -> Result<Self, ModelError> {
        let matrices = layout.params().iter().filter(|spec| spec.kind == ParamKind::Matrix);
        let frequencies = shape.rope.frequencies(shape.head_dim)?;
        Ok(Self {
            model,
            dtype: dtype_name(options.dtype),
            micro_batch_tokens: options.micro_batch_tokens,
            checkpoint_activations: options.checkpoint_activations,
            shape: WireShape {
                layers: shape.layers,
                hidden: shape.hidden,
                heads: shape.heads,
                kv_heads: shape.kv_heads,
                head_dim: shape.head_dim,
                intermediate: shape.intermediate,
                vocab: shape.vocab,
                rms_eps: shape.rms_eps,
                tied: shape.tied,
                head_norms: shape.arch.norms_heads(),
                biases: WireBiases {
                    qkv: shape.biases.qkv,
                    output: shape.biases.output,
                    mlp: shape.biases.mlp,
                },
            },
            rope: WireRope {
                frequencies: Vec::try_from(frequencies)?,
                amplitude: shape.rope.amplitude(),
            },
            decays: matrices.map(|spec| spec.name.as_str()).collect(),
        })
    }
}

/// A row of tokens. Each other column has one value for each trained token.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct WireRow {
    pub(super) ids: Vec<u32>,
    /// The places in `ids` of the tokens before the trained ones: their states predict these.
    pub(super) at: Vec<usize>,
    pub(super) targets: Vec<u32>,
    pub(super) advantage: Vec<f32>,
    pub(super) old: Vec<f32>,
    pub(super) behaviour: Vec<f32>,
    pub(super) weight: Vec<f32>,
    pub(super) temperature: Vec<f32>,
}

/// The first message of the program.
#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    /// The program's name.
    pub(super) hello: String,
    pub(super) protocol: u32,
}

/// A message of the program: a sign of life, or the outcome of a command.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Incoming {
    /// Set if the program is still at work.
    pub(super) progress: Option<u64>,
    pub(super) seq: Option<u64>,
    reply: String,
    loss: Number,
    logprobs: Vec<Vec<Number>>,
    entropies: Vec<Vec<Number>>,
    reference: Vec<Vec<Number>>,
    grad_norm: Number,
    skipped: bool,
}

/// The outcome of a command.
#[derive(Debug)]
pub(super) enum Reply {
    Opened,
    /// A value for each trained token, row by row. `reference` is empty if the loss needs none.
    Loss {
        loss: f64,
        logprobs: Vec<Vec<Number>>,
        entropies: Vec<Vec<Number>>,
        reference: Vec<Vec<Number>>,
    },
    Step {
        grad_norm: f64,
        skipped: bool,
    },
    LogProbs(Vec<Vec<Number>>),
    Published,
    Saved,
    Loaded,
}

impl Incoming {
    pub(super) fn reply(self) -> Result<Reply, String> {
        Ok(match self.reply.as_str() {
            "opened" => Reply::Opened,
            "loss" => Reply::Loss {
                loss: self.loss.0,
                logprobs: self.logprobs,
                entropies: self.entropies,
                reference: self.reference,
            },
            "step" => Reply::Step {
                grad_norm: self.grad_norm.0,
                skipped: self.skipped,
            },
            "log_probs" => Reply::LogProbs(self.logprobs),
            "published" => Reply::Published,
            "saved" => Reply::Saved,
            "loaded" => Reply::Loaded,
            other => return Err(format!("it sent the unknown reply {other:?}")),
        })
    }
}

impl Reply {
    pub(super) fn unexpected(&self) -> String {
        let text: String = format!("{self:?}").chars().take(200).collect();
        format!("it sent the reply of another command: {text}")
    }
}

impl From<Reply> for Fault {
    fn from(reply: Reply) -> Self {
        Self::Lost(reply.unexpected())
    }
}

/// A number that is `null` in JSON if it is not finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number(pub(super) f64);

impl Default for Number {
    fn default() -> Self {
        Self(f64::NAN)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number: Option<f64> = Option::deserialize(deserializer)?;
        Ok(Self(number.unwrap_or(f64::NAN)))
    }
}
