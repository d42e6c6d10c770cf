//! Cross-entropy batches for warm starts: known answers to known prompts.

use broker::protocol::train::{Span, TrainBatch};

/// Makes one optimizer step from (prompt ids, answer ids) pairs. Each answer token weighs `1 /
/// answer tokens of the step`. The first answer token of a pair with an empty prompt is not
/// trained, because it has no context. Pairs without an answer are left out.
#[must_use]
pub fn cross_entropy(pairs: &[(Vec<u32>, Vec<u32>)]) -> TrainBatch {
    let trained =
        |(prompt, answer): &(Vec<u32>, Vec<u32>)| answer.len() - usize::from(prompt.is_empty() && !answer.is_empty());
    let tokens: usize = pairs.iter().map(trained).sum();
    let weight = (1.0 / tokens.max(1) as f64) as f32;
    let span = |pair: &(Vec<u32>, Vec<u32>)| {
        let ids = [&pair.0[..], &pair.1[..]].concat();
        let context = ids.len() - trained(pair);
        Span {
            parent: None,
            mask: (0..ids.len()).map(|at| at >= context).collect(),
            behaviour_lp: vec![0.0; ids.len()],
            old_lp: Vec::new(),
            advantage: 1.0,
            advantages: Vec::new(),
            answer: 0,
            role: 0,
            weight,
            temperature: 1.0,
            on_policy: false,
            ids,
        }
    };
    TrainBatch {
        spans: pairs.iter().filter(|pair| trained(pair) > 0).map(span).collect(),
        tokens: tokens as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::flatten;

    #[test]
    fn every_answer_token_weighs_the_same_and_all_sum_to_1() {
        let pairs = [
            (vec![1, 2], vec![3]),
            (vec![], vec![4, 5, 6]),
            (vec![7], vec![]),
            (vec![8], vec![9]),
        ];
        let batch = cross_entropy(&pairs);
        assert_eq!(batch.tokens, 4);
        let rows = flatten(&batch);
        let masks: Vec<_> = rows.iter().map(|r| r.mask.clone()).collect();
        assert_eq!(
            masks,
            [vec![false, false, true], vec![false, true, true], vec![false, true]]
        );
        let total: f32 = rows
            .iter()
            .flat_map(|r| r.mask.iter().zip(&r.weight))
            .map(|(m, w)| if *m { *w } else { 0.0 })
            .sum();
        assert!((total - 1.0).abs() < 1e-6);
    }
}
