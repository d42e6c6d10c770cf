//! Progress of open groups, in memory or in Redis: used by coordinators alone.
//!
//! Losing it, or seeing it go back in time, costs recomputation, never a task and never a double effect. Each transition is
//! one atomic step; a write whose (attempt, fence) is not exactly the stored one is refused as [`StoreError::Stale`].

pub mod groups;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;

use async_trait::async_trait;
use bytes::Bytes;

use crate::ids::{Attempt, Digest, GroupId, RunId};

/// What every key of a run begins with.
#[must_use]
pub fn keys_of(run: &RunId) -> String {
    format!("dyad:{{{run}}}:")
}

/// Proof of ownership: one try at a group, and the counter that shuts out an earlier owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    pub group: GroupId,
    pub attempt: Attempt,
    pub fence: u64,
}

/// What happened in a group so far: something that was committed once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// What is committed at most once, such as `member/role/seat/turn`.
    pub key: String,
    pub payload: Bytes,
}

impl Record {
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.payload)
    }
}

/// What became of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    New,
    /// The same content was there.
    Duplicate,
    /// Other content was there: the first stands, this one is dropped.
    Conflict,
}

/// A group as a claim found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    pub lease: Lease,
    /// In the order of their commit.
    pub records: Vec<Record>,
    /// The outcome, if it was decided.
    pub decided: Option<Bytes>,
}

/// Answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It is ours: new, or taken over from a silent owner with fence + 1.
    Ours(Claimed),
    /// Another owner holds it; `beat` moves while it lives.
    Theirs { owner: String, beat: u64, fence: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another attempt or owner has the group, or its key is gone: stop, publish nothing more of it.
    #[error("the group has another owner or attempt, or is gone")]
    Stale,
    /// It may or may not have happened: every step is safe to repeat.
    #[error("the store did not answer: {0}")]
    Unknown(String),
    #[error("the store cannot be used: {0}")]
    Unusable(String),
    /// Trying again would not help: a file of ours, or the certificate of one side, must be changed.
    #[error("the store cannot be used: cannot speak TLS with Redis at {url}: {reason}")]
    Tls { url: String, reason: String },
}

/// Progress of open groups.
///
/// A lease holds while attempt and fence are the stored ones and the group is neither released nor finished. Every call may
/// be repeated after [`StoreError::Unknown`]: it then changes nothing and answers what it would have answered, but that a
/// group finished or released in between answers [`StoreError::Stale`] to writes.
#[async_trait]
pub trait Store: Send + Sync {
    /// Takes a group. Creates it with `fresh` as its attempt and fence 1 if it is not there. If another owner holds it, it
    /// is taken over only when `silent` names that owner's `(beat, fence)` and they still stand: the caller has watched the
    /// beat not move for a lease on its own clock. `owner` is an incarnation, new at each process start: a claim by the
    /// owner that holds the group is answered with the same lease again. A released or finished group is free to anyone.
    async fn claim(
        &self,
        group: GroupId,
        owner: &str,
        fresh: Attempt,
        silent: Option<(u64, u64)>,
    ) -> Result<Claim, StoreError>;
    /// Moves the beat of each lease; answers which still stand. One round trip for all.
    async fn beat(&self, leases: &[Lease]) -> Result<Vec<bool>, StoreError>;
    /// Commits records, each at most once, in order, all or none of the call. One round trip for all.
    async fn commit(&self, lease: Lease, records: &[Record]) -> Result<Vec<Committed>, StoreError>;
    /// Writes the outcome if none is written; answers the one that stands. It outlives takeovers.
    async fn decide(&self, lease: Lease, outcome: Bytes) -> Result<Bytes, StoreError>;
    /// The bundles are confirmed: the group may be forgotten after a while. Until then a claim finds it with its outcome,
    /// so that lost bundles can be sent again.
    async fn finish(&self, lease: Lease) -> Result<(), StoreError>;
    /// Gives the group up at once, so that another need not wait for the lease (tidy stop).
    async fn release(&self, lease: Lease) -> Result<(), StoreError>;
    /// Forgets the group: the next claim begins a new attempt. A group that is gone already is no error.
    async fn void(&self, lease: Lease) -> Result<(), StoreError>;
    /// Whether it answers, and which settings endanger what it keeps (persistence, eviction).
    async fn check(&self) -> Result<Vec<String>, StoreError>;
}
