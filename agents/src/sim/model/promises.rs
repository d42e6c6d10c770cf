//! The promises that hold in every state, and the outcome of the group.

use bytes::Bytes;

use super::GroupModel;
use super::play::Received;
use super::state::{CoordinatorPhase, ModelState, TASK};
use crate::ledger::tests::custody::Part;
use broker::ids::Attempt;

impl GroupModel {
    pub(super) fn broken_promise(&self, state: &ModelState) -> Option<String> {
        let wrong = state.wrong.map(str::to_owned);
        wrong
            .or_else(|| self.closed_twice(state))
            .or_else(|| self.split(state))
            .or_else(|| self.unowned_task(state))
            .or_else(|| self.changed(state))
    }

    fn closed_twice(&self, state: &ModelState) -> Option<String> {
        let twice = state.agents.iter().position(|agent| agent.closings > 1)?;
        Some(format!("agent {twice} has closed the group twice"))
    }

    fn split(&self, state: &ModelState) -> Option<String> {
        let [a, b] = &state.agents;
        let (a, b) = (a.ledger.winner(TASK)?, b.ledger.winner(TASK)?);
        let same = a.attempt == b.attempt && self.play.is_one_outcome(a.digest, b.digest);
        (!same && !state.lost)
            .then(|| "the agents have closed the group differently, and the store has lost nothing".into())
    }

    fn unowned_task(&self, state: &ModelState) -> Option<String> {
        let held = state.coordinators.iter().any(|coordinator| coordinator.holds > 0);
        let stored = state.agents.iter().any(|agent| !agent.ledger.rows.is_empty());
        let found = state.queue > 0 || held || stored;
        (!found).then(|| "the task is in no queue and in no ledger".into())
    }

    /// A coordinator continues only from committed turns.
    fn changed(&self, state: &ModelState) -> Option<String> {
        if state.lost {
            return None;
        }
        let lookup = |open: &super::state::OpenGroup| {
            let received = |received: &Received| match received {
                Received::Turn(turn, answer) => state.committed.get(&(open.lease.attempt, *turn)) == Some(answer),
                Received::Failed(_) | Received::GivenUp(_) => true,
            };
            open.received.iter().all(received)
        };
        let differs = state.coordinators.iter().any(|coordinator| match &coordinator.phase {
            CoordinatorPhase::Open(open) | CoordinatorPhase::Closing { open, .. } => !lookup(open),
            _ => false,
        });
        differs.then(|| "a coordinator goes on from a turn that was committed otherwise".into())
    }

    /// The outcome of these turns; only called for a group that has ended.
    pub(super) fn outcome(&self, received: &[Received]) -> Bytes {
        let view = self.play.view(received);
        view.end.as_ref().map_or_else(Bytes::new, |end| end.outcome.clone())
    }

    /// The parts and their receivers, in order. The sender adds the attempt.
    pub(super) fn parts(&self, received: &[Received]) -> Vec<(usize, Part)> {
        let view = self.play.view(received);
        let bundles = view.end.iter().flat_map(|end| end.bundles.iter().enumerate());
        bundles
            .flat_map(|(to, (digest, samples))| {
                let parts = if *samples { self.size.parts } else { 1 };
                (0..parts).map(move |part| {
                    let part = Part {
                        attempt: Attempt([0; 16]),
                        digest: *digest,
                        part,
                        parts,
                        samples: *samples,
                    };
                    (to, part)
                })
            })
            .collect()
    }
}
