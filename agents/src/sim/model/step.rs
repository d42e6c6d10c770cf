//! What each step does, and what arrivals do at agents. The coordinator's part is in [`super::coordinator`].

use broker::protocol::reserve::ReserveVerdict;

use super::GroupModel;
use super::action::{Action, lease};
use super::play::Heard;
use super::state::{Commit, Message, Phase, State, TASK};
use crate::ledger::Staged;
use crate::ledger::tests::custody::{Part, RowModel};

impl GroupModel {
    pub(super) fn step(&self, state: &mut State, action: &Action) {
        match action {
            Action::Take(c) => self.take(state, *c),
            Action::Arrives(message) => {
                state.receive(message);
                self.arrives(state, message);
            }
            Action::Claims(c) => self.claim(state, *c),
            Action::Commits(c, n) => self.commit(state, *c, *n),
            Action::Beats(c) => self.beat(state, *c),
            Action::Decides(c) => self.decide(state, *c),
            Action::Sends(c) => self.send(state, *c),
            Action::Finishes(c) => self.finish(state, *c),
            Action::Voids(c) => self.void(state, *c),
            Action::Tells | Action::Overdue => {
                state.tells = false;
                // One that is told again before it is taken says nothing new.
                state.queue = state.queue.max(1);
            }
            Action::Wakes(c) => state.coordinators[*c].silent = false,
            Action::Fault(_) => {}
        }
    }

    fn arrives(&self, state: &mut State, message: &Message) {
        match *message {
            Message::Reserve { to, from } => {
                let verdict = state.agents[to].ledger.reserve(TASK, false);
                let granted = verdict == ReserveVerdict::Granted;
                state.send(Message::Answer {
                    to: from,
                    from: to,
                    granted,
                });
            }
            Message::Answer { to, from, granted } => self.answered(state, to.0, from, granted),
            Message::Request { reply, attempt, turn } => {
                let answer = Some(state.agents[usize::from(turn)].life);
                state.send(Message::Result {
                    to: reply,
                    attempt,
                    turn,
                    answer,
                });
            }
            Message::Result {
                to,
                attempt,
                turn,
                answer,
            } => {
                let Phase::Open(open) = &mut state.coordinators[to.0].phase else {
                    return;
                };
                if open.lease.attempt != attempt || self.play.view(&open.heard).wanted != Some(turn) {
                    return;
                }
                let lease = open.lease;
                match answer {
                    Some(answer) => state.coordinators[to.0].commits.push(Commit { lease, turn, answer }),
                    None => open.heard.push(Heard::Failed(turn)),
                }
                self.proceed(state, to.0);
            }
            Message::Part { to, part } => self.stage(state, to, part),
        }
    }

    /// `agent/inbox.rs`, `stage`.
    pub(super) fn stage(&self, state: &mut State, to: usize, part: Part) {
        let agent = &mut state.agents[to];
        if !self.rules.dedupe && agent.ledger.winner(TASK).is_some() {
            agent.ledger.rows.insert(TASK, RowModel::Reserved(Default::default()));
        }
        let here = match agent.ledger.rows.get(&TASK) {
            Some(RowModel::Reserved(parts)) => parts
                .iter()
                .filter(|(attempt, digest, _)| (*attempt, *digest) == (part.attempt, part.digest))
                .count(),
            _ => 0,
        };
        let parts = if self.rules.whole { part.parts } else { 1 };
        match agent.ledger.stage(TASK, Part { parts, ..part }) {
            Staged::Closed => {
                agent.closings += 1;
                if here + 1 < usize::from(part.parts) {
                    state.wrong = Some("a group closed before all parts of its bundle were there");
                }
            }
            Staged::NoRow => state.wrong = Some("a bundle came to an agent that has no row for it"),
            _ => {}
        }
    }

    /// Leaves out what makes no difference to anything that can still happen: parts that are dropped when they come, who is silent
    /// without a lease, and what was kept for promises that a store which has lost something does not make.
    pub(super) fn tidy(&self, state: &mut State) {
        if self.rules.dedupe && self.rules.whole {
            let agents = &state.agents;
            let counts = |to: usize, part: &Part| match agents[to].ledger.rows.get(&TASK) {
                Some(RowModel::Reserved(parts)) => !parts.contains(&(part.attempt, part.digest, part.part)),
                Some(RowModel::Closed(_)) => false,
                None => true,
            };
            state.messages.retain(|message, count| match message {
                Message::Part { to, part } => {
                    *count = 1;
                    counts(*to, part)
                }
                _ => true,
            });
        }
        for coordinator in &mut state.coordinators {
            coordinator.silent &= lease(&coordinator.phase).is_some();
        }
        state.tells &= state.is_reserved();
        if state.lost {
            state.newest = None;
            state.committed.clear();
        }
        if state.faults == 0 {
            state.past.clear();
        }
    }
}
