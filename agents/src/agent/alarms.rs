//! Collapse alarms: logs a warning when a figure of a batch leaves its bounds in `train.alarms`,
//! and an info line when it returns.

use std::collections::BTreeSet;

use broker::AgentName;
use configs::AlarmsConfig;
use rollout::batch::BatchStats;

/// The figures of one batch that alarms watch. A figure is `None` if the batch does not have it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BatchFigures {
    /// The fraction of an answer that repeats itself.
    pub repetition: Option<f64>,
    /// The fraction of a group's answers that equal another answer of the same role.
    pub sameness: Option<f64>,
    /// Mean tokens per sample.
    pub tokens: Option<f64>,
    /// Nats per token.
    pub entropy: Option<f64>,
}

impl BatchFigures {
    #[must_use]
    pub fn of(stats: &BatchStats, entropy: f64) -> Self {
        Self {
            repetition: stats.repetition.get(),
            sameness: stats.sameness.get(),
            tokens: stats.tokens_per_sample.get(),
            entropy: (stats.trained_tokens > 0).then_some(entropy),
        }
    }
}

/// One figure out of bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alarm {
    /// The key of `train.alarms`.
    pub name: &'static str,
    pub value: f64,
    pub limit: f64,
}

/// Returns an alarm for every figure that is out of bounds.
#[must_use]
pub fn raised(config: &AlarmsConfig, seen: &BatchFigures) -> Vec<Alarm> {
    let above = |value: f64, limit: f64| value > limit;
    let below = |value: f64, limit: f64| value < limit;
    type Beyond<'a> = &'a dyn Fn(f64, f64) -> bool;
    let watched: [(&'static str, Option<f64>, Option<f64>, Beyond<'_>); 5] = [
        ("repetition", seen.repetition, config.repetition, &above),
        ("sameness", seen.sameness, config.sameness, &above),
        ("least_tokens", seen.tokens, config.least_tokens, &below),
        ("most_tokens", seen.tokens, config.most_tokens, &above),
        ("entropy", seen.entropy, config.entropy, &below),
    ];
    let alarm = |(name, value, limit, beyond): &(&'static str, Option<f64>, Option<f64>, Beyond<'_>)| {
        let (value, limit) = ((*value)?, (*limit)?);
        beyond(value, limit).then_some(Alarm { name, value, limit })
    };
    watched.iter().filter_map(alarm).collect()
}

/// The number of batches without anything to learn after which a warning is due.
const IDLE: u32 = 20;

/// The alarms of one agent, from batch to batch.
#[derive(Debug, Default)]
pub struct Alarms {
    /// The names of the alarms that the previous batch raised.
    raised: BTreeSet<&'static str>,
    /// Batches in succession in which no group had different rewards, or no token trained.
    idle: u32,
}

impl Alarms {
    /// Counts a batch. Logs a warning and returns true at the [`IDLE`]th batch in succession from
    /// which nothing can be learned.
    pub fn count_idle(&mut self, agent: &AgentName, step: u64, is_idle: bool) -> bool {
        self.idle = if is_idle { self.idle.saturating_add(1) } else { 0 };
        let due = self.idle == IDLE;
        if due {
            tracing::warn!(
                %agent,
                step,
                "nothing is learned from the last {IDLE} batches: every group had equal rewards, or every sample was \
                 discarded. The tasks are too easy or too hard, their grader is wrong (`dyad conversations`), or all \
                 answers are truncated or stale (`dyad report`)"
            );
        }
        due
    }

    /// Logs the alarms that began or ended since the previous batch. `alarms` are those of this
    /// batch; the next call compares with them.
    pub fn log_changes(&mut self, agent: &AgentName, step: u64, alarms: &[Alarm]) {
        for Alarm { name, value, limit } in alarms.iter().filter(|alarm| !self.raised.contains(alarm.name)) {
            tracing::warn!(%agent, step, alarm = name, value, limit, "the policy may be collapsing: see train.alarms");
        }
        let now: BTreeSet<&'static str> = alarms.iter().map(|alarm| alarm.name).collect();
        for name in self.raised.difference(&now) {
            tracing::info!(%agent, step, alarm = name, "within its bounds again");
        }
        self.raised = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_without_anything_to_learn_are_warned_of_once() {
        let (mut alarms, agent) = (Alarms::default(), AgentName::new("a").unwrap());
        let mut warned = |is_idle| alarms.count_idle(&agent, 1, is_idle);
        assert!((1..IDLE).all(|_| !warned(true)) && !warned(false));
        assert!((1..IDLE).all(|_| !warned(true)), "counted from 0 again");
        assert!(warned(true) && !warned(true));
    }

    #[test]
    fn only_watched_figures_out_of_bounds_raise_alarms() {
        let config: AlarmsConfig =
            toml::from_str("repetition = 0.5\nsameness = 0.9\nleast_tokens = 2\nmost_tokens = 100\nentropy = 0.1")
                .unwrap();
        let names = |config: &AlarmsConfig, seen: BatchFigures| -> Vec<&'static str> {
            raised(config, &seen).iter().map(|alarm| alarm.name).collect()
        };
        let good = BatchFigures {
            repetition: Some(0.5),
            sameness: Some(0.2),
            tokens: Some(50.0),
            entropy: Some(0.1),
        };
        assert_eq!(names(&config, good), [""; 0]);
        assert_eq!(names(&config, BatchFigures::default()), [""; 0]);
        let circles = BatchFigures {
            repetition: Some(0.6),
            sameness: Some(1.0),
            tokens: Some(101.0),
            entropy: Some(0.01),
        };
        assert_eq!(
            names(&config, circles),
            ["repetition", "sameness", "most_tokens", "entropy"]
        );
        let silence = BatchFigures {
            tokens: Some(1.0),
            ..good
        };
        assert_eq!(names(&config, silence), ["least_tokens"]);
        assert_eq!(names(&AlarmsConfig::default(), circles), [""; 0]);
    }
}
