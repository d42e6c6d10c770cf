//! How old weights are, along lineages: every trainer start begins a new lineage, at some step of an earlier one.
//!
//! `staleness = step - p(v)`, where `p` walks the lineage of `v` back to its common ancestor with the current one. What a
//! dead branch trained after the fork does not count: those weights are as far from ours as the fork is.

use std::collections::BTreeMap;

use broker::ids::WeightVersion;

/// Where a lineage began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    /// The lineage it was restored from; `None` for the first of a run.
    pub parent: Option<u32>,
    /// Step at which it left its parent.
    pub step: u64,
}

/// A lineage that its own ledger would not have written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineageError {
    #[error("lineage {0} is not in the ledger")]
    Unknown(u32),
    #[error("lineage {lineage} names parent {parent}, which does not come before it")]
    Order { lineage: u32, parent: u32 },
}

/// All lineages of one agent, and the one that trains now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineages {
    forks: BTreeMap<u32, Fork>,
    current: u32,
    /// The current lineage and its ancestors, each with the last of its steps that we descend from.
    path: BTreeMap<u32, u64>,
}

impl Lineages {
    /// `forks` are the ledger's rows; a parent has a lower id than its child.
    pub fn new(forks: BTreeMap<u32, Fork>, current: u32) -> Result<Self, LineageError> {
        for (&lineage, fork) in &forks {
            match fork.parent {
                Some(parent) if parent >= lineage => return Err(LineageError::Order { lineage, parent }),
                Some(parent) if !forks.contains_key(&parent) => return Err(LineageError::Unknown(parent)),
                _ => {}
            }
        }
        let mut path = BTreeMap::new();
        let (mut at, mut last) = (current, u64::MAX);
        loop {
            let fork = forks.get(&at).ok_or(LineageError::Unknown(at))?;
            path.insert(at, last);
            let Some(parent) = fork.parent else { break };
            (at, last) = (parent, last.min(fork.step));
        }
        Ok(Self { forks, current, path })
    }

    /// The one lineage of a run that was never restored.
    #[must_use]
    pub fn single(lineage: u32) -> Self {
        let first = Fork { parent: None, step: 0 };
        Self {
            forks: BTreeMap::from([(lineage, first)]),
            current: lineage,
            path: BTreeMap::from([(lineage, u64::MAX)]),
        }
    }

    #[must_use]
    pub fn current(&self) -> u32 {
        self.current
    }

    /// The step of the current lineage's history at which `version` was, or at which its branch left it. `None` if its
    /// lineage is unknown, or a run of its own without a common ancestor.
    #[must_use]
    pub fn position(&self, version: WeightVersion) -> Option<u64> {
        let (mut lineage, mut step) = (version.lineage, version.step);
        loop {
            if let Some(last) = self.path.get(&lineage) {
                return Some(step.min(*last));
            }
            let fork = self.forks.get(&lineage)?;
            step = step.min(fork.step);
            lineage = fork.parent?;
        }
    }

    /// Trainer steps from `version` to `step` of the current lineage. Weights of unknown origin count as `u64::MAX` steps
    /// old.
    #[must_use]
    pub fn staleness(&self, step: u64, version: WeightVersion) -> u64 {
        self.position(version)
            .map_or(u64::MAX, |position| step.saturating_sub(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v(lineage: u32, step: u64) -> WeightVersion {
        WeightVersion { lineage, step }
    }

    /// 1 ran to 10; 2 was restored from it at 6 and ran to 9; 3 from 1 at 4; 4 from 2 at 8.
    fn family(current: u32) -> Lineages {
        let fork = |parent, step| Fork {
            parent: Some(parent),
            step,
        };
        let forks = BTreeMap::from([
            (1, Fork { parent: None, step: 0 }),
            (2, fork(1, 6)),
            (3, fork(1, 4)),
            (4, fork(2, 8)),
        ]);
        Lineages::new(forks, current).unwrap()
    }

    #[test]
    fn ancestors_count_to_the_fork() {
        let lineages = family(4);
        assert_eq!(lineages.position(v(4, 12)), Some(12));
        assert_eq!(lineages.position(v(2, 7)), Some(7));
        assert_eq!(lineages.position(v(2, 9)), Some(8), "a dead end of our own ancestor");
        assert_eq!(lineages.position(v(1, 3)), Some(3));
        assert_eq!(lineages.position(v(1, 10)), Some(6));
        assert_eq!(lineages.staleness(12, v(1, 10)), 6);
        assert_eq!(lineages.staleness(12, v(4, 12)), 0);
    }

    #[test]
    fn a_dead_branch_is_as_old_as_its_fork() {
        assert_eq!(family(4).position(v(3, 99)), Some(4));
        assert_eq!(family(3).position(v(4, 99)), Some(4));
        assert_eq!(family(2).position(v(4, 20)), Some(8));
        assert_eq!(family(2).position(v(4, 8)), Some(8));
    }

    #[test]
    fn unknown_weights_are_as_stale_as_can_be() {
        let lineages = family(4);
        assert_eq!(lineages.position(v(77, 1)), None);
        assert_eq!(lineages.staleness(3, v(77, 1)), u64::MAX);
        assert_eq!(Lineages::single(5).staleness(3, v(5, 1)), 2);
    }

    #[test]
    fn a_ledger_that_makes_no_sense_is_refused() {
        let forks = |parent| {
            BTreeMap::from([(
                1,
                Fork {
                    parent: Some(parent),
                    step: 0,
                },
            )])
        };
        assert_eq!(
            Lineages::new(forks(1), 1),
            Err(LineageError::Order { lineage: 1, parent: 1 })
        );
        assert_eq!(Lineages::new(forks(0), 1), Err(LineageError::Unknown(0)));
        assert_eq!(Lineages::new(BTreeMap::new(), 1), Err(LineageError::Unknown(1)));
    }

    /// A random tree of lineages, each forked at a step that its parent has (at or after the parent's own fork).
    fn tree() -> impl Strategy<Value = BTreeMap<u32, Fork>> {
        prop::collection::vec((any::<prop::sample::Index>(), 0u64..6), 0..8).prop_map(|plan| {
            let mut forks = BTreeMap::from([(1, Fork { parent: None, step: 0 })]);
            for (pick, more) in plan {
                let id = forks.len() as u32 + 1;
                let parent = pick.index(forks.len()) as u32 + 1;
                forks.insert(
                    id,
                    Fork {
                        parent: Some(parent),
                        step: forks[&parent].step + more,
                    },
                );
            }
            forks
        })
    }

    /// Every weight state of a lineage as the list of (lineage, step) it went through.
    fn history(forks: &BTreeMap<u32, Fork>, version: WeightVersion) -> Vec<(u32, u64)> {
        let fork = forks[&version.lineage];
        let mut before = match fork.parent {
            Some(parent) => history(forks, v(parent, fork.step)),
            None => vec![],
        };
        before.extend((fork.step + 1..=version.step).map(|step| (version.lineage, step)));
        before
    }

    proptest! {
        #[test]
        fn position_is_the_length_of_the_common_history(forks in tree(), a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>(), more in (0u64..6, 0u64..6)) {
            let at = |pick: prop::sample::Index, more| {
                let lineage = pick.index(forks.len()) as u32 + 1;
                v(lineage, forks[&lineage].step + more)
            };
            let (ours, theirs) = (at(a, more.0), at(b, more.1));
            let (mine, other) = (history(&forks, ours), history(&forks, theirs));
            let common = mine.iter().zip(&other).take_while(|(x, y)| x == y).count() as u64;
            let lineages = Lineages::new(forks, ours.lineage).unwrap();
            // Weights later than ours in our own lineage have no place in our history yet.
            prop_assume!(theirs.lineage != ours.lineage || theirs.step <= ours.step);
            let position = lineages.position(theirs).unwrap();
            prop_assert_eq!(position.min(ours.step), common);
        }
    }
}
