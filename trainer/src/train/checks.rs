//! Rejects invalid settings of losses and steps before any computation.

use std::collections::HashMap;

use broker::protocol::train::{Loss, OptimStep, Surrogate, TrainBatch};

use super::error::Refusal;
use super::rows::BatchError;
use crate::loss::joint::Reach;

/// Rejects settings that no loss accepts.
pub(super) fn check_loss(loss: &Loss) -> Result<(), Refusal> {
    let Loss::Policy(policy) = loss else { return Ok(()) };
    check_surrogate(policy.surrogate)?;
    at_least_0("kl_coef", policy.kl_coef)?;
    let cap = policy.behaviour_cap.unwrap_or(1.0);
    above("behaviour_cap", cap, 0.0)?;
    if matches!(policy.surrogate, Surrogate::Gspo { .. }) && policy.behaviour_cap.is_some() {
        let rule = "absent: a loss of whole answers has no weight for single tokens";
        return in_range("behaviour_cap", f64::from(cap), false, rule);
    }
    let entropy = policy.entropy_coef;
    in_range("entropy_coef", f64::from(entropy), entropy.is_finite(), "finite")
}

fn check_surrogate(surrogate: Surrogate) -> Result<(), Refusal> {
    match surrogate {
        Surrogate::ImportanceSampling => Ok(()),
        Surrogate::Dro { beta } => at_least_0("beta", beta),
        Surrogate::Cispo { low, high } | Surrogate::Gspo { low, high } => check_clip(low, high),
        Surrogate::M2po { budget, .. } => above("budget", budget, 0.0),
        Surrogate::Clipped { low, high, dual } => {
            check_clip(low, high)?;
            above("dual_clip", dual.unwrap_or(2.0), 1.0)
        }
    }
}

fn check_clip(low: f32, high: f32) -> Result<(), Refusal> {
    in_range("clip_low", f64::from(low), (0.0..=1.0).contains(&low), "in 0..=1")?;
    at_least_0("clip_high", high)
}

fn at_least_0(what: &'static str, value: f32) -> Result<(), Refusal> {
    let fits = value.is_finite() && value >= 0.0;
    in_range(what, f64::from(value), fits, "finite and at least 0")
}

fn above(what: &'static str, value: f32, bound: f32) -> Result<(), Refusal> {
    let rule = if bound == 0.0 {
        "finite and above 0"
    } else {
        "finite and above 1"
    };
    in_range(what, f64::from(value), value.is_finite() && value > bound, rule)
}

/// Rejects answers with several advantages where the loss covers whole answers.
pub(super) fn check_answers(loss: &Loss, batch: &TrainBatch) -> Result<(), BatchError> {
    if Reach::of(loss) != Reach::Answer {
        return Ok(());
    }
    let mut known: HashMap<u32, f32> = HashMap::new();
    for (place, span) in batch.spans.iter().enumerate().filter(|(_, s)| s.mask.contains(&true)) {
        let advantage = *known.entry(span.answer).or_insert(span.advantage);
        if advantage != span.advantage || !span.advantages.is_empty() {
            let answer = span.answer;
            return Err(BatchError::Answer { span: place, answer });
        }
    }
    Ok(())
}

/// Rejects settings that no optimizer step accepts.
pub(super) fn check_optim(params: &OptimStep) -> Result<(), Refusal> {
    let at_least_0 = |value: f64| value.is_finite() && value >= 0.0;
    for (what, value) in [
        ("lr", params.lr),
        ("weight_decay", params.weight_decay),
        ("clip_norm", params.clip_norm),
    ] {
        in_range(what, value, at_least_0(value), "finite and at least 0")?;
    }
    for (what, value) in [("beta1", params.beta1), ("beta2", params.beta2)] {
        in_range(what, value, (0.0..1.0).contains(&value), "at least 0 and below 1")?;
    }
    in_range(
        "eps",
        params.eps,
        params.eps.is_finite() && params.eps > 0.0,
        "finite and above 0",
    )
}

fn in_range(what: &'static str, value: f64, holds: bool, rule: &'static str) -> Result<(), Refusal> {
    if holds {
        Ok(())
    } else {
        Err(Refusal::Setting { what, value, rule })
    }
}
