//! Where an agent stands: what its heartbeat says.

use broker::AgentName;
use broker::protocol::control::{Heartbeat, RunPhase};
use configs::RunConfig;
use prometheus_client::metrics::histogram::Histogram;
use trainer::engine::{ROW_BOUNDS, StepCounts};

use super::idle::IdleTime;
use crate::observe::batched::BatchedHistogram;
use crate::observe::table::{CALL_SECONDS, Labelled, Level, SeriesTable, Total, set_total};

/// The phases of a run, in their order.
const PHASES: [(RunPhase, &str); 5] = [
    (RunPhase::Starting, "starting"),
    (RunPhase::Running, "running"),
    (RunPhase::Paused, "paused"),
    (RunPhase::Draining, "draining"),
    (RunPhase::Closed, "closed"),
];

pub(crate) struct StandingSeries {
    phase: Labelled<Level, 2>,
    steps: Labelled<Total, 1>,
    target: Labelled<Level, 1>,
    max_staleness: Labelled<Level, 1>,
    weights: Labelled<Level, 2>,
    groups: Labelled<Level, 2>,
    engine_up: Labelled<Level, 2>,
    engine_idle: Labelled<Level, 1>,
    cache_usage: Labelled<Level, 1>,
    batch_rows: Labelled<BatchedHistogram, 1>,
    commit: Labelled<Histogram, 1>,
    bytes: Labelled<Level, 1>,
}

impl StandingSeries {
    pub(super) fn register(table: &mut SeriesTable) -> Self {
        Self {
            phase: table.gauge(
                "dyad_run_phase",
                ["component", "phase"],
                "1 for the phase that an agent or `coordinator` is in, else 0",
            ),
            steps: table.counter("dyad_train_steps", ["agent"], "batches trained"),
            target: table.gauge("dyad_train_steps_target", ["agent"], "batches at the run's end"),
            max_staleness: table.gauge("dyad_max_staleness_steps", ["agent"], "`train.max_staleness`"),
            weights: table.gauge(
                "dyad_weights_step",
                ["agent", "at"],
                "step of the weights at the `trainer` and at the `engine`",
            ),
            groups: table.gauge(
                "dyad_buffer_groups",
                ["agent", "state"],
                "groups `ready` to train on, `reserved`, and free `capacity`",
            ),
            engine_up: table.gauge(
                "dyad_engine_up",
                ["agent", "engine"],
                "1 if the engine answers; its URL, or `embedded` in the agent's process",
            ),
            engine_idle: table.gauge(
                "dyad_engine_idle_seconds",
                ["agent"],
                "since the engine's last answer, and in this process its last step",
            ),
            cache_usage: table.gauge(
                "dyad_engine_cache_usage_ratio",
                ["agent"],
                "share of the cache that holds keys and values; engines in this process",
            ),
            batch_rows: table.batched(
                "dyad_engine_batch_rows",
                ["agent"],
                &ROW_BOUNDS,
                "turns that a step computes together; engines in this process",
            ),
            commit: table.histogram(
                "dyad_ledger_commit_seconds",
                ["agent"],
                CALL_SECONDS,
                "commits of the ledger",
            ),
            bytes: table.gauge("dyad_ledger_bytes", ["agent"], "size of the ledger with its log"),
        }
    }

    /// Sets what stays the same for the life of an agent.
    pub(crate) fn describe(&self, name: &AgentName, config: &RunConfig) {
        let Some(train) = config.agents.get(name).map(|agent| &agent.train) else {
            return;
        };
        if train.enabled {
            let steps = config.steps_of(name) as f64;
            self.target.of([name.as_str()]).set(steps);
            let oldest = self.max_staleness.of([name.as_str()]);
            oldest.set(train.max_staleness as f64);
        }
    }

    /// Returns the commit times of an agent's ledger.
    pub(crate) fn ledger_commits(&self, agent: &str) -> Histogram {
        self.commit.of([agent])
    }

    pub(crate) fn phases(&self, component: &str) -> PhaseLevels {
        PhaseLevels(PHASES.map(|(phase, word)| (phase, self.phase.of([component, word]))))
    }

    /// `answered` are the sampled tokens of the agent's roles.
    pub(crate) fn of_agent<'a>(
        &self,
        agent: &str,
        engines: impl Iterator<Item = &'a str>,
        answered: Vec<Total>,
    ) -> AgentStanding {
        AgentStanding {
            phases: self.phases(agent),
            steps: self.steps.of([agent]),
            at_trainer: self.weights.of([agent, "trainer"]),
            at_engine: self.weights.of([agent, "engine"]),
            ready: self.groups.of([agent, "ready"]),
            reserved: self.groups.of([agent, "reserved"]),
            capacity: self.groups.of([agent, "capacity"]),
            engines_up: engines.map(|engine| self.engine_up.of([agent, engine])).collect(),
            own: self.of_engine(agent, answered),
        }
    }

    /// Returns the series of the agent's engine as this process sees it.
    pub(crate) fn of_engine(&self, agent: &str, answered: Vec<Total>) -> OwnEngineSeries {
        OwnEngineSeries {
            idle: IdleTime::new(self.engine_idle.of([agent]), answered),
            cache_usage: self.cache_usage.clone(),
            batch_rows: self.batch_rows.clone(),
            agent: agent.to_owned(),
        }
    }

    pub(crate) fn set_ledger_bytes(&self, agent: &str, bytes: u64) {
        self.bytes.of([agent]).set(bytes as f64);
    }
}

/// The phase of one component, as a set of gauges of which one is 1.
pub(crate) struct PhaseLevels([(RunPhase, Level); PHASES.len()]);

impl PhaseLevels {
    pub(crate) fn set(&self, phase: RunPhase) {
        for (other, level) in &self.0 {
            level.set(f64::from(u8::from(*other == phase)));
        }
    }
}

/// The series of one agent's heartbeat.
pub(crate) struct AgentStanding {
    phases: PhaseLevels,
    steps: Total,
    at_trainer: Level,
    at_engine: Level,
    ready: Level,
    reserved: Level,
    capacity: Level,
    /// One for each engine, in the order given.
    engines_up: Vec<Level>,
    own: OwnEngineSeries,
}

/// The series of an agent's engine, as this process sees it.
pub(crate) struct OwnEngineSeries {
    idle: IdleTime,
    /// This series and the next have values only if the engine runs in this process.
    cache_usage: Labelled<Level, 1>,
    batch_rows: Labelled<BatchedHistogram, 1>,
    agent: String,
}

/// The numbers of an engine in this process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OwnEngine {
    /// Grows with each step.
    pub(crate) marks: u64,
    pub(crate) cache_usage: f64,
    pub(crate) steps: StepCounts,
}

impl AgentStanding {
    /// Sets the state of the agent and of its engines. `own` is present if they run in this
    /// process. `up` has one value for each engine: true if it answers.
    pub(crate) fn set(&mut self, beat: &Heartbeat, own: Option<OwnEngine>, up: impl Iterator<Item = bool>) {
        self.phases.set(beat.phase);
        set_total(&self.steps, beat.step as f64);
        self.at_trainer.set(beat.step as f64);
        self.at_engine.set(beat.version.step as f64);
        self.ready.set(beat.ready as f64);
        self.reserved.set(beat.reserved as f64);
        self.capacity.set(beat.capacity as f64);
        for (level, is_up) in self.engines_up.iter().zip(up) {
            level.set(f64::from(u8::from(is_up)));
        }
        self.own.set(own);
    }
}

impl OwnEngineSeries {
    /// Sets the state of the engine. `own` is present if it runs in this process.
    pub(crate) fn set(&mut self, own: Option<OwnEngine>) {
        self.idle.look(own.map(|own| own.marks));
        if let Some(own) = own {
            self.cache_usage.of([&self.agent]).set(own.cache_usage);
            let rows = self.batch_rows.of([&self.agent]);
            rows.set(&own.steps.steps, own.steps.rows as f64);
        }
    }
}
