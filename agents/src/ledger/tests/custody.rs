//! The external behaviour of a ledger's custody in a few lines: reservations, parts, one closing.
//!
//! [`super::model`] compares it with the ledger in SQLite under random histories. The exhaustive
//! model of the group's state machine (`sim/model/`) then uses it as the ledger, because it can be
//! copied and compared.

use std::collections::{BTreeMap, BTreeSet};

use broker::ids::{Attempt, Digest};
use broker::protocol::reserve::ReserveVerdict;

use crate::ledger::Staged;

/// The rows of one agent's ledger, by the number of their task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct CustodyModel {
    pub(crate) rows: BTreeMap<u64, RowModel>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum RowModel {
    /// Holds the parts of each (attempt, digest) received so far.
    Reserved(BTreeSet<(Attempt, Digest, u16)>),
    Closed(Winner),
}

/// The bundle that closed a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Winner {
    pub(crate) attempt: Attempt,
    pub(crate) digest: Digest,
    /// True if it brought samples.
    pub(crate) samples: bool,
}

/// A bundle, or a part of one: the fields that custody reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Part {
    pub(crate) attempt: Attempt,
    pub(crate) digest: Digest,
    pub(crate) part: u16,
    pub(crate) parts: u16,
    pub(crate) samples: bool,
}

impl CustodyModel {
    pub(crate) fn is_reserved(&self, group: u64) -> bool {
        matches!(self.rows.get(&group), Some(RowModel::Reserved(_)))
    }

    pub(crate) fn winner(&self, group: u64) -> Option<Winner> {
        match self.rows.get(&group) {
            Some(RowModel::Closed(winner)) => Some(*winner),
            _ => None,
        }
    }

    /// Reserves a group; `full` means no room for a new row.
    pub(crate) fn reserve(&mut self, group: u64, full: bool) -> ReserveVerdict {
        match self.rows.get(&group) {
            Some(RowModel::Closed(Winner { attempt, digest, .. })) => ReserveVerdict::Closed {
                attempt: *attempt,
                digest: *digest,
            },
            Some(RowModel::Reserved(_)) => ReserveVerdict::Granted,
            None if full => ReserveVerdict::Later,
            None => {
                self.rows.insert(group, RowModel::Reserved(BTreeSet::new()));
                ReserveVerdict::Granted
            }
        }
    }

    pub(crate) fn stage(&mut self, group: u64, part: Part) -> Staged {
        let Part { attempt, digest, .. } = part;
        let staged = match self.rows.get_mut(&group) {
            None => return Staged::NoRow,
            Some(RowModel::Closed(winner)) if (winner.attempt, winner.digest) == (attempt, digest) => {
                return Staged::Duplicate;
            }
            Some(RowModel::Closed(_)) => return Staged::OtherAttempt,
            Some(RowModel::Reserved(staged)) => staged,
        };
        if !staged.insert((attempt, digest, part.part)) {
            return Staged::Duplicate;
        }
        let here = staged.iter().filter(|(a, d, _)| (*a, *d) == (attempt, digest)).count();
        if here < usize::from(part.parts) {
            return Staged::Staged;
        }
        let samples = part.samples;
        let winner = Winner {
            attempt,
            digest,
            samples,
        };
        self.rows.insert(group, RowModel::Closed(winner));
        Staged::Closed
    }
}
