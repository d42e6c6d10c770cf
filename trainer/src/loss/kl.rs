//! The k3 estimate of a KL divergence from samples.

/// Differences are held to this band: `exp` of it is still harmless.
const LIMIT: f64 = 20.0;

/// `k3 = exp(d) - d - 1` with `d = other - logprob`, and its derivative by `logprob`, `1 - exp(d)`.
///
/// An unbiased, never negative estimate of KL(policy || other) for tokens drawn from the policy (Schulman, "Approximating
/// KL divergence", 2020). `d` is held to +-20, where the derivative is 0.
#[must_use]
pub fn k3(logprob: f64, other: f64) -> (f64, f64) {
    let difference = other - logprob;
    let held = difference.clamp(-LIMIT, LIMIT);
    // exp_m1 keeps the digits of a small difference: k3 is its square, halved.
    let grown = held.exp_m1();
    let slope = if held == difference { -grown } else { 0.0 };
    (grown - held, slope)
}

#[cfg(test)]
mod tests {
    use super::*;

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
