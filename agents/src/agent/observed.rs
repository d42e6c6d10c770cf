//! The agent's series for Prometheus, set from the figures of a batch. Its line of metrics has the
//! same figures.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use configs::AlarmsConfig;
use rollout::batch::{Batch, RoleStats};

use super::alarms::Alarm;
use super::figures::BatchOutcome;
use super::training::step_times::part;
use crate::observe::series::AllSeries;
use crate::observe::series::training::TrainingSeries;

/// A trained batch and what is known of it.
pub(super) struct TrainedBatch<'a> {
    pub(super) agent: &'a str,
    pub(super) batch: &'a Batch,
    pub(super) outcome: &'a BatchOutcome,
    pub(super) watched: &'a AlarmsConfig,
    pub(super) alarms: &'a [Alarm],
    /// The parts of the step, by their names in the metrics: `time/PART_s`.
    pub(super) times: &'a [(&'static str, f64)],
    pub(super) ledger: &'a Path,
}

impl TrainedBatch<'_> {
    /// Sets the series of this batch.
    pub(super) fn show(&self, all: &AllSeries) {
        let series = &all.training;
        self.show_times(series);
        self.show_loss(series);
        for (role, found) in &self.batch.stats.by_role {
            self.show_role(series, role, found);
        }
        for ((role, part), mean) in &self.batch.stats.reward_parts {
            let level = series.reward_part.of([self.agent, role, part]);
            level.set(mean.get().unwrap_or(f64::NAN));
        }
        for (alarm, is_watched) in watched(self.watched) {
            if is_watched {
                let is_raised = self.alarms.iter().any(|raised| raised.name == alarm);
                let level = series.alarm.of([self.agent, alarm]);
                level.set(f64::from(u8::from(is_raised)));
            }
        }
        all.standing.set_ledger_bytes(self.agent, bytes(self.ledger));
    }

    fn show_times(&self, series: &TrainingSeries) {
        for (name, seconds) in self.times {
            series.step_seconds.of([self.agent, part(name)]).observe(*seconds);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        series.last_step.of([self.agent]).set(now.as_secs_f64());
    }

    fn show_loss(&self, series: &TrainingSeries) {
        let (stats, loss) = (&self.batch.stats, &self.outcome.stats);
        let (agent, tokens) = (self.agent, loss.tokens.max(1.0));
        series.advantage_zero.of([agent]).set(stats.zero_share());
        series.loss.of([agent]).set(loss.loss);
        series.kl.of([agent, "reference"]).set(loss.reference_kl / tokens);
        series.kl.of([agent, "behaviour"]).set(loss.behaviour_kl / tokens);
        series.clipped.of([agent]).set(loss.clipped / tokens);
        series.grad_norm.of([agent]).set(self.outcome.grad_norm);
        series.learning_rate.of([agent]).set(self.outcome.lr);
        series.gap.of([agent, "on"]).set(self.outcome.on_policy_gap);
        series.gap.of([agent, "off"]).set(loss.off_policy_gap);
        series.skipped.of([agent]).inc_by(self.outcome.skipped as f64);
        let by_role = self.batch.roles.iter().zip(&loss.by_role);
        for (role, found) in by_role.filter(|(_, found)| found.tokens > 0.0) {
            series.entropy.of([agent, role]).set(found.entropy / found.tokens);
        }
    }

    fn show_role(&self, series: &TrainingSeries, role: &str, found: &RoleStats) {
        let agent = self.agent;
        let or_unknown = |value: Option<f64>| value.unwrap_or(f64::NAN);
        series
            .reward_mean
            .of([agent, role])
            .set(or_unknown(found.reward.mean.get()));
        series.reward_std.of([agent, role]).set(or_unknown(found.reward.std()));
        let untrained = found.tokens.saturating_sub(found.trained_tokens);
        for (outcome, tokens) in [("trained", found.trained_tokens), ("untrained", untrained)] {
            series.tokens.of([agent, role, outcome]).inc_by(tokens as f64);
        }
        let trained = found.samples.saturating_sub(found.discarded);
        series.samples.of([agent, role, "trained", ""]).inc_by(trained as f64);
        for (reason, count) in &found.discarded_by {
            let discarded = series.samples.of([agent, role, "discarded", reason.as_str()]);
            discarded.inc_by(*count as f64);
        }
        let ages = series.staleness.of([agent, role]);
        for (age, samples) in found.staleness.histogram.iter().enumerate() {
            (0..*samples).for_each(|_| ages.observe(age as f64));
        }
    }
}

/// Returns the alarms by name, each with true if the configuration watches it.
fn watched(config: &AlarmsConfig) -> [(&'static str, bool); 5] {
    [
        ("repetition", config.repetition.is_some()),
        ("sameness", config.sameness.is_some()),
        ("least_tokens", config.least_tokens.is_some()),
        ("most_tokens", config.most_tokens.is_some()),
        ("entropy", config.entropy.is_some()),
    ]
}

/// Returns the size of a SQLite file with its log.
fn bytes(ledger: &Path) -> u64 {
    let log = ledger.with_extension("sqlite-wal");
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len());
    size(ledger) + size(&log)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use broker::AgentName;
    use broker::ids::RunId;
    use broker::protocol::control::Heartbeat;
    use broker::protocol::train::{LossStats, RoleLoss};
    use broker::protocol::turn::EngineTimes;
    use rollout::batch::{BatchStats, Discard, Mean};

    use super::*;
    use crate::agent::training::step_times::METRICS;
    use crate::observe::Observer;
    use crate::observe::series::engine::GeneratedTokens;
    use crate::observe::series::standing::{EngineState, OwnEngine};
    use crate::testing;

    const MOST: usize = 400;
    const ROLES: [&str; 3] = ["solver", "verifier", "writer"];

    /// A batch of three roles with three reward parts each and every reason to discard a sample.
    fn batch() -> Batch {
        let reasons = [
            Discard::Stale,
            Discard::Truncated,
            Discard::ZeroAdvantage,
            Discard::RoleWeight,
            Discard::NoTarget,
            Discard::TargetUnfit,
        ];
        let role = RoleStats {
            samples: 9,
            discarded: 6,
            discarded_by: reasons.map(|reason| (reason, 1)).into(),
            tokens: 50,
            trained_tokens: 40,
            staleness: rollout::batch::Staleness {
                histogram: vec![3, 0, 2],
                ..Default::default()
            },
            ..RoleStats::default()
        };
        let parts = ROLES
            .iter()
            .flat_map(|role| ["right", "form", "short"].map(|part| (*role, part)));
        let mean = Mean { sum: 1.0, count: 2 };
        Batch {
            minibatches: Vec::new(),
            answers: Vec::new(),
            roles: ROLES.map(str::to_owned).to_vec(),
            groups: Vec::new(),
            verdicts: Vec::new(),
            stats: BatchStats {
                by_role: ROLES.map(|name| (name.to_owned(), role.clone())).into(),
                reward_parts: parts
                    .map(|(role, part)| ((role.to_owned(), part.to_owned()), mean))
                    .collect::<BTreeMap<_, _>>(),
                ..BatchStats::default()
            },
        }
    }

    /// Shows everything that an agent of three roles may show, and returns the page.
    fn shown() -> String {
        let observer = Observer::new(&RunId::new("r").unwrap());
        let all = observer.series().unwrap();
        let entropy = RoleLoss {
            tokens: 2.0,
            entropy: 3.0,
            ..RoleLoss::default()
        };
        let outcome = BatchOutcome {
            stats: LossStats {
                by_role: vec![entropy; 3],
                ..LossStats::default()
            },
            ..BatchOutcome::default()
        };
        let watched =
            toml::from_str("repetition = 0.5\nsameness = 0.9\nleast_tokens = 2\nmost_tokens = 9\nentropy = 0.1");
        let names = std::iter::once("time/wait_s").chain(METRICS);
        let times: Vec<_> = names.map(|name| (name, 0.2)).collect();
        TrainedBatch {
            agent: "a",
            batch: &batch(),
            outcome: &outcome,
            watched: &watched.unwrap(),
            alarms: &[],
            times: &times,
            ledger: Path::new("/none"),
        }
        .show(all);
        let agent = AgentName::new("a").unwrap();
        let beat: Heartbeat = testing::heartbeat(&agent);
        let engine = EngineState {
            is_up: true,
            own: Some(OwnEngine {
                marks: 7,
                cache_usage: 0.25,
                ..OwnEngine::default()
            }),
        };
        let answered = all.engine.answered("a", ROLES.into_iter());
        all.standing.of_agent("a", answered).set(&beat, engine);
        all.standing.ledger_commits("a").observe(0.1);
        let mut engine = all.engine.of_agent("a");
        for role in ROLES {
            let tokens = GeneratedTokens {
                prompt: 3,
                cached: 1,
                generated: 2,
            };
            engine.count(
                role,
                tokens,
                std::time::Duration::from_millis(5),
                Some(EngineTimes::default()),
            );
            all.play.turns.of(["a", role, "committed", ""]).inc();
            all.play.turn_seconds.of(["a", role]).tally().observe(0.1);
        }
        engine.flush();
        for route in ["/v1/completions", "/v1/chat/completions"] {
            for code in ["200", "400", "429"] {
                all.http.requests.of(["a", route, code]).inc();
            }
            all.http.seconds.of(["a", route]).observe(0.1);
        }
        observer.page()
    }

    #[test]
    fn an_agent_of_three_roles_has_few_series_and_no_text_in_labels() {
        let page = shown();
        let of_agent = page.lines().filter(|line| line.contains("agent=\"a\"")).count();
        assert!((200..=MOST).contains(&of_agent), "{of_agent} series:\n{page}");
        let forbidden = ["task", "group", "conversation", "text", "prompt", "member", "request"];
        for label in page.split(['{', ',']).filter_map(|part| part.split_once("=\"")) {
            assert!(!forbidden.contains(&label.0), "the label {} of {page}", label.0);
        }
    }

    #[test]
    fn figures_of_a_batch_are_those_of_its_stats() {
        let page = shown();
        for line in [
            "dyad_train_samples_total{run=\"r\",agent=\"a\",role=\"solver\",outcome=\"trained\",reason=\"\"} 3",
            "dyad_train_tokens_total{run=\"r\",agent=\"a\",role=\"solver\",outcome=\"untrained\"} 10",
            "dyad_staleness_steps_count{run=\"r\",agent=\"a\",role=\"solver\"} 5",
            "dyad_entropy_nats{run=\"r\",agent=\"a\",role=\"writer\"} 1.5",
            "dyad_reward_part_mean{run=\"r\",agent=\"a\",role=\"solver\",part=\"form\"} 0.5",
            "dyad_train_step_seconds_sum{run=\"r\",agent=\"a\",part=\"publish\"} 0.2",
            "dyad_engine_generation_tokens_total{run=\"r\",agent=\"a\",role=\"writer\"} 2",
            "dyad_engine_cache_usage_ratio{run=\"r\",agent=\"a\"} 0.25",
            "dyad_engine_batch_rows_count{run=\"r\",agent=\"a\"} 0",
            "dyad_engine_idle_seconds{run=\"r\",agent=\"a\"} 0",
            "dyad_alarm{run=\"r\",agent=\"a\",alarm=\"entropy\"} 0",
        ] {
            assert!(page.contains(line), "{line}:\n{page}");
        }
    }
}
