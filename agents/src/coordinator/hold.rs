//! What makes an evaluation of an asynchronous run one of a single version of each agent's weights: agents that train are asked to
//! hold, it begins when all of them do, and they are let go when it is over, or when `eval.hold_at_most` is.
//!
//! The hold is asked for in every heartbeat, and agents let go by themselves when it is not repeated (`agent/holds.rs`): a
//! coordinator that dies, stops or is cut off holds nobody for longer than a lease. Back-pressure is the gate's as always: agents
//! that hold fill up, and then have no room.
//!
//! Of several coordinators one asks at a time, and where two ask at once the lesser name goes on. If both begin nevertheless, since
//! neither heard the other, both see the same weights.

use std::collections::BTreeMap;

use broker::protocol::control::{CoordinatorBeat, RunPhase};
use configs::Mode;
use tokio::time::Instant;

use super::actor::Coordinator;

/// A hold that we ask for.
#[derive(Debug)]
pub(super) struct Hold {
    /// New for each, so that no heartbeat of before counts for it.
    name: String,
    pub(super) since: Instant,
    /// When agents are let go, whatever became of the evaluation.
    until: Instant,
}

impl Coordinator {
    /// Begins evaluations that are due, with the hold that they need; lets go of what is no longer needed.
    pub(super) fn advance_eval(&mut self) {
        if self.evals.running() {
            return self.let_go_in_time();
        }
        if !self.eval_is_due() {
            return self.release();
        }
        if !self.holds_evals() {
            return self.start_eval(BTreeMap::new());
        }
        if self.leaves_it_to_another() {
            return self.release();
        }
        let Some(hold) = &self.evals.hold else {
            return self.ask_hold();
        };
        if let Some(held) = self.gate.held(&hold.name) {
            self.start_eval(held);
        } else if Instant::now() >= hold.until {
            tracing::warn!(
                at_most = %self.env.config.eval.hold_at_most,
                "not every agent held its weights in time: the evaluation begins while they change; `dyad status` shows who is \
                 behind, see eval.hold_at_most"
            );
            self.release();
            self.start_eval(BTreeMap::new());
        }
    }

    /// The hold that agents are asked for now.
    pub(super) fn asked_hold(&self) -> Option<String> {
        let hold = self.evals.hold.as_ref();
        let open = self.run.phase != RunPhase::Closed;
        hold.filter(|_| open).map(|hold| hold.name.clone())
    }

    /// Agents may train again.
    pub(super) fn release(&mut self) {
        if self.evals.hold.take().is_some() {
            self.say_beat();
        }
    }

    /// Synchronous rounds do not begin while an evaluation runs: there is nothing to hold.
    fn holds_evals(&self) -> bool {
        self.env.config.run.mode == Mode::Async && self.env.config.eval.hold
    }

    fn ask_hold(&mut self) {
        let since = Instant::now();
        self.evals.holds += 1;
        self.evals.hold = Some(Hold {
            name: format!("{}/{}", self.env.incarnation, self.evals.holds),
            since,
            until: since + self.env.config.eval.hold_at_most.0,
        });
        self.say_beat();
    }

    /// An evaluation that takes too long holds up training no longer, and says in the end what it is of.
    fn let_go_in_time(&mut self) {
        let over = self
            .evals
            .hold
            .as_ref()
            .is_some_and(|hold| Instant::now() >= hold.until);
        if over {
            tracing::warn!(
                at_most = %self.env.config.eval.hold_at_most,
                "an evaluation is not over in time: agents train on meanwhile, see eval.hold_at_most"
            );
            self.release();
        }
    }

    fn leaves_it_to_another(&self) -> bool {
        let lease = self.env.config.run.lease.0;
        let asks = |beat: &CoordinatorBeat| beat.hold.is_some() && beat.phase != RunPhase::Closed;
        let alive = self.others.values().filter(|(_, heard)| heard.elapsed() < lease);
        let asking = alive
            .filter(|(beat, _)| asks(beat))
            .map(|(beat, _)| beat.incarnation.as_str());
        yields(&self.env.incarnation, self.evals.hold.is_some(), asking)
    }
}

/// Whether `ours` leaves the hold to one of those that ask for one. `asked`: so do we.
fn yields<'a>(ours: &str, asked: bool, mut asking: impl Iterator<Item = &'a str>) -> bool {
    asking.any(|other| !asked || other < ours)
}

#[cfg(test)]
#[path = "hold_tests.rs"]
mod tests;
