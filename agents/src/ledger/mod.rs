//! Each agent's custody ledger: one SQLite file for custody, reservation, deduplication and audit.
//!
//! A group's row is written at admission and kept for the whole run: `reserved`, then `closed` by
//! exactly one attempt, or `dead`. Append-only verdicts along lineages ([`Lineages`]) record the
//! training. The payload of a closed group stays until every retained checkpoint is later than its
//! verdict. [`Ledger`] blocks and has one owner. Processes use the [`LedgerHandle`]: its writer
//! thread runs all waiting calls in one transaction and answers after its commit.
//!
//! Every write first checks that this opening of the file is the newest, and every effect checks
//! that its lineage is the newest. Writes of an earlier owner are rejected
//! ([`LedgerError::Fenced`]). A file lock for life keeps a second process out.

mod audit;
mod cache;
mod chain;
pub mod completion;
mod custody;
mod effect;
mod error;
mod group;
mod handle;
mod history;
mod meta;
mod open;
mod orders;
mod payloads;
mod repair;
mod reservations;
mod rows;
mod schema;
pub mod snapshot;
mod verdict;
mod write;

#[cfg(test)]
pub(crate) mod tests;

pub use audit::{Audit, GroupRow, Inspector, RowState};
pub use cache::Counts;
pub use custody::Staged;
pub use error::LedgerError;
pub use group::{GroupFate, PlacedVerdict};
pub use handle::LedgerHandle;
pub(crate) use meta::{ENDED, LEARNED};
pub(crate) use open::lock;
pub use open::{Durability, LedgerOptions};
pub use orders::PUBLISHED;
pub use repair::Custody;
pub use reservations::Overdue;
pub use rollout::staleness::{Lineage, Lineages};
pub use verdict::{Consumed, RecordedBatch, SampleVerdict, TrainingVerdict};

use cache::Cache;
use orders::Orders;

/// The ledger of one agent, opened by its one owner. Blocks: never call it on an actor's thread.
#[derive(Debug)]
pub struct Ledger {
    connection: rusqlite::Connection,
    /// Held for life, so that no second process opens the ledger.
    _lock: std::fs::File,
    path: std::path::PathBuf,
    /// The number of this opening; a newer opening fences this one.
    opening: i64,
    cache: Cache,
    /// True inside a transaction that several calls share.
    grouped: bool,
    /// The reason why the shared transaction cannot be committed any more.
    broken: Option<LedgerError>,
}
