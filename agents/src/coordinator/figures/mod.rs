//! The coordinator's counters and statistics, and the files of metrics and transcripts.

pub(crate) mod conversation_stats;
pub(crate) mod observed;
mod stalls;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use broker::RoleName;
use broker::protocol::failure::FailureCode;
use rollout::group::{Assembled, MemberEnd, Rules};
use tokio::time::Instant;

use self::conversation_stats::ConversationStats;
use self::observed::ObservedPlay;
use self::stalls::Stalls;
use super::env::Env;
use crate::run_folder::logs::{CONVERSATION, Transcript, Transcripts};
use crate::run_folder::metrics::{Metrics, MetricsWriter};

/// Totals of a coordinator, for its heartbeat and metrics.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counters {
    pub groups: u64,
    pub conversations: u64,
    pub turns: u64,
    pub tokens: u64,
    pub stale_results: u64,
    pub dead_tasks: u64,
}

/// Failed generations of one role and reason.
#[derive(Debug, Default, Clone, Copy)]
struct Failures {
    /// Generations that were requested again.
    retried: u64,
    /// Generations of conversations that were given up.
    over: u64,
}

/// Counters, statistics of conversations, and the writers of metrics and transcripts.
pub(crate) struct Figures {
    counters: Counters,
    /// Conversations and seats that left the statistics, by the code of their reason.
    failed: BTreeMap<&'static str, u64>,
    /// Failed generations by role and the code of their reason.
    failures: BTreeMap<(RoleName, &'static str), Failures>,
    stalls: Stalls,
    conversations: ConversationStats,
    metrics: MetricsWriter,
    /// Lines that are rare: between a line of totals each second a reader would not find them from
    /// the end.
    rare: MetricsWriter,
    transcripts: Transcripts,
    started: Instant,
    observed: ObservedPlay,
}

impl Figures {
    /// `process` names this coordinator's files in the run folder.
    pub(crate) fn open(env: &Env, process: &str) -> io::Result<Self> {
        let events = env.folder.tensorboard(process);
        let metrics = MetricsWriter::open(&env.folder.metrics(process), Some(&events))?;
        Ok(Self {
            counters: Counters::default(),
            failed: BTreeMap::new(),
            failures: BTreeMap::new(),
            stalls: Stalls::new(env),
            conversations: ConversationStats::new(&env.config, env.workflow.as_ref()),
            rare: metrics.to_file(&env.folder.metrics(&format!("{process}.evals")))?,
            metrics,
            transcripts: Transcripts::open(&env.folder.transcripts(process))?,
            started: Instant::now(),
            observed: ObservedPlay::new(&env.observer, &env.config),
        })
    }

    #[must_use]
    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// The series for Prometheus.
    pub(crate) fn observed(&mut self) -> &mut ObservedPlay {
        &mut self.observed
    }

    /// Counts results that change nothing.
    pub(crate) fn count_stale(&mut self, results: usize) {
        self.counters.stale_results += results as u64;
    }

    /// `own`: the task is of the run's own source.
    pub(crate) fn count_dead_task(&mut self, own: bool) {
        self.counters.dead_tasks += 1;
        self.observed.task(own, "dead");
    }

    /// Counts a committed turn of a group that trains.
    pub(crate) fn count_turn(&mut self, tokens: usize) {
        self.counters.turns += 1;
        self.counters.tokens += tokens as u64;
    }

    /// Counts a failed generation. `over`: its conversation was given up.
    pub(crate) fn count_failure(&mut self, role: &RoleName, code: FailureCode, over: bool) {
        let place = (role.clone(), code.name());
        let failures = self.failures.entry(place).or_default();
        if over {
            failures.over += 1;
        } else {
            failures.retried += 1;
        }
        self.observed.failure(role, code, over);
    }

    /// Counts a decided group; `own`: its task is of the run's own source.
    pub(crate) fn count_group(&mut self, assembled: &Assembled, own: bool) {
        let summary = &assembled.summary;
        self.observed.conversations(summary);
        self.counters.groups += 1;
        self.counters.conversations += summary.conversations as u64;
        for (failure, count) in &summary.failed {
            *self.failed.entry(failure.code.name()).or_default() += *count as u64;
        }
        if let Some(reason) = &summary.empty {
            tracing::warn!(reason, "a group closes empty");
        }
        if own {
            self.stalls.count(assembled);
        }
    }

    /// Returns the counts of groups that taught nothing.
    pub(crate) fn stalls(&mut self) -> &mut Stalls {
        &mut self.stalls
    }

    /// Adds a group's conversations to their statistics, and writes a line once a batch is
    /// complete. `took` returns the time of a conversation by its number.
    pub(crate) fn add_conversations(
        &mut self,
        members: &[MemberEnd],
        rules: &Rules,
        step: u64,
        took: impl Fn(usize) -> Option<Duration>,
    ) {
        self.observed.members(members, took);
        let is_cut = |key: &_, made: &_| rules.is_cut(key, made);
        self.conversations.add(members, |seat| rules.reward(seat), is_cut);
        if let Some(line) = self.conversations.line(step) {
            self.metrics.write(line);
        }
    }

    /// Writes the coordinator's own line at the lead's step.
    pub(crate) fn write_totals(&self, step: u64) {
        self.metrics.write(self.totals(step));
    }

    /// Writes the line of an evaluation, or why the run stopped.
    pub(crate) fn write(&self, line: Metrics) {
        self.rare.write(line);
    }

    /// Writes a conversation's transcript, and a line of it into the log.
    pub(crate) fn write_transcript(&self, transcript: &Transcript) {
        log_conversation(transcript);
        self.transcripts.write(transcript);
    }

    /// Returns when all transcripts are on disk.
    pub(crate) fn flush_transcripts(&self) {
        self.transcripts.flush();
    }

    /// Returns when all that was written is on disk.
    pub(crate) fn flush(&self) {
        self.transcripts.flush();
        self.metrics.flush();
        self.rare.flush();
    }

    fn totals(&self, step: u64) -> Metrics {
        let counters = self.counters;
        let elapsed = self.started.elapsed().as_secs_f64().max(1e-9);
        let mut line = Metrics::new("coordinator", step)
            .with("groups", counters.groups)
            .with("conversations", counters.conversations)
            .with("conversations/failed", self.failed.values().sum::<u64>())
            .with("turns", counters.turns)
            .with("tokens", counters.tokens)
            .with("results/stale", counters.stale_results)
            .with("tasks/dead", counters.dead_tasks)
            .with("time/conversations_per_s", counters.conversations as f64 / elapsed)
            .with("time/turns_per_s", counters.turns as f64 / elapsed);
        for (code, count) in &self.failed {
            line.set(&format!("conversations/failed/{code}"), *count);
        }
        for ((role, code), failures) in &self.failures {
            line.set(&format!("turns/retried/{role}/{code}"), failures.retried);
            line.set(&format!("turns/failed/{role}/{code}"), failures.over);
        }
        line
    }

    /// Conversations and seats that failed for the reason with this code.
    #[cfg(test)]
    pub(crate) fn failed(&self, code: &str) -> u64 {
        self.failed.get(code).copied().unwrap_or(0)
    }
}

/// Logs the end of a conversation, in one line.
fn log_conversation(transcript: &Transcript) {
    let totals = transcript.rewards.iter();
    let rewards: Vec<String> = totals
        .filter_map(|(seat, parts)| Some(format!("{seat} {:.3}", parts.get("total")?)))
        .collect();
    tracing::debug!(
        target: CONVERSATION,
        conversation_id = transcript.conversation,
        task = transcript.task,
        step = transcript.step,
        turns = transcript.turns.len(),
        status = transcript.status,
        rewards = rewards.join(", "),
        "a conversation ended"
    );
}

#[cfg(test)]
mod tests {
    use broker::protocol::failure::Failure;
    use rollout::group::GroupSummary;

    use super::*;
    use crate::coordinator::actor::bench::Bench;

    #[tokio::test]
    async fn failures_are_counted_by_role_and_reason() {
        let bench = Bench::new(|_| {}).await;
        let mut figures = Figures::open(bench.env(), "coordinator-other").unwrap();
        let role = RoleName::new("speaker").unwrap();
        let code = FailureCode::Engine;
        figures.count_failure(&role, code, false);
        figures.count_failure(&role, code, false);
        figures.count_failure(&role, code, true);
        figures.count_turn(5);
        let line = figures.totals(3);
        let code = code.name();
        assert_eq!(line.get(&format!("turns/retried/speaker/{code}")), Some(&2.into()));
        assert_eq!(line.get(&format!("turns/failed/speaker/{code}")), Some(&1.into()));
        assert_eq!(line.get("tokens"), Some(&5.into()));
    }

    /// Others may publish tasks from which nothing can be learned.
    #[tokio::test]
    async fn published_empty_groups_are_no_stall() {
        let bench = Bench::new(|config| config.run.empty_groups = 1).await;
        let mut figures = Figures::open(bench.env(), "coordinator-other").unwrap();
        let empty = Assembled {
            bundles: BTreeMap::new(),
            summary: GroupSummary {
                empty: Some("0 of 4 conversations are valid".into()),
                ..GroupSummary::default()
            },
        };
        for (own, stalls) in [(false, false), (true, true)] {
            figures.count_group(&empty, own);
            assert_eq!(figures.stalls().take(|_| (0, 0)).is_some(), stalls);
        }
    }

    #[tokio::test]
    async fn a_group_counts_with_its_failed_conversations() {
        let bench = Bench::new(|_| {}).await;
        let mut figures = Figures::open(bench.env(), "coordinator-other").unwrap();
        let failure = Failure::context("70 tokens");
        let summary = GroupSummary {
            conversations: 4,
            failed: BTreeMap::from([(failure.clone(), 3)]),
            ..GroupSummary::default()
        };
        let bundles = BTreeMap::new();
        figures.count_group(&Assembled { bundles, summary }, true);
        let counters = figures.counters();
        assert_eq!((counters.groups, counters.conversations), (1, 4));
        assert_eq!(figures.failed(failure.code.name()), 3);
    }
}
