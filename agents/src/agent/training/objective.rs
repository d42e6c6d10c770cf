//! The loss of a step: the configured loss, with the entropy bonus that changes over the run.

use broker::protocol::train::Loss;
use configs::{Schedule, TrainConfig};

/// Returns the configured loss of a step.
pub(super) fn loss(config: &TrainConfig, step: u64, steps: u64) -> Loss {
    trainer::loss::configured(config, entropy(config, step, steps))
}

/// Returns true if `step` is the first one after the agent's schedules end: at `steps`, unless
/// `optimizer.decay_steps` is set.
pub(super) fn outlasts(config: &TrainConfig, step: u64, steps: u64) -> bool {
    let moves = config.optimizer.schedule != Schedule::Constant || config.entropy_final.is_some();
    moves && config.optimizer.decay_steps == 0 && step == steps
}

/// The entropy bonus at a step: linear from `entropy` to `entropy_final` over
/// `optimizer.decay_steps`, or over the run if that is 0.
fn entropy(config: &TrainConfig, step: u64, run_steps: u64) -> f64 {
    let steps = match config.optimizer.decay_steps {
        0 => run_steps,
        steps => steps,
    };
    let done = (step as f64 / steps.max(1) as f64).min(1.0);
    config.entropy + (config.entropy_final.unwrap_or(config.entropy) - config.entropy) * done
}

#[cfg(test)]
mod tests {
    use broker::protocol::train::{M2poMode, M2poScope, Policy, Surrogate};

    use super::*;

    fn of(text: &str) -> Policy {
        let config: TrainConfig = toml::from_str(text).unwrap();
        match loss(&config, 0, 10) {
            Loss::Policy(policy) => policy,
            Loss::CrossEntropy => panic!("{text}"),
        }
    }

    #[test]
    fn each_loss_kind_maps_to_its_surrogate() {
        let gspo = of("loss = { kind = \"gspo\", clip_low = 0.0003, clip_high = 0.0004 }");
        assert_eq!(gspo.surrogate, Surrogate::Gspo { low: 3e-4, high: 4e-4 });
        let (low, high) = (0.1, 0.3);
        let grpo = of("loss = { kind = \"grpo\", clip_low = 0.1, clip_high = 0.3, dual_clip = 3.0 }");
        let dual = Some(3.0);
        assert_eq!(grpo.surrogate, Surrogate::Clipped { low, high, dual });
        let cispo = of("loss = { kind = \"cispo\", clip_low = 0.1, clip_high = 0.3 }");
        assert_eq!(cispo.surrogate, Surrogate::Cispo { low, high });
        let m2po = of("loss = { kind = \"m2po\", mode = \"cap\", tau = 0.01, scope = \"microbatch\" }");
        let (mode, scope) = (M2poMode::Cap, M2poScope::Microbatch);
        assert_eq!(
            m2po.surrogate,
            Surrogate::M2po {
                mode,
                budget: 0.01,
                scope
            }
        );
        let default = of("loss.kind = \"m2po\"");
        let (mode, scope) = (M2poMode::Clip, M2poScope::Minibatch);
        assert_eq!(
            default.surrogate,
            Surrogate::M2po {
                mode,
                budget: 0.04,
                scope
            }
        );
    }

    #[test]
    fn a_weight_cap_applies_only_to_a_decoupled_ratio() {
        let cap = |text: &str| of(text).behaviour_cap;
        assert_eq!(cap("loss = { ratio = \"decoupled\", weight_cap = 2.0 }"), Some(2.0));
        assert_eq!(cap("loss.ratio = \"decoupled\""), Some(5.0));
        assert_eq!(cap("loss.weight_cap = 2.0"), None);
    }

    #[test]
    fn the_entropy_bonus_decays_over_the_run_or_decay_steps() {
        let at = |text: &str, step: u64| entropy(&toml::from_str(text).unwrap(), step, 10);
        let run = "entropy = 0.5\nentropy_final = 0.0";
        assert_eq!([0, 5, 10, 99].map(|step| at(run, step)), [0.5, 0.25, 0.0, 0.0]);
        let longer = format!("{run}\noptimizer.decay_steps = 20");
        assert_eq!([0, 5, 10, 20].map(|step| at(&longer, step)), [0.5, 0.375, 0.25, 0.0]);
        assert_eq!(at("entropy = 0.5", 7), 0.5);
    }

    /// The warning comes once, and only if a schedule is configured.
    #[test]
    fn an_agent_that_outlasts_its_schedule_is_warned_once() {
        let warned_at = |text: &str| -> Vec<u64> {
            let config: TrainConfig = toml::from_str(text).unwrap();
            (0..20).filter(|step| outlasts(&config, *step, 10)).collect()
        };
        assert_eq!(warned_at("optimizer.schedule = \"cosine\""), [10]);
        assert_eq!(warned_at("entropy = 0.5\nentropy_final = 0.0"), [10]);
        assert!(warned_at("entropy = 0.5").is_empty());
        assert!(
            warned_at("optimizer = { schedule = \"linear\", decay_steps = 10 }").is_empty(),
            "the configured length"
        );
    }

    #[test]
    fn a_kl_in_the_reward_is_not_in_the_loss() {
        assert_eq!(of("kl = { coef = 0.5 }").kl_coef, 0.5);
        assert_eq!(of("kl = { coef = 0.5, place = \"reward\" }").kl_coef, 0.0);
    }
}
