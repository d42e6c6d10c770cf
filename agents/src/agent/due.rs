//! Makes the lead agent wait for a scheduled evaluation. Coordinators announce in their heartbeats
//! at which of its steps the next evaluation is, and the agent begins no batch there before the
//! evaluation was made. A hold (`holds.rs`) that is requested only after that step was seen would
//! come too late, and later the faster training is.
//!
//! The wait ends, like a hold, when coordinators are silent for a lease, and after
//! `eval.hold_at_most` in any case.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::protocol::control::RunPhase;
use configs::{Mode, RunConfig};
use tokio::time::Instant;

use super::holds::lease;

/// The coordinators' announcements of the next evaluation.
#[derive(Debug)]
pub(crate) struct Due {
    /// Silence after which a coordinator's announcement expires.
    lease: Duration,
    /// The time at which listening began; `None` once any coordinator was received.
    listening: Option<Instant>,
    /// The last announcement, by the coordinator's incarnation.
    received: BTreeMap<String, Announcement>,
}

#[derive(Debug)]
struct Announcement {
    seq: u64,
    at: Instant,
    /// A step of the lead agent.
    step: Option<u64>,
}

impl Due {
    /// `run_lease` is the silence after which a peer counts as gone.
    pub(crate) fn new(run_lease: Duration, now: Instant) -> Self {
        Self {
            lease: lease(run_lease),
            listening: Some(now),
            received: BTreeMap::new(),
        }
    }

    /// Records a coordinator's heartbeat `seq`: the step of its next evaluation, or `None` if it
    /// waits for none. Returns true if that is news.
    pub(crate) fn record(&mut self, coordinator: &str, seq: u64, step: Option<u64>, now: Instant) -> bool {
        let first = self.listening.take().is_some();
        self.received
            .retain(|_, received| now.duration_since(received.at) < self.lease);
        let known = self.received.get(coordinator);
        if known.is_some_and(|known| seq <= known.seq) {
            return first;
        }
        let news = known.is_none_or(|known| known.step != step);
        self.received
            .insert(coordinator.to_owned(), Announcement { seq, at: now, step });
        first || news
    }

    /// The step of the next evaluation, and when its announcement expires unless repeated. With
    /// several coordinators the latest step counts: a coordinator with an earlier step has not yet
    /// learned that another made that evaluation.
    fn next(&self, now: Instant) -> Option<(u64, Instant)> {
        let words = self.received.values().filter_map(|received| {
            let end = received.at + self.lease;
            received.step.filter(|_| now < end).map(|step| (step, end))
        });
        words.max()
    }

    /// The time at which an agent that has received no coordinator yet stops listening.
    fn listens_until(&self) -> Option<Instant> {
        self.listening.map(|since| since + self.lease)
    }
}

/// The time that the lead agent has waited.
#[derive(Debug)]
pub(crate) struct EvaluationWait {
    /// The longest wait for one evaluation.
    most: Duration,
    /// The evaluation's step, and since when it is waited for.
    since: Option<(u64, Instant)>,
}

impl EvaluationWait {
    /// Returns `None` if the agent never waits: it is not the lead, evaluations are not held for,
    /// or the run is in rounds, which begin after evaluations.
    pub(crate) fn of(config: &RunConfig, agent: &broker::AgentName) -> Option<Self> {
        let eval = &config.eval;
        let waits = config.lead() == Some(agent) && config.run.mode == Mode::Async && eval.hold && eval.every > 0;
        waits.then_some(Self {
            most: eval.hold_at_most.0,
            since: None,
        })
    }

    /// Until when no batch is begun at `step` unless more is received; `None` if a batch may begin.
    pub(crate) fn until(&mut self, phase: RunPhase, step: u64, due: &Due, now: Instant) -> Option<Instant> {
        // An operator who pauses or drains a run waits for no evaluation.
        if !matches!(phase, RunPhase::Starting | RunPhase::Running) {
            return None;
        }
        // A restarted agent may resume at exactly the step of an evaluation.
        if let Some(end) = due.listens_until() {
            return Some(end).filter(|end| now < *end);
        }
        let (next, end) = due.next(now).filter(|(next, _)| step >= *next)?;
        let known = self.since.filter(|(known, _)| *known == next);
        let (_, since) = *self.since.insert(known.unwrap_or((next, now)));
        Some(end.min(since + self.most)).filter(|end| now < *end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEASE: Duration = Duration::from_secs(15);
    const MOST: Duration = Duration::from_secs(60);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn listening() -> (Due, EvaluationWait, Instant) {
        let start = Instant::now();
        let waiting = EvaluationWait {
            most: MOST,
            since: None,
        };
        (Due::new(LEASE, start), waiting, start)
    }

    #[test]
    fn no_batch_begins_at_an_evaluation_s_step_before_it_is_made() {
        let (mut due, mut waiting, now) = listening();
        assert!(due.record("c", 1, Some(0), now));
        let mut at = |due: &Due, step| waiting.until(RunPhase::Running, step, due, now).is_some();
        assert!(at(&due, 0), "before the first batch");
        assert!(due.record("c", 2, Some(4), now) && !due.record("c", 3, Some(4), now));
        assert!(!at(&due, 3) && at(&due, 4) && at(&due, 5), "or later, if it was missed");
        assert!(due.record("c", 4, None, now), "no coordinator waits any more");
        assert!(!at(&due, 4));
        assert!(!due.record("c", 3, Some(4), now), "it was overtaken in transit");
        assert!(!at(&due, 4));
    }

    #[test]
    fn a_run_that_is_paused_or_drained_waits_for_no_evaluation() {
        let (mut due, mut waiting, now) = listening();
        due.record("c", 1, Some(4), now);
        let mut waits = |phase| waiting.until(phase, 4, &due, now).is_some();
        assert!(waits(RunPhase::Starting) && waits(RunPhase::Running));
        assert!(!waits(RunPhase::Paused) && !waits(RunPhase::Draining) && !waits(RunPhase::Closed));
    }

    #[test]
    fn the_latest_announced_evaluation_counts() {
        let (mut due, mut waiting, now) = listening();
        due.record("c", 1, Some(8), now);
        due.record("d", 1, Some(4), now);
        assert_eq!(waiting.until(RunPhase::Running, 4, &due, now), None);
        assert!(waiting.until(RunPhase::Running, 8, &due, now).is_some());
    }

    #[test]
    fn the_wait_for_a_gone_coordinator_ends_after_a_lease() {
        let (mut due, mut waiting, start) = listening();
        let mut until = |due: &Due, after| waiting.until(RunPhase::Running, 4, due, start + after);
        assert_eq!(
            until(&due, seconds(3)),
            Some(start + LEASE),
            "no coordinator was received yet"
        );
        assert_eq!(until(&due, LEASE), None);
        due.record("c", 1, Some(4), start + seconds(20));
        assert_eq!(until(&due, seconds(21)), Some(start + seconds(35)));
        assert_eq!(until(&due, seconds(35)), None);
        due.record("d", 1, Some(4), start + seconds(40));
        assert!(until(&due, seconds(41)).is_some(), "the next one evaluates");
    }

    #[test]
    fn the_wait_for_one_evaluation_ends_though_it_is_repeated() {
        let (mut due, mut waiting, start) = listening();
        for second in 0..200 {
            let now = start + seconds(second);
            due.record("c", second + 1, Some(4), now);
            assert_eq!(waiting.until(RunPhase::Running, 3, &due, now), None);
            let waits = waiting.until(RunPhase::Running, 4, &due, now).is_some();
            assert_eq!(waits, second < 60, "second {second}");
        }
        let now = start + seconds(200);
        due.record("c", 1000, Some(8), now);
        assert!(
            waiting.until(RunPhase::Running, 8, &due, now).is_some(),
            "each evaluation has its own wait"
        );
    }

    #[test]
    fn only_the_lead_of_an_asynchronous_run_waits() {
        let name = |name: &str| broker::AgentName::new(name).unwrap();
        let mut config = crate::run_folder::tests::config_in(std::path::Path::new("."));
        (config.run.mode, config.eval.every) = (Mode::Async, 4);
        let waits = |config: &RunConfig, agent: &str| EvaluationWait::of(config, &name(agent)).is_some();
        assert!(waits(&config, "a") && !waits(&config, "b"));
        let changes: [fn(&mut RunConfig); 3] = [
            |config| config.run.mode = Mode::Sync,
            |config| config.eval.every = 0,
            |config| config.eval.hold = false,
        ];
        for change in changes {
            let mut other = config.clone();
            change(&mut other);
            assert!(!waits(&other, "a"));
        }
    }

    proptest! {
        /// Whatever was received: a lease after the last heartbeat no agent waits, and every wait
        /// has an end.
        #[test]
        fn no_agent_waits_a_lease_after_the_last_heartbeat(
            said in prop::collection::vec((0..3u8, 0..40u64, prop::option::of(0..20u64), 0..20u64), 0..40),
            step in 0..20u64,
        ) {
            let (mut due, mut waiting, mut now) = listening();
            for (coordinator, seq, next, pause) in said {
                now += seconds(pause);
                due.record(&coordinator.to_string(), seq, next, now);
                if let Some(end) = waiting.until(RunPhase::Running, step, &due, now) {
                    prop_assert!(end > now && end <= now + LEASE);
                }
            }
            prop_assert_eq!(waiting.until(RunPhase::Running, step, &due, now + LEASE), None);
        }
    }
}
