//! An agent's engine, as its router sees it.

use std::time::Duration;

use broker::protocol::turn::EngineTimes;

use crate::observe::batched::{BatchedHistogram, Tally};
use crate::observe::table::{CALL_SECONDS, Labelled, Level, SeriesTable, TURN_SECONDS, Total};

#[derive(Clone)]
pub(crate) struct EngineSeries {
    running: Labelled<Level, 1>,
    waiting: Labelled<Level, 1>,
    prompt: Labelled<Total, 2>,
    cached: Labelled<Total, 2>,
    generated: Labelled<Total, 2>,
    queue: Labelled<BatchedHistogram, 2>,
    first: Labelled<BatchedHistogram, 2>,
    seconds: Labelled<BatchedHistogram, 2>,
}

impl EngineSeries {
    pub(super) fn register(table: &mut SeriesTable) -> Self {
        Self {
            running: table.gauge("dyad_engine_requests_running", ["agent"], "turns at the engine"),
            waiting: table.gauge("dyad_engine_requests_waiting", ["agent"], "turns held back before it"),
            prompt: table.counter("dyad_engine_prompt_tokens", ["agent", "role"], "tokens of prompts"),
            cached: table.counter(
                "dyad_engine_prompt_tokens_cached",
                ["agent", "role"],
                "those that an earlier turn had computed",
            ),
            generated: table.counter("dyad_engine_generation_tokens", ["agent", "role"], "sampled tokens"),
            queue: table.batched(
                "dyad_engine_queue_seconds",
                ["agent", "role"],
                CALL_SECONDS,
                "from a turn's arrival at the engine until it begins",
            ),
            first: table.batched(
                "dyad_engine_time_to_first_token_seconds",
                ["agent", "role"],
                TURN_SECONDS,
                "from a turn's arrival at the engine to its first token",
            ),
            seconds: table.batched(
                "dyad_engine_request_seconds",
                ["agent", "role"],
                TURN_SECONDS,
                "from a turn's arrival at the agent to its last token",
            ),
        }
    }

    /// Returns the sampled tokens of each of these roles.
    pub(crate) fn answered<'a>(&self, agent: &str, roles: impl Iterator<Item = &'a str>) -> Vec<Total> {
        roles.map(|role| self.generated.of([agent, role])).collect()
    }

    pub(crate) fn of_agent(&self, agent: &str) -> AgentEngine {
        AgentEngine {
            agent: agent.to_owned(),
            running: self.running.of([agent]),
            waiting: self.waiting.of([agent]),
            series: self.clone(),
            roles: Vec::new(),
        }
    }
}

/// The series of one agent's engine. Few roles are found faster in a list than in a map, and sums
/// reach the series once a batch of generations: this runs for every turn.
pub(crate) struct AgentEngine {
    agent: String,
    running: Level,
    waiting: Level,
    series: EngineSeries,
    roles: Vec<(String, RoleWork)>,
}

struct RoleWork {
    /// Tokens that the series do not have yet.
    sum: GeneratedTokens,
    prompt: Total,
    cached: Total,
    generated: Total,
    queue: Tally,
    first: Tally,
    seconds: Tally,
}

/// Tokens of generations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GeneratedTokens {
    pub(crate) prompt: usize,
    pub(crate) cached: usize,
    pub(crate) generated: usize,
}

impl AgentEngine {
    /// Sets the numbers of turns at the engine and before it.
    pub(crate) fn set_load(&self, running: usize, waiting: usize) {
        self.running.set(running as f64);
        self.waiting.set(waiting as f64);
    }

    /// Counts a generation of a role: its whole time, and the engine's times if it measures them.
    /// The next [`Self::flush`] shows it.
    pub(crate) fn count(&mut self, role: &str, tokens: GeneratedTokens, took: Duration, times: Option<EngineTimes>) {
        let known = self.roles.iter().position(|(known, _)| known == role);
        let place = known.unwrap_or_else(|| self.add(role));
        let Some((_, work)) = self.roles.get_mut(place) else {
            return;
        };
        work.sum.prompt += tokens.prompt;
        work.sum.cached += tokens.cached;
        work.sum.generated += tokens.generated;
        work.seconds.observe(took.as_secs_f64());
        if let Some(times) = times {
            work.queue.observe(times.queue.as_secs_f64());
            work.first
                .observe(times.queue.as_secs_f64() + times.prompt.as_secs_f64());
        }
    }

    fn add(&mut self, role: &str) -> usize {
        let labels = [self.agent.as_str(), role];
        let work = RoleWork {
            sum: GeneratedTokens::default(),
            prompt: self.series.prompt.of(labels),
            cached: self.series.cached.of(labels),
            generated: self.series.generated.of(labels),
            queue: self.series.queue.of(labels).tally(),
            first: self.series.first.of(labels).tally(),
            seconds: self.series.seconds.of(labels).tally(),
        };
        self.roles.push((role.to_owned(), work));
        self.roles.len() - 1
    }

    /// Shows the generations since the last call.
    pub(crate) fn flush(&mut self) {
        for (_, work) in &mut self.roles {
            let sum = std::mem::take(&mut work.sum);
            work.prompt.inc_by(sum.prompt as f64);
            work.cached.inc_by(sum.cached as f64);
            work.generated.inc_by(sum.generated as f64);
            work.queue.show();
            work.first.show();
            work.seconds.show();
        }
    }
}
