//! The coordinator's series for Prometheus: set from its figures as they change.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::RoleName;
use broker::protocol::control::RunPhase;
use broker::protocol::failure::FailureCode;
use configs::RunConfig;
use rollout::group::{GroupSummary, MemberEnd};

use crate::observe::Observer;
use crate::observe::batched::Tally;
use crate::observe::series::play::PlaySeries;
use crate::observe::series::standing::PhaseLevels;
use crate::observe::table::{Level, Total, set_total};
use crate::stats::summary::Evaluation;

/// The series of a coordinator. Without an observer every call returns at once.
pub(crate) struct ObservedPlay(Option<Observing>);

/// The series that change often are kept: finding them by their labels costs a microsecond.
struct Observing {
    observer: Observer,
    phase: PhaseLevels,
    groups_open: Level,
    stale: Total,
    played: Total,
    lengths: Tally,
    /// Seconds of conversations.
    times: Tally,
    ends: [(GroupEnd, Total); 4],
    admitted: [Total; 2],
    /// The agent of each role, for labels.
    agents: BTreeMap<RoleName, String>,
    suites: Vec<String>,
    /// Committed turns by role. Few roles are found faster in a list than in a map.
    committed: Vec<(RoleName, CommittedTurns)>,
}

struct CommittedTurns {
    turns: u64,
    shown: Total,
    seconds: Tally,
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
    const ALL: [Self; 4] = [Self::Closed, Self::Empty, Self::Dead, Self::Voided];

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
        Self(observer.series().map(|series| {
            let play = &series.play;
            Observing {
                observer: observer.clone(),
                phase: series.standing.phases("coordinator"),
                groups_open: play.groups_open.of([]),
                stale: play.stale.of([]),
                played: play.conversations.of(["played", ""]),
                lengths: play.conversation_turns.of([]).tally(),
                times: play.conversation_seconds.of([]).tally(),
                ends: GroupEnd::ALL.map(|end| (end, play.groups.of([end.as_str()]))),
                admitted: [true, false].map(|own| play.tasks.of([source(own), "admitted"])),
                agents: roles.map(|(role, agent)| (role.clone(), agent.to_string())).collect(),
                suites: config.eval.suites.keys().map(ToString::to_string).collect(),
                committed: Vec::new(),
            }
        }))
    }

    fn series(&self) -> Option<&PlaySeries> {
        let observed = self.0.as_ref()?;
        observed.observer.series().map(|series| &series.play)
    }

    /// Takes the state that the heartbeat reports, and shows what was counted since the last one.
    pub(crate) fn beat(&mut self, phase: RunPhase, groups_open: u64, stale_results: u64) {
        let Some(observed) = &mut self.0 else { return };
        observed.phase.set(phase);
        observed.groups_open.set(groups_open as f64);
        set_total(&observed.stale, stale_results as f64);
        observed.lengths.show();
        observed.times.show();
        for (_, turns) in &mut observed.committed {
            set_total(&turns.shown, turns.turns as f64);
            turns.seconds.show();
        }
    }

    /// Takes a committed turn of a group that trains, with the time since it was asked for.
    pub(crate) fn turn(&mut self, role: &RoleName, took: Option<Duration>) {
        let Some(observed) = &mut self.0 else { return };
        let known = observed.committed.iter().position(|(known, _)| known == role);
        let place = known.unwrap_or_else(|| observed.add(role));
        if let Some((_, turns)) = observed.committed.get_mut(place) {
            turns.turns += 1;
            if let Some(took) = took {
                turns.seconds.observe(took.as_secs_f64());
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
        let Some(observed) = &self.0 else { return };
        if let Some((_, count)) = observed.ends.iter().find(|(known, _)| *known == end) {
            count.inc();
        }
    }

    pub(super) fn conversations(&self, summary: &GroupSummary) {
        let (Some(observed), Some(series)) = (&self.0, self.series()) else {
            return;
        };
        observed.played.inc_by(summary.conversations as f64);
        for (failure, count) in &summary.failed {
            let failed = series.conversations.of(["failed", failure.code.name()]);
            failed.inc_by(*count as f64);
        }
    }

    /// Takes the conversations of a group; `took` returns the time of one by its number.
    pub(super) fn members(&mut self, members: &[MemberEnd], took: impl Fn(usize) -> Option<Duration>) {
        let Some(observed) = &mut self.0 else { return };
        for (number, member) in members.iter().enumerate() {
            if let MemberEnd::Ended { turns, .. } = member {
                observed.lengths.observe(turns.len() as f64);
                if let Some(took) = took(number) {
                    observed.times.observe(took.as_secs_f64());
                }
            }
        }
    }

    /// Counts a task that was admitted.
    pub(crate) fn admitted(&self, own: bool) {
        if let Some(observed) = &self.0 {
            observed.admitted[usize::from(!own)].inc();
        }
    }

    /// Counts another task with what became of it: `duplicate` or `dead`.
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

    fn add(&mut self, role: &RoleName) -> usize {
        if let Some(series) = self.observer.series().map(|series| &series.play) {
            let (agent, name) = (self.agent(role), role.as_str());
            let turns = CommittedTurns {
                turns: 0,
                shown: series.turns.of([agent, name, "committed", ""]),
                seconds: series.turn_seconds.of([agent, name]).tally(),
            };
            self.committed.push((role.clone(), turns));
        }
        self.committed.len().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use broker::ids::RunId;
    use rollout::workflow::Outcome;

    use super::*;
    use crate::run_folder::tests::config_in;

    #[test]
    fn turns_are_timed_by_role_and_shown_with_the_heartbeat() {
        let observer = Observer::new(&RunId::new("r").unwrap());
        let mut observed = ObservedPlay::new(&observer, &config_in(Path::new("x")));
        let role = RoleName::new("speaker").unwrap();
        observed.turn(&role, Some(Duration::from_millis(300)));
        observed.turn(&role, None);
        let ended = MemberEnd::Ended {
            outcome: Outcome {
                rewards: Vec::new(),
                metrics: Vec::new(),
            },
            turns: Vec::new(),
        };
        let took = |number| (number == 0).then_some(Duration::from_secs(2));
        observed.members(&[ended.clone(), ended], took);
        observed.failure(&role, FailureCode::Engine, false);
        observed.group(GroupEnd::Closed);
        observed.admitted(true);
        observed.beat(RunPhase::Running, 3, 0);
        let page = observer.page();
        for line in [
            "dyad_turns_total{run=\"r\",agent=\"a\",role=\"speaker\",outcome=\"committed\",reason=\"\"} 2",
            "dyad_turns_total{run=\"r\",agent=\"a\",role=\"speaker\",outcome=\"retried\",reason=\"engine\"} 1",
            "dyad_turn_seconds_count{run=\"r\",agent=\"a\",role=\"speaker\"} 1",
            "dyad_conversation_turns_count{run=\"r\"} 2",
            "dyad_conversation_seconds_count{run=\"r\"} 1",
            "dyad_conversation_seconds_sum{run=\"r\"} 2.0",
            "dyad_groups_total{run=\"r\",outcome=\"closed\"} 1",
            "dyad_tasks_total{run=\"r\",source=\"own\",outcome=\"admitted\"} 1",
            "dyad_run_phase{run=\"r\",component=\"coordinator\",phase=\"running\"} 1",
        ] {
            assert!(page.contains(line), "{line}:\n{page}");
        }
    }

    #[test]
    fn without_an_observer_nothing_is_kept() {
        let mut observed = ObservedPlay::new(&Observer::default(), &config_in(Path::new("x")));
        observed.turn(&RoleName::new("speaker").unwrap(), None);
        observed.group(GroupEnd::Closed);
        assert!(observed.series().is_none());
    }
}
