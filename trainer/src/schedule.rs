//! Learning rates as a pure function of the step, so that a resumed run continues on the curve.

use configs::{OptimizerConfig, Schedule};

/// The learning rate of optimizer step `step`, counted from 0.
///
/// The rate rises linearly over `warmup_steps`; the first step already has a rate above 0. Then it
/// stays constant, or falls to `min_lr` at `decay_steps` (`run_steps` if that is 0), counted from
/// the start of the run, and stays there. The formula is `min_lr + (lr - min_lr) f`, with `f`
/// falling from 1 to 0: transformers' `cosine_with_min_lr` (half a cycle), and for `linear` its
/// `polynomial` of power 1 with `lr_end`.
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
    let left = match config.schedule {
        Schedule::Constant => return config.lr,
        Schedule::Linear => 1.0 - progress,
        Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
    };
    config.min_lr + (config.lr - config.min_lr) * left
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

    /// transformers' `_get_cosine_with_min_lr_schedule_with_warmup_lr_lambda` with half a cycle,
    /// times the peak.
    fn cosine_with_min_lr(step: u64, warmup: u64, total: u64, peak: f64, min_lr: f64) -> f64 {
        if step < warmup {
            return peak * step as f64 / warmup.max(1) as f64;
        }
        let progress = (step - warmup) as f64 / (total - warmup).max(1) as f64;
        let factor = 0.5 * (1.0 + (std::f64::consts::PI * 0.5 * 2.0 * progress).cos());
        let rate = min_lr / peak;
        peak * (factor * (1.0 - rate) + rate).max(0.0)
    }

    #[test]
    fn a_floor_is_where_the_fall_ends() {
        for schedule in [Schedule::Linear, Schedule::Cosine] {
            let floored = OptimizerConfig {
                min_lr: 0.5,
                ..config(schedule, 4, 12)
            };
            let at = |step| learning_rate(&floored, step, 1000);
            // `min_lr` does not affect the rise. Half-way down, both schedules are at the midpoint.
            assert_eq!([at(0), at(3), at(4)], [0.5, 2.0, 2.0]);
            assert!((at(8) - 1.25).abs() < 1e-12);
            assert_eq!([at(12), at(13), at(999)], [0.5, 0.5, 0.5]);
        }
        let cosine = OptimizerConfig {
            min_lr: 0.2,
            ..config(Schedule::Cosine, 10, 100)
        };
        for step in 10..=100 {
            let wanted = cosine_with_min_lr(step, 10, 100, 2.0, 0.2);
            assert!((learning_rate(&cosine, step, 0) - wanted).abs() < 1e-12, "{step}");
        }
    }

    proptest! {
        #[test]
        fn never_above_the_peak_and_never_rising_after_warmup(
            warmup in 0u64..20, decay in 0u64..60, step in 0u64..100, kind in 0usize..3, min_lr in 0f64..2.0,
        ) {
            let schedule = [Schedule::Constant, Schedule::Linear, Schedule::Cosine][kind];
            let config = OptimizerConfig { min_lr, ..config(schedule, warmup, decay) };
            let (now, next) = (learning_rate(&config, step, 80), learning_rate(&config, step + 1, 80));
            prop_assert!((0.0..=2.0).contains(&now));
            if step >= warmup {
                prop_assert!(next <= now + 1e-12);
                prop_assert!(now >= min_lr - 1e-12);
            }
        }
    }
}
