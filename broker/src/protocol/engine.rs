//! Between an agent's router and an engine that is a process of its own (`dyad engine`).
//!
//! The agent opens a session (`POST /v1/session`, a [`Hello`]); its answer is a stream of [`EngineEvent`]s that lasts as long as the session,
//! each behind its length (u32, little-endian). What the agent wants goes up in lists of [`EngineCommand`]s (`POST /v1/commands`), one
//! after the other.

use std::collections::BTreeMap;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::turn::{Finish, LogProbs, Sampling, VersionSpan};
use crate::codec::bulk::bulk_codec;
use crate::ids::{GroupId, RequestId, WeightVersion};

/// An event or a list of commands has no more bytes than this.
pub const LARGEST: usize = 24 << 20;

/// Who opens a session, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// `codec::SCHEMA` of the agent.
    pub schema: u16,
    pub run: String,
    pub agent: String,
    /// Where the agent's weights are fetched.
    pub weights: String,
    /// What answers depend on besides the weights, by name: an engine whose own are others is not the agent's.
    pub model: BTreeMap<String, String>,
}

/// What an agent wants of its engine.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum EngineCommand {
    Generate(JobFrame),
    Visit {
        frame: JobFrame,
        /// Of each job, whether its tokens are wanted as they are made.
        watched: Vec<bool>,
        /// Of each job, how many of the most likely tokens are wanted in each place.
        top: Vec<u8>,
    },
    /// Visits that are over for whoever asked.
    Leave(Vec<RequestId>),
    /// These weights, or later ones, are there to be fetched. Told late or twice, it does no harm.
    Announce(StateId),
    /// From here on, whether what is asked begins with keys and values of the weights of then alone. A session begins without.
    Pin(bool),
}

/// Which weights, to the bit: a ledger that was repaired, or another model folder, gives the same version to other weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct StateId {
    pub version: WeightVersion,
    /// BLAKE3 over the model's form and all values in the engine's type.
    pub digest: [u8; 32],
}

/// Generations to make.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct JobFrame {
    /// Of the jobs that were asked together; each answer says to which it is one. Of visits 0.
    pub batch: u64,
    /// A part of a closed batch, which begins with the part that has no more after it.
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
    /// Whether a request that begins with this one's prompt and answer is likely.
    pub keep: bool,
}

/// What an engine says.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum EngineEvent {
    /// It is there: said each second.
    Alive,
    /// The weights it serves from here on. What was finished before this event may be of these or earlier ones: see its spans.
    Serving(StateId),
    /// Weights that it could not fetch or take.
    Refused {
        version: WeightVersion,
        reason: String,
    },
    Finished(Vec<EngineAnswer>),
    Told(Vec<EngineTold>),
}

/// The one answer to a job.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct EngineAnswer {
    /// [`JobFrame::batch`].
    pub batch: u64,
    pub request: RequestId,
    pub result: Result<EngineMade, EngineFault>,
}

/// What was made.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineMade {
    pub output_ids: Vec<u32>,
    /// One per id.
    pub logprobs: Vec<f32>,
    pub logprobs_of: LogProbs,
    pub spans: Vec<VersionSpan>,
    pub oldest_kv: WeightVersion,
    /// Tokens of the prompt that an earlier turn had computed already.
    pub reused: u64,
    pub finish: Finish,
}

bulk_codec!(EngineMade {
    bulk output_ids,
    bulk logprobs,
    plain logprobs_of,
    plain spans,
    plain oldest_kv,
    plain reused,
    plain finish,
});

/// Why nothing was made.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct EngineFault {
    pub cause: Failure,
    /// Whether the same request may succeed if it is asked again.
    pub retry: bool,
}

/// What became of a visit since it was last told.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineTold {
    pub request: RequestId,
    pub ids: Vec<u32>,
    /// One per id.
    pub logprobs: Vec<f32>,
    /// One list per id, if they were asked for; else none.
    pub top: Vec<Vec<TopLogprob>>,
    pub spans: Vec<VersionSpan>,
    /// Told once, last.
    pub end: Option<Result<Finish, EngineFault>>,
}

/// One of the most likely tokens in a place.
#[derive(Debug, Clone, Copy, PartialEq, Encode, Decode)]
pub struct TopLogprob {
    pub id: u32,
    /// Of the distribution that the chosen token's log-prob is of.
    pub logprob: f32,
}

bulk_codec!(EngineTold {
    plain request,
    bulk ids,
    bulk logprobs,
    plain top,
    plain spans,
    plain end,
});
