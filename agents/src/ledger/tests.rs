//! Tests of the ledger: its contract, a model of it under random histories, and crashes.
mod contract;
mod crash;
pub(crate) mod custody;
mod effect;
mod handle;
mod model;

use broker::AgentName;
use broker::ids::{Attempt, Digest, GroupId, RunId};
use broker::protocol::bundle::{Bundle, BundleContent, RewardPart, Row, Sample, SampleStatus, Segment};
use broker::protocol::reserve::Reserve;
use broker::protocol::turn::{LogProbs, VersionSpan};
use broker::seal::Seal;

use super::{Ledger, SampleVerdict, TrainingVerdict};

pub(crate) fn run() -> RunId {
    RunId::new("test-00000000").unwrap()
}

pub(crate) fn agent() -> AgentName {
    AgentName::new("a").unwrap()
}

pub(crate) fn open(folder: &tempfile::TempDir) -> Ledger {
    Ledger::open(&folder.path().join("a.sqlite"), &run(), &agent()).unwrap()
}

pub(crate) fn group(index: u64) -> GroupId {
    GroupId::new(&run(), &format!("task/{index}"))
}

pub(crate) fn reserve(index: u64) -> Reserve {
    Reserve {
        group: group(index),
        task: format!("task/{index}"),
        order: index,
        body: format!("{{\"prompt\":\"{index}\"}}").into_bytes(),
        seal: Some(Seal([index as u8; 32])),
    }
}

pub(crate) fn sample(member: u16) -> Sample {
    let version = broker::ids::WeightVersion { lineage: 1, step: 0 };
    Sample {
        member,
        role: "speaker".into(),
        seat: 0,
        subkey: String::new(),
        target: None,
        status: SampleStatus::Completed,
        reward: 1.0,
        parts: vec![RewardPart {
            name: "success".into(),
            value: 1.0,
        }],
        rows: vec![Row {
            ids: (0..16).collect(),
            segments: vec![Segment {
                start: 12,
                len: 4,
                temperature: 1.0,
                logprobs_of: LogProbs::Sampled,
                spans: vec![VersionSpan {
                    version,
                    start: 0,
                    end: 4,
                }],
                oldest_kv: version,
            }],
            logprobs: vec![-1.0; 4],
        }],
    }
}

/// Returns part `part` of a bundle of `parts` parts with one sample each.
pub(crate) fn part(index: u64, attempt: u8, content: u8, part: u16, parts: u16) -> Bundle {
    Bundle {
        group: group(index),
        task: format!("task/{index}"),
        order: index,
        attempt: Attempt([attempt; 16]),
        digest: Digest([content; 16]),
        part,
        parts,
        conversations: parts,
        content: BundleContent::Samples(vec![sample(part)]),
    }
}

pub(crate) fn empty(index: u64, attempt: u8, reason: &str) -> Bundle {
    Bundle {
        content: BundleContent::Empty { reason: reason.into() },
        ..part(index, attempt, 0, 0, 1)
    }
}

pub(crate) fn dead(index: u64, attempt: u8, reason: &str) -> Bundle {
    Bundle {
        content: BundleContent::Dead { reason: reason.into() },
        ..part(index, attempt, 0, 0, 1)
    }
}

pub(crate) fn trained(index: u64, members: u16) -> Vec<SampleVerdict> {
    (0..members)
        .map(|member| SampleVerdict {
            group: group(index),
            member,
            role: "speaker".into(),
            seat: 0,
            verdict: TrainingVerdict::Trained,
        })
        .collect()
}
