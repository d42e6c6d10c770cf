//! What must hold in every state, and what the group comes to.

use bytes::Bytes;

use super::GroupModel;
use super::play::Heard;
use super::state::{Phase, State, TASK};
use crate::ledger::tests::custody::Part;
use broker::ids::Attempt;

impl GroupModel {
    pub(super) fn broken_promise(&self, state: &State) -> Option<String> {
        let wrong = state.wrong.map(str::to_owned);
        wrong
            .or_else(|| self.closed_twice(state))
            .or_else(|| self.split(state))
            .or_else(|| self.nobodys(state))
            .or_else(|| self.changed(state))
    }

    fn closed_twice(&self, state: &State) -> Option<String> {
        let twice = state.agents.iter().position(|agent| agent.closings > 1)?;
        Some(format!("agent {twice} has closed the group twice"))
    }

    fn split(&self, state: &State) -> Option<String> {
        let [a, b] = &state.agents;
        let (a, b) = (a.ledger.winner(TASK)?, b.ledger.winner(TASK)?);
        let same = a.attempt == b.attempt && self.play.is_one_outcome(a.digest, b.digest);
        (!same && !state.lost)
            .then(|| "the agents have closed the group differently, and the store has lost nothing".into())
    }

    fn nobodys(&self, state: &State) -> Option<String> {
        let held = state.coordinators.iter().any(|coordinator| coordinator.holds > 0);
        let stored = state.agents.iter().any(|agent| !agent.ledger.rows.is_empty());
        let found = state.queue > 0 || held || stored;
        (!found).then(|| "the task is in no queue and in no ledger".into())
    }

    /// What a coordinator goes on from is what is committed.
    fn changed(&self, state: &State) -> Option<String> {
        if state.lost {
            return None;
        }
        let lookup = |open: &super::state::Open| {
            let heard = |heard: &Heard| match heard {
                Heard::Turn(turn, answer) => state.committed.get(&(open.lease.attempt, *turn)) == Some(answer),
                Heard::Failed(_) | Heard::GivenUp(_) => true,
            };
            open.heard.iter().all(heard)
        };
        let differs = state.coordinators.iter().any(|coordinator| match &coordinator.phase {
            Phase::Open(open) | Phase::Closing { open, .. } => !lookup(open),
            _ => false,
        });
        differs.then(|| "a coordinator goes on from a turn that was committed otherwise".into())
    }

    /// The outcome that these turns come to; only asked of a group that has ended.
    pub(super) fn outcome(&self, heard: &[Heard]) -> Bytes {
        let view = self.play.view(heard);
        view.end.as_ref().map_or_else(Bytes::new, |end| end.outcome.clone())
    }

    /// What is sent to whom, in its order. The attempt is the sender's to write.
    pub(super) fn parts(&self, heard: &[Heard]) -> Vec<(usize, Part)> {
        let view = self.play.view(heard);
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
