//! The run's phase as this coordinator knows it, and the coordinator's own end.

use std::time::Duration;

use broker::protocol::control::{Command, RunPhase, RunState};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;
use tracing::span::EnteredSpan;

/// Between two looks at the queues of a run that is being drained.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looks in succession that must find nothing.
const LOOKS: u32 = 2;

/// The run's state, the looks at its queues, and the scope and end of this coordinator.
pub(crate) struct Lifecycle {
    run: RunState,
    closed_at: Option<Instant>,
    /// Looks in succession that found nothing while draining.
    empty_looks: u32,
    last_look: Instant,
    /// The reason why this coordinator paused the run.
    stalled: Option<String>,
    /// The coordinator was ordered to stop, or yields to another: it begins nothing new.
    stopping: bool,
    /// The scope of its log lines: an actor's context has none of its own.
    scope: Span,
    ended: Option<oneshot::Sender<anyhow::Result<()>>>,
}

impl Lifecycle {
    /// `ended` receives the end of the run, or why this coordinator cannot go on.
    #[must_use]
    pub(crate) fn new(ended: oneshot::Sender<anyhow::Result<()>>) -> Self {
        Self {
            run: RunState::default(),
            closed_at: None,
            empty_looks: 0,
            last_look: Instant::now(),
            stalled: None,
            stopping: false,
            scope: Span::current(),
            ended: Some(ended),
        }
    }

    /// Enters the scope in which the coordinator was made.
    pub(crate) fn log_scope(&self) -> EnteredSpan {
        self.scope.clone().entered()
    }

    #[must_use]
    pub(crate) fn run(&self) -> RunState {
        self.run
    }

    #[must_use]
    pub(crate) fn phase(&self) -> RunPhase {
        self.run.phase
    }

    /// The state of the run after it enters a phase.
    #[must_use]
    pub(crate) fn entering(&self, phase: RunPhase) -> RunState {
        RunState {
            seq: self.run.seq.saturating_add(1),
            phase,
        }
    }

    /// Goes on with the number of a state that the agents know.
    pub(crate) fn count_from(&mut self, known: RunState) {
        self.run.seq = known.seq;
    }

    /// Takes a state of the run over.
    pub(crate) fn adopt(&mut self, state: RunState) {
        self.run = state;
        self.empty_looks = 0;
        if state.phase != RunPhase::Paused {
            self.stalled = None;
        }
        if state.phase == RunPhase::Closed {
            self.closed_at.get_or_insert_with(Instant::now);
        }
    }

    /// The phase that an order leads to. None if the order changes no phase now.
    #[must_use]
    pub(crate) fn ordered(&self, command: &Command) -> Option<RunPhase> {
        match (command, self.run.phase) {
            (Command::Pause, RunPhase::Running) => Some(RunPhase::Paused),
            (Command::Resume, RunPhase::Paused) => Some(RunPhase::Running),
            (Command::Drain, RunPhase::Running | RunPhase::Paused) => Some(RunPhase::Draining),
            _ => None,
        }
    }

    /// Returns true if a joint snapshot may be made in this phase.
    #[must_use]
    pub(crate) fn takes_snapshots(&self) -> bool {
        matches!(
            self.run.phase,
            RunPhase::Running | RunPhase::Paused | RunPhase::Draining
        )
    }

    /// Keeps the reason of a pause that this coordinator begins.
    pub(crate) fn stall(&mut self, reason: String) {
        self.stalled = Some(reason);
    }

    #[must_use]
    pub(crate) fn stalled(&self) -> Option<String> {
        self.stalled.clone()
    }

    /// Returns true once per half second: queues or the run folder are then to be looked at.
    pub(crate) fn take_look_turn(&mut self) -> bool {
        let due = self.last_look.elapsed() >= LOOK_EVERY;
        if due {
            self.last_look = Instant::now();
        }
        due
    }

    /// Counts a look. Two in succession must find nothing, since a message may be between a queue
    /// and a ledger.
    pub(crate) fn looked(&mut self, found_nothing: bool) {
        self.empty_looks = if found_nothing { self.empty_looks + 1 } else { 0 };
    }

    #[must_use]
    pub(crate) fn queues_are_empty(&self) -> bool {
        self.empty_looks >= LOOKS
    }

    /// Returns true if the run has been closed for longer than `patience`.
    #[must_use]
    pub(crate) fn is_closed_for(&self, patience: Duration) -> bool {
        self.closed_at.is_some_and(|at| at.elapsed() > patience)
    }

    #[must_use]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// The receiver of this coordinator's end, if it has not ended yet.
    pub(crate) fn take_end(&mut self) -> Option<oneshot::Sender<anyhow::Result<()>>> {
        self.ended.take()
    }

    #[cfg(test)]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_none()
    }

    /// Puts the run into a phase, without its consequences.
    #[cfg(test)]
    pub(crate) fn set_phase(&mut self, phase: RunPhase) {
        self.run.phase = phase;
    }
}

/// The phase in words for logs.
#[must_use]
pub(crate) fn phase_word(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Starting => "starting",
        RunPhase::Running => "running",
        RunPhase::Paused => "paused",
        RunPhase::Draining => "draining: no new tasks",
        RunPhase::Closed => "closed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifecycle() -> Lifecycle {
        Lifecycle::new(oneshot::channel().0)
    }

    #[tokio::test]
    async fn two_empty_looks_in_succession_are_needed() {
        let mut lifecycle = lifecycle();
        for (nothing, empty) in [(true, false), (false, false), (true, false), (true, true)] {
            lifecycle.looked(nothing);
            assert_eq!(lifecycle.queues_are_empty(), empty);
        }
        lifecycle.adopt(lifecycle.entering(RunPhase::Draining));
        assert!(!lifecycle.queues_are_empty(), "a new phase looks again");
    }

    #[tokio::test]
    async fn orders_move_the_phase_where_they_apply() {
        let mut lifecycle = lifecycle();
        assert_eq!(lifecycle.ordered(&Command::Pause), None, "the run has not begun");
        lifecycle.adopt(lifecycle.entering(RunPhase::Running));
        assert_eq!(lifecycle.ordered(&Command::Pause), Some(RunPhase::Paused));
        assert_eq!(lifecycle.ordered(&Command::Resume), None);
        assert_eq!(lifecycle.run().seq, 1);
    }
}
