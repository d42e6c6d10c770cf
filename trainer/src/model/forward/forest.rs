//! Finds the tokens that are computed once for several rows: rows with a common beginning share it.
//!
//! The rows of a batch become a forest of stretches. A stretch is computed after its ancestors. So
//! a group's prompt is computed once for all its completions, and a conversation's earlier turns
//! once for all later turns. This module uses no tensors.

use std::ops::Range;

/// The shortest beginning that is shared. Each shared stretch costs one more attention call in each
/// layer.
pub(crate) const LEAST_SHARED: usize = 16;

/// Neighbouring tokens that are computed once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The stretch before it, which is earlier in the forest.
    pub(crate) parent: Option<usize>,
    /// A row that contains it, and the tokens of that row.
    pub(crate) row: usize,
    pub(crate) tokens: Range<usize>,
}

/// Rows as paths through stretches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Forest {
    pub(crate) stretches: Vec<Stretch>,
    /// The stretches of each row, from its first token to its last.
    pub(crate) paths: Vec<Vec<usize>>,
}

/// Stretches with the same parent and similar lengths: their attention is one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) parent: Option<usize>,
    pub(crate) members: Vec<usize>,
}

/// The number of tokens with which both rows begin.
pub(crate) fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Forest {
    /// Each row by itself.
    pub(crate) fn apart<R: AsRef<[u32]>>(rows: &[R]) -> Self {
        let alone = |(row, ids): (usize, &R)| Stretch {
            parent: None,
            row,
            tokens: 0..ids.as_ref().len(),
        };
        Self {
            stretches: rows.iter().enumerate().map(alone).collect(),
            paths: (0..rows.len()).map(|row| vec![row]).collect(),
        }
    }

    /// Shares the common beginnings of rows: an inner stretch for every [`LEAST_SHARED`] or more
    /// tokens that several rows have in common.
    pub(crate) fn sharing<R: AsRef<[u32]>>(rows: &[R]) -> Self {
        let ids = |row: usize| rows[row].as_ref();
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|a, b| ids(*a).cmp(ids(*b)));
        // In this order, the beginning shared by several neighbours is the shortest one shared by
        // two of them.
        let shared: Vec<usize> = order
            .windows(2)
            .map(|pair| common(ids(pair[0]), ids(pair[1])))
            .collect();
        let mut forest = Self {
            stretches: Vec::new(),
            paths: vec![Vec::new(); rows.len()],
        };
        let mut open = vec![(0..rows.len(), 0, None)];
        while let Some((range, from, parent)) = open.pop() {
            for run in runs(range, &shared, from + LEAST_SHARED) {
                let row = order[run.start];
                let to = match shared[run.start..run.end - 1].iter().min() {
                    Some(common) => *common,
                    None => ids(row).len(),
                };
                if to == from {
                    continue;
                }
                let stretch = forest.stretches.len();
                let tokens = from..to;
                forest.stretches.push(Stretch { parent, row, tokens });
                for place in run.clone() {
                    forest.paths[order[place]].push(stretch);
                }
                if run.len() > 1 {
                    open.push((run, to, Some(stretch)));
                }
            }
        }
        forest
    }

    /// Stretches that may be attended together, parents before their children. No stretch is longer
    /// than twice another of its family, so less than half of a padded family is padding.
    pub(crate) fn families(&self) -> Vec<Family> {
        let mut order: Vec<usize> = (0..self.stretches.len()).collect();
        let length = |stretch: usize| self.stretches[stretch].tokens.len();
        // `None` sorts first; a parent comes before its children, and so does its own parent.
        order.sort_by_key(|stretch| (self.stretches[*stretch].parent, std::cmp::Reverse(length(*stretch))));
        let mut families: Vec<Family> = Vec::new();
        for stretch in order {
            let parent = self.stretches[stretch].parent;
            match families.last_mut() {
                Some(family) if family.parent == parent && length(family.members[0]) <= 2 * length(stretch) => {
                    family.members.push(stretch);
                }
                _ => families.push(Family {
                    parent,
                    members: vec![stretch],
                }),
            }
        }
        families
    }

    /// The stretches above `stretch`, from the root down.
    pub(crate) fn above(&self, stretch: usize) -> Vec<usize> {
        let mut path: Vec<usize> =
            std::iter::successors(self.stretches[stretch].parent, |up| self.stretches[*up].parent).collect();
        path.reverse();
        path
    }
}

/// Cuts a range where neighbours share less than `least`.
fn runs(range: Range<usize>, shared: &[usize], least: usize) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut start = range.start;
    for place in range.clone() {
        if place + 1 == range.end || shared[place] < least {
            runs.push(start..place + 1);
            start = place + 1;
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A row of `shared` equal tokens and then its own.
    fn row(parts: &[(u32, usize)]) -> Vec<u32> {
        parts.iter().flat_map(|(id, count)| vec![*id; *count]).collect()
    }

    fn stretch(parent: Option<usize>, row: usize, tokens: Range<usize>) -> Stretch {
        Stretch { parent, row, tokens }
    }

    #[test]
    fn a_groups_prompt_is_stored_once_and_short_beginnings_per_row() {
        let rows = [
            row(&[(1, 40), (2, 5)]),
            row(&[(9, LEAST_SHARED - 1), (7, 3)]),
            row(&[(1, 40), (3, 6)]),
            row(&[(9, LEAST_SHARED - 1), (8, 3)]),
        ];
        let forest = Forest::sharing(&rows);
        let expected = [
            stretch(None, 0, 0..40),
            stretch(None, 1, 0..LEAST_SHARED + 2),
            stretch(None, 3, 0..LEAST_SHARED + 2),
            stretch(Some(0), 0, 40..45),
            stretch(Some(0), 2, 40..46),
        ];
        assert_eq!(forest.stretches, expected);
        assert_eq!(forest.paths, [vec![0, 3], vec![1], vec![0, 4], vec![2]]);
    }

    #[test]
    fn later_turns_go_on_from_earlier_ones() {
        let rows = [
            row(&[(1, 20), (2, 20), (3, 20)]),
            row(&[(1, 20), (4, 2)]),
            row(&[(1, 20), (2, 20), (5, 4)]),
            row(&[(1, 20), (2, 20)]),
        ];
        let forest = Forest::sharing(&rows);
        assert_eq!(
            forest.stretches.iter().map(|s| s.tokens.clone()).collect::<Vec<_>>(),
            [0..20, 20..40, 20..22, 40..60, 40..44]
        );
        assert_eq!(forest.paths, [vec![0, 1, 3], vec![0, 2], vec![0, 1, 4], vec![0, 1]]);
        assert_eq!(forest.above(4), [0, 1]);
    }

    #[test]
    fn families_are_of_like_length() {
        let rows = [
            row(&[(1, 16), (2, 10)]),
            row(&[(1, 16), (3, 4)]),
            row(&[(1, 16), (4, 5)]),
        ];
        let forest = Forest::sharing(&rows);
        let members: Vec<Vec<usize>> = forest.families().into_iter().map(|family| family.members).collect();
        assert_eq!(members, [vec![0], vec![1, 3], vec![2]]);
    }

    proptest! {
        /// A row equals the stretches of its path. No beginning of sufficient length is computed
        /// twice.
        #[test]
        fn paths_spell_rows(shapes in prop::collection::vec(prop::collection::vec(0u32..3, 1..6), 1..12)) {
            let rows: Vec<Vec<u32>> = shapes.iter().map(|ids| row(&ids.iter().map(|id| (*id, 9)).collect::<Vec<_>>())).collect();
            let forest = Forest::sharing(&rows);
            for (ids, path) in rows.iter().zip(&forest.paths) {
                let mut spelled: Vec<u32> = Vec::new();
                for (place, index) in path.iter().enumerate() {
                    let stretch = &forest.stretches[*index];
                    prop_assert_eq!(stretch.parent, place.checked_sub(1).map(|above| path[above]));
                    prop_assert_eq!(stretch.tokens.start, spelled.len());
                    spelled.extend(&rows[stretch.row][stretch.tokens.clone()]);
                }
                prop_assert_eq!(&spelled, ids);
            }
            for (a, one) in rows.iter().enumerate() {
                for (b, other) in rows.iter().enumerate().skip(a + 1) {
                    let both = forest.paths[a].iter().filter(|s| forest.paths[b].contains(s)).map(|s| forest.stretches[*s].tokens.len());
                    prop_assert!(both.sum::<usize>() + 2 * LEAST_SHARED > common(one, other));
                }
            }
            let families = forest.families();
            let mut seen: Vec<usize> = families.iter().flat_map(|family| family.members.clone()).collect();
            for (place, index) in seen.iter().enumerate() {
                let parent = forest.stretches[*index].parent;
                prop_assert!(parent.is_none_or(|parent| seen[..place].contains(&parent)));
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..forest.stretches.len()).collect::<Vec<_>>());
        }
    }
}
