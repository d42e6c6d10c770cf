//! Progress of open groups, in memory or in Redis. Only coordinators use it.
//!
//! Losing it, or an older state after a crash, costs recomputation, but never a task and never a
//! double effect. Each transition is one atomic step. A write with another (attempt, fence) than
//! the stored one is rejected as [`StoreError::Stale`].

pub mod groups;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;

use async_trait::async_trait;
use bytes::Bytes;

use crate::ids::{Attempt, Digest, GroupId, RunId};

/// Returns the beginning of every key of a run.
#[must_use]
pub fn keys_of(run: &RunId) -> String {
    format!("dyad:{{{run}}}:")
}

/// Proof of ownership: one try at a group, and the counter that excludes earlier owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    pub group: GroupId,
    pub attempt: Attempt,
    pub fence: u64,
}

/// One event in a group, committed once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// The key, committed at most once: `member/role/seat/turn`, for example.
    pub key: String,
    pub payload: Bytes,
}

impl Record {
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.payload)
    }
}

/// The result of committing one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    New,
    /// The same content was there.
    Duplicate,
    /// Other content was there: the first stands, this one is dropped.
    Conflict,
}

/// The state of a group at a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    pub lease: Lease,
    /// The records in the order of their commit.
    pub records: Vec<Record>,
    /// The outcome, if it was decided.
    pub decided: Option<Bytes>,
}

/// Answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The caller owns it: new, or taken over from a silent owner with fence + 1.
    Ours(Claimed),
    /// Another owner holds it; `beat` moves while that owner lives.
    Theirs { owner: String, beat: u64, fence: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another attempt or owner has the group, or its key is missing: stop and publish nothing more
    /// of it.
    #[error("the group has another owner or attempt, or is gone")]
    Stale,
    /// The call may or may not have taken effect: every step is safe to repeat.
    #[error("the store did not answer: {0}")]
    Unknown(String),
    #[error("the store cannot be used: {0}")]
    Unusable(String),
    /// A retry does not help: a file of ours, or the certificate of one side, must be changed.
    #[error("the store cannot be used: cannot speak TLS with Redis at {url}: {reason}")]
    Tls { url: String, reason: String },
    /// A retry does not help: the URL must be changed, or the users of Redis.
    #[error(
        "Redis at {url} refuses the login: {reason}; correct the user, the password and the database in run.state, --state or DYAD_STATE"
    )]
    Login { url: String, reason: String },
}

/// Progress of open groups.
///
/// A lease holds while attempt and fence are the stored ones and the group is neither released nor
/// finished. Every call may be repeated after [`StoreError::Unknown`]. A repeat changes nothing and
/// returns the first call's answer. One exception: if the group was finished or released in
/// between, writes return [`StoreError::Stale`].
#[async_trait]
pub trait Store: Send + Sync {
    /// Takes a group. A missing group is created with `fresh` as its attempt and fence 1.
    ///
    /// If another owner holds the group, it is taken over only if `silent` names that owner's
    /// `(beat, fence)` and both are still current. The caller must first have seen no change of the
    /// beat for a lease on its own clock.
    ///
    /// `owner` is an incarnation, new at each process start. A repeated claim by the owner returns
    /// the same lease. A released or finished group is free for any owner.
    async fn claim(
        &self,
        group: GroupId,
        owner: &str,
        fresh: Attempt,
        silent: Option<(u64, u64)>,
    ) -> Result<Claim, StoreError>;
    /// Moves the beat of each lease. Returns for each whether it still stands. One round trip for
    /// all.
    async fn beat(&self, leases: &[Lease]) -> Result<Vec<bool>, StoreError>;
    /// Commits records, each at most once, in order, all or none of the call. One round trip for
    /// all.
    async fn commit(&self, lease: Lease, records: &[Record]) -> Result<Vec<Committed>, StoreError>;
    /// Writes the outcome if none is written. Returns the stored one, which survives takeovers.
    async fn decide(&self, lease: Lease, outcome: Bytes) -> Result<Bytes, StoreError>;
    /// Marks the group as finished after its bundles are confirmed; it is forgotten after a while.
    /// Until then a claim finds it with its outcome, so that lost bundles can be sent again.
    async fn finish(&self, lease: Lease) -> Result<(), StoreError>;
    /// Gives the group up at once, so that another owner need not wait for the lease (orderly
    /// stop).
    async fn release(&self, lease: Lease) -> Result<(), StoreError>;
    /// Forgets the group: the next claim begins a new attempt. A missing group is no error.
    async fn void(&self, lease: Lease) -> Result<(), StoreError>;
    /// Checks that the store answers. Returns warnings about settings that endanger its data
    /// (persistence, eviction).
    async fn check(&self) -> Result<Vec<String>, StoreError>;
}
