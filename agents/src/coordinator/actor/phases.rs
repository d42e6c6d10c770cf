//! The run's phases: what moves it on by itself, what orders do, and when it is drained.

use std::time::Duration;

use actix::{AsyncContext, Context};
use broker::AgentName;
use broker::protocol::control::{Command, RunPhase, RunState};
use configs::Mode;
use tokio::time::Instant;

use crate::coordinator::actor::{Coordinator, Input, Purpose};

/// How long a coordinator of a synchronous run listens for another one before it begins: a few heartbeats.
pub(in crate::coordinator) const LISTEN: Duration = Duration::from_millis(1500);
/// Between two looks at the queues of a run that is being drained.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looks in succession that must find nothing.
const LOOKS: u32 = 2;

impl Coordinator {
    pub(in crate::coordinator) fn advance_phase(&mut self) {
        match self.run.phase {
            RunPhase::Starting => self.begin(),
            RunPhase::Running if self.finished() => self.enter(RunPhase::Draining),
            RunPhase::Draining
                if self.drained() && self.others_drained() && !self.evals.last_is_due() && !self.evals.running() =>
            {
                self.enter(RunPhase::Closed);
            }
            RunPhase::Closed if self.all_agents_closed() => self.end(Ok(())),
            _ => {}
        }
        self.advance_eval();
    }

    /// Whether one is to be begun as soon as weights allow.
    pub(in crate::coordinator) fn eval_is_due(&self) -> bool {
        match self.run.phase {
            RunPhase::Running => self.evals.due(self.lead_step()) && self.may_start_eval(),
            // Once agents are asked to hold, it waits for that alone.
            RunPhase::Draining if self.evals.last_is_due() && self.drained() && self.others_drained() => {
                self.evals.hold.is_some() || self.may_end()
            }
            _ => false,
        }
    }

    /// Goes on where the agents know the run to be; begins one of which nobody knows.
    fn begin(&mut self) {
        if self.last_look.elapsed() >= LOOK_EVERY {
            self.last_look = Instant::now();
            self.over = crate::coordinator::actor::over(&self.env);
        }
        let known = self.known_state();
        if known.phase == RunPhase::Closed || !self.over.is_empty() {
            return self.adopt(RunState {
                phase: RunPhase::Closed,
                ..known
            });
        }
        let heard = self.env.alone || self.env.config.run.mode == Mode::Async || self.started.elapsed() >= LISTEN;
        if !(heard && self.gate.complete() && self.all_serving()) {
            return;
        }
        self.feed.skip_to(self.gate.next_order());
        if known.phase > RunPhase::Running {
            self.adopt(known);
        } else {
            self.run.seq = known.seq;
            self.enter(RunPhase::Running);
        }
    }

    fn known_state(&self) -> RunState {
        let known = self.beats.values().map(|(beat, _)| beat.run);
        known.max().unwrap_or_default()
    }

    pub(in crate::coordinator) fn enter(&mut self, phase: RunPhase) {
        self.adopt(RunState {
            seq: self.run.seq.saturating_add(1),
            phase,
        });
    }

    /// From now on the run is in this state.
    pub(in crate::coordinator) fn adopt(&mut self, state: RunState) {
        tracing::info!(
            phase = ?state.phase,
            step = self.lead_step(),
            groups = self.counters.groups,
            "the run is {}",
            phase_word(state.phase)
        );
        self.run = state;
        self.empty = 0;
        if state.phase == RunPhase::Closed {
            self.closed_at.get_or_insert_with(Instant::now);
        }
        self.say_beat();
    }

    pub(in crate::coordinator) fn on_command(&mut self, command: Command) {
        match (command, self.run.phase) {
            (Command::Pause, RunPhase::Running) => self.enter(RunPhase::Paused),
            (Command::Resume, RunPhase::Paused) => self.enter(RunPhase::Running),
            (Command::Drain, RunPhase::Running | RunPhase::Paused) => self.enter(RunPhase::Draining),
            (
                Command::Checkpoint { snapshot, patience_ms },
                RunPhase::Running | RunPhase::Paused | RunPhase::Draining,
            ) => {
                self.begin_snapshot(snapshot, Duration::from_millis(patience_ms));
            }
            // Orders are repeated until they are seen to be kept.
            (command, phase) => tracing::debug!(?command, ?phase, "a command that changes nothing now"),
        }
    }

    fn all_serving(&self) -> bool {
        let serving = |name: &AgentName| self.beats.get(name).is_some_and(|(beat, _)| beat.serving);
        self.env.participants().iter().all(serving)
    }

    fn finished(&self) -> bool {
        self.goal_reached() || (self.feed.exhausted() && self.waiting.is_empty() && self.held_groups() == 0)
    }

    /// Whether the lead agent trains no more: what is published from now on would wait for ever.
    fn goal_reached(&self) -> bool {
        self.lead_step() >= self.env.config.run.train_steps || self.evals.reached
    }

    /// Whether published tasks are admitted: also while the run is drained, since they were accepted.
    pub(in crate::coordinator) fn admits_published(&self) -> bool {
        match self.run.phase {
            RunPhase::Running => true,
            RunPhase::Draining => !self.goal_reached(),
            _ => false,
        }
    }

    /// Nothing is held here, and no agent holds a row that waits for something.
    pub(in crate::coordinator) fn holds_nothing(&self) -> bool {
        let open = self.open.values().any(|open| open.purpose == Purpose::Train);
        let on_the_way = self.admitting.len() + self.claiming.len() + self.reclaimed.len();
        !open && on_the_way == 0 && self.gate.nothing_reserved()
    }

    /// Nothing of the run is left: twice in succession, since a message may be between a queue and a ledger.
    pub(in crate::coordinator) fn drained(&self) -> bool {
        let tasks = !self.admits_published() || (self.waiting.is_empty() && self.empty >= LOOKS);
        self.run.phase >= RunPhase::Draining && self.holds_nothing() && tasks
    }

    fn others_drained(&self) -> bool {
        let lease = self.env.config.run.lease.0;
        let mut alive = self.others.values().filter(|(_, heard)| heard.elapsed() < lease);
        alive.all(|(beat, _)| beat.drained || beat.phase == RunPhase::Closed)
    }

    /// Asks how many tasks wait, while that decides whether the run may end.
    pub(in crate::coordinator) fn look_at_queues(&mut self, ctx: &mut Context<Self>) {
        let matters = self.run.phase == RunPhase::Draining && self.admits_published();
        if !matters || self.last_look.elapsed() < LOOK_EVERY {
            return;
        }
        self.last_look = Instant::now();
        let (env, addr) = (self.env.clone(), ctx.address());
        tokio::spawn(async move {
            let tasks = env.bus.depth(&env.topology.tasks()).await;
            let reclaimed = env.bus.depth(&env.topology.reclaim()).await;
            let depth = tasks.zip(reclaimed).map(|(tasks, reclaimed)| tasks + reclaimed);
            let _ = addr.send(Input::Depth(depth)).await;
        });
    }

    pub(in crate::coordinator) fn on_depth(&mut self, depth: Option<u64>) {
        let nothing = depth == Some(0) && self.waiting.is_empty() && self.holds_nothing();
        self.empty = if nothing { self.empty + 1 } else { 0 };
    }

    /// Whether the weights that the last evaluation is to see are there.
    fn may_end(&self) -> bool {
        match self.env.config.run.mode {
            Mode::Sync => self.may_start_eval(),
            Mode::Async => self.gate.settled(),
        }
    }

    /// One that ended before we came says nothing any more; one that is gone for good is not waited for without end.
    fn all_agents_closed(&self) -> bool {
        let closed = |name: &AgentName| {
            let heard = self.beats.get(name);
            self.over.contains(name) || heard.is_some_and(|(beat, _)| beat.phase == RunPhase::Closed)
        };
        let patience = self.env.config.run.lease.0 * 4;
        self.env.participants().iter().all(closed) || self.closed_at.is_some_and(|at| at.elapsed() > patience)
    }

    /// Nothing is left to do here, or nothing can be done.
    pub(in crate::coordinator) fn end(&mut self, outcome: anyhow::Result<()>) {
        let Some(ended) = self.ended.take() else { return };
        self.say_beat();
        self.write_metrics();
        self.transcripts.flush();
        self.metrics.flush();
        // Nobody waits any more only if the process is ending anyway.
        let _ = ended.send(outcome);
    }
}

fn phase_word(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Starting => "starting",
        RunPhase::Running => "running",
        RunPhase::Paused => "paused",
        RunPhase::Draining => "draining: no new tasks",
        RunPhase::Closed => "closed",
    }
}
