//! Builds the loss from a configuration.

use broker::protocol::train::{Kl, Loss, M2poMode, M2poScope, Policy, Surrogate};
use configs::{KlKind, LossKind, Ratio, TrainConfig};

/// Returns the configured loss of a step, with the step's entropy bonus.
#[must_use]
pub fn configured(config: &TrainConfig, entropy: f64) -> Loss {
    let settings = &config.loss;
    let (low, high) = (settings.clip_low as f32, settings.clip_high as f32);
    let surrogate = match settings.kind {
        LossKind::CrossEntropy => return Loss::CrossEntropy,
        LossKind::Grpo => Surrogate::Clipped {
            low,
            high,
            dual: settings.dual_clip.map(|cap| cap as f32),
        },
        LossKind::ImportanceSampling => Surrogate::ImportanceSampling,
        LossKind::Cispo => Surrogate::Cispo { low, high },
        LossKind::Dro => Surrogate::Dro {
            beta: settings.beta as f32,
        },
        LossKind::Gspo => Surrogate::Gspo { low, high },
        LossKind::M2po => Surrogate::M2po {
            mode: match settings.mode {
                configs::M2poMode::Clip => M2poMode::Clip,
                configs::M2poMode::Cap => M2poMode::Cap,
                configs::M2poMode::Mask => M2poMode::Mask,
            },
            budget: settings.tau as f32,
            scope: match settings.scope {
                configs::M2poScope::Minibatch => M2poScope::Minibatch,
                configs::M2poScope::Microbatch => M2poScope::Microbatch,
            },
        },
    };
    let kl_coef = if config.kl_in_reward() { 0.0 } else { config.kl.coef };
    Loss::Policy(Policy {
        surrogate,
        kl: estimate(config.kl.kind),
        kl_coef: kl_coef as f32,
        entropy_coef: entropy as f32,
        behaviour_cap: (settings.ratio == Ratio::Decoupled).then_some(settings.weight_cap as f32),
    })
}

/// Returns the configured KL estimate.
#[must_use]
pub fn estimate(kind: KlKind) -> Kl {
    match kind {
        KlKind::K1 => Kl::K1,
        KlKind::K2 => Kl::K2,
        KlKind::K3 => Kl::K3,
    }
}
