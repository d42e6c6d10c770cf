//! What makes an evaluation of an asynchronous run one of a single version of each agent's weights: agents that train are asked to
//! hold, it begins when all of them do, and they are let go when it is over, or when `eval.hold_at_most` is.
//!
//! The hold is asked for in every heartbeat, and agents let go by themselves when it is not repeated (`agent/holds.rs`): a
//! coordinator that dies, stops or is cut off holds nobody for longer than a lease. Back-pressure is the gate's as always: agents
//! that hold fill up, and then have no room.
//!
//! Of several coordinators one evaluates at a time, with a hold or without: whoever says that it does is left to it. Of two that ask at
//! once the lesser name goes on; of two that have begun before they heard each other the other one gives its evaluation up. Those that hear each other
//! do within a lease: what is played in that time is written down when it is over.

use std::collections::BTreeMap;
use std::time::Duration;

use broker::ids::GroupId;
use broker::protocol::control::{CoordinatorBeat, RunPhase};
use configs::Mode;
use tokio::time::Instant;

use crate::coordinator::actor::{Coordinator, Purpose};
use crate::coordinator::actor::phases::LISTEN;
use crate::agent::holds::lease;

/// A hold that we ask for.
#[derive(Debug)]
pub(in crate::coordinator) struct Hold {
    /// New for each, so that no heartbeat of before counts for it.
    name: String,
    pub(in crate::coordinator) since: Instant,
    /// When agents are let go, whatever became of the evaluation.
    until: Instant,
}

impl Coordinator {
    /// Begins evaluations that are due, with the hold that they need; lets go of what is no longer needed.
    pub(in crate::coordinator) fn advance_eval(&mut self) {
        if self.evals.running() {
            if self.leaves_it_to_another() {
                return self.give_eval_up();
            }
            return self.let_go_in_time();
        }
        if !self.eval_is_due() || self.may_still_hear_of_another() || self.leaves_it_to_another() {
            return self.release();
        }
        if !self.holds_evals() {
            return self.start_eval(BTreeMap::new());
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
    pub(in crate::coordinator) fn asked_hold(&self) -> Option<String> {
        let hold = self.evals.hold.as_ref();
        let open = self.run.phase != RunPhase::Closed;
        hold.filter(|_| open).map(|hold| hold.name.clone())
    }

    /// At which step the lead is to wait for an evaluation, unasked: so that none is late, however quick training is.
    pub(in crate::coordinator) fn evaluates_at(&self) -> Option<u64> {
        let trains = matches!(self.run.phase, RunPhase::Starting | RunPhase::Running);
        self.evals.next().filter(|_| trains && self.holds_evals())
    }

    /// Agents may train again.
    pub(in crate::coordinator) fn release(&mut self) {
        if let Some(hold) = self.evals.hold.take() {
            self.evals.held = Some(hold.since.elapsed());
            self.say_beat();
        }
    }

    /// How long agents were asked to hold for the evaluation under way: until now, or until they were let go before it was over.
    pub(in crate::coordinator) fn held_for(&self) -> Option<Duration> {
        let hold = self.evals.hold.as_ref();
        hold.map(|hold| hold.since.elapsed()).or(self.evals.held)
    }

    /// Synchronous rounds do not begin while an evaluation runs: there is nothing to hold.
    fn holds_evals(&self) -> bool {
        self.env.config.run.mode == Mode::Async && self.env.config.eval.hold
    }

    fn ask_hold(&mut self) {
        let since = Instant::now();
        self.evals.holds += 1;
        self.evals.held = None;
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

    /// Whether a coordinator that has just begun may not know yet of another that evaluates.
    fn may_still_hear_of_another(&self) -> bool {
        !self.env.alone && self.env.config.run.mode == Mode::Async && self.started.elapsed() < LISTEN
    }

    /// Whether a coordinator beside us is to evaluate, and we are not. A synchronous run has one coordinator.
    fn leaves_it_to_another(&self) -> bool {
        if self.env.config.run.mode == Mode::Sync {
            return false;
        }
        let lease = lease(self.env.config.run.lease.0);
        let alive = self.others.values().filter(|(_, heard)| heard.elapsed() < lease);
        let others = alive.filter_map(|(beat, _)| Some((beat.incarnation.as_str(), stage(beat)?)));
        let ours = match (self.evals.running(), &self.evals.hold) {
            (true, _) => Some(Turn::Plays),
            (false, Some(_)) => Some(Turn::Asks),
            (false, None) => None,
        };
        yields(&self.env.incarnation, ours, others)
    }

    /// Whether nobody can have begun the evaluation under way before hearing that we had.
    pub(in crate::coordinator) fn eval_is_ours(&self) -> bool {
        let config = &self.env.config.run;
        let heard = |begun: Instant| begun.elapsed() >= lease(config.lease.0);
        let current = self.evals.current.as_ref();
        self.env.alone || config.mode == Mode::Sync || current.is_some_and(|current| heard(current.begun))
    }

    /// Forgets what was played of the evaluation under way: it comes to no figures and no transcripts.
    fn give_eval_up(&mut self) {
        tracing::info!("another coordinator plays this evaluation too: it is left to that one");
        let given_up: Vec<GroupId> = self
            .open
            .iter()
            .filter(|(_, open)| open.purpose != Purpose::Train)
            .map(|(group, _)| *group)
            .collect();
        for group in given_up {
            self.open.remove(&group);
            self.dirty.remove(&group);
        }
        self.evals.current = None;
        self.release();
    }
}

/// How far a coordinator is with an evaluation; the later goes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Agents are asked to hold for it.
    Asks,
    Plays,
}

fn stage(beat: &CoordinatorBeat) -> Option<Turn> {
    let asks = || beat.hold.as_ref().map(|_| Turn::Asks);
    let plays = beat.evaluating.then_some(Turn::Plays);
    plays.or_else(asks).filter(|_| beat.phase != RunPhase::Closed)
}

/// Whether a coordinator of the name `ours`, which is at this stage or at none, leaves an evaluation to one of the others: to who is further,
/// and of those that are as far to the lesser name.
fn yields<'a>(ours: &str, at: Option<Turn>, mut others: impl Iterator<Item = (&'a str, Turn)>) -> bool {
    others.any(|(other, stage)| Some(stage) > at || (Some(stage) == at && other < ours))
}

#[cfg(test)]
mod tests;
