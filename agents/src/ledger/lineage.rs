//! Lineages: every trainer start begins one, forked from a step of an earlier one, so no two different weights share a version.

use broker::ids::WeightVersion;

/// One trainer start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lineage {
    /// 1, 2, 3 ... in the order of starts.
    pub id: u32,
    /// The checkpoint it began from; `None`: the run's initial weights (step 0).
    pub parent: Option<WeightVersion>,
}

/// All lineages of an agent, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lineages {
    list: Vec<Lineage>,
}

impl Lineages {
    pub(super) fn push(&mut self, lineage: Lineage) {
        self.list.push(lineage);
    }

    /// The newest lineage: the only one whose writes count.
    #[must_use]
    pub fn newest(&self) -> Option<Lineage> {
        self.list.last().copied()
    }

    #[must_use]
    pub fn get(&self, id: u32) -> Option<Lineage> {
        self.list.iter().find(|lineage| lineage.id == id).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lineage> {
        self.list.iter()
    }

    /// The ancestor chain of `version`, newest first: pairs (lineage, last step that belongs to it).
    #[must_use]
    pub fn chain(&self, version: WeightVersion) -> Vec<WeightVersion> {
        let mut chain = Vec::new();
        let mut at = Some(version);
        while let Some(version) = at {
            chain.push(version);
            // A parent is always older, so the walk ends even if the file was tampered with.
            at = self
                .get(version.lineage)
                .and_then(|lineage| lineage.parent)
                .filter(|parent| parent.lineage < version.lineage)
                .map(|parent| WeightVersion {
                    lineage: parent.lineage,
                    step: parent.step.min(version.step),
                });
        }
        chain
    }

    /// The chain of the newest lineage, without a bound on its own steps. Empty before the first lineage.
    #[must_use]
    pub fn surviving(&self) -> Vec<WeightVersion> {
        self.newest().map_or_else(Vec::new, |lineage| {
            self.chain(WeightVersion {
                lineage: lineage.id,
                step: i64::MAX as u64,
            })
        })
    }

    /// The step of the newest lineage's history at which `version` was last part of it: `version.step` if its lineage is
    /// an ancestor, else the step of the fork where its branch left. Staleness is the trainer's step minus this. Unknown
    /// lineages and branches without a common ancestor answer 0, the initial weights.
    #[must_use]
    pub fn project(&self, version: WeightVersion) -> u64 {
        let surviving = self.surviving();
        self.chain(version)
            .into_iter()
            .find_map(|ancestor| {
                surviving
                    .iter()
                    .find(|bound| bound.lineage == ancestor.lineage)
                    .map(|bound| ancestor.step.min(bound.step))
            })
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(lineage: u32, step: u64) -> WeightVersion {
        WeightVersion { lineage, step }
    }

    /// 1 runs to 50; 2 forks at 40 and runs to 60; 3 forks from 2 at 55; 4 forks from 1 at 45.
    fn tree(upto: u32) -> Lineages {
        let mut lineages = Lineages::default();
        let parents = [None, Some(v(1, 40)), Some(v(2, 55)), Some(v(1, 45))];
        for (id, parent) in (1..=upto).zip(parents) {
            lineages.push(Lineage { id, parent });
        }
        lineages
    }

    #[test]
    fn chains_are_cut_at_forks() {
        assert_eq!(tree(3).chain(v(3, 58)), [v(3, 58), v(2, 55), v(1, 40)]);
        assert_eq!(tree(3).chain(v(2, 30)), [v(2, 30), v(1, 30)]);
        assert_eq!(tree(4).surviving()[1], v(1, 45));
        assert!(Lineages::default().surviving().is_empty());
    }

    #[test]
    fn versions_of_dead_branches_count_from_their_fork() {
        let three = tree(3);
        assert_eq!(three.project(v(3, 57)), 57);
        assert_eq!(three.project(v(2, 50)), 50);
        assert_eq!(three.project(v(2, 59)), 55, "the branch left at 55");
        assert_eq!(three.project(v(1, 50)), 40, "the branch left at 40");
        let four = tree(4);
        assert_eq!(four.project(v(3, 57)), 40, "3 left through 2, which left 1 at 40");
        assert_eq!(four.project(v(1, 44)), 44);
        assert_eq!(four.project(v(9, 3)), 0, "an unknown lineage is as old as can be");
    }
}
