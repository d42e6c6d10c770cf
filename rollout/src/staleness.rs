//! The age of weights along lineages. Every trainer start begins a new lineage, forked from a step
//! of an earlier one, so two different weights never share a version.
//!
//! `staleness = step - p(v)`, where `p` walks the lineage of `v` back to its common ancestor with
//! the newest lineage. Steps of a dead branch after the fork do not count: those weights are as far
//! from the newest as the fork is.

use broker::ids::WeightVersion;

/// One trainer start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lineage {
    /// 1, 2, 3 ... in the order of starts.
    pub id: u32,
    /// The checkpoint it began from; `None` for the run's initial weights (step 0).
    pub parent: Option<WeightVersion>,
}

/// A lineage that the ledger of its agent would not have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineageError {
    #[error("lineage {lineage} names parent {parent}, which is not in the ledger")]
    Unknown { lineage: u32, parent: u32 },
    #[error("lineage {lineage} names parent {parent}, which does not come before it")]
    Order { lineage: u32, parent: u32 },
    #[error("lineage {0} does not come after the one before it")]
    Repeated(u32),
}

/// All lineages of one agent, by id. The newest lineage is the one that trains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lineages {
    list: Vec<Lineage>,
}

impl Lineages {
    /// Adds the next lineage.
    ///
    /// # Errors
    /// [`LineageError`]: then nothing was added.
    pub fn push(&mut self, lineage: Lineage) -> Result<(), LineageError> {
        let id = lineage.id;
        if self.newest().is_some_and(|newest| newest.id >= id) {
            return Err(LineageError::Repeated(id));
        }
        if let Some(WeightVersion { lineage: parent, .. }) = lineage.parent {
            if parent >= id {
                return Err(LineageError::Order { lineage: id, parent });
            }
            self.get(parent).ok_or(LineageError::Unknown { lineage: id, parent })?;
        }
        self.list.push(lineage);
        Ok(())
    }

    /// Returns the newest lineage. Only its writes count.
    #[must_use]
    pub fn newest(&self) -> Option<Lineage> {
        self.list.last().copied()
    }

    #[must_use]
    pub fn get(&self, id: u32) -> Option<Lineage> {
        let at = self.list.binary_search_by_key(&id, |lineage| lineage.id).ok()?;
        self.list.get(at).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lineage> {
        self.list.iter()
    }

    /// Returns the ancestor chain of `version`, newest first: pairs (lineage, last step that
    /// belongs to it).
    #[must_use]
    pub fn chain(&self, version: WeightVersion) -> Vec<WeightVersion> {
        let mut chain = Vec::new();
        let mut at = Some(version);
        while let Some(version) = at {
            chain.push(version);
            let parent = self.get(version.lineage).and_then(|lineage| lineage.parent);
            at = parent.map(|parent| WeightVersion {
                lineage: parent.lineage,
                step: parent.step.min(version.step),
            });
        }
        chain
    }

    /// Returns the chain of the newest lineage, without a bound on its own steps. It is empty
    /// before the first lineage.
    #[must_use]
    pub fn surviving(&self) -> Vec<WeightVersion> {
        self.newest().map_or_else(Vec::new, |lineage| {
            self.chain(WeightVersion {
                lineage: lineage.id,
                step: i64::MAX as u64,
            })
        })
    }

    /// Returns the step of the newest lineage's history at which `version` was, or at which its
    /// branch left that history. Returns `None` if its lineage is unknown, or has no ancestor in
    /// common with the newest.
    #[must_use]
    pub fn position(&self, version: WeightVersion) -> Option<u64> {
        self.get(version.lineage)?;
        let surviving = self.surviving();
        self.chain(version).into_iter().find_map(|ancestor| {
            let bound = surviving.iter().find(|bound| bound.lineage == ancestor.lineage)?;
            Some(ancestor.step.min(bound.step))
        })
    }

    /// Returns the trainer steps from `version` to `step` of the newest lineage. Weights of unknown
    /// origin are `u64::MAX` steps old.
    #[must_use]
    pub fn staleness(&self, step: u64, version: WeightVersion) -> u64 {
        self.position(version)
            .map_or(u64::MAX, |position| step.saturating_sub(position))
    }
}

#[cfg(test)]
mod tests;
