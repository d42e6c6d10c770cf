//! A group that is being played.

use std::sync::Arc;

use broker::ids::Attempt;
use broker::protocol::failure::Failure;
use broker::protocol::task::Task;
use broker::store::Lease;
use bytes::Bytes;
use rollout::group::{GroupRun, RunSpec};
use tokio::time::Instant;

use super::programs::Asking;
use super::turn_times::TurnTimes;
use crate::coordinator::specs::Purpose;

/// A group that is being played. Only [`super::Play`] changes it.
pub struct Open {
    pub run: GroupRun,
    pub purpose: Purpose,
    pub task: Arc<Task>,
    pub task_id: String,
    pub order: u64,
    pub attempt: Attempt,
    /// None for evaluations.
    pub lease: Option<Lease>,
    /// The time at which something was last asked or answered.
    pub moved: Instant,
    pub times: TurnTimes,
    /// Commits of its turns under way. Their records belong to the group's outcome.
    pub committing: usize,
    pub closing: bool,
    /// The outcome that an owner before this one has written.
    pub decided: Option<Bytes>,
    /// The task as it was published.
    pub body: Bytes,
    /// The reason why the task goes to the dead letters, if it does.
    pub dead: Option<Failure>,
    /// Questions that programs and judges have now, given up with the group. Empty in synchronous
    /// runs, where waves wait for every answer.
    pub(super) asking: Vec<Asking>,
}

impl Open {
    /// A group of one attempt, with nothing asked yet. It trains under `lease`, or is played by an
    /// evaluation without one.
    #[must_use]
    pub fn new(run: GroupRun, purpose: Purpose, task: Arc<Task>, task_id: String, attempt: Attempt) -> Self {
        Self {
            run,
            purpose,
            task,
            task_id,
            order: 0,
            attempt,
            lease: None,
            moved: Instant::now(),
            times: TurnTimes::default(),
            committing: 0,
            closing: false,
            decided: None,
            body: Bytes::new(),
            dead: None,
            asking: Vec::new(),
        }
    }

    /// A group of an evaluation; `order` is its index there.
    #[must_use]
    pub fn of_evaluation(spec: RunSpec, purpose: Purpose, order: usize, attempt: Attempt) -> Self {
        let (task, task_id) = (spec.task.clone(), spec.task_id.clone());
        Self {
            order: order as u64,
            ..Self::new(GroupRun::new(spec), purpose, task, task_id, attempt)
        }
    }

    #[must_use]
    pub fn trains(&self) -> bool {
        self.purpose == Purpose::Train
    }

    /// Gives every conversation up: the task goes to the dead letters.
    pub(super) fn mark_dead(&mut self, failure: Failure) {
        let mut member = 0;
        while !self.run.is_done() {
            self.run.give_up(member, failure.clone());
            member += 1;
        }
        self.dead = Some(failure);
    }
}
