//! Batches with too few samples: waits, refills and short steps.

use super::*;

#[test]
fn a_step_without_samples_is_still_a_step() {
    let mut config = config(2);
    config.minibatches = 2;
    config.zero_advantage = ZeroAdvantage::Skip;
    let batch = formed(&[solvers(0, 2, false), solvers(1, 2, true)], &context(&config));
    let mut spans: Vec<_> = batch.minibatches.iter().map(|m| (m.spans.len(), m.tokens)).collect();
    spans.sort_unstable();
    assert_eq!(spans, [(0, 4), (3, 4)]);
}

#[test]
fn refill_draws_up_to_its_cap_and_then_trains_short() {
    let mut config = config(2);
    config.zero_advantage = ZeroAdvantage::Refill;
    let groups = [solvers(0, 2, false), solvers(1, 2, true), solvers(2, 2, false)];
    let ids: Vec<_> = groups.iter().map(|g| g.group).collect();
    match form(&groups, &context(&config)) {
        Formed::More {
            groups,
            discarded,
            verdicts,
        } => {
            assert_eq!((groups, discarded), (1, vec![ids[0], ids[2]]));
            assert_eq!(verdicts.len(), 4);
            assert!(verdicts.iter().all(|v| v.outcome == Err(Discard::ZeroAdvantage)));
        }
        Formed::Batch(_) => panic!("formed of one group"),
    }
    // Two were discarded before. Two groups that differ are enough.
    let enough = [solvers(1, 2, true), solvers(3, 2, true), solvers(4, 2, true)];
    let batch = formed(
        &enough,
        &BatchContext {
            drawn: 2,
            ..context(&config)
        },
    );
    assert_eq!(
        batch.groups,
        [enough[0].group, enough[1].group],
        "the third is for the next batch"
    );
    assert_eq!(
        (batch.stats.refilled, batch.stats.zero_share(), batch.stats.short),
        (2, 0.5, false)
    );
    let solver = &batch.stats.by_role["solver"];
    assert_eq!((solver.groups, batch.stats.zero_share_of(solver)), (2, 0.5));
    // 4 x 2 groups are drawn. It trains on the rest, and D counts only those.
    let batch = formed(
        &groups[1..],
        &BatchContext {
            drawn: 6,
            ..context(&config)
        },
    );
    assert_eq!(
        (batch.groups.len(), batch.stats.short, batch.minibatches[0].tokens),
        (1, true, 4)
    );
    assert_eq!(batch.verdicts.len(), 4);
    // The cap limits the number of requested groups.
    assert!(matches!(
        form(
            &groups[1..2],
            &BatchContext {
                drawn: 7,
                ..context(&config)
            }
        ),
        Formed::Batch(_)
    ));
    let nothing = formed(
        &groups[..1],
        &BatchContext {
            drawn: 7,
            ..context(&config)
        },
    );
    assert!(nothing.minibatches.is_empty() && nothing.groups.is_empty());
}

#[test]
fn a_short_batch_waits_unless_nothing_more_comes() {
    let config = config(3);
    let empty = Bundle {
        content: BundleContent::Empty { reason: "dead".into() },
        ..solvers(7, 2, true)
    };
    let groups = [solvers(0, 2, true), empty, solvers(1, 2, true)];
    assert!(matches!(
        form(&groups, &context(&config)),
        Formed::More { groups: 1, .. }
    ));
    let batch = formed(
        &groups,
        &BatchContext {
            more: false,
            ..context(&config)
        },
    );
    assert_eq!((batch.groups.len(), batch.stats.short), (2, true));
}
