//! Training: the last batch's figures, and totals over batches.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::histogram::Histogram;

use crate::observe::table::{Labelled, Level, SeriesTable, Total};

/// Bounds for the parts of a training step, in seconds.
const STEP: &[f64] = &[0.01, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0];
/// Bounds for the age of a sample, in steps.
const AGE: &[f64] = &[0.0, 1.0, 2.0, 4.0, 8.0, 16.0];

pub(crate) struct TrainingSeries {
    pub(crate) step_seconds: Labelled<Histogram, 2>,
    pub(crate) swap: Labelled<Histogram, 1>,
    transfer: Labelled<Total, 2>,
    last_step: Labelled<Level, 1>,
    median: Labelled<Level, 1>,
    pub(crate) tokens: Labelled<Total, 3>,
    pub(crate) samples: Labelled<Total, 4>,
    pub(crate) reward_mean: Labelled<Level, 2>,
    pub(crate) reward_std: Labelled<Level, 2>,
    pub(crate) reward_part: Labelled<Level, 3>,
    pub(crate) advantage_zero: Labelled<Level, 2>,
    pub(crate) loss: Labelled<Level, 1>,
    pub(crate) entropy: Labelled<Level, 2>,
    pub(crate) kl: Labelled<Level, 3>,
    pub(crate) clipped: Labelled<Level, 2>,
    pub(crate) grad_norm: Labelled<Level, 1>,
    pub(crate) learning_rate: Labelled<Level, 1>,
    pub(crate) gap: Labelled<Level, 3>,
    pub(crate) skipped: Labelled<Total, 1>,
    pub(crate) alarm: Labelled<Level, 2>,
    pub(crate) staleness: Labelled<Histogram, 2>,
}

impl TrainingSeries {
    pub(super) fn register(table: &mut SeriesTable) -> Self {
        Self {
            step_seconds: table.histogram(
                "dyad_train_step_seconds",
                ["agent", "part"],
                STEP,
                "a step's time by part; `wait` is for the batch",
            ),
            swap: table.histogram(
                "dyad_weight_swap_seconds",
                ["agent"],
                STEP,
                "from the end of a step until the engine serves its weights, or later ones",
            ),
            transfer: table.counter(
                "dyad_weight_transfer_bytes",
                ["agent", "form"],
                "weights that engine processes fetched, `delta` or `whole`",
            ),
            last_step: table.gauge(
                "dyad_train_last_step_timestamp_seconds",
                ["agent"],
                "end of the last batch, or of the start, seconds since 1970",
            ),
            median: table.gauge(
                "dyad_train_step_median_seconds",
                ["agent"],
                "median time of the last 20 batches, with waiting",
            ),
            tokens: table.counter(
                "dyad_train_tokens",
                ["agent", "role", "outcome"],
                "sampled tokens: `trained`, `stale` (too old), `masked` for another reason",
            ),
            samples: table.counter(
                "dyad_train_samples",
                ["agent", "role", "outcome", "reason"],
                "samples, `trained` or `discarded`",
            ),
            reward_mean: table.gauge("dyad_reward_mean", ["agent", "role"], "mean reward, last batch"),
            reward_std: table.gauge("dyad_reward_std", ["agent", "role"], "its standard deviation"),
            reward_part: table.gauge(
                "dyad_reward_part_mean",
                ["agent", "role", "part"],
                "a reward part before its weight",
            ),
            advantage_zero: table.gauge(
                "dyad_advantage_zero_ratio",
                ["agent", "role"],
                "share of groups without a difference in reward",
            ),
            loss: table.gauge("dyad_loss", ["agent"], "loss of the last batch"),
            entropy: table.gauge("dyad_entropy_nats", ["agent", "role"], "entropy per token"),
            kl: table.gauge(
                "dyad_kl_nats",
                ["agent", "role", "of"],
                "KL per token to the `reference` and to the `behaviour` policy",
            ),
            clipped: table.gauge("dyad_clipped_ratio", ["agent", "role"], "share of clipped tokens"),
            grad_norm: table.gauge("dyad_grad_norm", ["agent"], "largest norm before clipping"),
            learning_rate: table.gauge("dyad_learning_rate", ["agent"], "learning rate"),
            gap: table.gauge(
                "dyad_logprob_gap",
                ["agent", "role", "policy"],
                "largest gap of engine and trainer, `on` equal weights and `off` them",
            ),
            skipped: table.counter(
                "dyad_optimizer_skipped_steps",
                ["agent"],
                "steps skipped: the gradient was not finite",
            ),
            alarm: table.gauge(
                "dyad_alarm",
                ["agent", "alarm"],
                "1 if a figure is outside `train.alarms`",
            ),
            staleness: table.histogram(
                "dyad_staleness_steps",
                ["agent", "role"],
                AGE,
                "age of each sample's oldest token",
            ),
        }
    }
}

impl TrainingSeries {
    /// Says that an agent has started and waits for its first batch.
    pub(crate) fn begin(&self, agent: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_step.of([agent]).set(now.as_secs_f64());
    }

    /// Says that an agent has trained a batch. `median` is the time of its last batches.
    pub(crate) fn end_step(&self, agent: &str, median: Option<f64>) {
        self.begin(agent);
        if let Some(median) = median {
            self.median.of([agent]).set(median);
        }
    }

    pub(crate) fn sent_weights(&self, agent: &str) -> SentWeights {
        SentWeights {
            delta: self.transfer.of([agent, "delta"]),
            whole: self.transfer.of([agent, "whole"]),
        }
    }
}

/// Bytes of weights that were sent to engine processes.
#[derive(Debug, Clone)]
pub(crate) struct SentWeights {
    delta: Total,
    whole: Total,
}

impl SentWeights {
    pub(crate) fn count(&self, is_delta: bool, bytes: usize) {
        let total = if is_delta { &self.delta } else { &self.whole };
        total.inc_by(bytes as f64);
    }
}
