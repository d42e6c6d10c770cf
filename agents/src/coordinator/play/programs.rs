//! Turns that programs of the user take: asked in this process, and committed as all turns are.

use std::sync::Arc;
use std::time::Instant;

use broker::ids::{Attempt, GroupId, RequestId, TurnKey};
use broker::protocol::turn::{Message, TurnOutcome, TurnResult};
use tokio::task::AbortHandle;

use crate::base::log_scope;
use crate::coordinator::input::{Input, Mailbox};
use crate::observe::Observer;
use crate::participant::{Host, TOOL};

/// A question for a program.
pub(crate) struct ProgramTurn {
    pub host: Arc<Host>,
    pub group: GroupId,
    pub attempt: Attempt,
    pub key: TurnKey,
    pub messages: Vec<Message>,
}

impl ProgramTurn {
    #[must_use]
    pub(crate) fn request(&self) -> RequestId {
        RequestId::new(self.group, self.attempt, &self.key)
    }

    /// Returns true if a tool answers. Its call goes on by itself even if the answer is dropped,
    /// and would then count in no limit.
    #[must_use]
    pub(crate) fn is_tool(&self) -> bool {
        self.host.kind(&self.key.role) == TOOL
    }

    /// Asks the program. The answer comes back as [`Input::Answered`].
    pub(crate) fn ask(self, mailbox: Mailbox, observer: Observer) -> AbortHandle {
        let scope = log_scope::turn(self.group, self.key.member, self.key.role.as_str(), self.key.turn);
        let asked = scope.in_scope(|| log_scope::spawn(self.answer(mailbox, observer)));
        asked.abort_handle()
    }

    async fn answer(self, mailbox: Mailbox, observer: Observer) {
        let begun = Instant::now();
        let outcome = self.host.ask(&self.key.role, &self.messages).await;
        self.show(&observer, &outcome, begun);
        let result = TurnResult {
            request: self.request(),
            group: self.group,
            attempt: self.attempt,
            member: self.key.member,
            role: self.key.role.to_string(),
            seat: self.key.seat,
            turn: self.key.turn,
            outcome,
        };
        // The coordinator is gone only when the process ends.
        let _ = mailbox.send(Input::Answered(Box::new(result))).await;
    }

    /// Shows how long the answer took.
    fn show(&self, observer: &Observer, outcome: &TurnOutcome, begun: Instant) {
        let Some(series) = observer.series().map(|series| &series.play) else {
            return;
        };
        let times = if self.is_tool() { &series.tool } else { &series.grader };
        let outcome = match outcome {
            TurnOutcome::Done(_) => "answered",
            TurnOutcome::Failed { .. } => "failed",
        };
        let times = times.of([self.key.role.as_str(), outcome]);
        times.observe(begun.elapsed().as_secs_f64());
    }
}

/// A question under way. Dropping it gives the question up, or takes it out of the program's queue.
pub(super) struct Asking(AbortHandle);

impl Asking {
    pub(super) fn new(question: AbortHandle) -> Self {
        Self(question)
    }

    pub(super) fn is_answered(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.abort();
    }
}
