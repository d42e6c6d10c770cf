//! Begins evaluations that are due, with the hold that they need, and reports them when they are
//! over.

use std::collections::BTreeMap;

use broker::AgentName;
use broker::ids::{Attempt, GroupId, WeightVersion};
use broker::protocol::control::RunPhase;
use configs::Mode;

use super::Coordinator;
use super::run::LISTEN;
use crate::agent::holds::lease;
use crate::base::ids::random_bytes;
use crate::coordinator::evaluation::precedence::{EvalTurn, turn_of, yields};
use crate::coordinator::evaluation::{EvalGroup, EvalStep};
use crate::coordinator::play::Open;
use crate::coordinator::transcripts::{self, shared, traced};

impl Coordinator {
    /// Begins an evaluation that is due, and releases a hold that is no longer needed.
    pub(super) fn advance_evaluation(&mut self) {
        if self.evals.is_running() {
            if self.leaves_evaluation() {
                return self.give_evaluation_up();
            }
            return self.release_in_time();
        }
        if !self.evaluation_is_due() || self.may_miss_another() || self.leaves_evaluation() {
            return self.release_hold();
        }
        if !self.holds_agents() {
            return self.start_evaluation(BTreeMap::new());
        }
        let Some(name) = self.evals.holds().name() else {
            return self.ask_hold();
        };
        if let Some(held) = self.peers.gate().held(name) {
            self.start_evaluation(held);
        } else if self.evals.holds().is_over() {
            tracing::warn!(
                at_most = %self.env.config.eval.hold_at_most,
                "not every agent held its weights in time: the evaluation begins while they change; `dyad status` shows who is \
                 behind, see eval.hold_at_most"
            );
            self.release_hold();
            self.start_evaluation(BTreeMap::new());
        }
    }

    /// Returns true if an evaluation is to begin as soon as weights allow.
    fn evaluation_is_due(&self) -> bool {
        match self.lifecycle.phase() {
            RunPhase::Running => self.evals.is_due(self.lead_step()) && self.may_start_evaluation(),
            // Once agents are asked to hold, the evaluation waits for that alone.
            RunPhase::Draining if self.evals.last_is_due() && self.all_drained() => {
                self.evals.holds().name().is_some() || self.may_end()
            }
            _ => false,
        }
    }

    /// A synchronous run evaluates only between rounds.
    pub(super) fn may_start_evaluation(&self) -> bool {
        match self.env.config.run.mode {
            Mode::Async => true,
            Mode::Sync => self.held_groups() == 0 && !self.play.has_wave() && self.peers.gate().idle(),
        }
    }

    /// The hold that agents are asked for now.
    pub(super) fn asked_hold(&self) -> Option<String> {
        let name = self.evals.holds().name();
        let open = self.lifecycle.phase() != RunPhase::Closed;
        name.filter(|_| open).map(str::to_owned)
    }

    /// The step at which the lead waits for an evaluation without being asked. No evaluation is
    /// then late, however quick training is.
    pub(super) fn evaluates_at(&self) -> Option<u64> {
        let trains = matches!(self.lifecycle.phase(), RunPhase::Starting | RunPhase::Running);
        self.evals.next().filter(|_| trains && self.holds_agents())
    }

    /// Lets agents train again.
    pub(super) fn release_hold(&mut self) {
        if self.evals.holds_mut().release() {
            self.send_beat();
        }
    }

    /// Synchronous rounds do not begin while an evaluation runs: they need no hold.
    fn holds_agents(&self) -> bool {
        !self.is_sync() && self.env.config.eval.hold
    }

    fn ask_hold(&mut self) {
        let at_most = self.env.config.eval.hold_at_most.0;
        self.evals.holds_mut().ask(&self.env.incarnation, at_most);
        self.send_beat();
    }

    /// An evaluation that takes too long stops no training any longer. Its report names the
    /// weights.
    fn release_in_time(&mut self) {
        if self.evals.holds().is_over() {
            tracing::warn!(
                at_most = %self.env.config.eval.hold_at_most,
                "an evaluation is not over in time: agents train on meanwhile, see eval.hold_at_most"
            );
            self.release_hold();
        }
    }

    /// Returns true if this coordinator has just begun, and may not know yet of another that
    /// evaluates.
    fn may_miss_another(&self) -> bool {
        !self.env.alone && !self.is_sync() && self.clock.age() < LISTEN
    }

    /// Returns true if another coordinator is to evaluate. A synchronous run has one coordinator.
    fn leaves_evaluation(&self) -> bool {
        if self.is_sync() {
            return false;
        }
        let alive = self.peers.others_within(lease(self.env.config.run.lease.0));
        let others = alive.filter_map(|beat| Some((beat.incarnation.as_str(), turn_of(beat)?)));
        let ours = match (self.evals.is_running(), self.evals.holds().name()) {
            (true, _) => Some(EvalTurn::Plays),
            (false, Some(_)) => Some(EvalTurn::Asks),
            (false, None) => None,
        };
        yields(&self.env.incarnation, ours, others)
    }

    /// Returns true once every other coordinator must have received our start message of the
    /// evaluation under way.
    fn evaluation_is_ours(&self) -> bool {
        let lease = lease(self.env.config.run.lease.0);
        let begun = self.evals.begun();
        self.env.alone || self.is_sync() || begun.is_some_and(|begun| begun.elapsed() >= lease)
    }

    fn give_evaluation_up(&mut self) {
        tracing::info!("another coordinator plays this evaluation too: it is left to that one");
        self.play.remove_evaluations();
        self.evals.give_up();
        self.release_hold();
    }

    /// `held`: the weights that agents hold for the evaluation.
    fn start_evaluation(&mut self, held: BTreeMap<AgentName, WeightVersion>) {
        let last = self.lifecycle.phase() == RunPhase::Draining;
        let groups = self.evals.begin(self.lead_step(), last, held, &self.specs);
        self.open_evaluation(groups);
        // Other coordinators must know it before they begin their own.
        self.send_beat();
    }

    pub(super) fn open_evaluation(&mut self, groups: Vec<EvalGroup>) {
        for EvalGroup { spec, purpose, index } in groups {
            let group = GroupId::new(&self.env.run, &format!("{}/{}", spec.task_id, self.env.incarnation));
            let open = Open::of_evaluation(spec, purpose, index, Attempt(random_bytes()));
            self.play.insert(group, open);
        }
    }

    /// Takes a group of an evaluation that has ended.
    pub(super) fn close_evaluation(&mut self, group: GroupId) {
        let Some(open) = self.play.get(&group) else { return };
        let empty = self.specs.run_spec(&open.task, &open.task_id, 0);
        let members = self.play.take_members(&group, empty);
        let Some(open) = self.play.remove(&group) else { return };
        let (step, ours) = (self.evals.writes(&open), self.evaluation_is_ours());
        let written = step.map_or_else(Vec::new, |step| {
            transcripts::of_group(&self.specs, group, &open, &members, step, None)
        });
        traced::send_group(&self.env.traces, &self.specs, group, &open, &members, None);
        shared::send_group(&self.env, self.specs.rules(), group, &members);
        let written = self.evals.add(&self.specs, &open, members, written, ours);
        written.iter().for_each(|one| self.figures.write_transcript(one));
        while let Some(step) = self.evals.next_step(&self.specs) {
            match step {
                EvalStep::Begin(groups) => self.open_evaluation(groups),
                EvalStep::Report => self.report_evaluation(),
            }
        }
    }

    fn report_evaluation(&mut self) {
        let Some(report) = self.evals.finish(&self.specs) else {
            return;
        };
        report
            .transcripts()
            .iter()
            .for_each(|one| self.figures.write_transcript(one));
        let (evaluation, line) = report.into_parts();
        let held = line.get("time/held_s").and_then(serde_json::Value::as_f64);
        self.figures.observed().evaluation(&evaluation, held);
        self.figures.write(line);
        self.figures.flush_transcripts();
        self.evals.write(&evaluation);
        self.release_hold();
    }
}
