//! Bundles: all samples of one group for one agent, on their way to its buffer.

use bincode::{Decode, Encode};

use super::turn::{LogProbs, VersionSpan};
use crate::codec::bulk::bulk_codec;
use crate::ids::{Attempt, Digest, GroupId, WeightVersion};

/// The end of a conversation, as far as training needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SampleStatus {
    Completed,
    /// A token limit cut off some turn of this sample before its natural end.
    Truncated,
}

/// One trained stretch of a row: tokens `start..start + len` of its ids were sampled in one turn.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Segment {
    pub start: u32,
    pub len: u32,
    pub temperature: f32,
    /// The distribution of the log-probs; always the behaviour policy's, which alone is trained on.
    pub logprobs_of: LogProbs,
    /// Versions of the weights; offsets count from the segment's start.
    pub spans: Vec<VersionSpan>,
    pub oldest_kv: WeightVersion,
}

/// One generation, or a chain of turns in which each prompt's ids extend the ids before.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub ids: Vec<u32>,
    /// Trained stretches, in order and without overlap. Only these tokens are trained, each exactly
    /// once.
    pub segments: Vec<Segment>,
    /// Behaviour log-probs of the trained tokens, segment by segment.
    pub logprobs: Vec<f32>,
}

bulk_codec!(Row { bulk ids, plain segments, bulk logprobs });

impl Row {
    /// Returns the number of trained tokens.
    #[must_use]
    pub fn trained_tokens(&self) -> usize {
        self.segments.iter().map(|s| s.len as usize).sum()
    }
}

/// A named part of a reward with its value before weighting.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct RewardPart {
    pub name: String,
    pub value: f32,
}

/// The training data for one agent from one conversation, role and seat.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Sample {
    pub member: u16,
    pub role: String,
    pub seat: u16,
    /// Refines the advantage key (group, agent, role), never coarsens it; empty for most workflows.
    pub subkey: String,
    /// The right answer of the seat's last turn, if known: the target of a cross-entropy loss.
    pub target: Option<String>,
    pub status: SampleStatus,
    /// The weighted sum of the parts.
    pub reward: f32,
    pub parts: Vec<RewardPart>,
    pub rows: Vec<Row>,
}

/// The content of a bundle.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum BundleContent {
    Samples(Vec<Sample>),
    /// The group closes without training data: too few conversations are valid.
    Empty {
        reason: String,
    },
    /// The group closes without samples and its task is dead: it went to the dead letters.
    Dead {
        reason: String,
    },
}

/// One part of all samples of one group for one agent.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Bundle {
    pub group: GroupId,
    pub task: String,
    /// Order of admission of its task, for sorting.
    pub order: u64,
    pub attempt: Attempt,
    /// The digest of the whole content, all parts together.
    pub digest: Digest,
    pub part: u16,
    pub parts: u16,
    /// The number of valid conversations of the group: the denominator of `conversation`
    /// aggregation and of success rates.
    pub conversations: u16,
    pub content: BundleContent,
}
