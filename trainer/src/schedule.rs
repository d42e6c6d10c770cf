//! Learning rates as a pure function of the step, so that a resumed run continues on the curve.

use configs::{OptimizerConfig, Schedule};

/// The learning rate of optimizer step `step`, counted from 0.
///
/// It climbs linearly over `warmup_steps` (the first step already moves), then stays or falls to 0 at `decay_steps`
/// (`run_steps` if that is 0), counted from the start of the run, and stays 0 after.
#[must_use]
pub fn learning_rate(config: &OptimizerConfig, step: u64, run_steps: u64) -> f64 {
    if step < config.warmup_steps {
        return config.lr * (step + 1) as f64 / config.warmup_steps as f64;
    }
    let end = if config.decay_steps > 0 {
        config.decay_steps
    } else {
        run_steps
    };
    let length = end.saturating_sub(config.warmup_steps).max(1) as f64;
    let progress = ((step - config.warmup_steps) as f64 / length).min(1.0);
    config.lr
        * match config.schedule {
            Schedule::Constant => 1.0,
            Schedule::Linear => 1.0 - progress,
            Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(schedule: Schedule, warmup_steps: u64, decay_steps: u64) -> OptimizerConfig {
        OptimizerConfig {
            lr: 2.0,
            schedule,
            warmup_steps,
            decay_steps,
            ..OptimizerConfig::default()
        }
    }

    #[test]
    fn known_points() {
        let linear = config(Schedule::Linear, 4, 12);
        let at = |step| learning_rate(&linear, step, 1000);
        assert_eq!(
            [at(0), at(3), at(4), at(8), at(12), at(99)],
            [0.5, 2.0, 2.0, 1.0, 0.0, 0.0]
        );
        let cosine = config(Schedule::Cosine, 0, 0);
        assert!((learning_rate(&cosine, 50, 100) - 1.0).abs() < 1e-12);
        assert_eq!(learning_rate(&config(Schedule::Constant, 0, 0), 7, 0), 2.0);
    }

    proptest! {
        #[test]
        fn never_above_the_peak_and_never_rising_after_warmup(
            warmup in 0u64..20, decay in 0u64..60, step in 0u64..100, kind in 0usize..3,
        ) {
            let schedule = [Schedule::Constant, Schedule::Linear, Schedule::Cosine][kind];
            let config = config(schedule, warmup, decay);
            let (now, next) = (learning_rate(&config, step, 80), learning_rate(&config, step + 1, 80));
            prop_assert!((0.0..=2.0).contains(&now));
            if step >= warmup {
                prop_assert!(next <= now + 1e-12);
            }
        }
    }
}
