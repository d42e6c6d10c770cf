//! Reservations: an agent's ledger takes custody of a group before any generation for it.

use bincode::{Decode, Encode};

use crate::ids::{Attempt, Digest, GroupId};
use crate::seal::Seal;

/// Asks an agent to write the group into its ledger.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Reserve {
    pub group: GroupId,
    pub task: String,
    pub order: u64,
    /// The task as it was published.
    pub body: Vec<u8>,
    /// The coordinators' mark, by which they recognise the task; `None` if they have no key.
    pub seal: Option<Seal>,
}

#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct ReserveFrame {
    /// The coordinator's incarnation.
    pub reply_to: String,
    pub requests: Vec<Reserve>,
}

/// The ledger's answer about a group.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum ReserveVerdict {
    /// The row is on disk.
    Granted,
    /// No room now.
    Later,
    /// The group has been closed by this attempt.
    Closed { attempt: Attempt, digest: Digest },
    /// The group is dead.
    Dead { reason: String },
}

#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct ReserveAnswer {
    pub group: GroupId,
    pub verdict: ReserveVerdict,
}

#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct ReserveAnswerFrame {
    pub agent: String,
    pub answers: Vec<ReserveAnswer>,
}
