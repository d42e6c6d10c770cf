//! Values and derivatives equal PyTorch's autograd (libtorch's, through tch) of the published
//! formulas, written with tensors.

use broker::protocol::train::{Kl, Loss, Policy, Surrogate};
use tch::{Kind, Tensor};

use super::*;

const OLD: f64 = -1.3;
const BEHAVIOUR: f64 = -1.15;
const REFERENCE: f64 = -1.7;
/// No value is at the bend of a clip, where the derivative is a matter of convention.
const LOGPROBS: [f64; 10] = [-7.0, -3.1, -1.9, -1.6, -1.42, -1.3, -1.21, -0.9, -0.33, -0.02];

type Formula = fn(&Tensor, f64) -> Tensor;
type Estimate = fn(&Tensor) -> Tensor;

fn clipped(p: &Tensor, a: f64) -> Tensor {
    let ratio = (p - OLD).exp();
    -(&ratio * a).minimum(&(ratio.clamp(0.8, 1.28) * a))
}

fn dual(p: &Tensor, a: f64) -> Tensor {
    let loss = clipped(p, a);
    if a < 0.0 { loss.clamp_max(-1.5 * a) } else { loss }
}

/// `min(exp(old - behaviour), cap)`, without a gradient.
fn weight(cap: f64) -> f64 {
    (OLD - BEHAVIOUR).exp().min(cap)
}

fn surrogates() -> Vec<(&'static str, Surrogate, Option<f32>, Formula)> {
    let (low, high) = (0.2, 0.28);
    let ppo = |dual| Surrogate::Clipped { low, high, dual };
    let cispo: Formula = |p, a| -((p - OLD).exp().clamp(0.8, 1.28).detach() * p * a);
    let dro: Formula = |p, a| -(p * a - (p - OLD).square() * 0.25);
    vec![
        ("ppo", ppo(None), None, clipped),
        ("dual clip", ppo(Some(1.5)), None, dual),
        ("importance sampling", Surrogate::ImportanceSampling, None, |p, a| {
            -((p - OLD).exp() * a)
        }),
        ("cispo", Surrogate::Cispo { low, high }, None, cispo),
        ("dro", Surrogate::Dro { beta: 0.5 }, None, dro),
        ("decoupled", ppo(None), Some(5.0), |p, a| clipped(p, a) * weight(5.0)),
        ("truncated", ppo(None), Some(0.5), |p, a| clipped(p, a) * weight(0.5)),
        (
            "truncated importance sampling",
            Surrogate::ImportanceSampling,
            Some(0.5),
            |p, a| -((p - OLD).exp() * a) * weight(0.5),
        ),
    ]
}

fn kls() -> [(Kl, Estimate); 3] {
    [
        (Kl::K1, |p| p - REFERENCE),
        (Kl::K2, |p| (p - REFERENCE).square() * 0.5),
        (Kl::K3, |p| (REFERENCE - p).exp() - (REFERENCE - p) - 1.0),
    ]
}

/// Compares one loss at every log-prob and advantage.
fn compare(name: &str, policy: Policy, formula: impl Fn(&Tensor, f64) -> Tensor) {
    for advantage in [-1.5, 0.0, 0.7] {
        let p = Tensor::from_slice(&LOGPROBS).set_requires_grad(true);
        let value = formula(&p, advantage);
        value.sum(Kind::Double).backward();
        let (values, slopes) = (Vec::<f64>::try_from(value.detach()).unwrap(), p.grad());
        let slopes = Vec::<f64>::try_from(slopes).unwrap();
        for ((logprob, value), slope) in LOGPROBS.into_iter().zip(values).zip(slopes) {
            let token = Token {
                logprob,
                old: OLD,
                behaviour: BEHAVIOUR,
                reference: REFERENCE,
                advantage,
                entropy: 0.9,
            };
            let term = token_loss(&Loss::Policy(policy), &token);
            // The settings are single precision.
            let near = |a: f64, b: f64| (a - b).abs() < 1e-6 * b.abs().max(1.0);
            assert!(
                near(term.value, value),
                "{name} A {advantage} at {logprob}: {term:?} {value}"
            );
            assert!(
                near(term.d_logprob, slope),
                "{name} A {advantage} at {logprob}: {term:?} {slope}"
            );
        }
    }
}

#[test]
fn surrogates_and_their_weights_are_autograds() {
    for (name, surrogate, behaviour_cap, formula) in surrogates() {
        let policy = Policy {
            surrogate,
            behaviour_cap,
            ..Policy::clipped(0.0, 0.0)
        };
        compare(name, policy, formula);
    }
}

/// The KL is added after the surrogate's weight: it is taken at the policy itself.
#[test]
fn estimates_of_the_kl_are_autograds() {
    for (kl, estimate) in kls() {
        let policy = Policy {
            kl,
            kl_coef: 0.25,
            behaviour_cap: Some(0.5),
            ..Policy::clipped(0.2, 0.28)
        };
        compare(&format!("{kl:?}"), policy, |p, a| {
            clipped(p, a) * weight(0.5) + estimate(p) * 0.25
        });
    }
}
