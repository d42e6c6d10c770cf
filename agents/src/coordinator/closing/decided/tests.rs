use std::collections::BTreeMap;

use broker::ids::Attempt;
use broker::protocol::bundle::{Row, Sample};

use super::*;
use crate::ledger::tests::{agent, group, sample};

fn head() -> GroupHead {
    GroupHead {
        group: group(1),
        attempt: Attempt([1; 16]),
        task: "task/1".into(),
        order: 1,
    }
}

/// Two agents' bundles: ours with a row of this many tokens, the other one small.
fn assembled(tokens: u32) -> Assembled {
    let with_row = |tokens: u32| {
        let mut sample: Sample = sample(0);
        sample.rows[0] = Row {
            ids: (0..tokens).collect(),
            ..sample.rows[0].clone()
        };
        head().bundle(1, BundleContent::Samples(vec![sample]))
    };
    let other = AgentName::new("b").unwrap();
    Assembled {
        bundles: BTreeMap::from([(agent(), with_row(tokens)), (other, with_row(16))]),
        summary: rollout::group::GroupSummary::default(),
    }
}

/// Sent again, the row would be as large each time. A group in which one agent trains without the
/// other is no group.
#[test]
fn a_row_above_the_message_cap_closes_its_group_empty() {
    let closed = sendable(&head(), assembled(100_000), 4096);
    for (agent, bundle) in &closed.bundles {
        let BundleContent::Empty { reason } = &bundle.content else {
            panic!("{agent} gets {bundle:?}");
        };
        assert!(
            reason.contains("run.message_cap") && reason.contains("100000 tokens"),
            "{reason}"
        );
        assert_eq!(split(bundle.clone(), 4096).unwrap().len(), 1);
    }
    assert!(closed.summary.empty.is_some(), "it is counted");
    let small = sendable(&head(), assembled(16), 4096);
    assert_eq!(small, assembled(16));
}
