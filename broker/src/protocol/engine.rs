//! Messages between an agent's router and an engine in its own process (`dyad engine`).
//!
//! The agent opens a session (`POST /v1/session`, a [`Hello`]). The answer is a stream of
//! [`EngineEvent`]s, each after its length (u32, little-endian), that lasts as long as the session.
//! The agent sends lists of [`EngineCommand`]s (`POST /v1/commands`), one after the other.

use std::collections::BTreeMap;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::turn::{EngineTimes, Finish, LogProbs, Sampling, VersionSpan};
use crate::codec::bulk::bulk_codec;
use crate::ids::{GroupId, RequestId, WeightVersion};

/// The largest number of bytes of an event or a list of commands.
pub const LARGEST: usize = 24 << 20;

/// The opening of a session, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// `codec::SCHEMA` of the agent.
    pub schema: u16,
    pub run: String,
    pub agent: String,
    /// The address from which the engine fetches the agent's weights.
    pub weights: String,
    /// Everything besides the weights that answers depend on, by name. An engine with other values
    /// is not the agent's.
    pub model: BTreeMap<String, String>,
}

/// A command of an agent to its engine.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum EngineCommand {
    Generate(JobFrame),
    Visit {
        frame: JobFrame,
        /// For each job, true if its tokens must be reported as they are made.
        watched: Vec<bool>,
        /// For each job, the number of most likely tokens to report in each place.
        top: Vec<u8>,
    },
    /// Ends visits that the caller has left.
    Leave(Vec<RequestId>),
    /// Announces that these weights, or later ones, can be fetched. Late and repeated announcements
    /// are harmless.
    Announce(StateId),
    /// If true, later requests may reuse only keys and values of the then current weights. A
    /// session begins with false.
    Pin(bool),
}

/// Weights, to the bit. A repaired ledger or another model folder gives the same version to other
/// weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct StateId {
    pub version: WeightVersion,
    /// BLAKE3 over the model's form and all values in the engine's type.
    pub digest: [u8; 32],
}

/// Generations to make.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct JobFrame {
    /// The number of the jobs that were requested together, repeated in each answer; 0 for visits.
    pub batch: u64,
    /// A part of a closed batch. The batch begins with the part that has no more after it.
    pub wave: Option<WavePart>,
    pub prompts: Vec<Ids>,
    pub samplings: Vec<Sampling>,
    pub jobs: Vec<EngineJob>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct WavePart {
    pub more: bool,
}

/// Token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    pub ids: Vec<u32>,
}

bulk_codec!(Ids { bulk ids });

/// One generation.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct EngineJob {
    pub request: RequestId,
    pub group: GroupId,
    pub member: u16,
    /// Index into the frame's prompts.
    pub prompt: u32,
    /// Index into the frame's samplings.
    pub sampling: u32,
    pub seed: u64,
    /// True if a request that begins with this one's prompt and answer is likely.
    pub keep: bool,
}

/// A message of an engine.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum EngineEvent {
    /// The engine is alive: sent each second.
    Alive,
    /// The weights that it serves from here on. Generations finished before this event may be of
    /// these or earlier weights: see their spans.
    Serving(StateId),
    /// Weights that it could not fetch or load.
    Refused {
        version: WeightVersion,
        reason: String,
    },
    Finished(Vec<EngineAnswer>),
    Progress(Vec<EngineProgress>),
}

/// The one answer to a job.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct EngineAnswer {
    /// [`JobFrame::batch`].
    pub batch: u64,
    pub request: RequestId,
    pub result: Result<EngineOutput, EngineFault>,
}

/// A finished generation.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineOutput {
    pub output_ids: Vec<u32>,
    /// One per id.
    pub logprobs: Vec<f32>,
    pub logprobs_of: LogProbs,
    pub spans: Vec<VersionSpan>,
    pub oldest_kv: WeightVersion,
    /// The number of prompt tokens that an earlier turn had computed already.
    pub reused: u64,
    pub finish: Finish,
    pub times: EngineTimes,
}

bulk_codec!(EngineOutput {
    bulk output_ids,
    bulk logprobs,
    plain logprobs_of,
    plain spans,
    plain oldest_kv,
    plain reused,
    plain finish,
    plain times,
});

/// The reason why a generation failed.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct EngineFault {
    pub cause: Failure,
    /// True if a retry of the same request may succeed.
    pub retry: bool,
}

/// Progress of a visit since the last report.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineProgress {
    pub request: RequestId,
    pub ids: Vec<u32>,
    /// One per id.
    pub logprobs: Vec<f32>,
    /// One list per id if requested, else empty.
    pub top: Vec<Vec<TopLogprob>>,
    pub spans: Vec<VersionSpan>,
    /// Reported once, last.
    pub end: Option<Result<Finish, EngineFault>>,
}

/// One of the most likely tokens in a place.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
pub struct TopLogprob {
    pub id: u32,
    /// Its log-prob, in the distribution of the chosen token's log-prob.
    pub logprob: f32,
}

bulk_codec!(EngineProgress {
    plain request,
    bulk ids,
    bulk logprobs,
    plain top,
    plain spans,
    plain end,
});
