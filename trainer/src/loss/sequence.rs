//! GSPO: one ratio for a whole answer (Zheng et al., "Group Sequence Policy Optimization",
//! arXiv:2507.18071).

use super::policy::clipped_policy;

/// The loss of one answer and its derivative.
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceTerm {
    pub value: f64,
    /// d value / d log-prob of a token, equal for all tokens.
    pub d_logprob: f64,
    pub clipped: bool,
}

/// Returns `-min(s A, clip(s, 1 - low, 1 + high) A)` with `s = exp(mean over tokens of (p - q))`,
/// the geometric mean of the ratios. An answer without tokens has no loss.
#[must_use]
pub fn gspo(logprobs: &[f64], behaviour: &[f64], advantage: f64, low: f64, high: f64) -> SequenceTerm {
    let count = logprobs.len().min(behaviour.len());
    if count == 0 {
        return SequenceTerm {
            value: 0.0,
            d_logprob: 0.0,
            clipped: false,
        };
    }
    let gap: f64 = logprobs.iter().zip(behaviour).map(|(p, q)| p - q).sum();
    let term = clipped_policy(gap / count as f64, 0.0, advantage, low, high);
    SequenceTerm {
        value: term.value,
        d_logprob: term.d_logprob / count as f64,
        clipped: term.clipped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derivatives_equal_finite_differences() {
        let behaviour = [-1.0, -0.5, -2.0];
        for (shift, advantage) in [(0.0, 1.0), (0.3, 1.0), (-0.4, -2.0), (0.1, -0.5), (-0.3, 0.5)] {
            let logprobs: Vec<f64> = behaviour.iter().map(|q| q + shift + 0.01 * q).collect();
            let term = gspo(&logprobs, &behaviour, advantage, 0.2, 0.2);
            for token in 0..3 {
                let at = |by: f64| {
                    let mut moved = logprobs.clone();
                    moved[token] += by;
                    gspo(&moved, &behaviour, advantage, 0.2, 0.2).value
                };
                let slope = (at(1e-6) - at(-1e-6)) / 2e-6;
                assert!((slope - term.d_logprob).abs() < 1e-7, "{shift} {advantage}: {slope}");
            }
        }
    }

    #[test]
    fn one_token_is_ppo_and_none_is_nothing() {
        let ppo = clipped_policy(-0.8, -1.0, 1.5, 0.2, 0.2);
        let one = gspo(&[-0.8], &[-1.0], 1.5, 0.2, 0.2);
        assert!((one.value - ppo.value).abs() < 1e-12 && (one.d_logprob - ppo.d_logprob).abs() < 1e-12);
        assert_eq!(gspo(&[], &[], 1.0, 0.2, 0.2).value, 0.0);
    }
}
