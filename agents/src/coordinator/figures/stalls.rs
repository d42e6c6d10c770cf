//! Groups from which nothing can be learned, until there are too many.
//!
//! A group without samples is counted here. A group with equal rewards is counted by its agent,
//! which alone knows how it compares them ([`Heartbeat::idle_groups`]).
//!
//! [`Heartbeat::idle_groups`]: broker::protocol::control::Heartbeat::idle_groups

use std::collections::BTreeMap;
use std::time::Duration;

use broker::AgentName;
use broker::protocol::bundle::BundleContent;
use broker::protocol::failure::FailureCode;
use rollout::group::{Assembled, GroupSummary};
use tokio::time::Instant;

use crate::coordinator::env::Env;

/// Fewer empty groups are too many if they took this long: a judge that does not answer, or a
/// program that dies, makes each of them slow.
const SLOW: (u64, Duration) = (8, Duration::from_secs(120));

/// Rewards may all be equal for this many batches at the beginning of a run: right answers can be
/// rare at first.
const EQUAL_BATCHES: u64 = 20;

/// Groups of the run's own tasks in succession that were empty.
#[derive(Debug, Default)]
struct EmptyGroups {
    groups: u64,
    /// The end of the first one.
    since: Option<Instant>,
    /// The reason why the newest one was empty.
    why: String,
}

impl EmptyGroups {
    fn add(&mut self, why: String) {
        self.groups += 1;
        self.since.get_or_insert_with(Instant::now);
        self.why = why;
    }

    /// Returns true after `most` groups, or after [`SLOW`] ones.
    fn are_too_many(&self, most: u64) -> bool {
        let (few, long) = SLOW;
        let slow = self.groups >= few && self.since.is_some_and(|since| since.elapsed() >= long);
        self.groups >= most || slow
    }
}

/// One agent that trains.
#[derive(Debug, Default)]
struct Learner {
    /// It counts the run's steps.
    leads: bool,
    batch_groups: u64,
    /// Groups in succession that gave it no sample.
    empty: EmptyGroups,
    /// A group gave it a sample.
    has_samples: bool,
    /// [`Heartbeat::idle_groups`] when the run last began or went on.
    ///
    /// [`Heartbeat::idle_groups`]: broker::protocol::control::Heartbeat::idle_groups
    idle_before: u64,
}

impl Learner {
    /// Returns why the agent has no samples at `step`.
    ///
    /// A role may be reached seldom: without samples for a while, only the agent that counts the
    /// run's steps stops the run.
    fn starved(&self, most: u64, step: u64) -> Option<String> {
        let EmptyGroups { groups, why, .. } = &self.empty;
        (*groups >= most && (self.leads || !(self.has_samples || step > 0)))
            .then(|| format!("{groups} groups in succession gave it no sample; the newest because: {why}"))
    }

    /// Returns the agent's number of groups without anything to learn, once there are too many.
    fn idle(&self, most: u64, idle: u64) -> Option<u64> {
        let idle = idle.saturating_sub(self.idle_before);
        (idle >= most && idle > EQUAL_BATCHES * self.batch_groups).then_some(idle)
    }
}

/// Counts of groups of the run's own tasks that taught nothing.
#[derive(Debug)]
pub(crate) struct Stalls {
    /// The number of groups that are too many; 0: never.
    most: u64,
    /// Groups in succession that gave no agent a sample.
    empty: EmptyGroups,
    learners: BTreeMap<AgentName, Learner>,
}

impl Stalls {
    pub(super) fn new(env: &Env) -> Self {
        let lead = env.config.lead();
        let learner = |(name, batch_groups): (AgentName, u64)| {
            let leads = lead == Some(&name);
            let learner = Learner {
                leads,
                batch_groups,
                ..Learner::default()
            };
            (name, learner)
        };
        Self {
            most: env.config.run.empty_groups,
            empty: EmptyGroups::default(),
            learners: env.batches().into_iter().map(learner).collect(),
        }
    }

    /// Counts a decided group.
    pub(super) fn count(&mut self, assembled: &Assembled) {
        match &assembled.summary.empty {
            None => self.empty = EmptyGroups::default(),
            Some(reason) => self.empty.add(cause(&assembled.summary, reason)),
        }
        for (agent, bundle) in &assembled.bundles {
            let Some(learner) = self.learners.get_mut(agent) else {
                continue;
            };
            match &bundle.content {
                BundleContent::Samples(_) => {
                    learner.empty = EmptyGroups::default();
                    learner.has_samples = true;
                }
                BundleContent::Empty { reason } | BundleContent::Dead { reason } => {
                    learner.empty.add(cause(&assembled.summary, reason));
                }
            }
        }
    }

    /// Counts from 0 again: the run begins, or goes on after a pause. `learning` returns an agent's
    /// step and its number of groups without anything to learn.
    pub(crate) fn forget(&mut self, learning: impl Fn(&AgentName) -> (u64, u64)) {
        self.empty = EmptyGroups::default();
        for (agent, learner) in &mut self.learners {
            learner.empty = EmptyGroups::default();
            learner.idle_before = learning(agent).1;
        }
    }

    /// Returns why nothing can be learned once too many groups gave nothing, and counts from 0
    /// again. `learning` is that of [`Self::forget`].
    pub(crate) fn take(&mut self, learning: impl Fn(&AgentName) -> (u64, u64)) -> Option<String> {
        if self.most == 0 {
            return None;
        }
        let why = self.stall(&learning)?;
        self.forget(learning);
        Some(why)
    }

    fn stall(&self, learning: impl Fn(&AgentName) -> (u64, u64)) -> Option<String> {
        if self.empty.are_too_many(self.most) {
            let EmptyGroups { groups, why, .. } = &self.empty;
            return Some(format!(
                "{groups} groups in succession gave no sample; the newest because: {why}"
            ));
        }
        let starved = |(agent, learner): (&AgentName, &Learner)| {
            let why = learner.starved(self.most, learning(agent).0)?;
            Some(format!("agent {agent}: {why}"))
        };
        if let Some(why) = self.learners.iter().find_map(starved) {
            return Some(why);
        }
        // While one agent learns, another may begin to.
        let idle = |(agent, learner): (&AgentName, &Learner)| learner.idle(self.most, learning(agent).1);
        let idle: Option<Vec<u64>> = self.learners.iter().map(idle).collect();
        let least = idle?.into_iter().min()?;
        Some(format!(
            "the first {least} groups had equal rewards for each agent that trains, or all of their samples were \
             discarded (`dyad conversations` shows the answers and their rewards)"
        ))
    }
}

/// The most frequent failure of an empty group, or else the `reason` why it is empty.
fn cause(summary: &GroupSummary, reason: &str) -> String {
    let failures = summary.failed.iter();
    let causes = failures.filter(|(why, _)| why.code != FailureCode::Abandoned);
    let most = causes.max_by_key(|(_, count)| **count);
    most.map_or_else(|| reason.to_owned(), |(why, _)| why.to_string())
}

#[cfg(test)]
mod tests {
    use broker::ids::{Attempt, GroupId};
    use broker::protocol::failure::Failure;
    use rollout::group::GroupHead;

    use super::*;
    use crate::coordinator::actor::bench::Bench;

    const NO_STEPS: fn(&AgentName) -> (u64, u64) = |_| (0, 0);

    fn name(agent: &str) -> AgentName {
        AgentName::new(agent).unwrap()
    }

    /// Returns the stalls of a run that stops after `most` groups; agent `a` leads `b`.
    async fn stalls(most: u64) -> Stalls {
        let bench = Bench::new(|config| config.run.empty_groups = most).await;
        let stalls = Stalls::new(bench.env());
        assert!(stalls.learners[&name("a")].leads && !stalls.learners[&name("b")].leads);
        stalls
    }

    /// Returns a group that gives samples to these agents only.
    fn group(with_samples: &[&str]) -> Assembled {
        let head = GroupHead {
            group: GroupId([1; 16]),
            attempt: Attempt([1; 16]),
            task: "t".into(),
            order: 0,
        };
        let content = |agent: &str| match with_samples.contains(&agent) {
            true => BundleContent::Samples(Vec::new()),
            false => BundleContent::Empty {
                reason: "nothing to train on".into(),
            },
        };
        let bundle = |agent: &str| (name(agent), head.bundle(0, content(agent)));
        let empty = with_samples.is_empty();
        Assembled {
            bundles: ["a", "b"].map(bundle).into(),
            summary: GroupSummary {
                empty: empty.then(|| "0 of 4 conversations are valid".into()),
                failed: if empty {
                    [(Failure::other("grader: 401"), 4)].into()
                } else {
                    BTreeMap::new()
                },
                ..GroupSummary::default()
            },
        }
    }

    #[tokio::test(start_paused = true)]
    async fn few_slow_empty_groups_are_too_many() {
        let mut empty = EmptyGroups::default();
        let (few, long) = SLOW;
        for _ in 0..few {
            empty.add("the judge does not answer".into());
        }
        assert!(!empty.are_too_many(64), "they were quick");
        tokio::time::advance(long).await;
        assert!(empty.are_too_many(64));
        let mut fewer = EmptyGroups::default();
        fewer.add("once".into());
        tokio::time::advance(long).await;
        assert!(!fewer.are_too_many(64));
    }

    #[tokio::test]
    async fn only_empty_groups_in_succession_are_a_stall() {
        let mut stalls = stalls(2).await;
        stalls.count(&group(&[]));
        stalls.count(&group(&["a", "b"]));
        stalls.count(&group(&[]));
        assert_eq!(stalls.take(NO_STEPS), None);
        stalls.count(&group(&[]));
        let why = stalls.take(NO_STEPS).unwrap();
        assert!(
            why.starts_with("2 groups in succession") && why.ends_with("grader: 401"),
            "{why}"
        );
        assert_eq!(stalls.take(NO_STEPS), None, "counted from 0 again");
    }

    #[tokio::test]
    async fn no_limit_means_no_stall() {
        let mut stalls = stalls(0).await;
        (0..100).for_each(|_| stalls.count(&group(&[])));
        assert_eq!(stalls.take(|_| (1000, 1_000_000)), None);
    }

    /// Samples of other agents do not hide that one agent gets none.
    #[tokio::test]
    async fn an_agent_without_samples_is_a_stall_whoever_else_has_some() {
        for (with, without) in [("b", "a"), ("a", "b")] {
            let mut stalls = stalls(3).await;
            (0..2).for_each(|_| stalls.count(&group(&[with])));
            assert_eq!(stalls.take(NO_STEPS), None);
            stalls.count(&group(&[with]));
            let why = stalls.take(NO_STEPS).unwrap();
            let wanted = format!("agent {without}: 3 groups in succession gave it no sample");
            assert!(
                why.starts_with(&wanted) && why.ends_with("nothing to train on"),
                "{why}"
            );
        }
    }

    #[tokio::test]
    async fn an_agent_with_rare_samples_stops_the_run_only_if_it_leads() {
        let mut stalls = stalls(3).await;
        stalls.count(&group(&["a", "b"]));
        (0..9).for_each(|_| stalls.count(&group(&["a"])));
        assert_eq!(stalls.take(NO_STEPS), None, "b had a sample");
        (0..3).for_each(|_| stalls.count(&group(&["b"])));
        assert!(stalls.take(NO_STEPS).unwrap().starts_with("agent a: 3 groups"));
        (0..3).for_each(|_| stalls.count(&group(&["a"])));
        stalls.learners.get_mut(&name("b")).unwrap().has_samples = false;
        assert_eq!(stalls.take(|_| (1, 0)), None, "b has trained before this start");
        assert!(stalls.take(NO_STEPS).is_some());
    }

    #[tokio::test]
    async fn equal_rewards_of_all_agents_from_the_beginning_are_a_stall() {
        let mut stalls = stalls(64).await;
        let batch = stalls.learners[&name("b")].batch_groups;
        let least = (EQUAL_BATCHES * batch + 1).max(64);
        for idle in ["a", "b"] {
            let one = |agent: &AgentName| (1, if agent.as_str() == idle { 9 * least } else { 0 });
            assert_eq!(stalls.take(one), None, "the other one learns");
        }
        assert_eq!(stalls.take(|_| (1, least - 1)), None);
        let why = stalls.take(|_| (1, least)).unwrap();
        assert!(
            why.starts_with(&format!("the first {least} groups had equal rewards")),
            "{why}"
        );
        assert_eq!(stalls.take(|_| (1, 2 * least - 1)), None, "counted from 0 again");
        assert!(stalls.take(|_| (1, 2 * least)).is_some());
        stalls.forget(NO_STEPS);
        stalls.most = 10 * least;
        assert_eq!(stalls.take(|_| (1, 9 * least)), None, "the limit is greater");
    }
}
