//! The coordinator's series for Prometheus: set from its figures as they change.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use broker::RoleName;
use broker::ids::RequestId;
use broker::protocol::control::RunPhase;
use broker::protocol::failure::FailureCode;
use broker::protocol::turn::{TurnOutcome, TurnResult};
use configs::RunConfig;
use prometheus_client::metrics::histogram::Histogram;
use rollout::group::{GroupSummary, MemberEnd};

use crate::observe::Observer;
use crate::observe::series::play::PlaySeries;
use crate::observe::series::standing::PhaseLevels;
use crate::observe::table::{Level, Total, set_total};
use crate::stats::summary::Evaluation;

/// A turn that was asked for so long ago is forgotten: its group was lost or given up.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Below this number of open turns nothing is forgotten, because looking costs time.
const FEW: usize = 4096;

/// The series of a coordinator. Without an observer every call returns at once.
pub(crate) struct ObservedPlay(Option<Observing>);

struct Observing {
    observer: Observer,
    phase: PhaseLevels,
    groups_open: Level,
    /// The agent of each role, for labels.
    agents: BTreeMap<RoleName, String>,
    suites: Vec<String>,
    /// When each open turn was last asked for.
    asked: HashMap<RequestId, Instant>,
    committed: BTreeMap<RoleName, (Total, Histogram)>,
}

/// The end of a group, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupEnd {
    Closed,
    /// It has no sample.
    Empty,
    Dead,
    /// Its attempt was given up; it begins again.
    Voided,
}

impl GroupEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Empty => "empty",
            Self::Dead => "dead",
            Self::Voided => "voided",
        }
    }
}

/// Returns the label of a task's source.
fn source(own: bool) -> &'static str {
    if own { "own" } else { "published" }
}

impl ObservedPlay {
    pub(super) fn new(observer: &Observer, config: &RunConfig) -> Self {
        let roles = config.workflow.roles.iter();
        Self(observer.series().map(|series| Observing {
            observer: observer.clone(),
            phase: series.standing.phases("coordinator"),
            groups_open: series.play.groups_open.of([]),
            agents: roles.map(|(role, agent)| (role.clone(), agent.to_string())).collect(),
            suites: config.eval.suites.keys().map(ToString::to_string).collect(),
            asked: HashMap::new(),
            committed: BTreeMap::new(),
        }))
    }

    fn series(&self) -> Option<&PlaySeries> {
        let observed = self.0.as_ref()?;
        observed.observer.series().map(|series| &series.play)
    }

    /// Takes the state that the heartbeat reports.
    pub(crate) fn beat(&mut self, phase: RunPhase, groups_open: u64, stale_results: u64) {
        if let Some(observed) = &mut self.0 {
            observed.phase.set(phase);
            observed.groups_open.set(groups_open as f64);
            if observed.asked.len() > FEW {
                observed.asked.retain(|_, asked| asked.elapsed() < FORGOTTEN);
            }
        }
        if let Some(series) = self.series() {
            set_total(&series.stale.of([]), stale_results as f64);
        }
    }

    /// Remembers when turns were asked for.
    pub(crate) fn asked<'a>(&mut self, requests: impl Iterator<Item = &'a RequestId>) {
        if let Some(observed) = &mut self.0 {
            let now = Instant::now();
            observed.asked.extend(requests.map(|request| (*request, now)));
        }
    }

    /// Takes a committed result. Turns of evaluations count nowhere.
    pub(crate) fn result(&mut self, role: &RoleName, result: &TurnResult, trains: bool) {
        let Some(observed) = &mut self.0 else { return };
        let asked = observed.asked.remove(&result.request);
        if !trains || !matches!(result.outcome, TurnOutcome::Done(_)) {
            return;
        }
        if !observed.committed.contains_key(role) {
            let series = observed.of_role(role);
            observed.committed.extend(series.map(|series| (role.clone(), series)));
        }
        if let Some((count, seconds)) = observed.committed.get(role) {
            count.inc();
            if let Some(asked) = asked {
                seconds.observe(asked.elapsed().as_secs_f64());
            }
        }
    }

    pub(crate) fn failure(&self, role: &RoleName, code: FailureCode, over: bool) {
        if let (Some(observed), Some(series)) = (&self.0, self.series()) {
            let outcome = if over { "failed" } else { "retried" };
            let labels = [observed.agent(role), role.as_str(), outcome, code.name()];
            series.turns.of(labels).inc();
        }
    }

    pub(crate) fn group(&self, end: GroupEnd) {
        if let Some(series) = self.series() {
            series.groups.of([end.as_str()]).inc();
        }
    }

    pub(super) fn conversations(&self, summary: &GroupSummary) {
        let Some(series) = self.series() else { return };
        let played = series.conversations.of(["played", ""]);
        played.inc_by(summary.conversations as f64);
        for (failure, count) in &summary.failed {
            let failed = series.conversations.of(["failed", failure.code.name()]);
            failed.inc_by(*count as f64);
        }
    }

    pub(super) fn members(&self, members: &[MemberEnd]) {
        let Some(series) = self.series() else { return };
        let lengths = series.conversation_turns.of([]);
        for member in members {
            if let MemberEnd::Ended { turns, .. } = member {
                lengths.observe(turns.len() as f64);
            }
        }
    }

    /// Counts a task with what became of it: `admitted`, `duplicate` or `dead`.
    pub(crate) fn task(&self, own: bool, outcome: &'static str) {
        if let Some(series) = self.series() {
            series.tasks.of([source(own), outcome]).inc();
        }
    }

    pub(crate) fn lease_lost(&self) {
        if let Some(series) = self.series() {
            series.leases_lost.of([]).inc();
        }
    }

    /// Takes an evaluation that has ended; `held` are the seconds for which agents held weights.
    pub(crate) fn evaluation(&self, evaluation: &Evaluation, held: Option<f64>) {
        let (Some(observed), Some(series)) = (&self.0, self.series()) else {
            return;
        };
        series.eval_step.of([]).set(evaluation.step as f64);
        series.eval_held.of([]).inc_by(held.unwrap_or(0.0));
        for name in evaluation.values.keys() {
            let place = name
                .split_once('/')
                .filter(|(suite, _)| observed.suites.iter().any(|known| known == suite));
            let (suite, figure) = place.unwrap_or(("", name));
            if let Some(mean) = evaluation.mean(name) {
                series.eval_value.of([suite, figure]).set(mean);
            }
        }
    }
}

impl Observing {
    /// Returns the label for the agent of a role; programs, tools and judges have none.
    fn agent(&self, role: &RoleName) -> &str {
        self.agents.get(role).map_or("", String::as_str)
    }

    fn of_role(&self, role: &RoleName) -> Option<(Total, Histogram)> {
        let series = &self.observer.series()?.play;
        let (agent, role) = (self.agent(role), role.as_str());
        let count = series.turns.of([agent, role, "committed", ""]);
        Some((count, series.turn_seconds.of([agent, role])))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use broker::ids::RunId;

    use super::*;
    use crate::run_folder::tests::config_in;
    use crate::testing;

    #[test]
    fn turns_are_timed_from_asking_to_commit_and_evaluations_are_left_out() {
        let observer = Observer::new(&RunId::new("r").unwrap());
        let mut observed = ObservedPlay::new(&observer, &config_in(Path::new("x")));
        let role = RoleName::new("speaker").unwrap();
        let result = testing::turn_result(7);
        observed.asked([result.request].iter());
        observed.result(&role, &result, true);
        observed.asked([result.request].iter());
        observed.result(&role, &result, false);
        observed.failure(&role, FailureCode::Engine, false);
        let page = observer.page();
        for line in [
            "dyad_turns_total{run=\"r\",agent=\"a\",role=\"speaker\",outcome=\"committed\",reason=\"\"} 1",
            "dyad_turns_total{run=\"r\",agent=\"a\",role=\"speaker\",outcome=\"retried\",reason=\"engine\"} 1",
            "dyad_turn_seconds_count{run=\"r\",agent=\"a\",role=\"speaker\"} 1",
        ] {
            assert!(page.contains(line), "{line}:\n{page}");
        }
        assert!(observed.0.unwrap().asked.is_empty());
    }

    #[test]
    fn without_an_observer_nothing_is_kept() {
        let mut observed = ObservedPlay::new(&Observer::default(), &config_in(Path::new("x")));
        observed.asked([testing::turn_result(7).request].iter());
        observed.group(GroupEnd::Closed);
        assert!(observed.0.is_none());
    }
}
