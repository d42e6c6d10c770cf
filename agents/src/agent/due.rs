//! Where the lead agent waits for an evaluation unasked: coordinators say in their heartbeats at which of its steps the next one is
//! made, and it begins no batch there before it has been. Asked for only when its step was heard, a hold (`holds.rs`) would come
//! late, the later the quicker training is.
//!
//! Like a hold, this ends when coordinators are silent for a lease, and after `eval.hold_at_most` in any case.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::protocol::control::RunPhase;
use configs::{Mode, RunConfig};
use tokio::time::Instant;

use super::holds::lease;

/// What coordinators say of the next evaluation.
#[derive(Debug)]
pub(crate) struct Due {
    /// After how long a coordinator that is silent counts for nothing.
    lease: Duration,
    /// When we began to listen, while nobody was heard.
    listening: Option<Instant>,
    /// By the coordinator's incarnation.
    heard: BTreeMap<String, Heard>,
}

#[derive(Debug)]
struct Heard {
    seq: u64,
    at: Instant,
    /// Step of the lead agent.
    step: Option<u64>,
}

impl Due {
    /// `run_lease`: after how long in this run who is silent counts as away.
    pub(crate) fn new(run_lease: Duration, now: Instant) -> Self {
        Self {
            lease: lease(run_lease),
            listening: Some(now),
            heard: BTreeMap::new(),
        }
    }

    /// A coordinator says, in its heartbeat of number `seq`, at which step it evaluates next, or that it waits for none. Answers whether
    /// that is news.
    pub(crate) fn hear(&mut self, coordinator: &str, seq: u64, step: Option<u64>, now: Instant) -> bool {
        let first = self.listening.take().is_some();
        self.heard.retain(|_, heard| now.duration_since(heard.at) < self.lease);
        let known = self.heard.get(coordinator);
        if known.is_some_and(|known| seq <= known.seq) {
            return first;
        }
        let news = known.is_none_or(|known| known.step != step);
        self.heard.insert(coordinator.to_owned(), Heard { seq, at: now, step });
        first || news
    }

    /// The step of the next evaluation, and when that word is over if it is not heard again. Of several coordinators the latest counts:
    /// who says less has not heard yet what another has made.
    fn next(&self, now: Instant) -> Option<(u64, Instant)> {
        let words = self.heard.values().filter_map(|heard| {
            let end = heard.at + self.lease;
            heard.step.filter(|_| now < end).map(|step| (step, end))
        });
        words.max()
    }

    /// When an agent that has heard nobody yet listens no longer.
    fn listens_until(&self) -> Option<Instant> {
        self.listening.map(|since| since + self.lease)
    }
}

/// The lead's own part: how long it has waited.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// How long it waits at most for one evaluation.
    most: Duration,
    /// For the evaluation at this step, since when.
    since: Option<(u64, Instant)>,
}

impl Waiting {
    /// None of an agent, or a run, in which nobody waits: not the lead, without evaluations that are held for, or in rounds, which begin
    /// after them.
    pub(crate) fn of(config: &RunConfig, agent: &broker::AgentName) -> Option<Self> {
        let eval = &config.eval;
        let waits = config.lead() == Some(agent) && config.run.mode == Mode::Async && eval.hold && eval.every > 0;
        waits.then_some(Self {
            most: eval.hold_at_most.0,
            since: None,
        })
    }

    /// Until when no batch is begun at `step` if nothing more is heard; None: one may be.
    pub(crate) fn until(&mut self, phase: RunPhase, step: u64, due: &Due, now: Instant) -> Option<Instant> {
        // Who pauses or drains a run waits for no evaluation.
        if !matches!(phase, RunPhase::Starting | RunPhase::Running) {
            return None;
        }
        // One that comes back may come back at just the step of an evaluation.
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

    fn listening() -> (Due, Waiting, Instant) {
        let start = Instant::now();
        let waiting = Waiting {
            most: MOST,
            since: None,
        };
        (Due::new(LEASE, start), waiting, start)
    }

    #[test]
    fn no_batch_is_begun_at_the_step_of_an_evaluation_before_it_is_made() {
        let (mut due, mut waiting, now) = listening();
        assert!(due.hear("c", 1, Some(0), now));
        let mut at = |due: &Due, step| waiting.until(RunPhase::Running, step, due, now).is_some();
        assert!(at(&due, 0), "before the first batch");
        assert!(due.hear("c", 2, Some(4), now) && !due.hear("c", 3, Some(4), now));
        assert!(!at(&due, 3) && at(&due, 4) && at(&due, 5), "or later, if it was missed");
        assert!(due.hear("c", 4, None, now), "nobody waits any more");
        assert!(!at(&due, 4));
        assert!(!due.hear("c", 3, Some(4), now), "it was overtaken on its way");
        assert!(!at(&due, 4));
    }

    #[test]
    fn a_run_that_is_paused_or_drained_waits_for_no_evaluation() {
        let (mut due, mut waiting, now) = listening();
        due.hear("c", 1, Some(4), now);
        let mut waits = |phase| waiting.until(phase, 4, &due, now).is_some();
        assert!(waits(RunPhase::Starting) && waits(RunPhase::Running));
        assert!(!waits(RunPhase::Paused) && !waits(RunPhase::Draining) && !waits(RunPhase::Closed));
    }

    #[test]
    fn what_one_coordinator_has_made_another_that_has_not_heard_it_does_not_make_again() {
        let (mut due, mut waiting, now) = listening();
        due.hear("c", 1, Some(8), now);
        due.hear("d", 1, Some(4), now);
        assert_eq!(waiting.until(RunPhase::Running, 4, &due, now), None);
        assert!(waiting.until(RunPhase::Running, 8, &due, now).is_some());
    }

    #[test]
    fn coordinators_that_are_gone_are_waited_for_a_lease() {
        let (mut due, mut waiting, start) = listening();
        let mut until = |due: &Due, after| waiting.until(RunPhase::Running, 4, due, start + after);
        assert_eq!(until(&due, seconds(3)), Some(start + LEASE), "none was heard yet");
        assert_eq!(until(&due, LEASE), None);
        due.hear("c", 1, Some(4), start + seconds(20));
        assert_eq!(until(&due, seconds(21)), Some(start + seconds(35)));
        assert_eq!(until(&due, seconds(35)), None);
        due.hear("d", 1, Some(4), start + seconds(40));
        assert!(until(&due, seconds(41)).is_some(), "the next one evaluates");
    }

    #[test]
    fn repeated_for_ever_an_evaluation_is_waited_for_no_longer_than_it_may_take() {
        let (mut due, mut waiting, start) = listening();
        for second in 0..200 {
            let now = start + seconds(second);
            due.hear("c", second + 1, Some(4), now);
            assert_eq!(waiting.until(RunPhase::Running, 3, &due, now), None);
            let waits = waiting.until(RunPhase::Running, 4, &due, now).is_some();
            assert_eq!(waits, second < 60, "second {second}");
        }
        let now = start + seconds(200);
        due.hear("c", 1000, Some(8), now);
        assert!(
            waiting.until(RunPhase::Running, 8, &due, now).is_some(),
            "each is waited for anew"
        );
    }

    #[test]
    fn the_lead_of_an_asynchronous_run_waits_and_nobody_else() {
        let name = |name: &str| broker::AgentName::new(name).unwrap();
        let mut config = crate::run_folder::tests::config_in(std::path::Path::new("."));
        (config.run.mode, config.eval.every) = (Mode::Async, 4);
        let waits = |config: &RunConfig, agent: &str| Waiting::of(config, &name(agent)).is_some();
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
        /// Whatever was heard: when nobody says anything more, nobody waits a lease later, and an end is always to come.
        #[test]
        fn nobody_waits_a_lease_after_the_last_word(
            said in prop::collection::vec((0..3u8, 0..40u64, prop::option::of(0..20u64), 0..20u64), 0..40),
            step in 0..20u64,
        ) {
            let (mut due, mut waiting, mut now) = listening();
            for (coordinator, seq, next, pause) in said {
                now += seconds(pause);
                due.hear(&coordinator.to_string(), seq, next, now);
                if let Some(end) = waiting.until(RunPhase::Running, step, &due, now) {
                    prop_assert!(end > now && end <= now + LEASE);
                }
            }
            prop_assert_eq!(waiting.until(RunPhase::Running, step, &due, now + LEASE), None);
        }
    }
}
