//! The clipped importance-weighted policy gradient.

use super::token::Term;

/// Log-ratios are clamped to this range, so that one extreme token cannot make the sum infinite.
const LOG_RATIO_LIMIT: f64 = 20.0;

/// Returns `exp(logprob - old)`, with the log-ratio clamped to +-20.
#[must_use]
pub fn ratio(logprob: f64, old: f64) -> f64 {
    (logprob - old).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
}

/// Returns `-min(r A, clip(r, 1 - low, 1 + high) A)` with `r = exp(logprob - old)`. Its derivative
/// is `-r A` where the minimum is the unclipped branch, and 0 elsewhere.
///
/// PPO (Schulman et al., arXiv:1707.06347, equation 7); two bounds as in DAPO (arXiv:2503.14476,
/// equation 10).
#[must_use]
pub fn clipped_policy(logprob: f64, old: f64, advantage: f64, low: f64, high: f64) -> Term {
    policy_between(logprob, old, advantage, 1.0 - low, 1.0 + high)
}

/// The same as [`clipped_policy`], with the ratio clipped to `least..=most`.
#[must_use]
pub fn policy_between(logprob: f64, old: f64, advantage: f64, least: f64, most: f64) -> Term {
    let log_ratio = logprob - old;
    let r = ratio(logprob, old);
    let free = r * advantage;
    let bound = r.clamp(least, most) * advantage;
    let clipped = bound < free;
    let held = log_ratio.abs() > LOG_RATIO_LIMIT;
    Term {
        value: -free.min(bound),
        d_logprob: if clipped || held { 0.0 } else { -free },
        clipped,
        ..Term::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clip_is_one_sided_and_asymmetric() {
        let clipped = |ratio: f64, advantage: f64| clipped_policy(ratio.ln(), 0.0, advantage, 0.2, 0.5).clipped;
        assert!(clipped(1.51, 1.0) && !clipped(1.49, 1.0) && !clipped(0.1, 1.0));
        assert!(clipped(0.79, -1.0) && !clipped(0.81, -1.0) && !clipped(9.0, -1.0));
    }

    #[test]
    fn absurd_ratios_stay_finite() {
        for logprob in [-1e4, 1e4] {
            let term = clipped_policy(logprob, 0.0, -1.0, 0.2, 0.2);
            assert!(term.value.is_finite() && term.d_logprob == 0.0, "{term:?}");
        }
    }
}
