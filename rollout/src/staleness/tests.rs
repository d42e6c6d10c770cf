use proptest::prelude::*;

use super::*;

fn v(lineage: u32, step: u64) -> WeightVersion {
    WeightVersion { lineage, step }
}

fn lineages(parents: &[Option<WeightVersion>]) -> Lineages {
    let mut lineages = Lineages::default();
    for (id, parent) in (1..).zip(parents) {
        lineages.push(Lineage { id, parent: *parent }).unwrap();
    }
    lineages
}

/// 1 runs to 50; 2 forks at 40 and runs to 60; 3 forks from 2 at 55; 4 forks from 1 at 45.
fn tree(upto: usize) -> Lineages {
    lineages(&[None, Some(v(1, 40)), Some(v(2, 55)), Some(v(1, 45))][..upto])
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
    assert_eq!(three.position(v(3, 57)), Some(57));
    assert_eq!(three.position(v(2, 50)), Some(50));
    assert_eq!(three.position(v(2, 59)), Some(55), "the branch left at 55");
    assert_eq!(three.position(v(1, 50)), Some(40), "the branch left at 40");
    assert_eq!(three.staleness(57, v(1, 50)), 17);
    let four = tree(4);
    assert_eq!(
        four.position(v(3, 57)),
        Some(40),
        "3 left through 2, which left 1 at 40"
    );
    assert_eq!(four.position(v(1, 44)), Some(44));
}

#[test]
fn unknown_weights_are_as_stale_as_can_be() {
    let four = tree(4);
    assert_eq!(four.position(v(9, 3)), None);
    assert_eq!(four.staleness(60, v(9, 3)), u64::MAX);
    let apart = lineages(&[None, None]);
    assert_eq!(apart.position(v(1, 3)), None, "a run of its own has no common ancestor");
}

#[test]
fn a_ledger_that_makes_no_sense_is_refused() {
    let mut three = tree(3);
    let mut push = |id, parent| three.push(Lineage { id, parent });
    assert_eq!(push(3, None), Err(LineageError::Repeated(3)));
    assert_eq!(
        push(5, Some(v(5, 1))),
        Err(LineageError::Order { lineage: 5, parent: 5 })
    );
    assert_eq!(
        push(5, Some(v(4, 1))),
        Err(LineageError::Unknown { lineage: 5, parent: 4 })
    );
    assert_eq!(push(5, Some(v(3, 56))), Ok(()));
}

/// A random tree of lineages, each forked at a step that its parent has (at or after the parent's
/// own fork).
fn random_tree() -> impl Strategy<Value = Lineages> {
    prop::collection::vec((any::<prop::sample::Index>(), 0u64..6), 0..8).prop_map(|plan| {
        let mut parents = vec![None];
        for (pick, more) in plan {
            let parent = pick.index(parents.len());
            let fork: u64 = parents[parent].map_or(0, |version: WeightVersion| version.step);
            parents.push(Some(v(parent as u32 + 1, fork + more)));
        }
        lineages(&parents)
    })
}

/// Every weight state in the history of a version.
fn history(lineages: &Lineages, version: WeightVersion) -> Vec<WeightVersion> {
    let parent = lineages.get(version.lineage).unwrap().parent;
    let mut before = parent.map_or_else(Vec::new, |parent| history(lineages, parent));
    let fork = parent.map_or(0, |parent| parent.step);
    before.extend((fork + 1..=version.step).map(|step| v(version.lineage, step)));
    before
}

proptest! {
    #[test]
    fn position_is_the_length_of_the_common_history(
        lineages in random_tree(), pick in any::<prop::sample::Index>(), more in (0u64..6, 0u64..6)
    ) {
        let at = |lineage: Lineage, more| v(lineage.id, lineage.parent.map_or(0, |fork| fork.step) + more);
        let ours = at(lineages.newest().unwrap(), more.0);
        let all: Vec<Lineage> = lineages.iter().copied().collect();
        let theirs = at(all[pick.index(all.len())], more.1);
        // Weights later than ours in our own lineage are not in our history yet.
        prop_assume!(theirs.lineage != ours.lineage || theirs.step <= ours.step);
        let (mine, other) = (history(&lineages, ours), history(&lineages, theirs));
        let common = mine.iter().zip(&other).take_while(|(x, y)| x == y).count() as u64;
        prop_assert_eq!(lineages.position(theirs).unwrap().min(ours.step), common);
    }
}
