//! The loss of a single token, for every kind of [`Loss`].

use broker::protocol::train::Loss;

use super::joint::{self, Member, Share};
use super::surrogate::token_term;
use super::token::{Term, Token};

/// Returns the loss of one token. [`Policy`](broker::protocol::train::Policy) and
/// [`Surrogate`](broker::protocol::train::Surrogate) give the formulas. `CrossEntropy` is
/// `-logprob`.
///
/// The decoupled loss (`behaviour_cap`) is equation 5 of Hilton, Cobbe, Schulman, "Batch
/// size-invariance for policy optimization", arXiv:2110.00641. Its weight is truncated like in
/// Espeholt et al., arXiv:1802.01561.
#[must_use]
pub fn token_loss(loss: &Loss, token: &Token) -> Term {
    token_term(loss, token).unwrap_or_else(|| alone(loss, token))
}

/// Returns the token's share of the whole loss. Exact only for a loss that looks at each token
/// alone.
#[must_use]
pub fn share(loss: &Loss, member: &Member) -> Share {
    joint::weighted(member.weight, &token_loss(loss, &member.token))
}

/// Returns a joint loss for a batch that holds only this token.
fn alone(loss: &Loss, token: &Token) -> Term {
    let member = Member {
        token: *token,
        weight: 1.0,
        answer: 0,
        span: 0,
        offset: 0,
    };
    let (shares, _) = joint::shares(loss, &[member]);
    shares.first().map_or_else(Term::default, |share| Term {
        value: share.value,
        d_logprob: share.slope.d_logprob,
        d_entropy: share.slope.d_entropy,
        clipped: share.clipped,
        reference_kl: share.reference_kl,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::protocol::train::{Kl, Policy, Surrogate};

    fn token(logprob: f64, advantage: f64) -> Token {
        Token {
            logprob,
            old: -1.3,
            behaviour: -1.2,
            reference: -1.7,
            advantage,
            entropy: 1.1,
        }
    }

    const POLICY: Loss = Loss::Policy(Policy {
        kl_coef: 0.05,
        entropy_coef: 0.01,
        ..Policy::clipped(0.2, 0.28)
    });

    const DECOUPLED: Loss = Loss::Policy(Policy {
        kl_coef: 0.05,
        entropy_coef: 0.01,
        behaviour_cap: Some(2.0),
        ..Policy::clipped(0.2, 0.28)
    });

    #[test]
    fn derivatives_equal_finite_differences() {
        let step = 1e-6;
        let with = |surrogate| {
            Loss::Policy(Policy {
                surrogate,
                kl: Kl::K2,
                kl_coef: 0.05,
                ..Policy::clipped(0.0, 0.0)
            })
        };
        let dual = Surrogate::Clipped {
            low: 0.2,
            high: 0.28,
            dual: Some(1.5),
        };
        let others = [dual, Surrogate::ImportanceSampling, Surrogate::Dro { beta: 0.5 }].map(with);
        for loss in [POLICY, DECOUPLED, Loss::CrossEntropy].into_iter().chain(others) {
            for advantage in [-1.5, 0.0, 0.7] {
                for logprob in [-6.0, -2.0, -1.3, -1.2, -0.4, -0.01] {
                    let at = |lp: f64, entropy: f64| {
                        let mut token = token(lp, advantage);
                        token.entropy += entropy;
                        token_loss(&loss, &token).value
                    };
                    let term = token_loss(&loss, &token(logprob, advantage));
                    let slope = (at(logprob + step, 0.0) - at(logprob - step, 0.0)) / (2.0 * step);
                    assert!(
                        (slope - term.d_logprob).abs() < 1e-6,
                        "{loss:?} A {advantage} lp {logprob}: {slope}"
                    );
                    let slope = (at(logprob, step) - at(logprob, -step)) / (2.0 * step);
                    assert!((slope - term.d_entropy).abs() < 1e-6, "{loss:?} entropy: {slope}");
                }
            }
        }
    }

    /// While the policy still equals the sampler, all surrogates have the policy gradient.
    #[test]
    fn on_policy_every_surrogate_is_the_policy_gradient() {
        for surrogate in [
            Surrogate::Clipped {
                low: 0.2,
                high: 0.2,
                dual: Some(3.0),
            },
            Surrogate::ImportanceSampling,
            Surrogate::Cispo { low: 0.2, high: 0.2 },
            Surrogate::Dro { beta: 0.5 },
        ] {
            let loss = Loss::Policy(Policy {
                surrogate,
                ..Policy::clipped(0.0, 0.0)
            });
            for advantage in [2.5, -0.5] {
                let term = token_loss(&loss, &token(-1.3, advantage));
                assert!(
                    (term.d_logprob + advantage).abs() < 1e-12 && !term.clipped,
                    "{surrogate:?}"
                );
            }
        }
    }

    #[test]
    fn a_clipped_token_keeps_its_gradient_under_cispo_only() {
        let far = token(-0.3, 1.0);
        let slope = |surrogate| {
            let loss = Loss::Policy(Policy {
                surrogate,
                ..Policy::clipped(0.0, 0.0)
            });
            let term = token_loss(&loss, &far);
            assert!(term.clipped, "{surrogate:?}");
            term.d_logprob
        };
        let clipped = Surrogate::Clipped {
            low: 0.2,
            high: 0.2,
            dual: None,
        };
        assert_eq!(slope(clipped), 0.0);
        assert!((slope(Surrogate::Cispo { low: 0.2, high: 0.2 }) + 1.2).abs() < 1e-6);
    }

    #[test]
    fn a_token_sampled_by_the_same_weights_gets_the_policy_gradient() {
        let on_policy = Loss::Policy(Policy::clipped(0.2, 0.2));
        let term = token_loss(&on_policy, &token(-1.3, 2.5));
        assert_eq!(term.d_logprob, -2.5);
        assert!(!term.clipped);
    }

    #[test]
    fn decoupled_clips_around_the_batch_and_weighs_by_the_behaviour() {
        let plain = |behaviour_cap| {
            Loss::Policy(Policy {
                behaviour_cap,
                ..Policy::clipped(0.2, 0.2)
            })
        };
        // Inputs: r, the ratio to the weights at the batch's start; `start`, the ratio of those
        // weights to the sampling weights; the advantage A. With w = min(start, 3), the value is
        // -w min(r A, clip(r) A), and the slope is -w r A, or 0 if the token is clipped.
        for (r, start, advantage, value, slope) in [
            (1.1_f64, 0.5_f64, 2.0, -1.1, -1.1),
            (1.5, 0.5, 2.0, -1.2, 0.0),
            (0.5, 0.5, 2.0, -0.5, -0.5),
            (0.5, 0.5, -2.0, 0.8, 0.0),
            (1.1, 8.0, 1.0, -3.3, -3.3),
        ] {
            let old = -2.0;
            let token = Token {
                logprob: old + r.ln(),
                old,
                behaviour: old - start.ln(),
                advantage,
                ..token(0.0, 0.0)
            };
            let term = token_loss(&plain(Some(3.0)), &token);
            assert!((term.value - value).abs() < 1e-6, "{token:?}: {term:?}");
            assert!((term.d_logprob - slope).abs() < 1e-6, "{token:?}: {term:?}");
            // If the weights at the batch's start also sampled the token, then w = 1, and the
            // decoupled loss equals the plain one.
            let same = Token {
                behaviour: old,
                ..token
            };
            assert_eq!(token_loss(&plain(Some(3.0)), &same), token_loss(&plain(None), &same));
        }
    }
}
