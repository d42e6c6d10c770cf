//! The loss of a token that depends on no other token.

use broker::protocol::train::{Loss, Policy, Surrogate};

use super::kl::kl_estimate;
use super::policy::clipped_policy;
use super::ratio::{cispo, dro, dual_clipped_policy, importance_sampling, truncated};
use super::token::{Term, Token};

/// Returns the loss of one token before its weight. Returns `None` where the surrogate needs other
/// tokens ([`super::joint`]).
pub(super) fn token_term(loss: &Loss, token: &Token) -> Option<Term> {
    match loss {
        Loss::CrossEntropy => Some(Term {
            value: -token.logprob,
            d_logprob: -1.0,
            ..Term::default()
        }),
        Loss::Policy(policy) => policy_term(policy, token),
    }
}

fn policy_term(policy: &Policy, token: &Token) -> Option<Term> {
    let mut term = surrogate(policy.surrogate, token)?;
    if let Some(cap) = policy.behaviour_cap {
        term = truncated(term, token.old, token.behaviour, f64::from(cap));
    }
    Some(finish(policy, term, token))
}

/// Adds the KL term and the entropy bonus.
pub(super) fn finish(policy: &Policy, mut term: Term, token: &Token) -> Term {
    let (kl_coef, entropy_coef) = (f64::from(policy.kl_coef), f64::from(policy.entropy_coef));
    if kl_coef != 0.0 {
        let (kl, d_kl) = kl_estimate(policy.kl, token.logprob, token.reference);
        term.value += kl_coef * kl;
        term.d_logprob += kl_coef * d_kl;
        term.reference_kl = kl;
    }
    term.value -= entropy_coef * token.entropy;
    term.d_entropy = -entropy_coef;
    term
}

/// Returns the surrogate of a single token, or `None` where it needs other tokens.
fn surrogate(surrogate: Surrogate, token: &Token) -> Option<Term> {
    let (p, old, advantage) = (token.logprob, token.old, token.advantage);
    Some(match surrogate {
        Surrogate::Clipped { low, high, dual: None } => {
            clipped_policy(p, old, advantage, f64::from(low), f64::from(high))
        }
        Surrogate::Clipped {
            low,
            high,
            dual: Some(cap),
        } => dual_clipped_policy(p, old, advantage, f64::from(low), f64::from(high), f64::from(cap)),
        Surrogate::ImportanceSampling => importance_sampling(p, old, advantage),
        Surrogate::Cispo { low, high } => cispo(p, old, advantage, 1.0 - f64::from(low), 1.0 + f64::from(high)),
        Surrogate::Dro { beta } => dro(p, old, advantage, f64::from(beta)),
        Surrogate::Gspo { .. } | Surrogate::M2po { .. } => return None,
    })
}
