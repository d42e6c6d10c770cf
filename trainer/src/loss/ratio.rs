//! Losses of one token that weigh the log-prob by a ratio of policies.
//!
//! The caller weighs and sums them. `p` is the log-prob under the trained weights, `q` under the
//! weights that sampled. Derivatives are by `p`.

use super::policy::{clipped_policy, ratio};
use super::token::Term;

/// Returns `-exp(p - q) A`: the importance-weighted policy gradient, unbounded (Kakade and Langford
/// 2002; Tinker's `importance_sampling`).
#[must_use]
pub fn importance_sampling(p: f64, q: f64, advantage: f64) -> Term {
    let value = -ratio(p, q) * advantage;
    Term {
        value,
        d_logprob: if is_held(p, q) { 0.0 } else { value },
        ..Term::default()
    }
}

/// Returns `-sg(clip(r, low, high)) p A`. The ratio is only a weight, so every token keeps its
/// gradient (CISPO; MiniMax-M1, arXiv:2506.13585, equation 4). `low` and `high` bound the ratio
/// itself.
#[must_use]
pub fn cispo(p: f64, q: f64, advantage: f64, low: f64, high: f64) -> Term {
    let r = ratio(p, q);
    let weight = r.clamp(low, high);
    Term {
        value: -weight * p * advantage,
        d_logprob: -weight * advantage,
        clipped: weight != r,
        ..Term::default()
    }
}

/// Returns `-(p A - beta/2 (p - q)^2)`: direct reward optimisation with a quadratic pull to the
/// sampler (Richemond et al., arXiv:2405.19107; Tinker's `dro`). Mask the tokens before: the pull
/// acts even where A is 0.
#[must_use]
pub fn dro(p: f64, q: f64, advantage: f64, beta: f64) -> Term {
    let gap = p - q;
    Term {
        value: -(p * advantage - beta / 2.0 * gap * gap),
        d_logprob: -advantage + beta * gap,
        ..Term::default()
    }
}

/// The clipped policy gradient with a loss of at most `-cap A` for a negative advantage, with
/// `cap > 1`. A token that is much more likely under the new policy than under the old one cannot
/// dominate (dual clip; Ye et al., arXiv:1912.09729, equation 5).
#[must_use]
pub fn dual_clipped_policy(p: f64, old: f64, advantage: f64, low: f64, high: f64, cap: f64) -> Term {
    let term = clipped_policy(p, old, advantage, low, high);
    let bound = -cap * advantage;
    if advantage < 0.0 && term.value > bound {
        return Term {
            value: bound,
            d_logprob: 0.0,
            clipped: true,
            ..term
        };
    }
    term
}

/// The policy gradient clipped around a proximal policy `old`, weighed by `min(exp(old - q), cap)`.
/// The weight is not a function of the trained weights (decoupled PPO, Hilton et al.,
/// arXiv:2110.00641; AReaL, arXiv:2505.24298). With an infinite `cap` the weight stays as it is.
#[must_use]
pub fn decoupled_policy(p: f64, old: f64, q: f64, advantage: f64, low: f64, high: f64, cap: f64) -> Term {
    truncated(clipped_policy(p, old, advantage, low, high), old, q, cap)
}

/// Weighs a loss by `min(exp(old - q), cap)`: truncated importance sampling, for an engine with
/// log-probs `q` that differ from the trainer's `old` for the same weights (Yao et al., "Your
/// efficient RL framework secretly brings you off-policy RL training", 2025).
#[must_use]
pub fn truncated(term: Term, old: f64, q: f64, cap: f64) -> Term {
    let weight = ratio(old, q).min(cap);
    Term {
        value: weight * term.value,
        d_logprob: weight * term.d_logprob,
        d_entropy: weight * term.d_entropy,
        ..term
    }
}

/// Returns true if [`ratio`] clamps the ratio, where its derivative is 0.
fn is_held(p: f64, q: f64) -> bool {
    ratio(p, q) != (p - q).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Loss = (&'static str, fn(f64, f64) -> Term);

    const OLD: f64 = -1.1;
    const Q: f64 = -1.25;

    fn losses() -> Vec<Loss> {
        vec![
            ("importance_sampling", |p, a| importance_sampling(p, Q, a)),
            ("dro", |p, a| dro(p, Q, a, 0.05)),
            ("dual", |p, a| dual_clipped_policy(p, OLD, a, 0.2, 0.28, 3.0)),
            ("decoupled", |p, a| {
                decoupled_policy(p, OLD, Q, a, 0.2, 0.2, f64::INFINITY)
            }),
            ("truncated", |p, a| {
                truncated(clipped_policy(p, OLD, a, 0.2, 0.2), OLD, Q, 1.05)
            }),
        ]
    }

    #[test]
    fn derivatives_equal_finite_differences() {
        let step = 1e-6;
        for (name, loss) in losses() {
            for advantage in [-1.5, 0.0, 0.7] {
                for p in [-4.0, -1.4, -1.24, -1.0, -0.3, -0.01] {
                    let slope = (loss(p + step, advantage).value - loss(p - step, advantage).value) / (2.0 * step);
                    let got = loss(p, advantage).d_logprob;
                    assert!((slope - got).abs() < 1e-6, "{name} A {advantage} p {p}: {slope} {got}");
                }
            }
        }
    }

    #[test]
    fn cispo_weighs_without_moving_its_weight() {
        let step = 1e-6;
        for p in [-3.0, -1.2, -0.2] {
            let weight = ratio(p, Q).clamp(0.0, 1.5);
            // The derivative is that of the value with a constant weight.
            let value = |p: f64| -weight * p * 0.7;
            let slope = (value(p + step) - value(p - step)) / (2.0 * step);
            let term = cispo(p, Q, 0.7, 0.0, 1.5);
            assert!((slope - term.d_logprob).abs() < 1e-6 && (term.value - value(p)).abs() < 1e-12);
            assert_eq!(term.clipped, ratio(p, Q) > 1.5);
        }
    }

    #[test]
    fn the_second_clip_bounds_what_a_bad_token_can_do() {
        let plain = clipped_policy(0.9, -1.0, -1.0, 0.2, 0.2);
        assert!(plain.value > 6.0 && plain.d_logprob > 6.0);
        let dual = dual_clipped_policy(0.9, -1.0, -1.0, 0.2, 0.2, 3.0);
        assert_eq!((dual.value, dual.d_logprob, dual.clipped), (3.0, 0.0, true));
        let good = dual_clipped_policy(0.9, -1.0, 1.0, 0.2, 0.2, 3.0);
        assert_eq!(good, clipped_policy(0.9, -1.0, 1.0, 0.2, 0.2));
    }

    #[test]
    fn decoupled_from_an_equal_proximal_policy_is_plain() {
        let plain = clipped_policy(-1.0, Q, 0.5, 0.2, 0.2);
        assert_eq!(decoupled_policy(-1.0, Q, Q, 0.5, 0.2, 0.2, f64::INFINITY), plain);
        let capped = truncated(plain, -0.1, -2.0, 1.0);
        assert_eq!(capped, plain, "a weight above the cap is the cap");
    }
}
