//! The loss of one token as a plain function of log-probs, with its derivatives in closed form.
//!
//! Nothing here knows tensors: [`head`] turns the derivatives into gradients of the hidden states and of the output matrix.

pub mod head;
mod kl;
mod policy;

pub use kl::k3;
pub use policy::{clipped_policy, ratio};

use broker::protocol::train::Loss;

/// What is known of one trained token. Log-probs are natural logarithms under the token's own temperature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token {
    /// Under the weights that are trained.
    pub logprob: f64,
    /// Under the weights at the start of the batch.
    pub old: f64,
    /// Under the weights that sampled it.
    pub behaviour: f64,
    /// Under the reference policy; unused where no KL term is asked for.
    pub reference: f64,
    pub advantage: f64,
    /// Of the distribution the token was drawn from, under the weights that are trained; nats.
    pub entropy: f64,
}

/// The loss of one token, before its weight, and what it moves with.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Term {
    pub value: f64,
    /// d value / d logprob, entropy held.
    pub d_logprob: f64,
    /// d value / d entropy, logprob held.
    pub d_entropy: f64,
    /// Whether the clip took the gradient away.
    pub clipped: bool,
    /// k3 to the reference, before its coefficient.
    pub reference_kl: f64,
}

/// The loss of one token.
///
/// `Policy`: `-min(r A, clip(r, 1 - low, 1 + high) A) + kl_coef k3(reference) - entropy_coef H` with
/// `r = exp(logprob - old)`. `CrossEntropy`: `-logprob`.
#[must_use]
pub fn token_loss(loss: &Loss, token: &Token) -> Term {
    match *loss {
        Loss::CrossEntropy => Term {
            value: -token.logprob,
            d_logprob: -1.0,
            ..Term::default()
        },
        Loss::Policy {
            clip_low,
            clip_high,
            kl_coef,
            entropy_coef,
        } => {
            let (clip_low, clip_high) = (f64::from(clip_low), f64::from(clip_high));
            let (kl_coef, entropy_coef) = (f64::from(kl_coef), f64::from(entropy_coef));
            let mut term = clipped_policy(token.logprob, token.old, token.advantage, clip_low, clip_high);
            if kl_coef != 0.0 {
                let (kl, d_kl) = k3(token.logprob, token.reference);
                term.value += kl_coef * kl;
                term.d_logprob += kl_coef * d_kl;
                term.reference_kl = kl;
            }
            term.value -= entropy_coef * token.entropy;
            term.d_entropy = -entropy_coef;
            term
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    const POLICY: Loss = Loss::Policy {
        clip_low: 0.2,
        clip_high: 0.28,
        kl_coef: 0.05,
        entropy_coef: 0.01,
    };

    #[test]
    fn derivatives_equal_finite_differences() {
        let step = 1e-6;
        for loss in [POLICY, Loss::CrossEntropy] {
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

    #[test]
    fn a_token_sampled_by_the_same_weights_gets_the_policy_gradient() {
        let on_policy = Loss::Policy {
            clip_low: 0.2,
            clip_high: 0.2,
            kl_coef: 0.0,
            entropy_coef: 0.0,
        };
        let term = token_loss(&on_policy, &token(-1.3, 2.5));
        assert_eq!(term.d_logprob, -2.5);
        assert!(!term.clipped);
    }
}
