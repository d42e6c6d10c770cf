//! Token weights under each aggregation, computed by hand.

use super::*;

#[test]
fn denominators_by_hand() {
    // The retry (role weight 0.5) has 4 tokens, the solvers 2 and 3. Conversation 0 has 6 tokens.
    let by_hand = [
        (Aggregation::Token, [0.5 / 9.0, 1.0 / 9.0, 1.0 / 9.0]),
        (
            Aggregation::Sequence,
            [0.5 / 4.0 / 3.0, 1.0 / 2.0 / 3.0, 1.0 / 3.0 / 3.0],
        ),
        (
            Aggregation::Conversation,
            [0.5 / 6.0 / 2.0, 1.0 / 6.0 / 2.0, 1.0 / 3.0 / 2.0],
        ),
        (
            Aggregation::Constant,
            [0.5 / 10.0 / 3.0, 1.0 / 10.0 / 3.0, 1.0 / 10.0 / 3.0],
        ),
        // The solvers' 5 tokens are averaged together, over both conversations.
        (Aggregation::Role, [0.5 / 4.0 / 2.0, 1.0 / 5.0 / 2.0, 1.0 / 5.0 / 2.0]),
    ];
    for (aggregation, weights) in by_hand {
        let mut config = config(1);
        config.loss.agg = aggregation;
        config.role_weights.insert(RoleName::new("retry").unwrap(), 0.5);
        let batch = formed(&[mixed(0)], &context(&config));
        assert_eq!(batch.minibatches.len(), 1);
        assert_eq!(batch.minibatches[0].tokens, 9);
        let found = trained(&batch.minibatches[0]);
        assert_eq!(
            found.iter().map(|row| (row.0, row.1, row.3)).collect::<Vec<_>>(),
            [(1, 4, 0.0), (5, 2, -1.0), (7, 3, 1.0)]
        );
        for (row, weight) in found.iter().zip(weights) {
            assert!(
                (f64::from(row.2) - weight).abs() < 1e-7,
                "{aggregation:?}: {found:?} and {weights:?}"
            );
        }
    }
}

#[test]
fn denominators_are_those_of_the_optimizer_step() {
    // A step uses the two groups it is given, whatever the other groups are.
    let mut config = config(4);
    config.minibatches = 2;
    config.loss.agg = Aggregation::Sequence;
    let groups: Vec<Bundle> = (0..4).map(|order| solvers(order, 2 + order as u16, true)).collect();
    let batch = formed(&groups, &context(&config));
    assert_eq!(batch.minibatches.len(), 2);
    let mut samples = 0;
    for step in &batch.minibatches {
        let rows = trained(step);
        samples += rows.len();
        assert!(
            rows.iter()
                .all(|row| (row.2 - 1.0 / 2.0 / rows.len() as f32).abs() < 1e-7),
            "{rows:?}"
        );
    }
    assert_eq!(samples, 2 + 3 + 4 + 5);
}

#[test]
fn roles_count_before_masks_and_only_with_tokens() {
    let mut config = config(1);
    config.loss.agg = Aggregation::Role;
    let weights = |config: &TrainConfig, bundle: Bundle| -> Vec<(u32, f32)> {
        let batch = formed(&[bundle], &context(config));
        trained(&batch.minibatches[0])
            .iter()
            .map(|row| (row.0, row.2))
            .collect()
    };
    // The retry is cut and trains nothing. The solvers' share stays one of two.
    let mut cut = mixed(0);
    let BundleContent::Samples(samples) = &mut cut.content else {
        panic!("samples")
    };
    samples[0].status = SampleStatus::Truncated;
    config.truncated = Truncated::Mask;
    assert_eq!(weights(&config, cut.clone()), [(5, 0.1), (7, 0.1)]);
    // A sample without tokens is in no mean, as in a step with a missing known answer.
    let BundleContent::Samples(samples) = &mut cut.content else {
        panic!("samples")
    };
    samples[0].rows.clear();
    assert_eq!(weights(&config, cut), [(5, 0.2), (7, 0.2)]);
}
