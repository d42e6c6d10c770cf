//! The run's phases: what moves it on by itself, what orders do, and when it is drained.

use std::time::Duration;

use actix::Context;
use broker::protocol::control::{Command, RunPhase, RunState};
use configs::Mode;

use super::{Coordinator, mailbox};
use crate::base::fault::Unavailable;
use crate::coordinator::admission::queues;
use crate::coordinator::lifecycle::phase_word;
use crate::run_folder::metrics::Metrics;

/// The time that a starting coordinator listens for others before it begins: a few heartbeats.
pub(super) const LISTEN: Duration = Duration::from_millis(1500);

impl Coordinator {
    pub(super) fn advance_phase(&mut self) {
        match self.lifecycle.phase() {
            RunPhase::Starting => self.begin(),
            RunPhase::Running if self.finished() => {
                self.note_end(&self.end_reason());
                self.enter(RunPhase::Draining);
            }
            RunPhase::Running => self.stop_if_nothing_is_learned(),
            RunPhase::Draining if self.all_drained() && !self.evals.last_is_due() && !self.evals.is_running() => {
                self.enter(RunPhase::Closed);
            }
            RunPhase::Closed if self.all_agents_closed() => self.end(Ok(())),
            _ => {}
        }
        self.advance_evaluation();
    }

    /// Goes on in the state that the agents know, or begins a run that no agent knows.
    fn begin(&mut self) {
        if self.lifecycle.take_look_turn() {
            self.peers.look_for_ended(&self.env);
        }
        let known = self.peers.known_state();
        if known.phase == RunPhase::Closed || self.peers.any_ended() {
            return self.adopt(RunState {
                phase: RunPhase::Closed,
                ..known
            });
        }
        let listened = self.env.alone || !self.is_sync() || self.clock.age() >= LISTEN;
        if !(listened && self.peers.gate().complete() && self.peers.all_serve()) {
            return;
        }
        self.admission.skip_to(self.peers.gate().next_order());
        if known.phase > RunPhase::Running {
            self.adopt(known);
        } else {
            self.lifecycle.count_from(known);
            self.enter(RunPhase::Running);
        }
    }

    /// Closes the run if it has ended without this coordinator, which was halted or cut off
    /// meanwhile: no agent is alive, and the ledger of one says that it has ended.
    pub(super) fn close_if_run_is_over(&mut self) {
        let begun = (RunPhase::Running..RunPhase::Closed).contains(&self.lifecycle.phase());
        if begun && self.peers.alive().is_empty() {
            self.peers.look_for_ended(&self.env);
            if self.peers.any_ended() {
                self.enter(RunPhase::Closed);
            }
        }
    }

    /// Stops a run in which a program never answers, or an agent has nothing to learn: a key is
    /// wrong, a program dies, a filter takes everything, or all rewards are equal. No order reaches
    /// a run of one process, so it ends with 75.
    fn stop_if_nothing_is_learned(&mut self) {
        let broken = self.specs.take_broken();
        let is_broken = broken.is_some();
        let stall = || self.figures.stalls().take(|agent| self.peers.learning(agent));
        let Some(why) = broken.or_else(stall) else { return };
        let step = self.lead_step();
        self.figures
            .write(Metrics::new("stalled", step).with("reason", why.clone()));
        let advice = if is_broken {
            "correct it, and try it with `dyad workflow test CONFIG`"
        } else {
            "correct the cause; run.empty_groups sets the limit, 0 is none (8 without samples are enough over two \
             minutes, and equal rewards need more than 20 batches)"
        };
        if self.env.alone {
            tracing::error!(why, "the run stops, because nothing can be learned: {advice}");
            let message = format!("nothing can be learned: {why}");
            let hint = Some(format!("{advice}; `--resume` goes on"));
            return self.end(Err(Unavailable { message, hint }.into()));
        }
        tracing::error!(
            why,
            "the run pauses, because nothing can be learned: {advice}; then `dyad resume`"
        );
        self.lifecycle.stall(why);
        self.enter(RunPhase::Paused);
    }

    fn enter(&mut self, phase: RunPhase) {
        self.adopt(self.lifecycle.entering(phase));
    }

    /// Takes over a state of the run, and reports it.
    pub(super) fn adopt(&mut self, state: RunState) {
        tracing::info!(
            phase = ?state.phase,
            step = self.lead_step(),
            groups = self.figures.counters().groups,
            "the run is {}",
            phase_word(state.phase)
        );
        if state.phase == RunPhase::Running {
            self.figures.stalls().forget(|agent| self.peers.learning(agent));
            // The user may have corrected it meanwhile.
            drop(self.specs.take_broken());
        }
        self.lifecycle.adopt(state);
        self.send_beat();
    }

    pub(super) fn on_command(&mut self, command: Command) {
        if let Some(phase) = self.lifecycle.ordered(&command) {
            if phase == RunPhase::Draining {
                self.note_end(&format!("`dyad drain` at step {}", self.lead_step()));
            }
            return self.enter(phase);
        }
        match command {
            Command::Checkpoint { snapshot, patience_ms } if self.lifecycle.takes_snapshots() => {
                self.snapshots.begin(snapshot, Duration::from_millis(patience_ms));
            }
            // Orders are repeated until their effect shows.
            command => {
                let phase = self.lifecycle.phase();
                tracing::debug!(?command, ?phase, "a command that changes nothing now");
            }
        }
    }

    fn finished(&self) -> bool {
        let nothing_left = self.admission.is_exhausted() && self.admission.none_waits();
        self.goal_reached() || (nothing_left && self.held_groups() == 0)
    }

    /// The reason why the run is [`finished`](Self::finished).
    pub(super) fn end_reason(&self) -> String {
        let step = self.lead_step();
        if let Some(step) = self.evals.reached() {
            return format!("eval.stop_at reached at step {step}");
        }
        if step >= self.env.config.run.train_steps {
            return format!("run.train_steps reached at step {step}");
        }
        if let Some(why) = self.admission.source_failure() {
            return format!("tasks.source cannot be read any more at step {step}: {why}");
        }
        "every task of tasks.source was used".into()
    }

    fn note_end(&self, reason: &str) {
        tracing::info!(reason, "the run ends");
        if let Err(error) = self.env.folder.set_ended(reason) {
            tracing::warn!(%error, "the end was not recorded in the run folder");
        }
    }

    /// Returns true if the lead agent trains no more. A task published from now on would wait for
    /// ever.
    fn goal_reached(&self) -> bool {
        self.lead_step() >= self.env.config.run.train_steps || self.evals.reached().is_some()
    }

    /// Returns true if published tasks are admitted. A run that is drained admits them too, since
    /// they were accepted.
    pub(super) fn admits_published(&self) -> bool {
        match self.lifecycle.phase() {
            RunPhase::Running => true,
            RunPhase::Draining => !self.goal_reached(),
            _ => false,
        }
    }

    /// Returns true if nothing is held here, and no agent holds a row that waits for something.
    fn holds_nothing(&self) -> bool {
        let plays = self.play.training().next().is_some();
        !plays && self.admission.held() == 0 && self.peers.gate().nothing_reserved()
    }

    /// Returns true if nothing of the run is left.
    pub(super) fn drained(&self) -> bool {
        let no_tasks = self.admission.none_waits() && self.lifecycle.queues_are_empty();
        let tasks_done = !self.admits_published() || no_tasks;
        self.lifecycle.phase() >= RunPhase::Draining && self.holds_nothing() && tasks_done
    }

    /// Returns true if nothing of the run is left here or at other coordinators.
    pub(super) fn all_drained(&self) -> bool {
        self.drained() && self.peers.others_drained()
    }

    /// Asks how many tasks wait, while that decides whether the run may end.
    pub(super) fn look_at_queues(&mut self, ctx: &mut Context<Self>) {
        let matters = self.lifecycle.phase() == RunPhase::Draining && self.admits_published();
        if matters && self.lifecycle.take_look_turn() {
            queues::look(&self.env, mailbox(ctx));
        }
    }

    pub(super) fn on_depth(&mut self, depth: Option<u64>) {
        let nothing = depth == Some(0) && self.admission.none_waits() && self.holds_nothing();
        self.lifecycle.looked(nothing);
    }

    /// Returns true if the weights that the last evaluation needs are there.
    pub(super) fn may_end(&self) -> bool {
        match self.env.config.run.mode {
            Mode::Sync => self.may_start_evaluation(),
            Mode::Async => self.peers.gate().settled(),
        }
    }

    /// Returns true if every agent knows that the run is closed. An agent that is gone for good is
    /// waited for during four leases.
    fn all_agents_closed(&self) -> bool {
        let patience = self.env.config.run.lease.0 * 4;
        self.peers.all_closed() || self.lifecycle.is_closed_for(patience)
    }

    /// Ends this coordinator: nothing is left to do, or nothing can be done.
    pub(super) fn end(&mut self, outcome: anyhow::Result<()>) {
        let Some(ended) = self.lifecycle.take_end() else { return };
        self.send_beat();
        self.figures.write_totals(self.lead_step());
        self.figures.flush();
        // The receiver is gone only if the process is ending anyway.
        let _ = ended.send(outcome);
    }
}
