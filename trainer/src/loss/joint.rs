//! Losses of many tokens at once: the share of one token depends on the log-probs of others.
//!
//! GSPO has one ratio for an answer, and M2PO one bound for a scope. Each token's [`Share`] holds
//! the derivative of the whole loss by its log-prob, so [`super::head`] needs nothing else. The KL
//! and entropy terms of a policy loss still depend on a single token.

use std::collections::BTreeMap;

use broker::protocol::train::{Loss, M2poMode, M2poScope, Policy, Surrogate};

use super::head::Slope;
use super::m2po::{self, Moment};
use super::ratio::truncated;
use super::sequence::gspo;
use super::surrogate::{finish, token_term};
use super::token::{Term, Token};

/// Log-ratios are clamped to this range, as in [`super::ratio`].
const LOG_RATIO_LIMIT: f64 = 20.0;

/// One trained token among the tokens of one loss call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    pub token: Token,
    /// `w_role * u_s / D`.
    pub weight: f64,
    /// Members with the same number are one answer.
    pub answer: u32,
    /// The token's span in the batch.
    pub span: usize,
    pub offset: usize,
}

/// One token's share of the whole loss, and the loss's derivatives by it. Both include the weight.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Share {
    pub value: f64,
    pub slope: Slope,
    /// True if the token's ratio, or its answer's, was clipped, or if the token was masked.
    pub clipped: bool,
    /// The estimate of the KL to the reference, before coefficient and weight.
    pub reference_kl: f64,
}

/// The tokens that the loss of one token depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Token,
    Answer,
    Microbatch,
    Minibatch,
}

impl Reach {
    #[must_use]
    pub fn of(loss: &Loss) -> Self {
        match loss {
            Loss::Policy(policy) => match policy.surrogate {
                Surrogate::Gspo { .. } => Self::Answer,
                Surrogate::M2po { scope, .. } => match scope {
                    M2poScope::Minibatch => Self::Minibatch,
                    M2poScope::Microbatch => Self::Microbatch,
                },
                _ => Self::Token,
            },
            Loss::CrossEntropy => Self::Token,
        }
    }
}

/// Returns the shares of all `members` and the second moments of M2PO. `members` must hold all
/// tokens that the loss reaches.
#[must_use]
pub fn shares(loss: &Loss, members: &[Member]) -> (Vec<Share>, Moment) {
    match loss {
        Loss::Policy(policy) => match policy.surrogate {
            Surrogate::Gspo { low, high } => {
                let shares = gspo_shares(policy, members, f64::from(low), f64::from(high));
                (shares, Moment::default())
            }
            Surrogate::M2po { mode, budget, .. } => m2po_shares(policy, members, mode, f64::from(budget)),
            _ => (alone(loss, members), Moment::default()),
        },
        Loss::CrossEntropy => (alone(loss, members), Moment::default()),
    }
}

/// The shares of tokens with a loss that depends on no other token.
fn alone(loss: &Loss, members: &[Member]) -> Vec<Share> {
    let share = |member: &Member| weighted(member.weight, &token_term(loss, &member.token).unwrap_or_default());
    members.iter().map(share).collect()
}

pub(super) fn weighted(weight: f64, term: &Term) -> Share {
    Share {
        value: weight * term.value,
        slope: Slope {
            d_logprob: weight * term.d_logprob,
            d_entropy: weight * term.d_entropy,
        },
        clipped: term.clipped,
        reference_kl: term.reference_kl,
    }
}

/// Every token of an answer has the answer's loss, with the token's weight. With `agg = "sequence"`
/// their sum is the published mean over answers. The loss depends on the log-prob of each token of
/// the answer.
fn gspo_shares(policy: &Policy, members: &[Member], low: f64, high: f64) -> Vec<Share> {
    let mut answers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, member) in members.iter().enumerate() {
        answers.entry(member.answer).or_default().push(place);
    }
    let mut shares = vec![Share::default(); members.len()];
    for places in answers.into_values() {
        let of = |value: fn(&Member) -> f64| -> Vec<f64> { places.iter().map(|at| value(&members[*at])).collect() };
        let (now, old) = (of(|m| m.token.logprob), of(|m| m.token.old));
        let answer = gspo(&now, &old, members[places[0]].token.advantage, low, high);
        let weight: f64 = of(|m| m.weight).iter().sum();
        for place in places {
            let member = &members[place];
            let mut share = weighted(member.weight, &finish(policy, Term::default(), &member.token));
            share.value += member.weight * answer.value;
            share.slope.d_logprob += weight * answer.d_logprob;
            share.clipped = answer.clipped;
            shares[place] = share;
        }
    }
    shares
}

fn m2po_shares(policy: &Policy, members: &[Member], mode: M2poMode, budget: f64) -> (Vec<Share>, Moment) {
    let advantages: Vec<f64> = members.iter().map(|m| m.token.advantage).collect();
    // AReaL bounds the distance of the batch's start from the sampler, where these are different
    // policies.
    let from_start = mode == M2poMode::Mask && policy.behaviour_cap.is_some();
    let log_ratio = |token: &Token| {
        let gap = if from_start {
            token.old - token.behaviour
        } else {
            token.logprob - token.old
        };
        gap.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    };
    let log_ratios: Vec<f64> = members.iter().map(|m| log_ratio(&m.token)).collect();
    let bounds = m2po::bounds(mode, &log_ratios, &advantages, budget);
    let grown = growth(members, &bounds.kept);
    let share = |(member, kept): (&Member, &bool)| {
        let token = &member.token;
        let mut term = if *kept {
            m2po::token(&bounds, token.logprob - token.old, token.advantage)
        } else {
            Term {
                clipped: true,
                ..Term::default()
            }
        };
        if let Some(cap) = policy.behaviour_cap {
            term = truncated(term, token.old, token.behaviour, f64::from(cap));
        }
        // The mask affects the surrogate alone. KL and entropy keep every token, with its own
        // weight.
        term.value *= grown;
        term.d_logprob *= grown;
        weighted(member.weight, &finish(policy, term, token))
    };
    (members.iter().zip(&bounds.kept).map(share).collect(), bounds.moment)
}

/// The factor by which the kept tokens weigh more: AReaL's mean is over the tokens that its mask
/// keeps.
fn growth(members: &[Member], kept: &[bool]) -> f64 {
    let all: f64 = members.iter().map(|m| m.weight).sum();
    let left: f64 = members
        .iter()
        .zip(kept)
        .filter(|(_, kept)| **kept)
        .map(|(m, _)| m.weight)
        .sum();
    if left == 0.0 || kept.iter().all(|kept| *kept) {
        1.0
    } else {
        all / left
    }
}

#[cfg(test)]
mod tests;
