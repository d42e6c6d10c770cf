//! Verdicts on samples, the batches they make, and the digest that chains batches.

use broker::codec;
use broker::ids::{Digest, GroupId};

/// The fate of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrainingVerdict {
    Trained,
    /// Carries the reason, for example `stale`.
    Discarded(String),
}

/// The verdict on one sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleVerdict {
    pub group: GroupId,
    pub member: u16,
    pub role: String,
    pub seat: u16,
    pub verdict: TrainingVerdict,
}

/// A recorded batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedBatch {
    pub lineage: u32,
    /// The version this batch led to, counted from 1.
    pub step: u64,
    /// In the order in which they were recorded.
    pub verdicts: Vec<SampleVerdict>,
}

impl RecordedBatch {
    /// Returns its groups, each once, in order.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupId> {
        let mut groups: Vec<GroupId> = Vec::new();
        for verdict in &self.verdicts {
            if !groups.contains(&verdict.group) {
                groups.push(verdict.group);
            }
        }
        groups
    }
}

/// The consumed set of a version: all verdicts along its ancestor chain up to its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consumed {
    /// Digest of the consumed set in order, by task names, without lineage or run: equal runs have
    /// equal digests.
    pub digest: Digest,
    /// The ledger's sequence number of the last batch in it.
    pub sequence: u64,
}

impl TrainingVerdict {
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            TrainingVerdict::Trained => None,
            TrainingVerdict::Discarded(reason) => Some(reason),
        }
    }
}

/// Returns the digest of a batch, which hashes the digest of the batch before.
pub(super) fn batch_digest(before: Digest, step: u64, tasks: &[String], verdicts: &[SampleVerdict]) -> Digest {
    let rows: Vec<_> = tasks
        .iter()
        .zip(verdicts)
        .map(|(task, v)| (task.as_str(), v.member, v.role.as_str(), v.seat, v.verdict.reason()))
        .collect();
    Digest::of(&codec::encode_for_digest(&(before, step, rows)))
}
