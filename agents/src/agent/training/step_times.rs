//! Accounts for the wall time of a training step, from the end of the step before.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use broker::protocol::train::TrainCommand;

/// A part of a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepPart {
    /// The checkpoint after the step before.
    Checkpoint,
    /// Recording the batch's verdicts in the ledger.
    Ledger,
    /// Log-probs of the current weights or of the reference, before the first optimizer step.
    OldLogprobs,
    ForwardBackward,
    Optimizer,
    Publish,
}

impl StepPart {
    /// Returns the part that a command belongs to.
    pub(super) fn of(command: &TrainCommand) -> Option<Self> {
        match command {
            TrainCommand::Forward { .. } => Some(Self::OldLogprobs),
            TrainCommand::ForwardBackward { .. } => Some(Self::ForwardBackward),
            TrainCommand::OptimStep { .. } => Some(Self::Optimizer),
            TrainCommand::Publish { .. } => Some(Self::Publish),
            // The whole checkpoint is timed, not only this command of it.
            TrainCommand::SaveState { .. } | TrainCommand::LoadState { .. } | TrainCommand::Sample { .. } => None,
        }
    }
}

/// The metrics of the parts, in the order of [`StepPart`].
pub(in crate::agent) const METRICS: [&str; 6] = [
    "time/checkpoint_s",
    "time/ledger_s",
    "time/old_logprobs_s",
    "time/forward_backward_s",
    "time/optimizer_s",
    "time/publish_s",
];

/// The number of steps that the median is over.
const RECENT: usize = 20;

/// Returns the name of a part from its metric, `time/PART_s`.
pub(in crate::agent) fn part(metric: &'static str) -> &'static str {
    metric.trim_start_matches("time/").trim_end_matches("_s")
}

/// Stopwatches of one step.
#[derive(Debug)]
pub(super) struct StepTimes {
    /// The end of the step before.
    since: Instant,
    wait: Duration,
    parts: [Duration; METRICS.len()],
    /// The times of the last steps, in seconds.
    recent: VecDeque<f64>,
    /// False for a step that `recent` leaves out.
    counts: bool,
}

impl StepTimes {
    pub(super) fn start(now: Instant) -> Self {
        Self {
            since: now,
            wait: Duration::ZERO,
            parts: Default::default(),
            recent: VecDeque::with_capacity(RECENT),
            counts: true,
        }
    }

    /// Says if the next step counts for the median. A recorded batch, which waits for nothing, does
    /// not.
    pub(super) fn count_next(&mut self, counts: bool) {
        self.counts = counts;
    }

    pub(super) fn add(&mut self, part: StepPart, spent: Duration) {
        self.parts[part as usize] += spent;
    }

    /// Begins a step: what has passed so far was waiting, apart from the checkpoint and from work
    /// that belongs to no step, such as a warm start.
    pub(super) fn begin(&mut self, now: Instant) {
        let worked: Duration = self.parts.iter().sum();
        self.wait = now.saturating_duration_since(self.since).saturating_sub(worked);
        let checkpoint = self.parts[StepPart::Checkpoint as usize];
        self.parts = Default::default();
        self.parts[StepPart::Checkpoint as usize] = checkpoint;
    }

    /// Returns how long the step waited for its batch.
    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    /// Ends the step. Returns its metrics, in seconds.
    pub(super) fn end(&mut self, now: Instant) -> Vec<(&'static str, f64)> {
        if self.counts {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            let took = now.saturating_duration_since(self.since);
            self.recent.push_back(took.as_secs_f64());
        }
        let parts = METRICS.into_iter().zip(std::mem::take(&mut self.parts));
        let times = std::iter::once(("time/wait_s", std::mem::take(&mut self.wait)))
            .chain(parts)
            .map(|(name, spent)| (name, spent.as_secs_f64()))
            .collect();
        self.since = now;
        times
    }

    /// Returns the median time of the last [`RECENT`] steps, in seconds; none before the first.
    pub(super) fn median(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.recent.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let (upper, lower) = (sorted.get(sorted.len() / 2)?, sorted.get((sorted.len() - 1) / 2)?);
        Some(f64::midpoint(*lower, *upper))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_waiting_add_up_to_the_time_between_the_ends_of_steps() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        let mut times = StepTimes::start(start);
        // A warm start belongs to no step.
        times.add(StepPart::ForwardBackward, ms(40));
        times.begin(at(100));
        times.add(StepPart::ForwardBackward, ms(30));
        times.add(StepPart::ForwardBackward, ms(20));
        times.add(StepPart::Optimizer, ms(5));
        let found = times.end(at(160));
        let of = |found: &[(&str, f64)], name: &str| {
            let found = found.iter().find(|(other, _)| *other == name).unwrap().1;
            (found * 1e3).round() as u64
        };
        assert_eq!(of(&found, "time/wait_s"), 60);
        assert_eq!(of(&found, "time/forward_backward_s"), 50);
        assert_eq!(of(&found, "time/optimizer_s"), 5);
        times.add(StepPart::Checkpoint, ms(25));
        times.begin(at(200));
        assert_eq!(times.wait(), ms(15));
        times.add(StepPart::Publish, ms(10));
        let found = times.end(at(210));
        let total: u64 = found.iter().map(|(name, _)| of(&found, name)).sum();
        assert_eq!((of(&found, "time/checkpoint_s"), total), (25, 50));
    }

    #[test]
    fn median_is_of_the_last_20_steps_that_count() {
        let mut now = Instant::now();
        let mut times = StepTimes::start(now);
        let mut step = |seconds: u64, counts: bool| {
            times.count_next(counts);
            times.begin(now);
            now += Duration::from_secs(seconds);
            times.end(now);
            times.median()
        };
        assert_eq!(step(1, false), None, "a recorded batch");
        assert_eq!((step(900, true), step(2, true)), (Some(900.0), Some(451.0)));
        assert_eq!(step(4, true), Some(4.0), "one long step moves it little");
        for _ in 0..17 {
            step(4, true);
        }
        assert_eq!(step(6, false), Some(4.0));
        let ten: Vec<_> = (0..10).map(|_| step(6, true)).collect();
        assert_eq!(ten.last(), Some(&Some(5.0)), "the oldest steps are forgotten");
    }
}
