//! The agent's series for Prometheus, set from the figures of a batch. Its line of metrics has the
//! same figures.

use std::path::Path;

use broker::protocol::train::RoleLoss;
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
    /// The median time of the last steps, if it is known.
    pub(super) median: Option<f64>,
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
        series.end_step(self.agent, self.median);
    }

    fn show_loss(&self, series: &TrainingSeries) {
        let (agent, loss) = (self.agent, &self.outcome.stats);
        series.loss.of([agent]).set(loss.loss);
        series.grad_norm.of([agent]).set(self.outcome.grad_norm);
        series.learning_rate.of([agent]).set(self.outcome.lr);
        series.skipped.of([agent]).inc_by(self.outcome.skipped as f64);
        // The list ends with the last role that has tokens.
        let none = RoleLoss::default();
        let by_role = loss.by_role.iter().chain(std::iter::repeat(&none));
        for (role, found) in self.batch.roles.iter().zip(by_role) {
            self.show_role_loss(series, role, found);
        }
    }

    /// Sets a role's figures of the loss. Figures without tokens in this batch are NaN.
    fn show_role_loss(&self, series: &TrainingSeries, role: &str, found: &RoleLoss) {
        let agent = self.agent;
        let known = |value: f64, tokens: f64| if tokens > 0.0 { value } else { f64::NAN };
        let compared = found.on_policy_tokens + found.off_policy_tokens;
        let mean = |sum: f64| known(sum / found.tokens, compared.min(found.tokens));
        let entropy = known(found.entropy / found.tokens, found.tokens);
        series.entropy.of([agent, role]).set(entropy);
        series.clipped.of([agent, role]).set(mean(found.clipped));
        let (reference, behaviour) = (mean(found.reference_kl), mean(found.behaviour_kl));
        series.kl.of([agent, role, "reference"]).set(reference);
        series.kl.of([agent, role, "behaviour"]).set(behaviour);
        let on = known(found.on_policy_gap, found.on_policy_tokens);
        let off = known(found.off_policy_gap, found.off_policy_tokens);
        series.gap.of([agent, role, "on"]).set(on);
        series.gap.of([agent, role, "off"]).set(off);
    }

    fn show_role(&self, series: &TrainingSeries, role: &str, found: &RoleStats) {
        let agent = self.agent;
        let or_unknown = |value: Option<f64>| value.unwrap_or(f64::NAN);
        series
            .reward_mean
            .of([agent, role])
            .set(or_unknown(found.reward.mean.get()));
        series.reward_std.of([agent, role]).set(or_unknown(found.reward.std()));
        let zero = self.batch.stats.zero_share_of(found);
        series.advantage_zero.of([agent, role]).set(zero);
        let (trained, stale) = (found.trained_tokens, found.stale_tokens);
        let masked = found.tokens.saturating_sub(trained + stale);
        for (outcome, tokens) in [("trained", trained), ("stale", stale), ("masked", masked)] {
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
    use broker::protocol::train::LossStats;
    use broker::protocol::turn::EngineTimes;
    use rollout::batch::{BatchStats, Discard, Mean};

    use super::*;
    use crate::agent::training::step_times::METRICS;
    use crate::observe::Observer;
    use crate::observe::series::engine::GeneratedTokens;
    use crate::observe::series::standing::OwnEngine;
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
            stale_tokens: 7,
            groups: 2,
            zero_groups: 1,
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
            clipped: 1.0,
            reference_kl: 4.0,
            on_policy_gap: 0.5,
            on_policy_tokens: 2.0,
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
            median: Some(7.0),
            ledger: Path::new("/none"),
        }
        .show(all);
        let agent = AgentName::new("a").unwrap();
        let beat: Heartbeat = testing::heartbeat(&agent);
        let own = OwnEngine {
            marks: 7,
            cache_usage: 0.25,
            ..OwnEngine::default()
        };
        let engines = ["http://h:1", "http://h:2", "http://h:3", "http://h:4"];
        let answered = all.engine.answered("a", ROLES.into_iter());
        let mut standing = all.standing.of_agent("a", engines.into_iter(), answered);
        standing.set(&beat, Some(own), [true, false, true, true].into_iter());
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
            "dyad_train_tokens_total{run=\"r\",agent=\"a\",role=\"solver\",outcome=\"stale\"} 7",
            "dyad_train_tokens_total{run=\"r\",agent=\"a\",role=\"solver\",outcome=\"masked\"} 3",
            "dyad_train_step_median_seconds{run=\"r\",agent=\"a\"} 7",
            "dyad_advantage_zero_ratio{run=\"r\",agent=\"a\",role=\"solver\"} 0.5",
            "dyad_clipped_ratio{run=\"r\",agent=\"a\",role=\"writer\"} 0.5",
            "dyad_kl_nats{run=\"r\",agent=\"a\",role=\"writer\",of=\"reference\"} 2",
            "dyad_logprob_gap{run=\"r\",agent=\"a\",role=\"writer\",policy=\"on\"} 0.5",
            "dyad_logprob_gap{run=\"r\",agent=\"a\",role=\"writer\",policy=\"off\"} NaN",
            "dyad_engine_up{run=\"r\",agent=\"a\",engine=\"http://h:2\"} 0",
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
