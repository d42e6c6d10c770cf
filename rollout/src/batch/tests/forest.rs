//! Compares the forest with the rows it was made of.

use broker::protocol::bundle::{Row, Segment};
use proptest::prelude::*;

use super::*;
use crate::advantage;

#[test]
fn a_change_of_temperature_begins_a_new_span() {
    let first = turn("solver", &[4, 5]);
    let mut second = generation(&[1, 2, 3, 6, 4, 5, 8], &[9]);
    second.temperature = 0.5;
    let group = bundle(
        0,
        vec![
            sample(0, "solver", 1.0, &[first, second]),
            sample(1, "solver", 0.0, &[turn("solver", &[7])]),
        ],
    );
    let config = config(1);
    let batch = formed(&[group], &context(&config)).minibatches.remove(0);
    let spans: Vec<_> = batch
        .spans
        .iter()
        .map(|s| (s.parent, s.ids.clone(), s.temperature))
        .collect();
    assert_eq!(
        spans,
        [
            (None, vec![1, 2, 3, 6], 1.0),
            (Some(0), vec![4, 5], 1.0),
            (Some(1), vec![8, 9], 0.5),
            (Some(0), vec![7], 1.0)
        ]
    );
    let row = &flatten(&batch)[0];
    assert_eq!(row.ids, [1, 2, 3, 6, 4, 5, 8, 9]);
    assert_eq!(row.mask, [false, false, false, false, true, true, false, true]);
}

#[test]
fn the_prompt_of_a_role_stands_once() {
    let config = config(1);
    let batch = formed(&[solvers(0, 8, true)], &context(&config)).minibatches.remove(0);
    assert_eq!(batch.spans.len(), 9);
    assert_eq!(batch.spans.iter().map(|s| s.ids.len()).sum::<usize>(), 4 + 8 * 2);
    assert!(batch.spans[1..].iter().all(|s| s.parent == Some(0)));
    assert_eq!(
        (batch.spans[0].weight, batch.spans[0].mask.contains(&true)),
        (0.0, false)
    );
}

#[test]
fn spans_have_their_roles_numbers_in_every_step() {
    let mut config = config(2);
    config.minibatches = 2;
    // A step with solvers only numbers roles as the batch does.
    let batch = formed(&[mixed(0), solvers(1, 2, true)], &context(&config));
    assert_eq!(batch.roles, ["retry", "solver"]);
    let mut found: Vec<Vec<(usize, u16)>> = Vec::new();
    for step in &batch.minibatches {
        let trained = step.spans.iter().filter(|span| span.mask.contains(&true));
        found.push(trained.map(|span| (span.ids.len(), span.role)).collect());
    }
    found.sort();
    // The first group has 4 tokens of the retry, with its prompt before them, and 2 and 3 of
    // solvers.
    assert_eq!(found, [vec![(2, 1), (2, 1)], vec![(8, 0), (2, 1), (3, 1)]]);
}

/// Groups of conversations of 1 to 3 turns, with kept or cut history and various roles, ages and
/// temperatures.
fn groups() -> impl Strategy<Value = Vec<Bundle>> {
    let turn = (0u32..3, 1usize..4, 0u64..4, any::<bool>(), any::<bool>());
    let conversation = (prop::collection::vec(turn, 1..4), any::<bool>(), 0u8..3);
    prop::collection::vec(prop::collection::vec(conversation, 1..5), 1..6).prop_map(|groups| {
        let of = |(order, conversations): (usize, Vec<_>)| {
            let samples = conversations
                .into_iter()
                .enumerate()
                .map(|(member, (turns, retry, reward))| {
                    let role = if retry { "retry" } else { "solver" };
                    let mut history = vec![1, 2, 3];
                    let mut made = Vec::new();
                    for (bridge, length, age, cut, warm) in turns {
                        if cut {
                            history.truncate(3);
                        }
                        history.push(bridge);
                        let output: Vec<u32> = (0..length as u32)
                            .map(|n| (n * 7 + bridge + member as u32) % 5)
                            .collect();
                        let mut turn = generation(&history, &output);
                        let ages: Vec<u64> = (0..length as u64).map(|n| (age + n) % 4).collect();
                        turn = spanned(turn, &ages);
                        turn.temperature = if warm { 1.0 } else { 0.5 };
                        made.push(turn);
                        history.extend(output);
                    }
                    sample(member as u16, role, f32::from(reward), &made)
                });
            bundle(order as u64, samples.collect())
        };
        groups.into_iter().enumerate().map(of).collect()
    })
}

/// How a token should be trained: (context and itself, behaviour log-prob, advantage, weight,
/// temperature).
type Token = (Vec<u32>, u32, u32, u32, u32);

/// Computes the same straight from the samples, without a forest.
fn expected(groups: &[Bundle], config: &TrainConfig) -> Vec<Token> {
    let mut tokens = Vec::new();
    let all: usize = groups
        .iter()
        .flat_map(samples)
        .flat_map(|s| &s.rows)
        .map(Row::trained_tokens)
        .sum();
    for group in groups {
        let values = advantage::of_group(config.advantage, samples(group)).values;
        for (sample, value) in samples(group).iter().zip(values) {
            for row in &sample.rows {
                let mut at = 0;
                for segment in &row.segments {
                    for offset in 0..segment.len {
                        let position = (segment.start + offset) as usize;
                        if age(segment, offset) <= config.max_staleness {
                            let context = row.ids[..=position].to_vec();
                            let weight = (1.0 / all as f64) as f32;
                            tokens.push((
                                context,
                                row.logprobs[at].to_bits(),
                                (value as f32).to_bits(),
                                weight.to_bits(),
                                segment.temperature.to_bits(),
                            ));
                        }
                        at += 1;
                    }
                }
            }
        }
    }
    tokens.sort();
    tokens
}

fn age(segment: &Segment, offset: u32) -> u64 {
    segment
        .spans
        .iter()
        .find(|s| (s.start..s.end).contains(&offset))
        .unwrap()
        .version
        .step
}

fn samples(bundle: &Bundle) -> &[Sample] {
    match &bundle.content {
        BundleContent::Samples(samples) => samples,
        BundleContent::Empty { .. } | BundleContent::Dead { .. } => &[],
    }
}

fn tokens(batch: &TrainBatch) -> Vec<Token> {
    let mut tokens = Vec::new();
    for row in flatten(batch) {
        for at in (0..row.ids.len()).filter(|at| row.mask[*at]) {
            let of = (
                row.behaviour_lp[at],
                row.advantage[at],
                row.weight[at],
                row.temperature[at],
            );
            tokens.push((
                row.ids[..=at].to_vec(),
                of.0.to_bits(),
                of.1.to_bits(),
                of.2.to_bits(),
                of.3.to_bits(),
            ));
        }
    }
    tokens.sort();
    tokens
}

proptest! {
    #[test]
    fn the_forest_trains_exactly_the_rows(groups in groups(), max_staleness in 0u64..4) {
        let mut config = config(groups.len());
        config.max_staleness = max_staleness;
        let batch = formed(&groups, &context(&config));
        prop_assert_eq!(tokens(&batch.minibatches[0]), expected(&groups, &config));
        for span in &batch.minibatches[0].spans {
            prop_assert!(!span.ids.is_empty());
            prop_assert_eq!(span.ids.len(), span.mask.len());
            prop_assert_eq!(span.ids.len(), span.behaviour_lp.len());
        }
    }

    #[test]
    fn the_steps_of_an_epoch_are_the_batch(groups in groups(), minibatches in 1usize..5, seed: u64) {
        let mut config = config(groups.len());
        (config.minibatches, config.epochs) = (minibatches, 2);
        config.max_staleness = 9;
        let batch = formed(&groups, &BatchContext { seed, ..context(&config) });
        let steps = minibatches.min(groups.len());
        prop_assert_eq!(batch.minibatches.len(), 2 * steps);
        let unweighted = |batches: &[TrainBatch]| {
            let mut all: Vec<_> = batches.iter().flat_map(tokens).map(|t| (t.0, t.1, t.2, t.4)).collect();
            all.sort();
            all
        };
        let (first, second) = batch.minibatches.split_at(steps);
        let mut whole: Vec<_> = expected(&groups, &config).into_iter().map(|t| (t.0, t.1, t.2, t.4)).collect();
        whole.sort();
        prop_assert_eq!(&unweighted(first), &whole);
        prop_assert_eq!(&unweighted(second), &whole);
        let sizes: Vec<u64> = first.iter().map(|m| m.tokens).collect();
        prop_assert_eq!(sizes.iter().sum::<u64>(), batch.stats.tokens);
        prop_assert_eq!(&batch, &formed(&groups, &BatchContext { seed, ..context(&config) }));
    }

    #[test]
    fn recorded_answers_are_the_trained_tokens_of_their_spans(groups in groups(), max_staleness in 0u64..4) {
        let mut config = config(groups.len());
        (config.minibatches, config.max_staleness) = (2, max_staleness);
        let all = BatchContext { records: TokenRecordPolicy::All, ..context(&config) };
        let batch = formed(&groups, &all);
        prop_assert_eq!(batch.answers.len(), batch.minibatches.len());
        for (step, answers) in batch.minibatches.iter().zip(&batch.answers) {
            let mut left: Vec<u32> = step.spans.iter().filter(|s| s.mask.contains(&true)).map(|s| s.answer).collect();
            for answer in answers {
                let spans = step.spans.iter().filter(|span| span.answer == answer.number);
                let in_spans: Vec<u32> = spans.flat_map(|s| s.ids.iter().zip(&s.mask)).filter(|(_, m)| **m).map(|(id, _)| *id).collect();
                let stretches = answer.stretches.iter().flat_map(|s| s.ids.iter().zip(&s.trained));
                let described: Vec<u32> = stretches.filter(|(_, trained)| **trained).map(|(id, _)| *id).collect();
                prop_assert_eq!(described, in_spans);
                left.retain(|number| *number != answer.number);
                let bundle = groups.iter().find(|group| group.group == answer.group).unwrap();
                let is_own = |s: &&Sample| (s.member, &s.role, s.seat) == (answer.member, &answer.role, answer.seat);
                let sample = samples(bundle).iter().find(is_own).unwrap();
                let sampled: usize = sample.rows.iter().map(Row::trained_tokens).sum();
                prop_assert_eq!(answer.stretches.iter().map(|s| s.ids.len()).sum::<usize>(), sampled);
            }
            prop_assert!(left.is_empty(), "{:?} are not described", left);
        }
        let first = formed(&groups, &BatchContext { records: TokenRecordPolicy::First, ..all });
        prop_assert!(first.answers.iter().flatten().all(|answer| answer.member == 0));
        let none = formed(&groups, &BatchContext { records: TokenRecordPolicy::Eval, ..all });
        prop_assert!(none.answers.iter().all(Vec::is_empty));
    }

    #[test]
    fn every_sample_gets_one_verdict(groups in groups(), refill: bool, skip: bool) {
        let mut config = config(groups.len());
        config.zero_advantage = if refill { ZeroAdvantage::Refill } else if skip { ZeroAdvantage::Skip } else { ZeroAdvantage::Keep };
        let batch = formed(&groups, &BatchContext { more: false, ..context(&config) });
        let key = |v: &BatchVerdict| (v.group, v.member, v.role.clone(), v.seat);
        let mut found: Vec<_> = batch.verdicts.iter().map(key).collect();
        let mut all: Vec<_> = groups.iter().flat_map(|g| samples(g).iter().map(|s| (g.group, s.member, s.role.clone(), s.seat))).collect();
        found.sort();
        all.sort();
        prop_assert_eq!(found, all);
    }
}
