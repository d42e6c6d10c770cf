//! Estimates of a KL divergence from samples.

use broker::protocol::train::Kl;

/// Differences are clamped to this range, where `exp` stays harmless.
const LIMIT: f64 = 20.0;

/// Returns `k3 = exp(d) - d - 1` with `d = other - logprob`, and its derivative by `logprob`,
/// `1 - exp(d)`.
///
/// An unbiased, never negative estimate of KL(policy || other) for tokens drawn from the policy
/// (Schulman, "Approximating KL divergence", 2020). `d` is clamped to +-20; beyond, the derivative
/// is 0.
#[must_use]
pub fn k3(logprob: f64, other: f64) -> (f64, f64) {
    let difference = other - logprob;
    let held = difference.clamp(-LIMIT, LIMIT);
    // exp_m1 keeps the digits of a small difference: k3 is half its square.
    let grown = held.exp_m1();
    let slope = if held == difference { -grown } else { 0.0 };
    (grown - held, slope)
}

/// Returns the estimate of KL(policy || other) and its derivative by `p`.
#[must_use]
pub fn kl_estimate(kind: Kl, p: f64, other: f64) -> (f64, f64) {
    let d = other - p;
    match kind {
        Kl::K1 => (-d, 1.0),
        Kl::K2 => (d * d / 2.0, -d),
        Kl::K3 => k3(p, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derivatives_equal_finite_differences() {
        let step = 1e-6;
        for kl in [Kl::K1, Kl::K2, Kl::K3] {
            for p in [-3.0, -1.0, -0.2] {
                let at = |p: f64| kl_estimate(kl, p, -0.9).0;
                let slope = (at(p + step) - at(p - step)) / (2.0 * step);
                assert!((slope - kl_estimate(kl, p, -0.9).1).abs() < 1e-6, "{kl:?} {p}");
            }
        }
    }

    #[test]
    fn kl_estimates_agree_in_expectation() {
        let policy: [f64; 3] = [0.5, 0.3, 0.2];
        let other: [f64; 3] = [0.45, 0.33, 0.22];
        let exact: f64 = policy.iter().zip(other).map(|(p, o)| p * (p / o).ln()).sum();
        let mean = |kl: Kl| -> f64 {
            policy
                .iter()
                .zip(other)
                .map(|(p, o)| p * kl_estimate(kl, p.ln(), o.ln()).0)
                .sum()
        };
        assert!((mean(Kl::K1) - exact).abs() < 1e-12 && (mean(Kl::K3) - exact).abs() < 1e-12);
        assert!((mean(Kl::K2) / exact - 1.0).abs() < 0.05, "biased, close by");
    }

    #[test]
    fn it_is_the_divergence_in_expectation() {
        let policy: [f64; 3] = [0.5, 0.3, 0.2];
        let other: [f64; 3] = [0.2, 0.3, 0.5];
        let exact: f64 = policy.iter().zip(other).map(|(p, q)| p * (p / q).ln()).sum();
        let mean: f64 = policy.iter().zip(other).map(|(p, q)| p * k3(p.ln(), q.ln()).0).sum();
        assert!((exact - mean).abs() < 1e-12);
        assert_eq!(k3(-1.0, -1.0), (0.0, -0.0));
    }
}
