//! REINFORCE++: the KL to the reference as part of the reward, token by token (Hu et al.,
//! arXiv:2501.03262, equations 5 to 8).

use std::collections::BTreeMap;

use broker::protocol::train::{Kl, TrainBatch};

use super::kl::kl_estimate;

/// Gives every trained token of a batch (all its optimizer steps) its own advantage. It is the
/// advantage of the token's span minus `coef` times the sum of the KL estimates of this token and
/// of the later tokens of its answer. A z-score over all tokens follows.
///
/// The KL is that of the weights at the start of the batch to `reference`. Where log-probs of the
/// start were not computed, the sampler's are used. `reference` holds log-probs step by step and
/// span by span. Returns the mean of the estimates. Returns `None` and changes nothing if the
/// log-probs do not belong to this batch.
#[must_use]
pub fn kl_returns(steps: &mut [TrainBatch], reference: &[Vec<Vec<f32>>], kl: Kl, coef: f64) -> Option<f64> {
    let fits = |(step, lps): (&TrainBatch, &Vec<Vec<f32>>)| {
        let pairs = step.spans.iter().zip(lps);
        step.spans.len() == lps.len() && pairs.into_iter().all(|(span, lps)| span.ids.len() == lps.len())
    };
    if steps.len() != reference.len() || !steps.iter().zip(reference).all(fits) {
        return None;
    }
    let mut places = Vec::new();
    let (mut advantages, mut divergence) = (Vec::new(), 0.0);
    for (at, (step, reference)) in steps.iter().zip(reference).enumerate() {
        for tokens in answers(step).into_values() {
            let kls: Vec<f64> = tokens
                .iter()
                .map(|place| estimate(step, reference, *place, kl))
                .collect();
            divergence += kls.iter().sum::<f64>();
            let reward = f64::from(step.spans[tokens[0].0].advantage);
            advantages.extend(reinforce_plus_plus(reward, &kls, coef));
            places.extend(tokens.into_iter().map(|(span, offset)| (at, span, offset)));
        }
    }
    normalise(&mut advantages);
    for ((at, span, offset), advantage) in places.iter().zip(&advantages) {
        let span = &mut steps[*at].spans[*span];
        span.advantages.resize(span.ids.len(), 0.0);
        span.advantages[*offset] = *advantage as f32;
    }
    Some(divergence / advantages.len().max(1) as f64)
}

/// (span, offset) of the trained tokens of each answer, in their order.
fn answers(step: &TrainBatch) -> BTreeMap<u32, Vec<(usize, usize)>> {
    let mut answers: BTreeMap<u32, Vec<(usize, usize)>> = BTreeMap::new();
    for (at, span) in step.spans.iter().enumerate() {
        let trained = (0..span.ids.len()).filter(|offset| span.mask[*offset]);
        let places: Vec<(usize, usize)> = trained.map(|offset| (at, offset)).collect();
        if !places.is_empty() {
            answers.entry(span.answer).or_default().extend(places);
        }
    }
    answers
}

fn estimate(step: &TrainBatch, reference: &[Vec<f32>], (at, offset): (usize, usize), kl: Kl) -> f64 {
    let span = &step.spans[at];
    let sampler = span.behaviour_lp.get(offset).copied().unwrap_or(0.0);
    let start = span.old_lp.get(offset).copied().unwrap_or(sampler);
    kl_estimate(kl, f64::from(start), f64::from(reference[at][offset])).0
}

/// The advantage of REINFORCE++ before its normalisation over the batch: the reward of the whole
/// answer minus `beta` times the sum of the KL estimates `k1` of this token and the later ones (Hu
/// et al., arXiv:2501.03262, equation 5).
#[must_use]
pub fn reinforce_plus_plus(reward: f64, k1: &[f64], beta: f64) -> Vec<f64> {
    let mut to_come = 0.0;
    let mut advantages: Vec<f64> = k1
        .iter()
        .rev()
        .map(|kl| {
            to_come += kl;
            reward - beta * to_come
        })
        .collect();
    advantages.reverse();
    advantages
}

/// Replaces each advantage by `(A - mean) / sqrt(max(variance, 1e-8))` over all tokens of a batch,
/// with the biased variance. Without the floor, differences by rounding alone (all rewards equal, a
/// KL near 0) would become advantages near 1.
pub fn normalise(advantages: &mut [f64]) {
    let count = advantages.len().max(1) as f64;
    let mean = advantages.iter().sum::<f64>() / count;
    let variance = advantages.iter().map(|a| (a - mean) * (a - mean)).sum::<f64>() / count;
    let std = variance.max(1e-8).sqrt();
    advantages.iter_mut().for_each(|a| *a = (*a - mean) / std);
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::protocol::train::Span;

    #[test]
    fn reinforce_plus_plus_pays_for_the_divergence_to_come() {
        assert_eq!(reinforce_plus_plus(1.0, &[0.5, 0.25, -0.25], 0.1), [0.95, 1.0, 1.025]);
        let mut advantages = vec![1.0, 3.0, 5.0];
        normalise(&mut advantages);
        assert!((advantages[2] - 1.224_744_9).abs() < 1e-6 && advantages[1].abs() < 1e-12);
        let mut rounding = vec![1.0, 1.0 + 2e-8, 1.0 - 3e-8];
        normalise(&mut rounding);
        assert!(rounding.iter().all(|a| a.abs() < 1e-3), "{rounding:?}");
    }

    /// A context, an answer of two spans in different rows, and an answer of a single token.
    fn step(rewards: [f32; 2]) -> TrainBatch {
        let span = |parent, mask: &[bool], advantage, answer| Span {
            parent,
            ids: vec![1; mask.len()],
            mask: mask.to_vec(),
            behaviour_lp: vec![-1.0; mask.len()],
            advantage,
            answer,
            ..Span::default()
        };
        let spans = vec![
            span(None, &[false], 0.0, 0),
            span(Some(0), &[true, false, true], rewards[0], 0),
            span(Some(0), &[true], rewards[1], 1),
            span(None, &[false, true], rewards[0], 0),
        ];
        TrainBatch { spans, tokens: 4 }
    }

    #[test]
    fn a_token_pays_for_its_answer_to_the_end_and_the_batch_is_one() {
        let mut steps = [step([1.0, 0.0]), step([0.5, 2.0])];
        let reference: Vec<Vec<f32>> = vec![vec![-9.0], vec![-1.5, -9.0, -1.25], vec![-0.5], vec![-9.0, -2.0]];
        let mean = kl_returns(&mut steps, &[reference.clone(), reference], Kl::K1, 0.1).unwrap();
        // k1 = old - reference: 0.5, 0.25, then 1.0 in the second row; -0.5 for the other answer.
        assert!((mean - (0.5 + 0.25 + 1.0 - 0.5) / 4.0).abs() < 1e-7, "{mean}");
        let mut raw: Vec<f64> = [(1.0, 0.0), (0.5, 2.0)]
            .iter()
            .flat_map(|(a, b)| [a - 0.175, a - 0.125, a - 0.1, b + 0.05])
            .collect();
        normalise(&mut raw);
        let got: Vec<f64> = steps
            .iter()
            .flat_map(|s| {
                let at = |span: usize, offset: usize| f64::from(s.spans[span].advantages[offset]);
                [at(1, 0), at(1, 2), at(3, 1), at(2, 0)]
            })
            .collect();
        assert!(
            raw.iter().zip(&got).all(|(a, b)| (a - b).abs() < 1e-6),
            "{raw:?} {got:?}"
        );
        assert!(steps[0].spans[0].advantages.is_empty() && steps[0].spans[1].advantages[1] == 0.0);
        assert!((got.iter().sum::<f64>()).abs() < 1e-6, "no push on the whole");
    }

    #[test]
    fn other_log_probs_change_nothing() {
        let mut steps = [step([1.0, 0.0])];
        let before = steps.clone();
        assert_eq!(kl_returns(&mut steps, &[vec![vec![0.0]]], Kl::K1, 0.1), None);
        assert_eq!(kl_returns(&mut steps, &[], Kl::K1, 0.1), None);
        assert_eq!(steps, before);
    }
}
