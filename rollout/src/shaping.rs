//! The cost of an answer's length. n is the number of tokens that a seat sampled in a conversation,
//! over all its turns.

use configs::{LengthConfig, OverlongConfig};

/// Returns DAPO's soft overlong punishment (arXiv:2503.14476, equation 13), from -`penalty` to 0: 0
/// up to `from`, -(n - from) / (to - from) x penalty up to `to`, -penalty beyond.
#[must_use]
pub fn overlong(tokens: u64, rule: &OverlongConfig) -> f64 {
    let (from, to) = (u64::from(rule.from), u64::from(rule.to));
    if tokens <= from {
        0.0
    } else if tokens > to {
        -rule.penalty
    } else {
        let share = (tokens - from) as f64 / (to - from) as f64;
        -rule.penalty * share
    }
}

/// Returns the distance from the target length, from -`weight` to 0: -weight x min(1, |n - target|
/// / target). This is L1's exact length reward (arXiv:2503.04697, equation 1), in units of the
/// target and bounded.
#[must_use]
pub fn length(tokens: u64, rule: &LengthConfig) -> f64 {
    let target = f64::from(rule.target.max(1));
    let distance = (tokens as f64 - target).abs() / target;
    if distance == 0.0 {
        return 0.0;
    }
    -rule.weight * distance.min(1.0)
}

/// Returns Kimi k1.5's length penalty (arXiv:2501.12599, section 2.3.3) of the answers of one
/// group, from -0.5 to 0.5. With lambda = 0.5 - (n - min) / (max - min), a right answer has lambda
/// and a wrong one min(0, lambda). It is 0 for all if all are equally long.
#[must_use]
pub fn length_penalty(answers: &[AnswerLength]) -> Vec<f64> {
    let lengths = || answers.iter().map(|answer| answer.tokens);
    let (Some(least), Some(most)) = (lengths().min(), lengths().max()) else {
        return Vec::new();
    };
    if least == most {
        return vec![0.0; answers.len()];
    }
    let one = |answer: &AnswerLength| {
        let lambda = 0.5 - (answer.tokens - least) as f64 / (most - least) as f64;
        if answer.right { lambda } else { lambda.min(0.0) }
    };
    answers.iter().map(one).collect()
}

/// An answer, as the comparison of lengths needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerLength {
    pub tokens: u64,
    pub right: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAPO: OverlongConfig = OverlongConfig {
        from: 3072,
        to: 4096,
        penalty: 1.0,
    };

    fn answers(of: &[(u64, bool)]) -> Vec<AnswerLength> {
        of.iter()
            .map(|(tokens, right)| AnswerLength {
                tokens: *tokens,
                right: *right,
            })
            .collect()
    }

    #[test]
    fn overlong_falls_in_a_straight_line_to_its_penalty() {
        let expected = [
            (0, 0.0),
            (3072, 0.0),
            (3328, -0.25),
            (3584, -0.5),
            (4096, -1.0),
            (4097, -1.0),
            (9000, -1.0),
        ];
        for (tokens, value) in expected {
            assert_eq!(overlong(tokens, &DAPO), value, "{tokens}");
        }
        let half = OverlongConfig { penalty: 0.5, ..DAPO };
        assert_eq!(overlong(3584, &half), -0.25);
    }

    #[test]
    fn the_distance_from_a_length_counts_on_both_sides() {
        let rule = LengthConfig {
            target: 100,
            weight: 0.5,
        };
        for (tokens, value) in [
            (100, 0.0),
            (50, -0.25),
            (150, -0.25),
            (0, -0.5),
            (200, -0.5),
            (900, -0.5),
        ] {
            assert_eq!(length(tokens, &rule), value, "{tokens}");
        }
    }

    #[test]
    fn short_right_answers_gain_and_no_wrong_one_does() {
        let mixed = answers(&[
            (100, true),
            (300, true),
            (200, true),
            (150, false),
            (250, false),
            (100, false),
        ]);
        assert_eq!(length_penalty(&mixed), [0.5, -0.5, 0.0, 0.0, -0.25, 0.0]);
        assert_eq!(length_penalty(&answers(&[(7, true), (7, false)])), [0.0, 0.0]);
        assert_eq!(length_penalty(&answers(&[(7, true)])), [0.0]);
        assert!(length_penalty(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn all_are_bounded_and_longer_is_never_better(
            from in 0..5000u32, more in 1..5000u32, weight in 0.0..4.0f64,
            lengths in prop::collection::vec((0..20_000u64, any::<bool>()), 1..12),
        ) {
            let rule = OverlongConfig { from, to: from + more, penalty: weight };
            let near = LengthConfig { target: more, weight };
            let mut sorted = answers(&lengths);
            sorted.sort_by_key(|answer| answer.tokens);
            let penalties = length_penalty(&sorted);
            for (a, first) in sorted.iter().enumerate() {
                prop_assert!((-weight..=0.0).contains(&overlong(first.tokens, &rule)));
                prop_assert!((-weight..=0.0).contains(&length(first.tokens, &near)));
                prop_assert!((-0.5..=0.5).contains(&penalties[a]));
                prop_assert!(first.right || penalties[a] <= 0.0);
                for (b, second) in sorted.iter().enumerate().skip(a) {
                    prop_assert!(overlong(first.tokens, &rule) >= overlong(second.tokens, &rule));
                    prop_assert!(first.right != second.right || penalties[a] >= penalties[b]);
                    if first.tokens >= u64::from(more) {
                        prop_assert!(length(first.tokens, &near) >= length(second.tokens, &near));
                    }
                }
            }
        }
    }
}
